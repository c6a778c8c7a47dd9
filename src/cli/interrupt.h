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

  /// The last signal, 0 where none came that was not acknowledged.
  int signal() const;
  /// How many came since clear().
  int count() const;
  /// Those that came so far were seen; they still count. Look at count() after it, not before: one more may
  /// come between.
  void acknowledge();
  /// Those that were acknowledged no longer count.
  void clear();
  /// Becomes readable when a signal comes, until drain(): for poll(2). It may be so without a signal():
  /// drain() then.
  int wake_fd() const;
  void drain() const;
};

/// Writing to a closed pipe gives EPIPE instead of ending the process. Call once at start.
void ignore_broken_pipes();

}  // namespace quintet
