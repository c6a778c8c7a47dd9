// The quantization_config of the project's own folders: which format each compressed tensor has.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "quant/format.h"

namespace quintet {

/// A folder that `quintet quantize` wrote holds model.safetensors and a config.json with
///
///     "quantization_config": {"quant_method": "quintet", "version": 1, "method": "outlier ...",
///                             "formats": {"model.layers.0.mlp.down_proj.weight": "int4_g128", ...}}
///
/// A tensor named in `formats` lies in the file as U8 [rows, bytes of a row]: blocks of that format. Beside
/// it may lie its outliers, NAME.outlier_rows U32 [rows + 1], NAME.outlier_columns U16 and
/// NAME.outlier_values F16, and, where its format has them, the scales of its rows, NAME.row_scales F32 [rows]. All other tensors are dense. Where the source was a GGUF file, its metadata lies
/// in metadata.gguf, a GGUF file without tensors: names are GGUF's then, and config.json holds nothing else.
inline constexpr std::string_view kQuintetMethod = "quintet";
inline constexpr int64_t kQuintetVersion = 1;
inline constexpr std::string_view kQuintetMetadataName = "metadata.gguf";
inline constexpr std::string_view kOutlierRows = ".outlier_rows", kOutlierColumns = ".outlier_columns",
                                  kOutlierValues = ".outlier_values", kRowScales = ".row_scales";

using TensorFormats = std::map<std::string, WeightFormat, std::less<>>;

/// The formats of a config.json; nothing where its quantization_config is absent or of another method. `path`
/// names it in errors: an unknown format or version is bad_input.
Result<std::optional<TensorFormats>> read_quintet_config(const std::string& path, std::string_view config);

}  // namespace quintet
