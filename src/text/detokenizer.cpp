// Text from ids as they come, in whole characters.
#include <utility>

#include "text/tokenizer.h"
#include "text/unicode.h"

namespace quintet {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool special)
    : tokenizer_(tokenizer), special_(special), first_(tokenizer.spec().decode_strips_space) {}

std::string Detokenizer::push(TokenId token) {
  std::string bytes = tokenizer_.piece(token, special_);
  if (first_ && !bytes.empty()) {
    if (bytes[0] == ' ') bytes.erase(0, 1);
    first_ = false;
  }
  held_ += bytes;
  std::string out;
  size_t at = 0;
  while (at < held_.size()) {
    const Utf8Part part = next_utf8_part(held_, at);
    if (part.incomplete) break;
    if (part.valid) {
      out.append(held_, at, part.bytes);
    } else {
      append_utf8(out, kReplacementCharacter);
    }
    at += part.bytes;
  }
  held_.erase(0, at);
  return out;
}

std::string Detokenizer::finish() { return sanitize_utf8(std::exchange(held_, {})); }

}  // namespace quintet
