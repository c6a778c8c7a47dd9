// Walks a config.json for the project's own quantization_config.
#include "io/quintet_config.h"

#include <fmt/format.h>

#include "io/json_walk.h"
#include "base/printable.h"

namespace quintet {

Result<std::optional<TensorFormats>> read_quintet_config(const std::string& path, std::string_view config) {
  if (config.empty()) return std::optional<TensorFormats>();  // a folder of texts alone has none
  TensorFormats formats;
  std::string method;
  std::optional<uint64_t> version;
  Status fault;
  const auto visit = [&](const JsonEvent& event) -> Status {
    if (event.path.size() < 2 || event.path.front() != "quantization_config") return {};
    const std::string& key = event.path[1];
    const bool is_string = event.kind == JsonEvent::Kind::string;
    if (event.path.size() == 2 && key == "quant_method" && is_string) method = event.string;
    if (event.path.size() == 2 && key == "version" && event.kind == JsonEvent::Kind::unsigned_integer)
      version = event.integer;
    if (event.path.size() != 3 || key != "formats" || !fault) return {};
    // Another method may have a key of this name: faults count only once the method is known.
    const auto format = is_string ? format_from_name(event.string) : std::nullopt;
    if (format)
      formats[event.path[2]] = *format;
    else
      fault = bad_input(fmt::format(
          "{}: quantization_config: formats: {}: found {}, allowed is the name of a weight format", path,
          printable(event.path[2]),
          is_string ? printable(event.string) : std::string(json_kind_name(event.kind))));
    return {};
  };
  TRY(walk_json(config, path, 64, visit));
  if (method != kQuintetMethod) return std::optional<TensorFormats>();
  if (version != static_cast<uint64_t>(kQuintetVersion))
    return bad_input(fmt::format("{}: quantization_config: version: found {}, allowed is {}", path,
                                 version ? fmt::format("{}", *version) : "none", kQuintetVersion));
  TRY(fault);
  return std::optional<TensorFormats>(std::move(formats));
}

}  // namespace quintet
