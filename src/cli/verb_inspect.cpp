// `quintet inspect`: what a model file is and what it needs, without loading its weights.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "base/printable.h"
#include "base/units.h"
#include "cli/flags.h"
#include "cli/quant_scheme.h"
#include "cli/terminal.h"
#include "compress/gguf_mix.h"
#include "compress/tensor_plan.h"
#include "io/model_files.h"
#include "model/config_reader.h"
#include "model/synthetic.h"
#include "model/text_loader.h"
#include "model/weight_map.h"
#include "plan/compressed_size.h"
#include "plan/memory_plan.h"
#include "server/prompt.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

constexpr int32_t kBlock_tokens = 16;
constexpr int32_t kUsualContext_tokens = 4096;

/// Names a template by the marks that it writes around a turn.
std::string_view template_family(std::string_view source) {
  struct Family {
    std::string_view mark, name;
  };
  static constexpr std::array kFamilies = {
      Family{"<|im_sep|>", "phi-4"},
      Family{"<|im_start|>", "chatml"},
      Family{"<|start_header_id|>", "llama-3"},
      Family{"<start_of_turn>", "gemma"},
      Family{"<｜User｜>", "deepseek"},
      Family{"<|assistant|>", "phi-3"},
      Family{"[INST]", "llama-2 or mistral"},
  };
  for (const auto& family : kFamilies)
    if (source.find(family.mark) != std::string_view::npos) return family.name;
  return "other";
}

std::string_view kind_name(TokenizerSpec::Kind kind) {
  switch (kind) {
    case TokenizerSpec::Kind::byte_bpe: return "byte-level BPE";
    case TokenizerSpec::Kind::sentencepiece_bpe: return "SentencePiece BPE";
    case TokenizerSpec::Kind::unigram: return "unigram";
  }
  return "?";
}

class InspectVerb : public Verb {
 public:
  std::string_view examples() const override {
    return "  quintet inspect model.gguf\n"
           "  quintet inspect Qwen2.5-7B-Instruct/ --json\n"
           "  quintet inspect model-00001-of-00003.gguf --tensors\n"
           "  quintet inspect Qwen2.5-7B-Instruct/ --as int4_g128 --outliers 0.1\n"
           "  quintet inspect --shape llama3-70b --as int4_g128 --outliers 0.1 --tables int8_g128\n";
  }

  void declare(FlagSet& flags) override {
    flags.optional_model(model_path_);
    flags.text("--shape", shape_, "SHAPE", "Instead of MODEL: the network of llama3-8b, llama3-70b or qwen2-72b");
    as_flag_ = flags.text("--as", as_, "FORMAT", "Say what the weights would take in this format");
    flags.number("--outliers", {outliers_, 0, 10}, "With --as: percent of them kept apart in FP16").needs(as_flag_);
    flags.text("--tables", tables_format_, "FORMAT", "With --as: format of embedding and head (default: the same)").needs(as_flag_);
    flags.toggle("--json", json_, "Print one JSON object");
    flags.toggle("--tensors", tensors_, "List every tensor: name, format, shape, bytes");
    text_.declare(flags);
  }

  VerbOutcome run(const CommonOptions& common) override {
    if (model_path_.empty() == shape_.empty())
      return bad_input(model_path_.empty() ? std::string("MODEL is required (or --shape)")
                                           : fmt::format("found both MODEL ({}) and --shape {}, allowed is one of them", model_path_, shape_));
    if (!shape_.empty()) return describe_shape();
    TRY_ASSIGN(const ModelFiles files, ModelFiles::open(model_path_));
    TRY_ASSIGN(const Model model, read_model(files));
    TRY_ASSIGN(const auto backend, make_backend(common.backend));
    TRY_ASSIGN(const Json report, describe(files, model, *backend));
    Output output;
    // Names in a model file may be any bytes.
    return output.print(json_ ? report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"
                              : table(report));
  }

