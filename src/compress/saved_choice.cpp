// One array a group; what follows from the choices is not kept.
#include "compress/saved_choice.h"

#include <nlohmann/json.hpp>

namespace quintet {

using Json = nlohmann::ordered_json;

Json to_json(const ChosenFormats& chosen) {
  Json choices = Json::array();
  for (const FormatChoice& c : chosen.choices)
    choices.push_back({c.name, c.tensors, static_cast<int>(c.format), c.changed, c.bytes, static_cast<int>(c.probe), c.probe_kl, c.expected_kl});
  return {{"choices", std::move(choices)}, {"bytes", chosen.bytes}, {"expected_kl", chosen.expected_kl}};
}

ChosenFormats saved_choice(const Json& saved) {
  ChosenFormats chosen{.basis = ChoiceBasis::saved,
                       .bytes = saved.at("bytes").get<uint64_t>(),
                       .expected_kl = saved.at("expected_kl").get<double>()};
  for (const Json& c : saved.at("choices"))
    chosen.choices.push_back({.name = c.at(0).get<std::string>(),
                              .tensors = c.at(1).get<std::vector<std::string>>(),
                              .format = static_cast<WeightFormat>(c.at(2).get<int>()),
                              .changed = c.at(3).get<bool>(),
                              .bytes = c.at(4).get<uint64_t>(),
                              .probe = static_cast<WeightFormat>(c.at(5).get<int>()),
                              .probe_kl = c.at(6).get<double>(),
                              .expected_kl = c.at(7).get<double>()});
  chosen.overrides = overrides_of(chosen.choices);
  return chosen;
}

std::vector<FormatOverride> overrides_of(const std::vector<FormatChoice>& choices) {
  std::vector<FormatOverride> overrides;
  for (const FormatChoice& choice : choices)
    for (const std::string& name : choice.tensors)
      overrides.push_back({.pattern = name, .format = choice.format, .stays = !choice.changed});
  return overrides;
}

}  // namespace quintet
