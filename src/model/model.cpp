// Opens a model: configuration, text, weights.
#include "model/model.h"

#include <fmt/format.h>

#include "model/config_reader.h"
#include "model/loader.h"
#include "model/text_loader.h"

namespace quintet {

Result<std::unique_ptr<Model>> load_model(const std::string& path, Backend& backend,
                                          const LoadOptions& options) {
  TRY_ASSIGN(ModelFiles files, ModelFiles::open(path));
  if (files.tensors().empty())
    return bad_input(fmt::format(
        "{}: the file holds a vocabulary and no weights; it serves tokenize and template only", path));
  auto model = std::make_unique<Model>();
  model->path = path;
  model->file_bytes = files.file_bytes();
  TRY_ASSIGN(model->config, read_config(files, options.context));
  TRY(load_text_parts(files, options,
                      *model));  // before the weights: it is quick, and its errors are likelier

  const auto source = std::make_shared<WeightSource>(WeightSource{std::move(files), {}});
  TRY_ASSIGN(model->weights, load_weights(*source, model->config, backend, options));
  model->files = source;
  return model;
}

Result<std::unique_ptr<Model>> load_text(const std::string& path, const LoadOptions& options) {
  TRY_ASSIGN(const ModelFiles files, ModelFiles::open(path, {.weights = false}));
  auto model = std::make_unique<Model>();
  model->path = path;
  model->file_bytes = files.file_bytes();
  const bool has_network = files.gguf() ? !files.tensors().empty() : !files.texts().config.empty();
  if (has_network) {
    TRY_ASSIGN(model->config, read_config(files, options.context));
  }
  TRY(load_text_parts(files, options, *model));
  return model;
}

}  // namespace quintet
