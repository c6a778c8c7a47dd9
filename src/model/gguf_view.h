// A Hugging Face folder seen as a GGUF file: the same weights under that format's names, in its order of
// rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/model_files.h"
#include "model/gguf_export.h"

namespace quintet {

/// What becomes of the rows of one tensor.
struct GgufRows {
  int64_t pairs_of =
      0;  ///< rows of a head whose halves become pairs (q and k of Llama); 0: rows stay where they are
  bool plus_one = false;  ///< norms that store their weight less 1

  /// The row of the folder's tensor that becomes row `row`.
  int64_t source_row(int64_t row) const {
    if (pairs_of == 0) return row;
    const int64_t head = row / pairs_of, within = row % pairs_of;
    return head * pairs_of + within % 2 * (pairs_of / 2) + within / 2;
  }
};

/// Immutable once made; what files() hands out borrows from the folder and from this object (moves included).
class GgufView {
 public:
  /// Every tensor's name and shape is checked against config.json. bad_input, named, where GGUF has no word
  /// for something. `folder` must outlive the view.
  static Result<GgufView> make(const ModelFiles& folder);
  GgufView(GgufView&&) noexcept;
  ~GgufView();

  /// Vectors are F32; matrices have the format that they have in the folder, but F32 where rows of compressed
  /// ones are reordered. Rows are made when they are needed (HostWeight::maker).
  const ModelFiles& files() const { return *files_; }
  const GgufExport& exported() const { return *exported_; }
  /// Of the tensor files().tensors()[index] in the folder: its name, empty where it is made from the
  /// configuration; its format; and the row that a row comes from.
  const std::string& source_name(size_t index) const { return sources_[index].name; }
  WeightFormat source_format(size_t index) const { return sources_[index].format; }
  int64_t source_row(size_t index, int64_t row) const { return sources_[index].rows.source_row(row); }

  /// A message of someone who sees files() alone, with the folder's name (and row, where it is another one) behind each name
  /// of a tensor: "tensor blk.0.attn_q.weight (in the folder model.layers.0.self_attn.q_proj.weight, row 1): row 2: ...".
  std::string with_source_names(std::string_view message) const;

 private:
  class Maker;
  struct Source {
    std::string name;
    WeightFormat format = WeightFormat::f32;
    GgufRows rows;
  };
  GgufView() = default;

  std::unique_ptr<GgufExport> exported_;
  std::vector<std::unique_ptr<std::string>> names_;
  std::vector<std::unique_ptr<Maker>> makers_;
  std::vector<Source> sources_;
  std::unique_ptr<ModelFiles> files_;
};

}  // namespace quintet
