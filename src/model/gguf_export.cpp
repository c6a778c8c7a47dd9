// config.json and tokenizer.json as the metadata of a GGUF file.
#include "model/gguf_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "base/printable.h"
#include "io/gguf_writer.h"
#include "model/loader.h"
#include "model/tokenizer_gguf.h"
#include "text/tokenizer_families.h"

namespace quintet {
namespace {

using Kind = TokenizerSpec::Kind;
using TokenType = TokenizerSpec::TokenType;

/// Texts on which tokenizers that differ in their rules part.
constexpr std::string_view kProbes[] = {
    "Hello, world! It's 2026: 1234567 tokens; don't we'll I'M",
    "  two  spaces\tand\ta tab\n\n\nthree lines \r\n end  ",
    "def f(x):\n    return x**2 + 3.14e-10  # comment\n\n\tif a != b: pass",
    "caf\u00e9 cafe\u0301 na\u00efve \u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac "
    "\u0420\u0443\u0441\u0441\u043a\u0438\u0439 \u4e2d\u6587\u6587\u672c \u65e5\u672c\u8a9e "
    "\ud55c\uad6d\uc5b4 \u0627\u0644\u0639\u0631\u0628\u064a\u0629 \U0001f600\U0001f468\u200d\U0001f469",
    " leading", "trailing ", "a", "",
};

constexpr size_t kGemma3Pattern = 6;  // every sixth layer sees everything

class Exporter {
 public:
  explicit Exporter(const ModelFiles& files) : files_(files) {}

  Result<GgufExport> run() {
    TRY_ASSIGN(out_.drafted, read_json_config(files_, 0));
    TRY_ASSIGN(config_, read_config(files_, 0));
    // Mistral's files are called "llama".
    const Architecture& architecture = *out_.drafted.architecture;
    const Architecture& written = architecture.gguf.empty() ? kLlama : architecture;
    out_.architecture = written.gguf;
    out_.pairs_rope = written.gguf_rope == RopeStyle::pairs;
    metadata_.add("general.architecture", std::string_view(out_.architecture));
    metadata_.add("general.type", std::string_view("model"));
    const std::string name = config_.name.empty() ? folder_name() : config_.name;
    metadata_.add("general.name", std::string_view(name));
    add_network();
    TRY(add_rope());
    add_windows();
    TRY(add_texts());
    out_.metadata = metadata_.finish();
    return std::move(out_);
  }

 private:
  std::string folder_name() const {
    std::string path = files_.path();
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return path.substr(path.rfind('/') + 1);
  }

  std::string key(std::string_view name) const { return fmt::format("{}.{}", out_.architecture, name); }
  void count(std::string_view name, int64_t value) { metadata_.add(key(name), static_cast<uint32_t>(value)); }

  void add_network() {
    count("block_count", config_.layers);
    count("embedding_length", config_.hidden);
    count("feed_forward_length", config_.ffn);
    count("attention.head_count", config_.heads);
    count("attention.head_count_kv", config_.kv_heads);
    count("attention.key_length", config_.head_dim);
    count("attention.value_length", config_.head_dim);
    count("vocab_size", config_.vocabulary);
    metadata_.add(key("attention.layer_norm_rms_epsilon"), config_.norm_eps);
    if (out_.drafted.config.attention_scale != 0)
      metadata_.add(key("attention.scale"), out_.drafted.config.attention_scale);
  }

