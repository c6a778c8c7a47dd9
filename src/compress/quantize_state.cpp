// One array a tensor.
#include "compress/quantize_state.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const TensorReport& t) {
  return {t.name, static_cast<int>(t.format), t.changed, t.weights, t.bytes, t.outliers, t.error, t.note};
}

TensorReport report_of(const Json& saved) {
  return {.name = saved[0].get<std::string>(),
          .format = static_cast<WeightFormat>(saved[1].get<int>()),
          .changed = saved[2].get<bool>(),
          .weights = saved[3].get<int64_t>(),
          .bytes = saved[4].get<uint64_t>(),
          .outliers = saved[5].get<int64_t>(),
          .error = saved[6].get<double>(),
          .note = saved[7].get<std::string>()};
}

}  // namespace

Json to_json(const QuantizeState& state) {
  Json report = Json::array();
  for (const TensorReport& tensor : state.report) report.push_back(to_json(tensor));
  return {{"tensors", state.tensors},
          {"entering", state.entering},
          {"sink", nullptr},
          {"shares", state.shares},
          {"report", std::move(report)}};
}

QuantizeState saved_state(const Json& saved) {
  QuantizeState state{.tensors = saved.at("tensors").get<size_t>(), .entering = saved.at("entering").get<int>()};
  // Work of a version before there were any has none.
  const Json shares = saved.value("shares", Json::object());
  for (const auto& [name, share] : shares.items()) state.shares[name] = share.get<double>();
  for (const Json& tensor : saved.at("report")) state.report.push_back(report_of(tensor));
  return state;
}

}  // namespace quintet
