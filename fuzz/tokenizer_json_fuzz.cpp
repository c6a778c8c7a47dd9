// Any bytes as a tokenizer.json: an error, or a tokenizer whose ids are its own and whose text comes in whole
// characters.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

using namespace quintet;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  auto spec = parse_tokenizer_json(json, "input");
  const auto check_message = [](const Error& error) {
    QUINTET_CHECK(error.kind == ErrorKind::bad_input && error.message.find("input: ") == 0, "{}",
                  error.message);
  };
  if (!spec) {
    check_message(spec.error());
    return 0;
  }
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
