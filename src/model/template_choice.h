// Which of a model's chat templates is used.
#pragma once

#include <string>

#include "base/result.h"
#include "io/model_files.h"

namespace quintet {

/// The source of the model's chat template, empty where it has none. GGUF: tokenizer.chat_template, else the
/// first of its named variants. Folder: chat_template.jinja, else tokenizer_config.json's chat_template, a
/// string or a list of named ones ("default", else the first).
Result<std::string> choose_chat_template(const ModelFiles& files);

}  // namespace quintet