 private:
  /// All but the weights. A model may lack a tokenizer here (its weights alone were downloaded); a wrong one
  /// is an error.
  Result<Model> read_model(const ModelFiles& files) const {
    Model model;
    model.path = model_path_;
    if (!files.tensors().empty()) {
      TRY_ASSIGN(model.config, read_config(files, 0));
      ModelWeights weights;  // that none is missing
      if (const Architecture* architecture = find_architecture(model.config.architecture))
        TRY(plan_weights(files, *architecture, model.config, weights));
    }
    const bool has_tokenizer =
        files.gguf() ? files.gguf()->has("tokenizer.ggml.model") : !files.texts().tokenizer.empty();
    if (has_tokenizer || !text_.tokenizer.empty()) TRY(load_text_parts(files, text_.load_options(), model));
    return model;
  }

  Result<Json> describe(const ModelFiles& files, const Model& model, const Backend& backend) const {
    const ModelConfig& config = model.config;
    const auto shares = format_shares(files.tensors());
    uint64_t parameters = 0, weight_bytes = 0;
    Json formats = Json::array();
    for (const auto& share : shares) {
      parameters += share.parameters;
      weight_bytes += share.bytes;
      formats.push_back({{"format", format_label(share.format)},
                         {"tensors", share.tensors},
                         {"parameters", share.parameters},
                         {"bytes", share.bytes}});
    }
    Json report = {
        {"path", model_path_},
        {"container", files.compressed()                       ? "quintet"
                      : files.kind() == ModelFiles::Kind::gguf ? "gguf"
                                                               : "huggingface"},
        {"files", std::max<size_t>(files.weight_paths().size(), 1)},
        {"file_bytes", files.file_bytes()},
        {"architecture", config.architecture},
        {"name", config.name},
        {"parameters", parameters},
        {"weight_bytes", weight_bytes},
        {"bits_per_weight",
         parameters ? 8.0 * static_cast<double>(weight_bytes) / static_cast<double>(parameters) : 0.0},
        {"scheme", quant_scheme(files.tensors())},
        {"formats", std::move(formats)}};
    if (config.layers > 0) {
      report["context"] = config.context;
      report["network"] = describe_network(config);
    }
    report["tokenizer"] = Json();
    if (model.tokenizer) {
      TRY_ASSIGN(const TokenizerSpec spec, load_tokenizer_spec(files, text_.load_options()));
      report["tokenizer"] = describe_tokenizer(*model.tokenizer, spec);
    }
    report["chat_template"] = describe_template(model);
    if (config.layers > 0) {
      TRY_ASSIGN(report["memory"], describe_memory(config, backend, weight_bytes));
    }
    if (as_flag_.given()) {
      if (config.layers == 0) return bad_input(fmt::format("--as: {} is a vocabulary without weights, allowed is a model", model_path_));
      TRY_ASSIGN(report["as"], describe_size(config));
    }
    if (tensors_) report["tensors"] = list_tensors(files);
    return report;
  }

  VerbOutcome describe_shape() const {
    TRY_ASSIGN(const ModelConfig config, synthetic_config(shape_, 0));
    Json report = {{"shape", shape_}, {"network", describe_network(config)}};
    if (as_flag_.given()) {
      TRY_ASSIGN(report["as"], describe_size(config));
    }
    Output output;
    if (json_) return output.print(report.dump(2) + "\n");
    return output.print(fmt::format("{:<14}{}\n", "network", network_text(report["network"])) +
                        (as_flag_.given() ? size_text(report["as"]) : ""));
  }

