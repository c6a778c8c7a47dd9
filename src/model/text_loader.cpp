// Tokenizer, chat template, generation defaults and stop ids, cross-checked with the network.
#include "model/text_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "model/json_fields.h"
#include "model/template_choice.h"
#include "model/tokenizer_gguf.h"

namespace quintet {
namespace {

constexpr uint64_t kMaxTemplateBytes = uint64_t{4} << 20;

/// A special token of tokenizer_config.json: "text", or {"content": "text"}.
Result<std::string> special_text(const JsonFields& fields, std::string_view key) {
  const nlohmann::json* value = fields.find(key);
  if (!value) return std::string();
  if (value->is_string()) return value->get<std::string>();
  if (!value->is_object()) return fields.wrong(key, "a string or an object with content");
  return JsonFields(*value, fields.origin(), fields.name(key) + ".").text_or("content", "");
}

std::optional<TokenId> find_token(const TokenizerSpec& spec, const std::string& text) {
  if (text.empty()) return std::nullopt;
  for (const AddedToken& token : spec.added)
    if (token.text == text) return token.id;
  const auto it = std::find(spec.tokens.begin(), spec.tokens.end(), text);
  if (it == spec.tokens.end()) return std::nullopt;
  return static_cast<TokenId>(it - spec.tokens.begin());
}

/// What tokenizer.json leaves to tokenizer_config.json: which tokens begin and end a text, and whether they
/// are added.
Status apply_tokenizer_config(const ModelFiles& files, TokenizerSpec& spec) {
  if (files.texts().tokenizer_config.empty()) return {};
  const std::string origin = files.path() + "/tokenizer_config.json";
  TRY_ASSIGN(const nlohmann::json parsed, parse_json_object(files.texts().tokenizer_config, origin));
  const JsonFields fields(parsed, origin);
  const auto apply = [&](std::string_view key, std::optional<TokenId>& id) -> Status {
    TRY_ASSIGN(const std::string text, special_text(fields, key));
    if (text.empty()) return {};
    const std::optional<TokenId> found = find_token(spec, text);
    if (!found) return fields.wrong(key, "a token of the vocabulary");
    id = found;
    return {};
  };
  TRY(apply("bos_token", spec.bos));
  TRY(apply("eos_token", spec.eos));
  TRY(apply("pad_token", spec.pad));
  TRY(apply("unk_token", spec.unk));
  TRY_ASSIGN(const bool add_bos, fields.flag_or("add_bos_token", spec.add_bos));
  TRY_ASSIGN(const bool add_eos, fields.flag_or("add_eos_token", spec.add_eos));
  spec.add_bos = add_bos && spec.bos;
  spec.add_eos = add_eos && spec.eos;
  return {};
}

Result<TokenizerSpec> read_spec(const ModelFiles& files) {
  if (files.gguf()) return tokenizer_spec_from_gguf(*files.gguf());
  if (files.texts().tokenizer.empty()) {
    return bad_input(fmt::format(
        "{}: no tokenizer.json; put one there, or give one with --tokenizer where the verb has it (a GGUF file, a tokenizer.json, or a folder)",
        files.path()));
  }
  TRY_ASSIGN(TokenizerSpec spec, parse_tokenizer_json(files.texts().tokenizer, files.path()));
  TRY(apply_tokenizer_config(files, spec));
  return spec;
}

Result<std::unique_ptr<Tokenizer>> read_tokenizer(const ModelFiles& files) {
  TRY_ASSIGN(TokenizerSpec spec, read_spec(files));
  return make_tokenizer(std::move(spec));
}

/// One id or a list of ids.
Result<std::vector<TokenId>> token_ids(const JsonFields& fields, std::string_view key) {
  const nlohmann::json* value = fields.find(key);
  std::vector<TokenId> ids;
  if (!value) return ids;
  const auto take = [&](const nlohmann::json& element) {
    if (!element.is_number_integer() || element < 0 || element > INT32_MAX) return false;
    ids.push_back(element.get<TokenId>());
    return true;
  };
  const bool is_good = value->is_array() ? std::all_of(value->begin(), value->end(), take) : take(*value);
  if (!is_good) return fields.wrong(key, "a token id or a list of them");
  return ids;
}

void add_stop_ids(const std::vector<TokenId>& ids, Model& model) {
  for (TokenId id : ids) {
    if (id < 0 || (model.config.layers > 0 && id >= model.config.vocabulary)) {
      LOG_WARN("{}: stop token {} lies outside the vocabulary of {} and is ignored", model.path, id,
               model.config.vocabulary);
    } else if (std::find(model.stop_ids.begin(), model.stop_ids.end(), id) == model.stop_ids.end()) {
      model.stop_ids.push_back(id);
    }
  }
}

/// A default that sampling could not use is refused here rather than in every request.
template <class T>
Status check_default(const std::string& origin, std::string_view key, std::optional<T> value, double min,
                     double max) {
  if (!value || (*value >= min && *value <= max)) return {};
  return bad_input(fmt::format("{}: {} is {}; allowed is {} to {}", origin, key, *value, min, max));
}

Status check_defaults(const std::string& origin, const GenerationDefaults& defaults) {
  TRY(check_default(origin, "temperature", defaults.temperature, 0, 100));
  TRY(check_default(origin, "top_p", defaults.top_p, 0, 1));
  TRY(check_default(origin, "min_p", defaults.min_p, 0, 1));
  TRY(check_default(origin, "the repetition penalty", defaults.repeat_penalty, 1e-3, 100));
  return check_default(origin, "top_k", defaults.top_k, 0, INT32_MAX);
}

Result<std::optional<float>> optional_number(const JsonFields& fields, std::string_view key) {
  TRY_ASSIGN(const std::optional<double> value, fields.number(key));
  return value ? std::optional(static_cast<float>(*value)) : std::nullopt;
}

/// The ids in config.json against the tokenizer's: another tokenizer than the network was trained with shows
/// here.
void check_special_id(const JsonFields& fields, std::string_view key, const std::vector<TokenId>& ids,
                      std::optional<TokenId> tokenizer_id) {
  if (ids.empty() || !tokenizer_id || std::find(ids.begin(), ids.end(), *tokenizer_id) != ids.end()) return;
  LOG_WARN("{}: {} is {}, but the tokenizer's is {}", fields.origin(), key, ids[0], *tokenizer_id);
}

Status read_folder_defaults(const ModelFiles& files, const Tokenizer& tokenizer, Model& model) {
  if (!files.texts().config.empty()) {
    const std::string origin = files.path() + "/config.json";
    TRY_ASSIGN(const nlohmann::json parsed, parse_json_object(files.texts().config, origin));
    const JsonFields fields(parsed, origin);
    TRY_ASSIGN(const std::vector<TokenId> bos, token_ids(fields, "bos_token_id"));
    TRY_ASSIGN(const std::vector<TokenId> eos, token_ids(fields, "eos_token_id"));
    check_special_id(fields, "bos_token_id", bos, tokenizer.spec().bos);
    check_special_id(fields, "eos_token_id", eos, tokenizer.spec().eos);
    add_stop_ids(eos, model);
  }
  if (files.texts().generation_config.empty()) return {};
  const std::string origin = files.path() + "/generation_config.json";
  TRY_ASSIGN(const nlohmann::json parsed, parse_json_object(files.texts().generation_config, origin));
  const JsonFields fields(parsed, origin);
  TRY_ASSIGN(const std::vector<TokenId> ids, token_ids(fields, "eos_token_id"));
  add_stop_ids(ids, model);
  TRY_ASSIGN(const bool is_sampled, fields.flag_or("do_sample", false));
  if (!is_sampled) return {};  // the other values are without effect there
  GenerationDefaults& defaults = model.defaults;
  TRY_ASSIGN(defaults.temperature, optional_number(fields, "temperature"));
  TRY_ASSIGN(defaults.top_p, optional_number(fields, "top_p"));
  TRY_ASSIGN(defaults.min_p, optional_number(fields, "min_p"));
  TRY_ASSIGN(defaults.repeat_penalty, optional_number(fields, "repetition_penalty"));
  if (fields.has("top_k")) {
    TRY_ASSIGN(defaults.top_k, fields.count("top_k"));
  }
  return check_defaults(origin, defaults);
}

Status read_gguf_defaults(const GgufFile& file, Model& model) {
  const auto number = [&](std::string_view key, std::optional<float>& value) -> Status {
    if (!file.has(key)) return {};
    TRY_ASSIGN(value, file.get_f32(key));
    return {};
  };
  GenerationDefaults& defaults = model.defaults;
  TRY(number("general.sampling.temp", defaults.temperature));
  TRY(number("general.sampling.top_p", defaults.top_p));
  TRY(number("general.sampling.min_p", defaults.min_p));
  TRY(number("general.sampling.penalty_repeat", defaults.repeat_penalty));
  if (file.has("general.sampling.top_k")) {
    TRY_ASSIGN(const int64_t top_k, file.get_i64("general.sampling.top_k"));
    defaults.top_k = static_cast<int32_t>(std::clamp<int64_t>(top_k, 0, INT32_MAX));
  }
  return check_defaults(file.path(), defaults);
}

/// Tokenizer against network: ids beyond the embedding could never be looked up.
Status check_vocabulary(const Tokenizer& tokenizer, const std::string& origin, const Model& model) {
  if (model.config.layers == 0 || tokenizer.vocabulary() <= model.config.vocabulary) return {};
  return bad_input(fmt::format("{}: the tokenizer has {} tokens; the model {} has embeddings for {}", origin,
                               tokenizer.vocabulary(), model.path, model.config.vocabulary));
}

/// A tokenizer from elsewhere against the model's own.
void compare_tokenizers(const Tokenizer& used, const Tokenizer& own, const std::string& origin,
                        const Model& model) {
  if (used.vocabulary() != own.vocabulary())
    LOG_WARN("{}: {} tokens, but the model's own tokenizer has {}", origin, used.vocabulary(),
             own.vocabulary());
  const auto compare = [&](std::string_view name, std::optional<TokenId> a, std::optional<TokenId> b) {
    if (a && b && *a != *b)
      LOG_WARN("{}: {} is {} ('{}'), but {} in the model {}", origin, name, *a, used.token_text(*a), *b,
               model.path);
  };
  compare("BOS", used.spec().bos, own.spec().bos);
  compare("EOS", used.spec().eos, own.spec().eos);
}

/// Tokens like <|im_start|> that a template writes must exist, or the model sees them letter by letter.
void check_template_tokens(const Tokenizer& tokenizer, const Model& model) {
  const std::string& source = model.chat_template_source;
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  for (size_t begin = source.find("<|"); begin != std::string::npos; begin = source.find("<|", begin + 2)) {
    // Letter by letter to the end of the name: looking for "|>" could cross the whole template for every
    // "<|".
    const size_t end = std::min(source.find_first_not_of(kLetters, begin + 2), source.size());
    if (end == begin + 2 || source.compare(end, 2, "|>") != 0) continue;
    const std::string_view token = std::string_view(source).substr(begin, end + 2 - begin);
    if (!tokenizer.find(token)) {
      LOG_WARN("{}: the chat template writes {}, which is no token of the vocabulary", model.path, token);
      return;
    }
  }
}

Status load_template(const ModelFiles& files, const ModelFiles* elsewhere, const LoadOptions& options,
                     Model& model) {
  if (!options.chat_template_path.empty()) {
    TRY_ASSIGN(model.chat_template_source, read_text_file(options.chat_template_path, kMaxTemplateBytes));
    model.chat_template_origin = options.chat_template_path;
    Result<ChatTemplate> parsed = ChatTemplate::parse(model.chat_template_source);
    if (!parsed) return bad_input(fmt::format("{}: {}", options.chat_template_path, parsed.error().message));
    model.chat_template = std::make_shared<const ChatTemplate>(std::move(parsed).value());
    return {};
  }
  TRY_ASSIGN(model.chat_template_source, choose_chat_template(files));
  model.chat_template_origin = files.path();
  if (elsewhere) {
    TRY_ASSIGN(std::string other, choose_chat_template(*elsewhere));
    if (model.chat_template_source.empty()) {
      model.chat_template_source = std::move(other);
      model.chat_template_origin = elsewhere->path();
    } else if (!other.empty() && other != model.chat_template_source) {
      LOG_WARN("{}: its chat template differs from that of the model, which is used", elsewhere->path());
    }
  }
  if (model.chat_template_source.empty()) return {};
  Result<ChatTemplate> parsed = ChatTemplate::parse(model.chat_template_source);
  if (parsed) {
    model.chat_template = std::make_shared<const ChatTemplate>(std::move(parsed).value());
  } else {  // the model can still continue raw text
    model.chat_template_error =
        fmt::format("{}: its chat template: {}", files.path(), parsed.error().message);
  }
  return {};
}

}  // namespace

Result<TokenizerSpec> load_tokenizer_spec(const ModelFiles& files, const LoadOptions& options) {
  if (options.tokenizer_path.empty()) return read_spec(files);
  TRY_ASSIGN(const ModelFiles elsewhere, ModelFiles::open(options.tokenizer_path, {.weights = false}));
  return read_spec(elsewhere);
}

Status load_text_parts(const ModelFiles& files, const LoadOptions& options, Model& model) {
  std::optional<ModelFiles> elsewhere;
  if (!options.tokenizer_path.empty()) {
    TRY_ASSIGN(elsewhere, ModelFiles::open(options.tokenizer_path, {.weights = false}));
  }
  const ModelFiles& source = elsewhere ? *elsewhere : files;
  TRY_ASSIGN(std::unique_ptr<Tokenizer> tokenizer, read_tokenizer(source));
  TRY(check_vocabulary(*tokenizer, source.path(), model));
  if (elsewhere &&
      (files.gguf() ? files.gguf()->has("tokenizer.ggml.tokens") : !files.texts().tokenizer.empty())) {
    const Result<std::unique_ptr<Tokenizer>> own = read_tokenizer(files);
    if (own) compare_tokenizers(*tokenizer, **own, source.path(), model);
  }

  add_stop_ids(tokenizer->end_tokens(), model);
  if (files.gguf()) {
    TRY(read_gguf_defaults(*files.gguf(), model));
  } else {
    TRY(read_folder_defaults(files, *tokenizer, model));
  }
  TRY(load_template(files, elsewhere ? &*elsewhere : nullptr, options, model));
  check_template_tokens(*tokenizer, model);
  model.tokenizer = std::move(tokenizer);
  return {};
}

}  // namespace quintet
