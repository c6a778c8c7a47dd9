// Signal handlers that count and wake a poll.
#include "cli/interrupt.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "base/check.h"

namespace quintet {
namespace {

// A signal handler can reach nothing but static state.
struct State {
  // count only grows: what was seen or forgotten is remembered beside it, so that no signal is ever lost
  // between two lines.
  std::atomic<int> signal{0}, count{0}, seen{0}, forgotten{0}, kill_after{2};
  int pipe[2] = {-1, -1};
  struct sigaction old_int {
  }, old_term{};
};
static_assert(std::atomic<int>::is_always_lock_free);

State& state() {
  static State instance;
  return instance;
}

void on_signal(int number) {
  State& s = state();
  s.signal = number;
  if (s.count.fetch_add(1) + 1 - s.forgotten >= s.kill_after) {
    ::signal(number, SIG_DFL);
    ::raise(number);  // delivered when this handler returns
  }
  const char byte = 0;
  [[maybe_unused]] auto written = ::write(s.pipe[1], &byte, 1);  // a full pipe is readable all the same
}

}  // namespace

Interrupts::Interrupts(int kill_after) {
  State& s = state();
  QUINTET_CHECK(s.pipe[0] < 0, "two Interrupts at once");
  QUINTET_CHECK(::pipe2(s.pipe, O_CLOEXEC | O_NONBLOCK) == 0);
  s.forgotten = s.seen = s.count.load();
  s.kill_after = kill_after;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, nullptr, &s.old_int);
  // A shell starts background jobs with SIGINT ignored, and that must stay so.
  if (s.old_int.sa_handler != SIG_IGN) ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, &s.old_term);
}

Interrupts::~Interrupts() {
  State& s = state();
  ::sigaction(SIGINT, &s.old_int, nullptr);
  ::sigaction(SIGTERM, &s.old_term, nullptr);
  ::close(s.pipe[0]);
  ::close(s.pipe[1]);
  s.pipe[0] = s.pipe[1] = -1;
}

int Interrupts::signal() const { return state().count != state().seen ? state().signal.load() : 0; }
int Interrupts::count() const { return state().count - state().forgotten; }
int Interrupts::wake_fd() const { return state().pipe[0]; }

void Interrupts::acknowledge() {
  drain();
  state().seen = state().count.load();
}

void Interrupts::clear() { state().forgotten = state().seen.load(); }

void Interrupts::drain() const {
  char bytes[64];
  while (::read(state().pipe[0], bytes, sizeof(bytes)) > 0) {
  }
}

void ignore_broken_pipes() { ::signal(SIGPIPE, SIG_IGN); }

}  // namespace quintet
