// The table that the handler of SIGBUS reads, and the handler.
#include "io/mapping_guard.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>

#include "base/printable.h"

namespace quintet {
namespace {

constexpr size_t kMappings = 512;  // a split set of a large model has some hundred
constexpr size_t kMaxPathBytes = 400;

struct Slot {
  std::atomic<uintptr_t> begin{0}, end{0};  // begin is set last: 0 means free
  char path[kMaxPathBytes + 8] = "";
};
static_assert(std::atomic<uintptr_t>::is_always_lock_free);

// A signal handler can reach nothing but static state.
struct Table {
  std::mutex mutex;  // of those who write
  std::array<Slot, kMappings> slots;
  std::atomic<bool> overflowed{false};
};

Table& table() {
  static Table instance;
  return instance;
}

void write_text(const char* text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text));
}

void on_bus_error(int number, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  const Table& mappings = table();
  const char* path = mappings.overflowed ? "a mapped model file" : nullptr;
  for (const Slot& slot : mappings.slots)
    if (const uintptr_t begin = slot.begin; begin != 0 && at >= begin && at < slot.end) path = slot.path;
  if (path == nullptr) {
    ::signal(number, SIG_DFL);  // returning repeats the fault, which then ends the process
    return;
  }
  write_text("quintet: ");
  write_text(path);
  write_text(
      ": found it shorter than when it was opened, or unreadable, allowed is a file that stays as it is "
      "while in use\n");
  ::_exit(1);
}

}  // namespace

void guard_mappings() {
  table();  // made here, not in the handler
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

void enter_mapping(std::span<const uint8_t> bytes, std::string_view path) {
  Table& mappings = table();
  std::lock_guard lock(mappings.mutex);
  const auto slot = std::find_if(mappings.slots.begin(), mappings.slots.end(),
                                 [](const Slot& candidate) { return candidate.begin == 0; });
  if (slot == mappings.slots.end()) {
    mappings.overflowed = true;
    return;
  }
  const std::string name = one_line(path, kMaxPathBytes - 4);
  std::strncpy(slot->path, name.c_str(), sizeof slot->path - 1);
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  slot->end = begin + bytes.size();
  slot->begin = begin;
}

void leave_mapping(std::span<const uint8_t> bytes) {
  Table& mappings = table();
  std::lock_guard lock(mappings.mutex);
  for (Slot& slot : mappings.slots)
    if (slot.begin == reinterpret_cast<uintptr_t>(bytes.data())) slot.begin = 0;
}

}  // namespace quintet
