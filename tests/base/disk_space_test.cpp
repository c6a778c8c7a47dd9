// What a disk has no room for is told with its sum.
#include "base/disk_space.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace quintet {
namespace {

namespace fs = std::filesystem;

TEST(DiskSpace, TooLittleIsToldWithTheSum) {
  const std::string folder = testing::TempDir();
  EXPECT_TRUE(check_disk_space(folder, 1, "one byte"));
  const Status full = check_disk_space(folder, uint64_t{1} << 60, "1 EiB for nothing");
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().kind, ErrorKind::no_room);
  for (const std::string& part : {folder, std::string("found "), std::string("needed are "), std::string("1 EiB for nothing")})
    EXPECT_NE(full.error().message.find(part), std::string::npos) << full.error().message;
  EXPECT_TRUE(check_disk_space(folder + "/nothing/there", uint64_t{1} << 60, "")) << "what cannot be told is no error";
}

TEST(DiskSpace, FilesCountAsTheyLieOnTheDisk) {
  const fs::path folder = testing::TempDir() + "disk-space-" + std::to_string(::getpid());
  fs::create_directory(folder);
  EXPECT_EQ(disk_bytes_of(folder), 0u);
  std::ofstream(folder / "hole").flush();
  fs::resize_file(folder / "hole", 1 << 30);
  std::ofstream(folder / "full") << std::string(1 << 20, 'a') << std::flush;
  const uint64_t bytes = disk_bytes_of(folder);
  fs::remove_all(folder);
  EXPECT_GE(bytes, 1u << 20);
  EXPECT_LT(bytes, 1u << 24);
}

}  // namespace
}  // namespace quintet