  /// A format, or a mix of GGUF that is no format's name.
  struct NamedFormat {
    std::string name;
    WeightFormat format = WeightFormat::f16;
    const GgufMix* mix = nullptr;
  };
  static Result<NamedFormat> read_format(std::string_view flag, const std::string& text) {
    NamedFormat named{.name = text};
    for (char& c : named.name) c = c == '-' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    if (const auto format = format_from_name(named.name)) return named.format = *format, named;
    if ((named.mix = find_gguf_mix(named.name))) return named;
    std::string names;
    for (const FormatInfo& info : format_table()) names += fmt::format("{}{}", names.empty() ? "" : ", ", info.name);
    return bad_input(fmt::format("{}: found {}, allowed are {}, and the mixes {}", flag, printable(text), names, gguf_mix_names()));
  }

  /// What `quantize` makes of rows that are not whole blocks of the wanted format; nothing where the tensor stays as it is.
  static std::optional<WeightFormat> fallback_of(WeightFormat wanted, int64_t k) {
    if (const auto integers = integer_format(wanted)) {
      const auto fitting = fit_group(*integers, k);
      return fitting ? weight_format_of(*fitting) : std::nullopt;
    }
    constexpr int64_t kSuperblock = 256;  // of k-quants
    const int64_t block = format_info(wanted).block_weights;
    if (block == kSuperblock) return format_of_blocks(wanted, k);
    return k % block == 0 ? std::optional(wanted) : std::nullopt;
  }

  /// What the weights would take.
  Result<Json> describe_size(const ModelConfig& config) const {
    TRY_ASSIGN(const NamedFormat linear, read_format("--as", as_));
    TRY_ASSIGN(const NamedFormat tables, read_format("--tables", tables_format_.empty() ? as_ : tables_format_));
    std::set<std::string> notes;
    const CompressedSize size = compressed_size(
        {.config = config, .outliers = outliers_ / 100, .format_of = [&](const SizedMatrix& matrix) {
           const NamedFormat& named = matrix.layer < 0 ? tables : linear;
           const WeightFormat wanted =
               named.mix ? format_in_mix(*named.mix, matrix.name, matrix.layer, config.layers, config.tied_embeddings) : named.format;
           const auto made = fallback_of(wanted, matrix.k);
           if (made != wanted)
             notes.insert(fmt::format("rows of {} do not fit {}: {}", matrix.k, format_info(wanted).name,
                                      made ? format_info(*made).name : "they stay as they are (counted as f16)"));
           return made.value_or(WeightFormat::f16);
         }});
    return Json{{"format", linear.name},
                {"tables", tables.name},
                {"outliers_percent", outliers_},
                {"linear_weights", size.linear_weights},
                {"linear_bytes", size.linear_bytes},
                {"outlier_bytes", size.outlier_bytes},
                {"table_weights", size.table_weights},
                {"table_bytes", size.table_bytes},
                {"vector_bytes", size.vector_bytes},
                {"bytes", size.bytes()},
                {"notes", notes}};
  }

  static std::string size_text(const Json& size) {
    const auto gigabytes = [&](const char* key) { return static_cast<double>(size[key].get<uint64_t>()) * 1e-9; };
    std::string notes;
    for (const Json& note : size["notes"]) notes += fmt::format("{:<14}{}\n", "", note.get<std::string>());
    return fmt::format("{:<14}{:.2f} GB: linear layers in {} {:.2f}, {:g} % outliers {:.2f}, embedding and head in {} {:.2f}, norms {:.3f}\n",
                       "compressed", gigabytes("bytes"), size["format"].get<std::string>(), gigabytes("linear_bytes"),
                       size["outliers_percent"].get<double>(), gigabytes("outlier_bytes"), size["tables"].get<std::string>(),
                       gigabytes("table_bytes"), gigabytes("vector_bytes")) +
           notes;
  }

  static std::string network_text(const Json& net) {
    const auto number = [&](const char* key) { return net[key].get<uint64_t>(); };
    return fmt::format("{} layers, hidden {}, FFN {}, {} query and {} KV heads of {}{}", number("layers"), number("hidden"),
                       number("ffn"), number("heads"), number("kv_heads"), number("head_dim"),
                       net["sliding_window"].is_null() ? "" : fmt::format(", sliding window {}", number("sliding_window")));
  }

