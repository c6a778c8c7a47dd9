// tokenizer.json -> TokenizerSpec (a stub until next commit).
#include "text/tokenizer.h"
namespace quintet {
Result<TokenizerSpec> parse_tokenizer_json(std::string_view, std::string_view origin) {
  return bad_input(std::string(origin) + ": tokenizer.json is not read yet");
}
}  // namespace quintet
