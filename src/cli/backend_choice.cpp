// The table of backends and how --device picks one.
#include "cli/backend_choice.h"

#include <array>
#include <charconv>

#include "backend/cpu/cpu.h"
#include "backend/reference/reference.h"

namespace quintet {
namespace {

struct BackendEntry {
  std::string_view name;
  bool numbered;  ///< takes ":N", the index of a device
  Result<std::unique_ptr<Backend>> (*make)(const BackendOptions& options, int index);
};

// The first row is what "auto" means.
constexpr std::array kBackends = {
    BackendEntry{"cpu", false,
                 [](const BackendOptions& options, int) -> Result<std::unique_ptr<Backend>> {
                   return make_cpu_backend(CpuOptions{.threads = options.threads});
                 }},
    BackendEntry{"reference", false,
                 [](const BackendOptions&, int) -> Result<std::unique_ptr<Backend>> {
                   return make_reference_backend();
                 }},
};

constexpr auto kNames = [] {
  std::array<std::string_view, kBackends.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kBackends[i].name;
  return names;
}();

struct Choice {
  const BackendEntry* entry;
  int index;
};

std::string allowed_devices() {
  std::string text = "auto";
  for (const auto& entry : kBackends) text += fmt::format(", {}{}", entry.name, entry.numbered ? "[:N]" : "");
  return text;
}

Result<Choice> choose(std::string_view device) {
  if (device == "auto") return Choice{&kBackends.front(), 0};
  const size_t colon = device.find(':');
  const std::string_view name = device.substr(0, colon);
  for (const auto& entry : kBackends) {
    if (entry.name != name) continue;
    if (colon == std::string_view::npos) return Choice{&entry, 0};
    const std::string_view digits = device.substr(colon + 1);
    int index = -1;
    auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (entry.numbered && failed == std::errc() && end == digits.data() + digits.size() && index >= 0)
      return Choice{&entry, index};
  }
  const bool known = name == "cuda";
  return bad_input(fmt::format("--device: found '{}'{}, allowed are {}", device,
                               known ? ", which is not in this build" : "", allowed_devices()));
}

}  // namespace

std::span<const std::string_view> backend_names() { return kNames; }

Status check_device(std::string_view device) {
  TRY(choose(device));
  return {};
}

Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options) {
  TRY_ASSIGN(const Choice choice, choose(options.device));
  return choice.entry->make(options, choice.index);
}

}  // namespace quintet
