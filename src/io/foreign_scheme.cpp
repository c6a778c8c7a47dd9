// Reads quantization_config of GPTQ, AWQ, bitsandbytes, compressed-tensors and FP8.
#include "io/foreign_scheme.h"

#include <fmt/format.h>

#include "base/json_parse.h"
#include "base/printable.h"

namespace quintet {
namespace {

using Json = nlohmann::json;
using Kind = ForeignScheme::Kind;

constexpr std::string_view kMethods = "gptq, awq, bitsandbytes (nf4), compressed-tensors (pack-quantized, float-quantized, "
                                      "int-quantized) and fp8 without blocks, or weights in F32, F16 or BF16";

/// One object of settings and the file it stands in.
class Settings {
 public:
  Settings(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  /// The value under the first of the keys that is there and not null; null where none is.
  const Json& find(std::initializer_list<const char*> keys) const {
    static const Json kNone;
    for (const char* key : keys)
      if (const auto at = json_.find(key); at != json_.end() && !at->is_null()) return *at;
    return kNone;
  }
  Error wrong(std::string_view key, const Json& found, std::string_view allowed) const {
    return bad_input(fmt::format("{}: {}: found {}, allowed is {}", where_, key,
                                 found.is_null() ? "nothing"
                                 : found.is_string() ? printable(found.get<std::string>())
                                                     : found.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 80),
                                 allowed));
  }
  Result<int64_t> integer(std::initializer_list<const char*> keys, int64_t fallback) const {
    const Json& value = find(keys);
    if (value.is_null()) return fallback;
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX))
      return wrong(*keys.begin(), value, "a whole number of at most 63 bits");
    return value.get<int64_t>();
  }
  Result<bool> flag(const char* key, bool fallback) const {
    const Json& value = find({key});
    if (value.is_null()) return fallback;
    if (!value.is_boolean()) return wrong(key, value, "true or false");
    return value.get<bool>();
  }
  Result<std::string> text(std::initializer_list<const char*> keys, std::string_view fallback) const {
    const Json& value = find(keys);
    if (value.is_null()) return std::string(fallback);
    if (!value.is_string()) return wrong(*keys.begin(), value, "a text");
    return value.get<std::string>();
  }
  const std::string& where() const { return where_; }

 private:
  const Json& json_;
  std::string where_;
};

Status read_bits_and_group(const Settings& settings, ForeignScheme& scheme) {
  TRY_ASSIGN(const int64_t bits, settings.integer({"bits", "w_bit", "num_bits"}, 4));
  TRY_ASSIGN(scheme.group, settings.integer({"group_size", "q_group_size"}, 128));
  if (bits != 3 && bits != 4 && bits != 8) return settings.wrong("bits", Json(bits), "3, 4 or 8");
  scheme.bits = static_cast<int>(bits);
  if (scheme.group != -1 && (scheme.group < 32 || scheme.group % 32 != 0 || scheme.group > (1 << 20)))
    return settings.wrong("group_size", Json(scheme.group), "-1 or a multiple of 32");
  return {};
}

Result<ForeignScheme> read_gptq(const Settings& settings) {
  ForeignScheme scheme{.kind = Kind::gptq};
  TRY(read_bits_and_group(settings, scheme));
  TRY_ASSIGN(scheme.symmetric, settings.flag("sym", true));
  TRY_ASSIGN(scheme.act_order, settings.flag("desc_act", false));
  TRY_ASSIGN(const std::string format, settings.text({"checkpoint_format", "format"}, "gptq"));
  if (format != "gptq" && format != "gptq_v2") return settings.wrong("checkpoint_format", Json(format), "gptq or gptq_v2");
  scheme.zeros_less_one = format == "gptq";
  return scheme;
}

Result<ForeignScheme> read_awq(const Settings& settings) {
  ForeignScheme scheme{.kind = Kind::awq};
  TRY(read_bits_and_group(settings, scheme));
  if (scheme.bits != 4) return settings.wrong("bits", Json(scheme.bits), "4");
  TRY_ASSIGN(const std::string version, settings.text({"version", "format"}, "gemm"));
  if (version != "gemm" && version != "GEMM") return settings.wrong("version", Json(version), "gemm");
  TRY_ASSIGN(const bool zero_point, settings.flag("zero_point", true));
  scheme.symmetric = !zero_point;
  return scheme;
}

Result<ForeignScheme> read_bitsandbytes(const Settings& settings) {
  TRY_ASSIGN(const bool four, settings.flag("load_in_4bit", false));
  TRY_ASSIGN(const std::string type, settings.text({"bnb_4bit_quant_type"}, "fp4"));
  if (!four) return settings.wrong("load_in_4bit", settings.find({"load_in_4bit"}), "true");
  if (type != "nf4") return settings.wrong("bnb_4bit_quant_type", Json(type), "nf4");
  return ForeignScheme{.kind = Kind::bitsandbytes, .group = 64, .symmetric = false};
}

