// Any bytes as a tokenizer.json: an error, or a tokenizer whose ids are its own and whose text comes in whole
// characters.
// Behind a line "--8<--" may stand lines that change what was read into what a GGUF file could hold: "FIELD
// NUMBER ...", or "token TEXT", "merge TEXT".
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

using namespace quintet;

namespace {

std::string_view take(std::string_view& text, std::string_view end) {
  const size_t at = std::min(text.find(end), text.size());
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(std::min(at + end.size(), text.size()));
  return part;
}

void check_message(const Error& error) {
  QUINTET_CHECK(error.kind == ErrorKind::bad_input && error.message.find("input: ") == 0, "{}",
                error.message);
}

void change(TokenizerSpec& spec, std::string_view line) {
  const std::string_view field = take(line, " ");
  if (field == "token") spec.tokens.emplace_back(line);
  if (field == "merge") spec.merges.emplace_back(line);
  std::vector<double> numbers;
  while (!line.empty()) numbers.push_back(std::strtod(std::string(take(line, " ")).c_str(), nullptr));
  const auto whole = [&](size_t i) {
    const double number = i < numbers.size() ? numbers[i] : 0;
    return static_cast<int32_t>(number > -1e9 && number < 1e9 ? number : 0);
  };
  if (field == "kind") spec.kind = static_cast<TokenizerSpec::Kind>(whole(0) & 1 ? 1 : whole(0) & 2);
  if (field == "scores") spec.scores = numbers;
  if (field == "types") {
    spec.types.clear();
    for (size_t i = 0; i < numbers.size(); ++i)
      spec.types.push_back(static_cast<TokenizerSpec::TokenType>(static_cast<uint32_t>(whole(i)) % 6));
  }
  if (field == "left") spec.merge_left_bytes.assign(1, static_cast<uint32_t>(whole(0)));
  if (field == "bos") spec.bos = whole(0);
  if (field == "eos") spec.eos = whole(0);
  if (field == "unk") spec.unk = whole(0);
  if (field == "eog") spec.eog.push_back(whole(0));
  if (field == "add")
    spec.add_bos = whole(0) & 1, spec.add_eos = whole(0) & 2, spec.emit_unknown = whole(0) & 4;
}

/// An error, or a tokenizer whose ids are its own.
void try_changed(TokenizerSpec spec, std::string_view lines) {
  while (!lines.empty()) change(spec, take(lines, "\n"));
  const auto tokenizer = make_tokenizer(std::move(spec));
  if (!tokenizer) return check_message(tokenizer.error());
  for (const TokenId id : (*tokenizer)->encode(" ab a1 \u4e16 <s>", {.parse_special = true}))
    QUINTET_CHECK(id >= 0 && id < (*tokenizer)->vocabulary());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const std::string_view json = take(rest, "\n--8<--\n");
  auto spec = parse_tokenizer_json(json, "input");
  if (!spec) {
    check_message(spec.error());
    return 0;
  }
  if (!rest.empty()) try_changed(*spec, rest);
  const auto tokenizer = make_tokenizer(std::move(spec).value());
  if (!tokenizer) {
    check_message(tokenizer.error());
    return 0;
  }
  const Tokenizer& t = **tokenizer;
  // The file itself has the texts of its own tokens.
  const std::string texts[] = {std::string(json.substr(0, 2000)),
                               " ab  a1\n\r\t\u3000\u00e9 e\u0301 \xFF\xE2\x82 \u4e16'll <s></s>",
                               std::string(40, 'a') + std::string(40, ' ')};
  for (const auto& text : texts) {
    for (const bool special : {false, true}) {
      const auto ids = t.encode(text, {.add_bos = special, .parse_special = special});
      Detokenizer detokenizer(t, special);
      std::string out;
      for (const TokenId id : ids) {
        QUINTET_CHECK(id >= 0 && id < t.vocabulary());
        QUINTET_CHECK(special || !t.is_special(id) || id == t.spec().unk, "text became the special token {}",
                      id);
        out += detokenizer.push(id);
        QUINTET_CHECK(is_valid_utf8(out));
      }
      QUINTET_CHECK(out + detokenizer.finish() == sanitize_utf8(t.decode(ids, special)));
    }
  }
  for (TokenId id = 0; id < t.vocabulary(); ++id) QUINTET_CHECK(t.find(t.token_text(id)) == id);
  return 0;
}