  static Json describe_network(const ModelConfig& config) {
    const auto windowed = std::find_if(config.layer.begin(), config.layer.end(),
                                       [](const auto& layer) { return layer.sliding_window > 0; });
    Json network = {{"layers", config.layers},
                    {"hidden", config.hidden},
                    {"ffn", config.ffn},
                    {"heads", config.heads},
                    {"kv_heads", config.kv_heads},
                    {"head_dim", config.head_dim},
                    {"vocabulary", config.vocabulary},
                    {"tied_embeddings", config.tied_embeddings}};
    network["sliding_window"] = windowed == config.layer.end() ? Json() : Json(windowed->sliding_window);
    return network;
  }

  /// `spec`: as the file has it; a tokenizer that was made has turned some of it into tables.
  static Json describe_tokenizer(const Tokenizer& tokenizer, const TokenizerSpec& spec) {
    const auto token = [&](const std::optional<TokenId>& id) {
      return id ? Json{{"id", *id}, {"text", std::string(tokenizer.token_text(*id))}} : Json();
    };
    return {{"kind", kind_name(spec.kind)},
            {"pre_tokenizer", spec.pre_tokenizer.empty() ? Json() : Json(spec.pre_tokenizer)},
            {"vocabulary", tokenizer.vocabulary()},
            {"merges", spec.merges.empty() ? Json() : Json(spec.merges.size())},
            {"bos", token(tokenizer.spec().bos)},
            {"eos", token(tokenizer.spec().eos)},
            {"adds_bos", tokenizer.spec().add_bos},
            {"end_tokens", tokenizer.end_tokens()}};
  }

  static Json describe_template(const Model& model) {
    const std::string& source = model.chat_template_source;
    if (source.empty()) return Json();
    return {{"usable", model.chat_template != nullptr},
            {"error", model.chat_template_error},
            {"family", template_family(source)},
            {"bytes", source.size()},
            {"tools", model.chat_template && takes_tools(*model.chat_template)}};
  }

  static Result<Json> describe_memory(const ModelConfig& config, const Backend& backend,
                                      uint64_t weight_bytes) {
    const BackendInfo info = backend.info();
    const PageClass page = backend.page_class(config.layers, config.kv_heads, config.head_dim, kBlock_tokens);
    Json memory = {{"device", info.name},
                   {"device_bytes", info.total_bytes},
                   {"free_bytes", info.free_bytes},
                   {"kv_bytes_per_token", static_cast<uint64_t>(page.bytes) / kBlock_tokens},
                   {"needs", Json::array()}};
    std::vector<int32_t> contexts = {std::min(kUsualContext_tokens, config.context)};
    if (config.context > contexts[0]) contexts.push_back(config.context);
    for (const int32_t context : contexts) {
      TRY_ASSIGN(const MemoryPlan plan, plan_memory({.config = config,
                                                     .activation = info.activation,
                                                     .page = page,
                                                     .weights_bytes = weight_bytes,
                                                     .context = context,
                                                     .kv_tokens = context}));
      memory["needs"].push_back({{"context", context},
                                 {"weights_bytes", plan.weights_bytes},
                                 {"workspace_bytes", plan.workspace_bytes},
                                 {"kv_bytes", plan.kv_bytes},
                                 {"bytes", plan.weights_bytes + plan.workspace_bytes + plan.kv_bytes}});
    }
    return memory;
  }

  static Json list_tensors(const ModelFiles& files) {
    Json list = Json::array();
    for (const auto& tensor : files.tensors())
      list.push_back({{"name", std::string(tensor.weight.name)},
                      {"format", format_label(tensor.weight.format)},
                      {"shape", tensor.shape},
                      {"bytes", tensor.weight.stored_bytes()}});
    return list;
  }