Result<ForeignScheme> read_compressed_tensors(const Settings& settings) {
  TRY_ASSIGN(const std::string format, settings.text({"format"}, ""));
  const Json& groups = settings.find({"config_groups"});
  if (!groups.is_object() || groups.empty()) return settings.wrong("config_groups", groups, "an object of groups");
  std::optional<ForeignScheme> scheme;
  for (const auto& [name, group] : groups.items()) {
    const std::string where = fmt::format("{}: config_groups: {}", settings.where(), printable(name));
    if (!group.is_object() || !group.contains("weights") || !group["weights"].is_object())
      return bad_input(fmt::format("{}: found no weights, allowed is an object of their settings", where));
    const Settings weights(group["weights"], where + ": weights");
    TRY_ASSIGN(const std::string own, Settings(group, where).text({"format"}, format));
    TRY_ASSIGN(const std::string type, weights.text({"type"}, "int"));
    TRY_ASSIGN(const std::string strategy, weights.text({"strategy"}, "tensor"));
    ForeignScheme one;
    if (own == "pack-quantized") {
      if (type != "int") return weights.wrong("type", Json(type), "int");
      one.kind = Kind::packed;
      TRY(read_bits_and_group(weights, one));
      if (strategy == "channel") one.group = -1;
      if (strategy != "channel" && strategy != "group") return weights.wrong("strategy", Json(strategy), "group or channel");
      TRY_ASSIGN(one.symmetric, weights.flag("symmetric", true));
      // By group (true, dynamic: the same), inputs lie in another order than their groups, which is not read.
      const Json& order = weights.find({"actorder"});
      if (!order.is_null() && order != false && order != "weight" && order != "static")
        return weights.wrong("actorder", order, "weight, or none");
    } else if (own == "float-quantized" || own == "int-quantized" || own == "naive-quantized") {
      TRY_ASSIGN(const int64_t bits, weights.integer({"num_bits"}, 8));
      if (bits != 8) return weights.wrong("num_bits", Json(bits), "8");
      if (type != "int" && type != "float") return weights.wrong("type", Json(type), "int or float");
      if (strategy != "channel" && strategy != "tensor") return weights.wrong("strategy", Json(strategy), "channel or tensor");
      one = {.kind = Kind::rows, .bits = 8, .group = -1};
      if (!weights.find({"type"}).is_null()) one.rows_dtype = type == "float" ? "F8_E4M3" : "I8";
    } else {
      return settings.wrong("format", Json(own), "pack-quantized, float-quantized or int-quantized");
    }
    const bool same = !scheme || (scheme->kind == one.kind && scheme->bits == one.bits && scheme->group == one.group &&
                                  scheme->symmetric == one.symmetric && scheme->rows_dtype == one.rows_dtype);
    if (!same) return bad_input(fmt::format("{}: found settings that differ from the first group's, allowed are the same", where));
    scheme = one;
  }
  return *scheme;
}

Result<ForeignScheme> read_fp8(const Settings& settings) {
  const Json& block = settings.find({"weight_block_size"});
  if (!block.is_null()) return settings.wrong("weight_block_size", block, "none: one scale a tensor or row");
  return ForeignScheme{.kind = Kind::rows, .bits = 8, .group = -1};
}

}  // namespace

Result<std::optional<ForeignScheme>> read_foreign_scheme(const std::string& folder, std::string_view config,
                                                         std::string_view sidecar) {
  const std::string path = folder + "/config.json";
  const Json whole = parse_json_tree(config);
  Json json;
  std::string where = path + ": quantization_config";
  if (whole.is_object())
    for (const char* key : {"quantization_config", "compression_config", "quantization"})
      if (json.is_null() && whole.contains(key)) json = whole[key];
  if (json.is_null() && !sidecar.empty()) {
    where = folder + "/quantize_config.json";
    json = parse_json_tree(sidecar);
    if (!json.is_object()) return bad_input(fmt::format("{}: found no JSON object, allowed are the settings of GPTQ", where));
    if (!json.contains("quant_method")) json["quant_method"] = "gptq";
  }
  if (json.is_null()) return std::optional<ForeignScheme>();
  if (!json.is_object()) return bad_input(fmt::format("{}: found no object, allowed are {}", where, kMethods));
  const Settings settings(json, where);
  TRY_ASSIGN(const std::string method, settings.text({"quant_method"}, ""));
  const auto wrap = [](Result<ForeignScheme> read) -> Result<std::optional<ForeignScheme>> {
    if (!read) return read.error();
    return std::optional(*read);
  };
  if (method == "gptq") return wrap(read_gptq(settings));
  if (method == "awq") return wrap(read_awq(settings));
  if (method == "bitsandbytes") return wrap(read_bitsandbytes(settings));
  if (method == "compressed-tensors") return wrap(read_compressed_tensors(settings));
  if (method == "fp8") return wrap(read_fp8(settings));
  std::string keys;
  for (const auto& [key, value] : json.items())
    if (keys.size() < 200) keys += (keys.empty() ? "" : ", ") + printable(key, 40);
  return bad_input(fmt::format("{}: found {}, allowed are {}", where,
                               !method.empty() ? printable(method)
                               : keys.empty()  ? std::string("a quantized model")
                                               : "the keys " + keys,
                               kMethods));
}

}  // namespace quintet
