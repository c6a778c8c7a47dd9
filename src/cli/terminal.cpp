// Reads and writes of the standard streams.
#include "cli/terminal.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/printable.h"
#include "base/status_line.h"
#include "base/units.h"
#include "cli/interrupt.h"

namespace quintet {
namespace {

constexpr size_t kCollectBytes = 64 << 10;
constexpr size_t kReadBytes = 64 << 10;
constexpr int64_t kDrawEvery_us = 100'000;
constexpr int kBarCells = 30;

Status write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EPIPE) {
      return Error{ErrorKind::cancelled, "standard output was closed"};
    } else if (errno == EAGAIN) {
      pollfd wait{fd, POLLOUT, 0};
      ::poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      return io_error(fmt::format("standard output: {}", std::strerror(errno)));
    }
  }
  return {};
}

}  // namespace

Status Output::print(std::string_view text) {
  TRY(flush());
  return write_all(STDOUT_FILENO, text);
}

Status Output::collect(std::string_view text) {
  held_ += text;
  return held_.size() < kCollectBytes ? Status() : flush();
}

Status Output::flush() {
  if (held_.empty()) return {};
  std::string text;
  text.swap(held_);  // also where the write fails: nothing is written twice
  return write_all(STDOUT_FILENO, text);
}

bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

void say(std::string_view line) { hint(std::string(line) + '\n'); }

void hint(std::string_view text) {
  write_over_status_line([&] { (void)write_all(STDERR_FILENO, text); });
}

void say_error(std::string_view who, std::string_view message) {
  constexpr size_t kMostBytes = 4096;
  say(one_line(fmt::format("{}: {}", who, message), kMostBytes));
}

LineReader::Outcome LineReader::read(std::string& line) {
  for (;;) {
    const size_t newline = held_.find('\n', std::max(begin_, scanned_));
    if (newline != std::string::npos || (end_ && begin_ < held_.size())) {
      const size_t stop = newline != std::string::npos ? newline : held_.size();
      line.assign(held_, begin_, stop - begin_);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      begin_ = newline != std::string::npos ? newline + 1 : held_.size();
      return Outcome::line;
    }
    if (end_) return Outcome::end;
    scanned_ = held_.size();
    if (begin_ > 0) {
      held_.erase(0, begin_);
      scanned_ -= begin_;
      begin_ = 0;
    }
    if (interrupts_) {
      if (interrupts_->signal() != 0) return Outcome::interrupted;
      pollfd wait[2] = {{STDIN_FILENO, POLLIN, 0}, {interrupts_->wake_fd(), POLLIN, 0}};
      ::poll(wait, 2, -1);
      if (interrupts_->signal() != 0) return Outcome::interrupted;
      if (wait[1].revents != 0)
        interrupts_->drain();  // of a signal that was acknowledged before its byte came
      if (wait[0].revents == 0) continue;
    }
    const size_t old = held_.size();
    held_.resize(old + kReadBytes);
    const ssize_t got = ::read(STDIN_FILENO, held_.data() + old, kReadBytes);
    held_.resize(old + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) end_ = true;
  }
}

ProgressBar::ProgressBar(std::string label, Unit unit)
    : label_(std::move(label)), unit_(unit), enabled_(stderr_is_terminal()) {}

ProgressBar::~ProgressBar() { hide(); }

void ProgressBar::hide() {
  if (enabled_) clear_status_line();
}

void ProgressBar::update(uint64_t done, uint64_t total) {
  if (!enabled_ || total == 0) return;
  const int64_t now = now_us();
  if (!first_done_) first_done_ = done, start_us_ = now;
  if (now - last_us_ < kDrawEvery_us) return;
  last_us_ = now;
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const auto full = static_cast<size_t>(share * kBarCells);
  const double seconds = std::max(1e-6, static_cast<double>(now - start_us_) * 1e-6);
  const double speed = static_cast<double>(done - std::min(done, *first_done_)) / seconds;
  const auto amount = [&](uint64_t value) {
    return unit_ == Unit::bytes ? format_bytes(value) : fmt::format("{} {}", value, unit_ == Unit::tokens ? "tokens" : "steps");
  };
  const std::string left = speed > 0 ? fmt::format(", {:.0f} s left", static_cast<double>(total - std::min(done, total)) / speed) : "";
  show_status_line(fmt::format("{} [{}{}] {:3.0f} % of {} at {}/s{}", label_, std::string(full, '='),
                               std::string(kBarCells - full, ' '), share * 100, amount(total), amount(static_cast<uint64_t>(speed)),
                               left));
}

}  // namespace quintet
