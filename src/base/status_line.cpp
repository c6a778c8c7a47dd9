// One flag and one mutex: who writes lines to stderr holds it.
#include "base/status_line.h"

#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <string>

namespace quintet {
namespace {

struct State {
  std::mutex mutex;
  bool shown = false;
};

State& state() {
  static State instance;
  return instance;
}

/// A bar that cannot be drawn is no error.
void put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

void clear(State& s) {
  if (s.shown) put("\r\x1b[K");
  s.shown = false;
}

}  // namespace

void show_status_line(std::string_view text) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.shown = true;
  put("\r" + std::string(text) + "\x1b[K");
}

void clear_status_line() {
  write_over_status_line([] {});
}

void write_over_status_line(const std::function<void()>& write) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  clear(s);
  write();
}

}  // namespace quintet
