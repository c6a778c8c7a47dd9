// What untrusted text looks like at a terminal: one line, of bounded length, with nothing in it that moves a
// cursor.
#include "base/printable.h"

#include <gtest/gtest.h>

namespace quintet {
namespace {

TEST(Printable, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(one_line(std::string("a\x1b[31m\n\r\t\0\x7f", 10), 100), R"(a\x1b[31m\n\x0d\t\x00)");
  EXPECT_EQ(one_line("é世😀", 100), "é世😀");
  EXPECT_EQ(one_line("\xFF\xC3 \xED\xA0\x80 \xC0\xAF", 100), R"(\xff\xc3 \xed\xa0\x80 \xc0\xaf)");
  EXPECT_EQ(one_line("\xC2\x9B"
                     "31m",
                     100),
            R"(\xc2\x9b31m)")
      << "a control character of two bytes";
}

TEST(Printable, CutsAtWholeCharacters) {
  EXPECT_EQ(one_line(std::string(20'000'000, 'x'), 10), "xxxxxxxxxx...");
  EXPECT_EQ(one_line("世世世", 4), "世世...");
  EXPECT_EQ(one_line("abc", 3), "abc");
}

TEST(Printable, QuotesEndBeforeTheCut) {
  EXPECT_EQ(printable("a\nb"), R"('a\nb')");
  EXPECT_EQ(printable("abcdef", 3), "'abc'...");
  EXPECT_EQ(printable("a..."), "'a...'");
}

}  // namespace
}  // namespace quintet
