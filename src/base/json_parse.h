// The ways into nlohmann's JSON parser. It takes a NUL byte for the end of the text and would not look at
// what lies behind; JSON knows no such byte, so here it is an error where it stands.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace quintet {

inline constexpr int kMostJsonDepth = 256;  ///< of a tree

/// Where the first NUL byte lies, npos where there is none.
inline size_t find_nul(std::string_view text) { return text.find('\0'); }

/// Sends the events of `text` to a handler of nlohmann's SAX interface; false where the handler or the syntax
/// ended it. A NUL byte comes as a parse_error, before any other event.
template <class Handler>
bool parse_json_events(std::string_view text, Handler& handler) {
  if (const size_t nul = find_nul(text); nul != std::string_view::npos)
    return handler.parse_error(
        nul + 1, "<NUL>",
        nlohmann::json::parse_error::create(101, nul + 1, "syntax error - found a NUL byte, allowed is text",
                                            nullptr));
  return nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
}

/// What a parse_error says, without the library's own prefix: "syntax error while parsing value - ...".
inline std::string json_reason(const nlohmann::json::exception& fault) {
  constexpr size_t kMostBytes = 160;
  std::string_view reason =
      fault.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
  for (const std::string_view mark : {"] ", ": "})
    if (const size_t at = reason.find(mark); at != std::string_view::npos)
      reason = reason.substr(at + mark.size());
  return std::string(reason.substr(0, kMostBytes));
}

/// Whether objects and arrays of `text` stand within one another at most `limit` deep, whatever else it
/// holds.
inline bool is_json_within(std::string_view text, int limit) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;  // what follows ends no string
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > limit) return false;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return true;
}

/// The value of `text`, discarded where it is no JSON or deeper than kMostJsonDepth: nlohmann copies and
/// prints a tree by recursion, so that a deep one would end the stack. `callback` is nlohmann's: it sees the
/// events and may leave values out. Json: nlohmann::json, or ordered_json, whose objects keep their order and
/// take quadratic time to fill: for short texts alone.
template <class Json = nlohmann::json>
Json parse_json_tree(std::string_view text, typename Json::parser_callback_t callback = nullptr) {
  if (find_nul(text) != std::string_view::npos || !is_json_within(text, kMostJsonDepth))
    return Json(Json::value_t::discarded);
  return Json::parse(text, std::move(callback), /*allow_exceptions=*/false);
}

}  // namespace quintet