  static std::string count(uint64_t parameters) {
    const auto value = static_cast<double>(parameters);
    if (parameters < 1'000'000) return fmt::format("{}", parameters);
    return parameters >= 1'000'000'000 ? fmt::format("{:.2f} billion", value * 1e-9)
                                       : fmt::format("{:.1f} million", value * 1e-6);
  }

  std::string table(const Json& report) const {
    const auto text = [](const Json& value) {
      constexpr size_t kMostBytes = 200;
      return one_line(value.get_ref<const std::string&>(), kMostBytes);
    };
    const auto number = [](const Json& value) { return value.get<uint64_t>(); };
    std::string out;
    const auto row = [&out](std::string_view label, const std::string& value) {
      out += fmt::format("{:<14}{}\n", label, value);
    };
    row("model",
        fmt::format("{} ({}, {} {}, {})", text(report["name"]).empty() ? "unnamed" : text(report["name"]),
                    text(report["container"]), number(report["files"]),
                    number(report["files"]) == 1 ? "file" : "files",
                    format_bytes(number(report["file_bytes"]))));
    row("architecture",
        text(report["architecture"]).empty() ? "none (a vocabulary alone)" : text(report["architecture"]));
    if (report.contains("network")) {
      row("network", network_text(report["network"]));
      row("parameters", count(number(report["parameters"])));
      row("quantization", fmt::format("{}, {:.2f} bits a weight", text(report["scheme"]),
                                      report["bits_per_weight"].get<double>()));
      for (const Json& format : report["formats"])
        row("", fmt::format("{:<8} {:>5} tensors {:>16} parameters {:>12}", text(format["format"]),
                            number(format["tensors"]), number(format["parameters"]),
                            format_bytes(number(format["bytes"]))));
      row("context", fmt::format("{} tokens", number(report["context"])));
      if (report.contains("as")) out += size_text(report["as"]);
    }
    const Json& tokenizer = report["tokenizer"];
    row("tokenizer",
        tokenizer.is_null()
            ? "none"
            : fmt::format(
                  "{}{}, {} tokens{}", text(tokenizer["kind"]),
                  tokenizer["pre_tokenizer"].is_null() ? "" : " (" + text(tokenizer["pre_tokenizer"]) + ")",
                  number(tokenizer["vocabulary"]), tokenizer["adds_bos"].get<bool>() ? ", adds BOS" : ""));
    const Json& chat = report["chat_template"];
    row("chat template", chat.is_null()
                             ? "none"
                             : fmt::format("{}, {} bytes{}", text(chat["family"]), number(chat["bytes"]),
                                           chat["tools"].get<bool>() ? ", takes tools" : ""));
    if (!chat.is_null() && !chat["usable"].get<bool>()) row("", "cannot be used: " + text(chat["error"]));
    if (report.contains("memory")) {
      const Json& memory = report["memory"];
      row("memory", fmt::format("{} a token of context on {}, {} free of {}",
                                format_bytes(number(memory["kv_bytes_per_token"])), text(memory["device"]),
                                format_bytes(number(memory["free_bytes"])),
                                format_bytes(number(memory["device_bytes"]))));
      for (const Json& need : memory["needs"])
        row("", fmt::format(
                    "{} for {} tokens (weights {}, workspace {}, KV {})", format_bytes(number(need["bytes"])),
                    number(need["context"]), format_bytes(number(need["weights_bytes"])),
                    format_bytes(number(need["workspace_bytes"])), format_bytes(number(need["kv_bytes"]))));
    }
    if (tensors_)
      for (const Json& tensor : report["tensors"])
        out += fmt::format("{:<40} {:<8} {:<20} {:>12}\n", text(tensor["name"]), text(tensor["format"]),
                           tensor["shape"].dump(), number(tensor["bytes"]));
    return out;
  }

  std::string model_path_, shape_, as_, tables_format_;
  double outliers_ = 0;
  Flag as_flag_;
  TextFlags text_;
  bool json_ = false, tensors_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_inspect_verb() { return std::make_unique<InspectVerb>(); }

}  // namespace quintet
