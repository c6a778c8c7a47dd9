// Filters over text.
#include <algorithm>
#include <cmath>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/methods_string.h"
#include "text/jinja/unicode.h"

namespace quintet::jinja {
namespace {

bool is_markup(const Value& v) { return v.is_string() && v.string().markup; }

Value capitalize(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("capitalize", args, {});
  return in.string(capitalize_text(in, in.str(input)), is_markup(input));
}

Value upper(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("upper", args, {});
  std::string text = in.str(input);
  in.heap().spend_bytes(text.size() * 4);
  return in.string(to_upper(text), is_markup(input));
}

Value lower(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("lower", args, {});
  std::string text = in.str(input);
  in.heap().spend_bytes(text.size() * 4);
  return in.string(to_lower(text), is_markup(input));
}

/// Every word's first letter, where words also start behind brackets and hyphens.
Value title(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("title", args, {});
  std::string text = in.str(input), out;
  in.heap().spend_bytes(text.size() * 4);
  auto separates = [](char32_t c) {
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c);
  };
  for (size_t at = 0; at < text.size();) {
    size_t start = at;
    char32_t c = next_code_point(text, at);
    if (separates(c)) {
      append_code_point(out, c);
      continue;
    }
    append_upper(out, c);
    size_t rest = at;
    while (at < text.size()) {
      size_t next = at;
      if (separates(next_code_point(text, next))) break;
      at = next;
    }
    (void)start;
    out += to_lower(std::string_view(text).substr(rest, at - rest));
  }
  return in.string(std::move(out));
}

Value center(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("center", args, {"width"});
  Arguments inner;
  inner.positional.push_back(Value::integer(bound.integer(0, 80)));
  Value text = in.str_value(input);
  return find_method(text, "center")->function(in, text, inner);
}

Value escape(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("escape", args, {});
  if (is_markup(input)) return input;
  return in.string(escape_html(in.str(input)), true);
}

Value force_escape(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("forceescape", args, {});
  return in.string(escape_html(in.str(input)), true);
}

Value safe(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("safe", args, {});
  return in.string(in.str(input), true);
}

Value to_string(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("string", args, {});
  return in.str_value(input);
}

Value trim(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("trim", args, {"chars"});
  return strip_text(in, in.str_value(input), bound[0]);
}

Value replace(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("replace", args, {"old", "new", "count"}, 2);
  int64_t count = bound.some(2) != nullptr ? bound.integer(2, -1) : -1;
  return in.string(replace_text(in, in.str(input), in.str(*bound[0]), in.str(*bound[1]), count));
}

Value format(Interpreter& in, const Value& input, Arguments& args) {
  if (!args.positional.empty() && !args.keywords.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  Value text = in.str_value(input);
  if (args.keywords.empty()) return format_percent_value(in, text, in.heap().tuple(args.positional));
  std::vector<std::pair<Value, Value>> entries;
  for (auto& [name, value] : args.keywords) entries.emplace_back(in.string(name), value);
  return format_percent_value(in, text, in.heap().dict(std::move(entries)));
}

Value indent(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("indent", args, {"width", "first", "blank"});
  if (input.is_undefined()) in.fail_undefined(input);
  if (!input.is_string()) fail("indent expects a str, not {}", type_name(input));
  std::string indention;
  if (bound[0] != nullptr && bound[0]->is_string()) {
    indention = bound[0]->text();
  } else {
    int64_t width = std::max<int64_t>(bound.integer(0, 4), 0);
    in.heap().check_text(static_cast<size_t>(width));
    indention.assign(static_cast<size_t>(width), ' ');
  }
  bool blank = bound.truth(2, false);
  std::string text(input.text()), out;
  text += '\n';
  bool first = true;
  for (std::string_view line : split_lines(text)) {
    if (!first) out += '\n';
    if (!first && (blank || !line.empty())) out += indention;
    out += line;
    first = false;
    in.heap().spend_bytes(indention.size());
    in.heap().check_text(out.size());
  }
  if (bound.truth(1, false)) out.insert(0, indention);
  return in.string(std::move(out), is_markup(input));
}

Value truncate(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("truncate", args, {"length", "killwords", "end", "leeway"});
  int64_t length = bound.integer(0, 255);
  std::string end = bound[2] != nullptr ? std::string(bound.text(2)) : "...";
  int64_t leeway = bound.some(3) != nullptr ? bound.integer(3, 5) : 5;
  int64_t end_length = count_code_points(end);
  if (length < end_length) fail("truncate expects a length of at least {}, got {}", end_length, length);
  if (leeway < 0) fail("truncate expects a leeway of at least 0, got {}", leeway);
  if (!input.is_string()) {
    if (in.length(input) <= length + leeway) return input;
    fail("truncate expects a str, not {}", type_name(input));
  }
  if (input.string().length - leeway <= length) return input;
  std::string_view text = input.text();
  in.heap().spend_bytes(text.size());
  std::string kept(text.substr(0, byte_of_code_point(text, length - end_length)));
  if (!bound.truth(1, false)) {
    size_t space = kept.rfind(' ');
    if (space != std::string::npos) kept.resize(space);
  }
  return in.string(kept + end, is_markup(input));
}

Value wordcount(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("wordcount", args, {});
  std::string text = in.str(input);
  in.heap().spend_bytes(text.size() * 8);
  int64_t words = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    char32_t c = next_code_point(text, at);
    bool word = c == '_' || is_alpha(c) || is_numeric(c);
    words += word && !in_word;
    in_word = word;
  }
  return Value::integer(words);
}

/// Takes out comments and tags, and makes one space of each run of white space; entities stay.
Value striptags(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("striptags", args, {});
  std::string text = in.str(input);
  in.heap().spend_bytes(text.size() * 4);
  if (text.find('&') != std::string::npos) fail("striptags over a text with '&' is not supported");
  auto remove = [&](std::string_view open, std::string_view close) {
    std::string out;
    size_t at = 0;
    while (true) {
      size_t begin = text.find(open, at);
      size_t end = begin == std::string::npos ? begin : text.find(close, begin + open.size());
      if (end == std::string::npos) break;
      out.append(text, at, begin - at);
      at = end + close.size();
    }
    text = out.append(text, at);
  };
  remove("<!--", "-->");
  remove("<", ">");
  std::string out;
  for (std::string_view rest = strip_space(text); !rest.empty();) {
    size_t at = 0;
    while (at < rest.size()) {
      size_t next = at;
      if (is_space(next_code_point(rest, next))) break;
      at = next;
    }
    if (!out.empty()) out += ' ';
    out += rest.substr(0, at);
    rest = strip_space(rest.substr(at));
  }
  return in.string(std::move(out));
}

std::string quote_url(std::string_view text, bool for_query) {
  std::string out;
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) && byte < 0x80)
      out += c;
    else if (std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !for_query))
      out += c;
    else if (c == ' ' && for_query)
      out += '+';
    else
      out += fmt::format("%{:02X}", byte);
  }
  return out;
}

