// Recognises model files that this program knows of but does not read, so that they are refused by name.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/gguf.h"

namespace quintet {

/// What a single file that is no GGUF seems to be: "an ONNX model", "a PyTorch pickle", ...; nothing where
/// unknown.
std::optional<std::string> foreign_file_kind(std::string_view path, std::span<const uint8_t> bytes);

/// An error where a folder of these file names holds weights of another kind and none that this program
/// reads.
Status refuse_foreign_folder(const std::string& folder, const std::vector<std::string>& names);

/// An error where a config.json describes inputs (images, sound) that are not read. Also one where it is no JSON
/// object.
Status refuse_foreign_config(const std::string& path, std::string_view config);

/// An error where a tensor's name belongs to an image, video or audio encoder.
Status refuse_foreign_tensor(const std::string& path, std::string_view name);

/// An error where a GGUF file holds no language model: an image projector, an adapter, an importance matrix.
Status refuse_foreign_gguf(const GgufFile& file);

}  // namespace quintet
