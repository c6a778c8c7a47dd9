// Ctrl-C and SIGTERM as something that a loop can look at.
#pragma once

namespace quintet {

/// While one lives, SIGINT and SIGTERM are counted instead of ending the process, so that a verb can stop its
/// work and clean up; the signal number `kill_after` in a row ends the process at once, so that nobody is
/// ever stuck. At most one lives at a time. Before and after, the default action holds.
class Interrupts {
 public:
  explicit Interrupts(int kill_after = 2);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// The last signal since clear() or acknowledge(), 0 where none came.
  int signal() const;
  /// How many came since clear().
  int count() const;
  /// The signal was seen; it still counts.
  void acknowledge();
  void clear();
  /// Becomes readable when a signal comes, until clear() or acknowledge(): for poll(2).
  int wake_fd() const;
};

/// Writing to a closed pipe gives EPIPE instead of ending the process. Call once at start.
void ignore_broken_pipes();

}  // namespace quintet
