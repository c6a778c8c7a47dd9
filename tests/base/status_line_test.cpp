// The unfinished line of stderr: lines that come meanwhile stand alone.
#include "base/status_line.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace quintet {
namespace {

/// What `body` writes to stderr.
template <class Body>
std::string stderr_of(Body body) {
  std::FILE* file = std::tmpfile();
  std::fflush(stderr);
  const int old = ::dup(STDERR_FILENO);
  ::dup2(::fileno(file), STDERR_FILENO);
  body();
  ::dup2(old, STDERR_FILENO);
  ::close(old);
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST(StatusLine, IsTakenAwayOnceBeforeALine) {
  const std::string text = stderr_of([] {
    show_status_line("10 %");
    show_status_line("20 %");
    for (int i = 0; i < 2; ++i)
      write_over_status_line([] { EXPECT_EQ(::write(STDERR_FILENO, "line\n", 5), 5); });
    show_status_line("30 %");
    clear_status_line();
    clear_status_line();
  });
  EXPECT_EQ(text, "\r10 %\x1b[K\r20 %\x1b[K\r\x1b[Kline\nline\n\r30 %\x1b[K\r\x1b[K");
}

}  // namespace
}  // namespace quintet
