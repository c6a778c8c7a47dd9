// Recognises model files that this program knows of but does not read, so that they are refused by name.
#include "io/foreign.h"

#include <algorithm>
#include <array>

#include "base/printable.h"
#include "io/json_walk.h"

namespace quintet {

namespace {

constexpr std::string_view kReadable =
    "a GGUF file or a Hugging Face folder of safetensors in F32, F16 or BF16";

std::string_view extension(std::string_view path) {
  const auto dot = path.rfind('.');
  const auto slash = path.rfind('/');
  return dot == std::string_view::npos || (slash != std::string_view::npos && dot < slash) ? ""
                                                                                           : path.substr(dot);
}

struct Extension {
  std::string_view suffix, kind;
};
constexpr std::array<Extension, 16> kExtensions = {{
    {".onnx", "an ONNX model"},
    {".pt", "a PyTorch pickle"},
    {".pth", "a PyTorch pickle"},
    {".ckpt", "a PyTorch pickle"},
    {".pkl", "a Python pickle"},
    {".h5", "a Keras HDF5 model"},
    {".keras", "a Keras model"},
    {".tflite", "a TensorFlow Lite model"},
    {".pb", "a TensorFlow graph"},
    {".msgpack", "a Flax model"},
    {".engine", "a TensorRT engine"},
    {".plan", "a TensorRT engine"},
    {".mlmodel", "a Core ML model"},
    {".mlpackage", "a Core ML model"},
    {".nemo", "a NeMo archive"},
    {".npz", "a NumPy archive"},
}};

struct Magic {
  std::string_view bytes, kind;
};
constexpr std::array<Magic, 9> kMagics = {{
    {"version https://git-lfs.github.com/spec/",
     "a Git LFS pointer instead of the file itself (fetch it with git lfs pull)"},
    {"<!DOCTYPE", "an HTML page instead of a model"},
    {"<html", "an HTML page instead of a model"},
    {"PK\x03\x04", "a zip archive (PyTorch pickles are such archives)"},
    {"\x80\x02", "a Python pickle"},
    {"\x80\x03", "a Python pickle"},
    {"\x80\x04", "a Python pickle"},
    {"\x89HDF\r\n", "a Keras HDF5 model"},
    {"\x93NUMPY", "a NumPy array"},
}};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

std::optional<std::string> foreign_file_kind(std::string_view path, std::span<const uint8_t> bytes) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()),
                              std::min<size_t>(bytes.size(), 64));
  for (const auto& magic : kMagics)
    if (head.starts_with(magic.bytes)) return std::string(magic.kind);
  if (head.size() >= 8 && head.substr(4, 4) == "TFL3") return "a TensorFlow Lite model";
  for (const auto& known : kExtensions)
    if (extension(path) == known.suffix) return std::string(known.kind);
  if (extension(path) == ".safetensors")
    return "one safetensors file (name the folder that holds it and its config.json)";
  return std::nullopt;
}

Status refuse_foreign_folder(const std::string& folder, const std::vector<std::string>& names) {
  const auto refuse = [&](std::string_view kind, std::string_view witness) {
    return bad_input(
        fmt::format("{}: found {} ({}), allowed is {}", folder, kind, printable(witness), kReadable));
  };
  for (const auto& name : names)
    if (extension(name) == ".safetensors") return {};
  for (const auto& name : names) {
    if (extension(name) == ".bin" && (contains(name, "pytorch_model") || contains(name, "adapter_model") ||
                                      contains(name, "consolidated")))
      return refuse("PyTorch pickles", name);
    for (const auto& known : kExtensions)
      if (extension(name) == known.suffix) return refuse(known.kind, name);
  }
  return {};
}

Status refuse_foreign_config(const std::string& path, std::string_view config) {
  std::string media;
  const auto visit = [&](const JsonEvent& event) -> Status {
    using Kind = JsonEvent::Kind;
    if (event.path.empty()) {
      if (event.kind == Kind::begin_object || event.kind == Kind::end_object) return {};
      return bad_input(fmt::format("{}: found {}, allowed is an object", path, json_kind_name(event.kind)));
    }
    const auto& key = event.path.front();
    if (event.path.size() == 1 && event.kind == Kind::begin_object &&
        (key == "vision_config" || key == "audio_config" || key == "vit_config" || key == "speech_config"))
      media = key;
    return {};
  };
  TRY(walk_json(config, path, 64, visit));
  if (!media.empty())
    return bad_input(
        fmt::format("{}: found {}: a model of images or sound, allowed is one of text alone", path, media));
  return {};
}

Status refuse_foreign_tensor(const std::string& path, std::string_view name) {
  static constexpr std::array<std::string_view, 9> kMedia = {
      "vision_tower", "vision_model",  "visual.",        "audio_tower",  "multi_modal_projector",
      "mm_projector", "image_newline", "speech_encoder", "vision_embed",
  };
  for (const auto part : kMedia)
    if (contains(name, part))
      return bad_input(fmt::format(
          "{}: tensor {}: found a part of an image or sound encoder, allowed is a model of text alone", path,
          printable(name)));
  return {};
}

Status refuse_foreign_gguf(const GgufFile& file) {
  TRY_ASSIGN(const auto type, file.get_string_or("general.type", "model"));
  TRY_ASSIGN(const auto architecture, file.get_string_or("general.architecture", ""));
  std::string_view kind;
  if (type == "mmproj" || architecture == "clip")
    kind = "an image or sound projector (mmproj)";
  else if (type == "adapter")
    kind = "an adapter (LoRA)";
  else if (type == "imatrix")
    kind = "an importance matrix";
  else if (architecture == "whisper" || architecture == "wavtokenizer-dec")
    kind = "a sound model";
  else if (architecture == "sd1" || architecture == "sdxl" || architecture == "sd3" || architecture == "flux")
    kind = "an image model";
  else if (architecture == "controlvector")
    kind = "a control vector";
  if (kind.empty()) return {};
  return bad_input(fmt::format("{}: found {}, allowed is a language model", file.path(), kind));
}

}  // namespace quintet
