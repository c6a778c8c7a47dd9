// tokenizer.ggml.* -> TokenizerSpec (keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
#include "model/tokenizer_gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "text/tokenizer_limits.h"

namespace quintet {
namespace {

using Kind = TokenizerSpec::Kind;
using TokenType = TokenizerSpec::TokenType;

/// Above every real score: what the user defined is merged first, as SentencePiece takes such pieces before
/// all others (converters write scores of 0 or -1000 for them).
constexpr double kUserDefinedScore = 1e30;

class Reader {
 public:
  explicit Reader(const GgufFile& file) : file_(file) { spec_.origin = file.path(); }

  Result<TokenizerSpec> run() {
    if (!file_.has("tokenizer.ggml.model")) {
      return not_found(fmt::format("{}: it has no tokenizer (no key tokenizer.ggml.model)", file_.path()));
    }
    TRY_ASSIGN(const auto model, file_.get_string("tokenizer.ggml.model"));
    TRY_ASSIGN(pre_, file_.get_string_or("tokenizer.ggml.pre", ""));
    TRY_ASSIGN(architecture_, file_.get_string_or("general.architecture", ""));
    TRY(read_tokens());
    TRY(read_ids());
    if (model == "gpt2") {
      TRY(byte_level());
    } else if (model == "llama") {
      TRY(sentencepiece());
    } else if (model == "gemma4") {
      TRY(sentencepiece_with_merges());
    } else if (model == "t5") {
      TRY(unigram());
    } else {
      return bad_input(
          fmt::format("{}: tokenizer.ggml.model is {}{}; supported are 'gpt2', 'llama', 'gemma4' and 't5'",
                      file_.path(), printable(model),
                      model == "bert"   ? " (WordPiece)"
                      : model == "rwkv" ? " (RWKV)"
                                        : ""));
    }
    TRY_ASSIGN(spec_.add_bos, file_.get_bool_or("tokenizer.ggml.add_bos_token", spec_.add_bos));
    TRY_ASSIGN(spec_.add_eos, file_.get_bool_or("tokenizer.ggml.add_eos_token", spec_.add_eos));
    return std::move(spec_);
  }

 private:
  /// The length of an array, before it is read: an entry takes several times its bytes in the file.
  Status check_count(std::string_view key, uint64_t least, uint64_t most) const {
    const GgufValue* value = file_.find(key);
    if (value == nullptr || value->type != GgufType::array || (value->count >= least && value->count <= most))
      return {};  // what is absent or of another type is told by who reads it
    return bad_input(least == most ? fmt::format("{}: {} has {} entries for {} tokens", file_.path(), key,
                                                 value->count, most)
                                   : fmt::format("{}: {} has {} entries; allowed are {} to {}", file_.path(),
                                                 key, value->count, least, most));
  }

  Status read_tokens() {
    TRY(check_count("tokenizer.ggml.tokens", 1, kMaxVocabulary));
    TRY_ASSIGN(const auto tokens, file_.get_strings("tokenizer.ggml.tokens"));
    spec_.tokens.assign(tokens.begin(), tokens.end());
    if (!file_.has("tokenizer.ggml.token_type")) return {};
    TRY(check_count("tokenizer.ggml.token_type", tokens.size(), tokens.size()));
    TRY_ASSIGN(const auto types, file_.get_i64s("tokenizer.ggml.token_type"));
    spec_.types.reserve(types.size());
    for (size_t id = 0; id < types.size(); ++id) {
      static constexpr TokenType kTypes[] = {TokenType::normal,  TokenType::normal,       TokenType::unknown,
                                             TokenType::control, TokenType::user_defined, TokenType::unused,
                                             TokenType::byte};
      if (types[id] < 0 || types[id] > 6) {
        return bad_input(fmt::format("{}: tokenizer.ggml.token_type of token {} is {}; allowed are 0 to 6",
                                     file_.path(), id, types[id]));
      }
      TokenType type = kTypes[types[id]];
      // Converters fill gaps in the ids with such names; they stand for nothing that could be written.
      if (type != TokenType::normal && spec_.tokens[id].starts_with("[PAD") && spec_.tokens[id].size() > 5 &&
          spec_.tokens[id].find_first_not_of("0123456789", 4) == spec_.tokens[id].size() - 1 &&
          spec_.tokens[id].ends_with("]")) {
        type = TokenType::unused;
      }
      spec_.types.push_back(type);
    }
    return {};
  }

  Status read_id(const char* key, std::optional<TokenId>& id) {
    if (!file_.has(key)) return {};
    TRY_ASSIGN(const uint64_t value, file_.get_u64(key));
    if (value == UINT32_MAX) return {};  // converters write -1 for "none"
    if (value >= spec_.tokens.size()) {
      return bad_input(fmt::format("{}: {} is {}; allowed are 0 to {}", file_.path(), key, value,
                                   spec_.tokens.size() - 1));
    }
    id = static_cast<TokenId>(value);
    return {};
  }

  Status read_ids() {
    TRY(read_id("tokenizer.ggml.bos_token_id", spec_.bos));
    TRY(read_id("tokenizer.ggml.eos_token_id", spec_.eos));
    TRY(read_id("tokenizer.ggml.unknown_token_id", spec_.unk));
    TRY(read_id("tokenizer.ggml.padding_token_id", spec_.pad));
    TRY(read_id("tokenizer.ggml.eot_token_id", spec_.eot));
    std::optional<TokenId> eom;
    TRY(read_id("tokenizer.ggml.eom_token_id", eom));
    if (eom) spec_.eog.push_back(*eom);
    return {};
  }

