// The options as a text, and patterns of names.
#include <fmt/format.h>

#include "compress/quantize_model.h"

namespace quintet {

bool matches(std::string_view pattern, std::string_view name) {
  size_t star = pattern.find('*');
  if (star == pattern.npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  // What stands between two stars may as well match where it first can: what is left of the name only gets longer.
  size_t at = star;
  while (true) {
    const size_t begin = star + 1;
    star = pattern.find('*', begin);
    const std::string_view part = pattern.substr(begin, star == pattern.npos ? star : star - begin);
    if (star == pattern.npos) return name.substr(at).ends_with(part);
    const size_t found = name.find(part, at);
    if (found == name.npos) return false;
    at = found + part.size();
  }
}

namespace {

/// What linear layers become.
std::string describe_integers(const QuantizeOptions& options) {
  static constexpr std::string_view kGranularity[] = {"tensor", "channel", "group"};
  if (options.chosen_formats) return "in formats chosen by tensor";
  const std::string shared = options.granularity == Granularity::group
                                 ? fmt::format("groups of {}", options.format.group)
                                 : fmt::format("a scale a {}", kGranularity[static_cast<int>(options.granularity)]);
  return fmt::format("{}-bit {} {}", options.format.bits, shared, options.format.minimum ? "asymmetric" : "symmetric");
}

}  // namespace

std::string describe(const QuantizeOptions& options) {
  std::string text;
  if (options.method == QuantizeMethod::gguf) {
    text = options.mix->name;
  } else if (options.method == QuantizeMethod::direct) {
    text = format_info(options.direct).name;
  } else {
    static constexpr std::string_view kNames[] = {"rtn", "outlier", "gptq", "gptq+outlier", "awq"};
    text = fmt::format("{} {}", kNames[static_cast<int>(options.method)], describe_integers(options));
  }
  if (options.has_outliers())
    text += fmt::format(", {}outliers by {} {:g}/{:g}/{:g} %", options.auto_shares ? "shared out " : "",
                        options.select == OutlierSelect::magnitude ? "magnitude" : "activation",
                        options.shares.first * 100, options.shares.middle * 100, options.shares.head * 100);
  if (options.is_gptq())
    text += fmt::format(", damping {:g}{}{}", options.damping, options.act_order ? ", act-order" : "",
                        options.true_sequential ? ", true-sequential" : "");
  if (options.layout != FolderLayout::quintet)
    text += fmt::format(", laid out for {}", options.layout == FolderLayout::gptq ? "gptq" : "awq");
  if (options.needs_calibration())
    text += fmt::format(", calibrated on {} x {} tokens", options.samples, options.length);
  return text;
}

}  // namespace quintet