Value urlencode(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("urlencode", args, {});
  bool iterable = input.is_sequence() || input.is(Type::dict) || input.is(Type::view) ||
                  input.is(Type::range) || input.is(Type::iterator) || input.is_undefined();
  if (!iterable) return in.string(quote_url(in.str(input), false));
  std::string out;
  auto append = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    out += quote_url(in.str(key), true) + "=" + quote_url(in.str(value), true);
    in.heap().check_text(out.size());
  };
  if (input.is(Type::dict)) {
    for (const auto& [key, value] : input.dict().entries) append(key, value);
  } else {
    for (const Value& pair : in.collect(input)) {
      std::vector<Value> both = in.collect(pair);
      if (both.size() != 2) fail("urlencode expects pairs");
      append(both[0], both[1]);
    }
  }
  return in.string(std::move(out));
}

Value xmlattr(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("xmlattr", args, {"autospace"});
  if (!input.is(Type::dict)) fail("xmlattr expects a dict, not {}", type_name(input));
  std::string out;
  for (const auto& [key, value] : input.dict().entries) {
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_string()) fail("xmlattr expects keys that are str, not {}", type_name(key));
    if (key.text().find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos)
      fail("invalid character in attribute name");
    if (!out.empty()) out += ' ';
    std::string text = in.str(value);
    out += escape_html(key.text()) + "=\"" + (is_markup(value) ? text : escape_html(text)) + "\"";
    in.heap().check_text(out.size());
  }
  if (!out.empty() && bound.truth(0, true)) out.insert(0, " ");
  return in.string(std::move(out));
}

Value to_json(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonOptions options;
  options.ensure_ascii = bound.truth(0, false);
  options.sort_keys = bound.truth(3, false);
  if (const Value* indent = bound.some(1)) {
    options.has_indent = true;
    options.item_separator = ",";
    if (indent->is_string()) {
      options.indent = indent->text();
    } else {
      int64_t width = std::max<int64_t>(bound.integer(1, 0), 0);
      if (width > 1024) fail("tojson(): an indent of {}; 1024 are allowed", width);
      options.indent.assign(static_cast<size_t>(width), ' ');
    }
  }
  if (const Value* separators = bound.some(2)) {
    std::vector<Value> both = in.collect(*separators);
    if (both.size() != 2 || !both[0].is_string() || !both[1].is_string()) {
      fail("tojson(): the separators must be two strings");
    }
    options.item_separator = both[0].text();
    options.key_separator = both[1].text();
  }
  std::string out;
  append_json(in, out, input, options);
  return in.string(std::move(out));
}

Value refuse(Interpreter&, const Value&, Arguments&) {
  fail("the filters pprint, random, urlize and wordwrap are not supported in chat templates");
}

constexpr FilterEntry kFilters[] = {
    {"capitalize", capitalize},
    {"center", center},
    {"e", escape},
    {"escape", escape},
    {"forceescape", force_escape},
    {"format", format},
    {"indent", indent},
    {"lower", lower},
    {"pprint", refuse},
    {"random", refuse},
    {"replace", replace},
    {"safe", safe},
    {"string", to_string},
    {"striptags", striptags},
    {"title", title},
    {"tojson", to_json},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", upper},
    {"urlencode", urlencode},
    {"urlize", refuse},
    {"wordcount", wordcount},
    {"wordwrap", refuse},
    {"xmlattr", xmlattr},
};

}  // namespace

std::span<const FilterEntry> text_filters() { return kFilters; }

}  // namespace quintet::jinja
