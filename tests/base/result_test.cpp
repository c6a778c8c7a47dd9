// Result, TRY and the unit names.
#include "base/result.h"

#include <gtest/gtest.h>

#include "base/units.h"

namespace quintet {
namespace {

Result<int> half_of(int value) {
  if (value % 2) return bad_input(fmt::format("found {}, allowed are even numbers", value));
  return value / 2;
}

Result<int> quarter_of(int value) {
  TRY_ASSIGN(int half, half_of(value));
  TRY(half_of(half));
  return half_of(half);
}

TEST(Result, CarriesValuesAndErrors) {
  EXPECT_EQ(*quarter_of(8), 2);
  auto failed = quarter_of(6);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind, ErrorKind::bad_input);
  EXPECT_EQ(failed.error().message, "found 3, allowed are even numbers");
}

TEST(Result, ValueOfAnErrorStopsTheProcess) { EXPECT_DEATH((void)half_of(1).value(), "invariant broken"); }

TEST(Units, NameBytes) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(uint64_t{3} << 30), "3.0 GiB");
}

}  // namespace
}  // namespace quintet