  Status add_rope() {
    const ConfigDraft& draft = out_.drafted.draft;
    const RopeScaling& scaling = draft.rope_scaling;
    count("rope.dimension_count", draft.rope_dims);
    metadata_.add(key("rope.freq_base"), static_cast<float>(draft.rope_base));
    if (out_.drafted.architecture == &kGemma3)
      metadata_.add(key("rope.freq_base_swa"), static_cast<float>(draft.rope_local_base));
    int64_t context = config_.context;
    const auto stretched = [&](std::string_view type) {
      metadata_.add(key("rope.scaling.type"), type);
      metadata_.add(key("rope.scaling.factor"), static_cast<float>(scaling.factor));
    };
    switch (scaling.kind) {
      case RopeScaling::Kind::none: break;
      case RopeScaling::Kind::linear: stretched("linear"); break;
      case RopeScaling::Kind::yarn: {
        if (!scaling.truncate)
          return bad_input(fmt::format("{}: rope scaling: found truncate false, allowed in a GGUF file is true",
                                       draft.origin));
        stretched("yarn");
        count("rope.scaling.original_context_length", std::llround(scaling.original_context));
        metadata_.add(key("rope.scaling.yarn_beta_fast"), static_cast<float>(scaling.beta_fast));
        metadata_.add(key("rope.scaling.yarn_beta_slow"), static_cast<float>(scaling.beta_slow));
        const double usual = scaling.factor <= 1 ? 1.0 : 0.1 * std::log(scaling.factor) + 1.0;
        metadata_.add(key("rope.scaling.attn_factor"),
                      static_cast<float>(scaling.attention_factor.value_or(usual) / usual));
        break;
      }
      case RopeScaling::Kind::llama3: {
        const RopeConfig plain = make_rope(RopeStyle::halves, draft.rope_dims, draft.rope_base, {});
        const RopeConfig& scaled = config_.ropes.front();
        std::vector<float> divisors;
        for (size_t i = 0; i < plain.inv_freq.size(); ++i)
          divisors.push_back(plain.inv_freq[i] / scaled.inv_freq[i]);
        out_.made.push_back({"rope_freqs.weight", std::move(divisors)});
        break;
      }
      case RopeScaling::Kind::divisors: {
        TRY_ASSIGN(const DraftedConfig longest, read_json_config(files_, INT32_MAX));
        out_.made.push_back({"rope_factors_long.weight", longest.draft.rope_scaling.divisors});
        out_.made.push_back({"rope_factors_short.weight", scaling.divisors});
        context = longest.config.context;
        count("rope.scaling.original_context_length", std::llround(scaling.original_context));
        metadata_.add(key("rope.scaling.attn_factor"),
                      static_cast<float>(scaling.attention_factor.value_or(1)));
        break;
      }
    }
    count("context_length", context);
    return {};
  }

  void add_windows() {
    const auto slides = [](const LayerConfig& layer) { return layer.sliding_window > 0; };
    const auto first = std::find_if(config_.layer.begin(), config_.layer.end(), slides);
    if (first == config_.layer.end()) return;
    count("attention.sliding_window", first->sliding_window);
    if (out_.architecture == kLlama.gguf)
      out_.notes.push_back(fmt::format(
          "a sliding window of {} tokens: other engines ignore it in files of the architecture llama",
          first->sliding_window));
    std::vector<bool> pattern;
    bool usual = true;  // of the architecture: other engines take no list where one number would do
    for (const LayerConfig& layer : config_.layer) {
      const bool global = out_.drafted.architecture == &kGemma3 && (pattern.size() + 1) % kGemma3Pattern == 0;
      pattern.push_back(slides(layer));
      usual = usual && pattern.back() == !global;
    }
    if (!usual) metadata_.add(key("attention.sliding_window_pattern"), pattern);
  }

  Status add_texts() {
    if (files_.texts().tokenizer.empty()) {
      out_.notes.push_back("the folder has no tokenizer.json: the file has no tokenizer");
      return {};
    }
    TRY_ASSIGN(const auto model, load_text(files_.path(), {}));
    TRY(add_tokenizer(*model->tokenizer));
    for (const TokenId id : model->stop_ids)
      if (id != model->tokenizer->spec().eos) {
        metadata_.add("tokenizer.ggml.eot_token_id", static_cast<uint32_t>(id));
        break;
      }
    if (!model->chat_template_source.empty())
      metadata_.add("tokenizer.chat_template", std::string_view(model->chat_template_source));
    const GenerationDefaults& defaults = model->defaults;
    if (defaults.temperature) metadata_.add("general.sampling.temp", *defaults.temperature);
    if (defaults.top_p) metadata_.add("general.sampling.top_p", *defaults.top_p);
    if (defaults.min_p) metadata_.add("general.sampling.min_p", *defaults.min_p);
    if (defaults.repeat_penalty) metadata_.add("general.sampling.penalty_repeat", *defaults.repeat_penalty);
    if (defaults.top_k) metadata_.add("general.sampling.top_k", static_cast<uint32_t>(*defaults.top_k));
    return check_tokenizer(*model->tokenizer);
  }

  Status add_tokenizer(const Tokenizer& tokenizer) {
    // The tokenizer has used up its merges: they are read once more.
    TRY_ASSIGN(TokenizerSpec spec, parse_tokenizer_json(files_.texts().tokenizer, files_.path()));
    fill_up(spec);
    const TokenizerSpec& complete = tokenizer.spec();
    if (spec.kind == Kind::byte_bpe) {
      const std::string_view family = family_of(spec);
      if (family.empty())
        return bad_input(fmt::format(
            "{}/tokenizer.json: its normalizer and pre-tokenizer are those of no family that GGUF files name",
            files_.path()));
      metadata_.add("tokenizer.ggml.model", std::string_view("gpt2"));
      metadata_.add("tokenizer.ggml.pre", family);
      metadata_.add("tokenizer.ggml.merges", spec.merges);
    } else if (spec.kind == Kind::sentencepiece_bpe) {
      metadata_.add("tokenizer.ggml.model", std::string_view("llama"));
      metadata_.add("tokenizer.ggml.pre", std::string_view("default"));
      metadata_.add("tokenizer.ggml.scores", scores_of(spec));
      metadata_.add("tokenizer.ggml.add_space_prefix", spec.decode_strips_space);
    } else {
      return bad_input(fmt::format("{}/tokenizer.json: found a Unigram model, allowed is BPE", files_.path()));
    }
    metadata_.add("tokenizer.ggml.tokens", spec.tokens);
    metadata_.add("tokenizer.ggml.token_type", types_of(spec));
    const auto id = [&](std::string_view name, std::optional<TokenId> token) {
      if (token) metadata_.add(fmt::format("tokenizer.ggml.{}_token_id", name), static_cast<uint32_t>(*token));
    };
    id("bos", complete.bos);
    id("eos", complete.eos);
    id("unknown", complete.unk);
    id("padding", complete.pad);
    metadata_.add("tokenizer.ggml.add_bos_token", complete.add_bos);
    metadata_.add("tokenizer.ggml.add_eos_token", complete.add_eos);
    return {};
  }

