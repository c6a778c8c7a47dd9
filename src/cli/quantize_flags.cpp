// Parses them.
#include "cli/quantize_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "quant/encode.h"

namespace quintet {
namespace {

/// The parts of a list "a,b,c".
std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    parts.push_back(text.substr(0, text.find(',')));
    text.remove_prefix(std::min(text.size(), parts.back().size() + 1));
  }
  return parts;
}

}  // namespace

Result<ParsedShares> parse_shares(std::string_view text) {
  ParsedShares parsed;
  OutlierShares& shares = parsed.shares;
  const std::string_view whole = text;
  if (text == "auto" || text.starts_with("auto=")) {
    parsed.automatic = true;
    text.remove_prefix(std::min<size_t>(text.size(), 5));
    if (text.empty() && whole != "auto") text = "=";
  }
  const auto fault = [&](std::string_view found) {
    return bad_input(
        fmt::format("--outliers: found '{}', allowed are a number from 0 to 10 (percent), or first=X, "
                    "middle=X and head=X separated by commas; and auto, auto=... for as many in all",
                    found));
  };
  std::vector<std::string_view> seen;
  for (const std::string_view part : split_list(text)) {
    const size_t equals = part.find('=');
    const std::string_view name = equals == part.npos ? "" : part.substr(0, equals);
    if (std::ranges::find(seen, name) != seen.end())
      return bad_input(fmt::format("--outliers: found '{}' behind another {}, allowed is each once", part, name.empty() ? "number" : name));
    seen.push_back(name);
    const std::string_view number = equals == part.npos ? part : part.substr(equals + 1);
    double percent = 0;
    const auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), percent);
    if (failed != std::errc() || end != number.data() + number.size() || !(percent >= 0 && percent <= 10))
      return fault(part);
    if (name.empty())
      shares = {percent / 100, percent / 100, percent / 100};
    else if (name == "first")
      shares.first = percent / 100;
    else if (name == "middle")
      shares.middle = percent / 100;
    else if (name == "head")
      shares.head = percent / 100;
    else
      return fault(part);
  }
  return parsed;
}

Result<std::vector<FormatOverride>> parse_overrides(std::string_view text, bool gguf) {
  const auto is_allowed = [&](WeightFormat format) {
    return can_encode(format) || (!gguf && (integer_format(format).has_value() || is_direct_format(format)));
  };
  std::string names;
  for (const FormatInfo& info : format_table())
    if (is_allowed(info.format)) names += fmt::format("{}{}", names.empty() ? "" : ", ", info.name);
  std::vector<FormatOverride> overrides;
  for (const std::string_view part : split_list(text)) {
    const size_t equals = part.rfind('=');
    const auto format = equals == part.npos ? std::nullopt : format_from_name(part.substr(equals + 1));
    if (!format || equals == 0 || !is_allowed(*format))
      return bad_input(
          fmt::format("--tensor-format: found '{}', allowed are PATTERN=FORMAT with the formats {}, "
                      "separated by commas",
                      part, names));
    overrides.push_back({.pattern = std::string(part.substr(0, equals)), .format = *format});
  }
  return overrides;
}

Result<uint64_t> parse_size(std::string_view flag, std::string_view text) {
  double number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const auto fault = [&] {
    return bad_input(fmt::format("{}: found '{}', allowed is a size such as 36GB, 24GiB or 500MB", flag, text));
  };
  if (failed != std::errc() || !(number > 0)) return fault();
  if (!unit.empty() && unit.back() != 'B') return fault();
  if (!unit.empty()) unit.remove_suffix(1);
  double base = 1000;
  if (unit.ends_with('i')) base = 1024, unit.remove_suffix(1);
  constexpr std::string_view kPowers = "KMGT";
  const size_t power = unit.empty() ? std::string_view::npos : kPowers.find(unit);
  if (!unit.empty() && (unit.size() != 1 || power == kPowers.npos)) return fault();
  const double bytes = number * (unit.empty() ? 1 : std::pow(base, static_cast<double>(power + 1)));
  if (!(bytes >= 1 && bytes < 1e18)) return fault();
  return static_cast<uint64_t>(bytes);
}

}  // namespace quintet
