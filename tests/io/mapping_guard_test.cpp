// A mapped file that others cut short: the process says which, and ends.
#include "io/mapping_guard.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "io/file_builder.h"
#include "io/mapped_file.h"

namespace quintet {
namespace {

TEST(MappingGuardDeathTest, NamesTheFileThatBecameShorter) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const test::TempFolder folder;
  const std::string path = folder.write("model\x1b.gguf", std::string(64 << 10, 'x'));
  const auto touch_lost_pages = [&] {
    guard_mappings();
    auto file = MappedFile::open(path);
    const auto moved = std::move(*file);
    if (::truncate(path.c_str(), 100) != 0) ::_exit(3);
    volatile uint8_t byte = moved.bytes()[40 << 10];
    ::_exit(byte == 0 ? 4 : 5);
  };
  EXPECT_EXIT(touch_lost_pages(), testing::ExitedWithCode(1), "quintet: .*model.x1b.gguf: found it shorter");
}

TEST(MappingGuardDeathTest, LeavesOtherFaultsAlone) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto raise_it = [] {
    guard_mappings();
    ::raise(SIGBUS);
    ::raise(SIGBUS);  // the first only takes the handler away
  };
  EXPECT_EXIT(raise_it(), testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace quintet
