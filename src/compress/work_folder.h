// The folder in which a model is written until it is whole, and what is kept there to go on after a kill.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/model_files.h"

namespace quintet {

/// Asked now and then during long work; false: it stops.
using GoesOn = std::function<bool()>;

/// Of the work on a model, each with a state of its own: first, where formats are chosen, the choice (choice.json), which then
/// stays until the model is whole.
enum class WorkStage : uint8_t { choice, model };

/// "DST.partial", a folder of its own: the outputs under the names that they will have, state.json, and whatever else a
/// caller keeps there. One process at a time holds it. States change at once or not at all.
class WorkFolder {
 public:
  /// Whether a model can be made under this name, as far as can be told without touching anything: it is free, it and
  /// that of the folder fit, and they lie in a folder that can be written. bad_input otherwise.
  static Status check(const std::string& destination);
  /// Makes it, or takes up what a command of the same identity left (loaded() tells). `identity` is a JSON object of
  /// texts; one that differs from what is there is bad_input that names the first difference. `restart`: what is there is
  /// removed, but for what the stage before left. bad_input where `destination` exists, or the folder is none that this made;
  /// no_room where another process holds it.
  static Result<WorkFolder> open(const std::string& destination, const nlohmann::ordered_json& identity, bool restart,
                                 WorkStage stage = WorkStage::model);

  WorkFolder(WorkFolder&& other) noexcept;
  WorkFolder& operator=(WorkFolder&&) = delete;
  /// Removes everything, unless there was something to go on with, keep() was called, or finish().
  ~WorkFolder();

  const std::string& path() const { return partial_; }
  std::string file(std::string_view name) const;
  /// The state that was saved; null where there is none.
  const nlohmann::ordered_json& loaded() const;
  Status save(const nlohmann::ordered_json& state);
  /// From now on the folder stays when the object goes, so that the same command can go on with it.
  void keep() { keeps_ = true; }

  /// All that travels along beside the weights: the other files of a Hugging Face folder but those that tell how its
  /// weights were compressed, or a GGUF's metadata; and config.json, with `quantization_config` (JSON text) put into it.
  /// no_room where the disk has too little left for them; cancelled where `goes_on` says no.
  Status copy_companions(const ModelFiles& source, const std::string& quantization_config, const GoesOn& goes_on);
  /// Removes all but `weights` and what copy_companions() wrote, and gives the folder the destination's name.
  Status finish_folder(std::string_view weights);
  /// Gives a file of the folder the destination's name and removes the folder.
  Status finish_file(std::string_view name);

 private:
  struct State;
  WorkFolder(std::string destination, std::string partial);
  Status remove_all_but(const std::function<bool(const std::string& name)>& stays) const;

  std::string destination_, partial_;
  std::unique_ptr<State> state_;
  std::vector<std::string> companions_;  ///< names of what copy_companions() wrote
  int lock_ = -1;
  bool keeps_ = false;
  WorkStage stage_ = WorkStage::model;
};

}  // namespace quintet
