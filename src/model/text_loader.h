// Everything of a model that is text: tokenizer, chat template, generation defaults, stop ids.
#pragma once

#include "base/result.h"
#include "io/model_files.h"
#include "model/model.h"

namespace quintet {

/// Fills the text parts of `model` from its files, or from where `options` says, and checks them against
/// model.config (where that has layers). What cannot be right is bad_input; what merely looks wrong is a
/// warning.
Status load_text_parts(const ModelFiles& files, const LoadOptions& options, Model& model);

/// The tokenizer as its file has it, checked by nobody yet: the model's own, or that of --tokenizer.
Result<TokenizerSpec> load_tokenizer_spec(const ModelFiles& files, const LoadOptions& options);

}  // namespace quintet
