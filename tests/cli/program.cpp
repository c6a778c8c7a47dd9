// Forks, pipes and terminals for tests of the program.
#include "cli/program.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <thread>

namespace quintet::test {
namespace {

using Clock = std::chrono::steady_clock;

void make_pipe(int ends[2]) { ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0); }

void close_fd(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

/// False at the end.
bool take(int& fd, std::string& text) {
  char bytes[4096];
  const ssize_t got = ::read(fd, bytes, sizeof(bytes));
  if (got > 0) return text.append(bytes, static_cast<size_t>(got)), true;
  if (got < 0 && errno == EINTR) return true;
  close_fd(fd);  // a terminal whose other side has gone gives EIO
  return false;
}

}  // namespace

Program::Program(const Args& args, Streams streams, const std::string& stdout_path)
    : terminal_(streams == Streams::terminal) {
  std::vector<char*> argv;
  std::string program = QUINTET_PROGRAM;
  argv.push_back(program.data());
  Args copy = args;
  for (auto& arg : copy) argv.push_back(arg.data());
  argv.push_back(nullptr);
  int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
  make_pipe(out);
  if (terminal_) {
    int master = -1;
    pid_ = ::forkpty(&master, nullptr, nullptr, nullptr);
    if (pid_ != 0) {
      ::fcntl(master, F_SETFD, FD_CLOEXEC);
      in_ = master;
      err_ = ::fcntl(master, F_DUPFD_CLOEXEC, 0);
    }
  } else {
    make_pipe(in);
    make_pipe(err);
    pid_ = ::fork();
  }
  if (pid_ == 0) {
    if (!terminal_) {
      ::dup2(in[0], 0);
      ::dup2(err[1], 2);
    }
    const int sink = stdout_path.empty() ? out[1] : ::open(stdout_path.c_str(), O_WRONLY);
    ::dup2(sink, 1);
    ::signal(SIGINT, SIG_DFL);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  out_ = out[0];
  ::close(out[1]);
  if (!terminal_) {
    ::close(in[0]);
    ::close(err[1]);
    in_ = in[1];
    err_ = err[0];
  }
  ::signal(SIGPIPE, SIG_IGN);  // it may end before it has read all
}

Program::~Program() {
  if (!reaped_ && pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  close_fd(in_);
  close_fd(out_);
  close_fd(err_);
}

void Program::write(std::string_view text) {
  // Reads meanwhile: two full pipes would wait for each other.
  while (!text.empty() && in_ >= 0) {
    pollfd ready{in_, POLLOUT, 0};
    if (::poll(&ready, 1, 10) > 0) {
      const ssize_t written = ::write(in_, text.data(), std::min<size_t>(text.size(), 4096));
      if (written < 0 && errno != EINTR) return;
      if (written > 0) text.remove_prefix(static_cast<size_t>(written));
    }
    pump(0);
  }
}

void Program::close_input() {
  if (terminal_)
    write("\x04");
  else
    close_fd(in_);
}

void Program::close_output() { close_fd(out_); }
void Program::send_signal(int number) { ::kill(pid_, number); }

bool Program::pump(int wait_ms) {
  pollfd fds[2] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};
  if (out_ < 0 && err_ < 0) return false;
  ::poll(fds, 2, wait_ms);
  if (out_ >= 0 && fds[0].revents) take(out_, out_text_);
  if (err_ >= 0 && fds[1].revents) take(err_, err_text_);
  return true;
}

bool Program::wait(std::string& so_far, size_t& seen, std::string_view text, std::chrono::seconds limit) {
  const auto end = Clock::now() + limit;
  for (;;) {
    const size_t found = so_far.find(text, seen);
    if (found != std::string::npos) {
      seen = found + text.size();
      return true;
    }
    if (Clock::now() > end || !pump(50)) return so_far.find(text, seen) != std::string::npos;
  }
}

bool Program::wait_out(std::string_view text, std::chrono::seconds limit) {
  return wait(out_text_, out_seen_, text, limit);
}
bool Program::wait_err(std::string_view text, std::chrono::seconds limit) {
  return wait(err_text_, err_seen_, text, limit);
}

Outcome Program::finish(std::chrono::seconds limit) {
  if (!terminal_) close_input();
  const auto end = Clock::now() + limit;
  Outcome outcome;
  int status = 0;
  while (::waitpid(pid_, &status, WNOHANG) == 0) {
    if (Clock::now() > end) {
      outcome.timed_out = true;
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, &status, 0);
      break;
    }
    if (!pump(20)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  reaped_ = true;
  if (terminal_)
    pump(100);
  else
    while (pump(1000)) {
    }
  outcome.killed = WIFSIGNALED(status);
  outcome.code = outcome.killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  outcome.out = out_text_;
  outcome.err = err_text_;
  return outcome;
}

Outcome run(const Args& args, std::string_view input) {
  Program program(args);
  program.write(input);
  return program.finish();
}

std::string source_path(std::string_view relative) {
  return std::string(QUINTET_SOURCE_DIR) + "/" + std::string(relative);
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "quintet-cli-XXXXXX").string();
  path_ = ::mkdtemp(pattern.data());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::write(std::string_view name, std::string_view bytes) const {
  std::ofstream(path(name), std::ios::binary) << bytes;
  return path(name);
}

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void expect_error(const Outcome& outcome, int code, const std::vector<std::string>& parts) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_FALSE(outcome.killed || outcome.timed_out) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("quintet")) << outcome.err;
  for (const auto& part : parts)
    EXPECT_NE(outcome.err.find(part), std::string::npos) << "'" << part << "' is not in: " << outcome.err;
}

}  // namespace quintet::test