  /// Other engines want a token for every row of the embedding, of which models often have more: those are marked as unused.
  void fill_up(TokenizerSpec& spec) const {
    const auto rows = static_cast<size_t>(config_.vocabulary);
    if (spec.tokens.size() >= rows) return;
    spec.types.resize(spec.tokens.size(), TokenType::normal);
    const std::unordered_set<std::string> taken(spec.tokens.begin(), spec.tokens.end());
    while (spec.tokens.size() < rows) {
      std::string name = fmt::format("[PAD{}]", spec.tokens.size());
      while (taken.contains(name)) name += '_';
      spec.tokens.push_back(std::move(name));
      spec.types.push_back(TokenType::unused);
    }
  }

  static std::vector<int32_t> types_of(const TokenizerSpec& spec) {
    constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;
    std::vector<int32_t> types;
    for (size_t i = 0; i < spec.tokens.size(); ++i) {
      const TokenType type = spec.types.empty() ? TokenType::normal : spec.types[i];
      const std::string& text = spec.tokens[i];
      const bool byte =
          spec.byte_fallback && text.size() == 6 && text.starts_with("<0x") && text.ends_with(">");
      types.push_back(type == TokenType::control        ? kControl
                      : type == TokenType::user_defined ? kUserDefined
                      : type == TokenType::unused       ? kUnused
                      : byte                            ? kByte
                                                        : kNormal);
    }
    for (const AddedToken& token : spec.added)
      types[static_cast<size_t>(token.id)] = token.special ? kControl : kUserDefined;
    if (spec.unk) types[static_cast<size_t>(*spec.unk)] = kUnknown;
    return types;
  }

  /// The merges of a SentencePiece vocabulary are listed by the score of what they make, the best first: so the
  /// number of the first merge that makes a token, taken negative, orders them alike.
  static std::vector<float> scores_of(const TokenizerSpec& spec) {
    std::unordered_map<std::string, float> rank;
    for (size_t i = 0; i < spec.merges.size(); ++i) {
      const std::string& merge = spec.merges[i];
      const size_t left = spec.merge_left_bytes.empty() ? merge.find(' ') : spec.merge_left_bytes[i];
      rank.emplace(merge.substr(0, left) + merge.substr(left + 1), -static_cast<float>(i + 1));
    }
    const auto least = -static_cast<float>(spec.merges.size() + 1);
    std::vector<float> scores;
    for (const std::string& token : spec.tokens) {
      const auto at = rank.find(token);
      scores.push_back(at == rank.end() ? least : at->second);
    }
    return scores;
  }

  /// What was written must read back as the same tokenizer.
  Status check_tokenizer(const Tokenizer& tokenizer) const {
    const std::vector<uint8_t> bytes = metadata_.finish();
    TRY_ASSIGN(const GgufFile file, GgufFile::parse(bytes, files_.path() + " as GGUF"));
    TRY_ASSIGN(TokenizerSpec spec, tokenizer_spec_from_gguf(file));
    TRY_ASSIGN(const auto again, make_tokenizer(std::move(spec)));
    for (const std::string_view probe : kProbes)
      for (const bool special : {false, true})
        if (const EncodeOptions options{.parse_special = special};
            tokenizer.encode(probe, options) != again->encode(probe, options))
          return bad_input(fmt::format(
              "{}/tokenizer.json: the GGUF form of this tokenizer gives other ids for '{}', allowed is a "
              "tokenizer that the format can hold",
              files_.path(), printable(std::string(probe))));
    return {};
  }

  const ModelFiles& files_;
  ModelConfig config_;
  GgufMetadata metadata_;
  GgufExport out_;
};

}  // namespace

Result<GgufExport> export_to_gguf(const ModelFiles& files) { return Exporter(files).run(); }

}  // namespace quintet
