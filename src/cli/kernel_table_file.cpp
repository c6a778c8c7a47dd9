// Reads and prints kernel tables.
#include "cli/kernel_table_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_parse.h"
#include "base/printable.h"
#include "cli/flags.h"

namespace quintet {
namespace {

constexpr uint64_t kMostBytes = 64 << 10;

Error bad(std::string_view file, std::string_view key, std::string_view found, std::string_view allowed) {
  return bad_input(fmt::format("{}: {}: found {}, allowed {}", one_line(file, 200), key, found, allowed));
}

std::string choice_names() {
  std::string names = "device";
  for (const KernelChoice& choice : kernel_choices()) names += fmt::format(", {}", choice.name);
  return names;
}

}  // namespace

Result<KernelTable> parse_kernel_table(std::string_view text, std::string_view file) {
  std::vector<std::string> keys;
  std::string twice;
  const auto json = parse_json_tree(text, [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    if (depth != 1 || event != nlohmann::json::parse_event_t::key) return true;
    if (std::ranges::find(keys, parsed.get_ref<const std::string&>()) != keys.end()) twice = parsed.get<std::string>();
    keys.push_back(parsed.get<std::string>());
    return true;
  });
  if (!json.is_object()) return bad(file, "the file", "no JSON object", "is what bench --tune writes");
  if (!twice.empty()) return bad(file, printable(twice), "it twice", "is each name once");
  const auto device = json.find("device");
  if (device == json.end() || !device->is_string() || device->get_ref<const std::string&>().empty()) return bad(file, "device", "no text", "is the name of the device that the table is of");
  KernelTable table = committed_kernel_table(device->get<std::string>());
  for (const auto& [key, value] : json.items()) {
    if (key == "device") continue;
    const auto choice = std::ranges::find(kernel_choices(), key, [](const KernelChoice& one) { return one.name; });
    if (choice == kernel_choices().end()) return bad(file, printable(key), "a name that no choice has", "are " + choice_names());
    if (!value.is_number_integer() || value < choice->low || value > choice->high) {
      const std::string found = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      return bad(file, key, one_line(found, 80), fmt::format("are {} to {}", choice->low, choice->high));
    }
    table.*choice->value = value.get<int32_t>();
  }
  return table;
}

Result<KernelTable> read_kernel_table(const std::string& path) {
  TRY_ASSIGN(const std::string text, read_text(path, "kernel table", kMostBytes));
  return parse_kernel_table(text, path);
}

std::string kernel_table_json(const KernelTable& table) {
  nlohmann::ordered_json json = {{"device", table.device}};
  for (const KernelChoice& choice : kernel_choices()) json[std::string(choice.name)] = table.*choice.value;
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace quintet