  Status read_merges() {
    TRY(check_count("tokenizer.ggml.merges", 0, kMaxMerges));
    TRY_ASSIGN(const auto merges, file_.get_strings("tokenizer.ggml.merges"));
    spec_.merges.assign(merges.begin(), merges.end());
    return {};
  }

  Status read_scores() {
    TRY(check_count("tokenizer.ggml.scores", spec_.tokens.size(), spec_.tokens.size()));
    TRY_ASSIGN(const auto scores, file_.get_f32s("tokenizer.ggml.scores"));
    spec_.scores.assign(scores.begin(), scores.end());
    return {};
  }

  Status byte_level() {
    spec_.kind = Kind::byte_bpe;
    // No emit_unknown: the models' own tokenizer.json files leave out a byte that is no token; what GGUF
    // files name as the unknown token often is the end of text, which text must not become.
    spec_.pre_tokenizer = pre_;
    if (pre_.empty() || pre_ == "default") {
      // Files older than the key, which differ only in the normalizer of GPT-NeoX.
      spec_.pre_tokenizer = architecture_ == "gptneox" ? "gpt-neox" : "gpt2";
    }
    spec_.add_bos = (pre_ == "llama-bpe" || pre_ == "llama3" || pre_ == "llama-v3" || pre_ == "tekken") &&
                    spec_.bos.has_value();
    return read_merges();
  }

  /// Spaces become ▁; one is put before the text where the file says so.
  Status space_marks(bool prefix_by_default) {
    TRY_ASSIGN(const bool prefix, file_.get_bool_or("tokenizer.ggml.add_space_prefix", prefix_by_default));
    if (prefix) spec_.normalizers.push_back({.kind = NormalizerStep::Kind::prepend, .content = "▁"});
    spec_.normalizers.push_back({.kind = NormalizerStep::Kind::replace, .pattern = " ", .content = "▁"});
    spec_.decode_strips_space = prefix;
    return {};
  }

  void byte_tokens() {
    spec_.byte_fallback =
        std::find(spec_.types.begin(), spec_.types.end(), TokenType::byte) != spec_.types.end();
    spec_.emit_unknown = spec_.unk.has_value();
    spec_.fuse_unknown = true;
  }

  Status sentencepiece() {
    spec_.kind = Kind::sentencepiece_bpe;
    TRY(space_marks(true));
    TRY(read_scores());
    byte_tokens();
    for (size_t id = 0; id < spec_.types.size(); ++id) {
      if (spec_.types[id] == TokenType::user_defined) spec_.scores[id] = kUserDefinedScore;
    }
    if (architecture_ == "phi3") swallow_space_after_special();
    spec_.add_bos = spec_.bos.has_value();
    return {};
  }

  /// Phi-3's tokenizer.json sets rstrip for all its special tokens but three; GGUF has no place for the flag.
  void swallow_space_after_special() {
    for (size_t id = 0; id < spec_.tokens.size(); ++id) {
      const std::string& text = spec_.tokens[id];
      const bool end = text == "</s>";
      if (spec_.types.empty() || (spec_.types[id] != TokenType::control && !end)) continue;
      if (text == "<unk>" || text == "<s>" || text == "<|endoftext|>") continue;
      spec_.added.push_back({.id = static_cast<TokenId>(id),
                             .text = text,
                             .special = spec_.types[id] == TokenType::control,
                             .rstrip = true});
    }
  }

  Status sentencepiece_with_merges() {
    spec_.kind = Kind::sentencepiece_bpe;
    TRY(space_marks(false));
    TRY(read_merges());
    byte_tokens();
    spec_.add_bos = spec_.bos.has_value();
    return {};
  }

  Status unigram() {
    spec_.kind = Kind::unigram;
    TRY(read_scores());
    byte_tokens();
    TRY_ASSIGN(const bool extra, file_.get_bool_or("tokenizer.ggml.remove_extra_whitespaces", false));
    TRY_ASSIGN(const bool prefix, file_.get_bool_or("tokenizer.ggml.add_space_prefix", true));
    if (file_.has("tokenizer.ggml.precompiled_charsmap")) {
      TRY_ASSIGN(const auto charsmap, file_.get_bytes("tokenizer.ggml.precompiled_charsmap"));
      spec_.precompiled_charsmap.assign(charsmap.begin(), charsmap.end());
      spec_.normalizers.push_back({.kind = NormalizerStep::Kind::charsmap});
    }
    if (extra) {
      spec_.normalizers.push_back({.kind = NormalizerStep::Kind::strip, .left = false, .right = true});
      spec_.normalizers.push_back(
          {.kind = NormalizerStep::Kind::replace, .pattern = " {2,}", .regex = true, .content = "▁"});
    }
    spec_.pre_tokenizers.push_back(
        {.kind = PreTokenizerStep::Kind::metaspace,
         .pattern = "▁",
         .prepend = prefix ? PreTokenizerStep::Prepend::always : PreTokenizerStep::Prepend::never});
    spec_.decode_strips_space = prefix;
    spec_.add_eos = spec_.eos.has_value();
    return {};
  }

  const GgufFile& file_;
  std::string_view pre_, architecture_;
  TokenizerSpec spec_;
};

}  // namespace

Result<TokenizerSpec> tokenizer_spec_from_gguf(const GgufFile& file) { return Reader(file).run(); }

}  // namespace quintet
