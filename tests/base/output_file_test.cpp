// Output files: whole or not there, through links, into devices and FIFOs. Devices are pseudo terminals of
// the test's own.
#include "base/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace quintet {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public ::testing::Test {
 protected:
  OutputFileTest() {
    std::string pattern = (fs::temp_directory_path() / "quintet-output-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~OutputFileTest() override { fs::remove_all(folder_); }

  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  std::string text_of(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(at(name)).rdbuf();
    return text.str();
  }
  size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  static void put(OutputFile& file, const std::string& text) {
    EXPECT_EQ(std::fwrite(text.data(), 1, text.size(), file.stream()), text.size());
  }
  void write(const std::string& name, const std::string& text) const {
    auto file = OutputFile::create(at(name));
    ASSERT_TRUE(file) << file.error().message;
    put(*file, text);
    const Status done = file->finish();
    ASSERT_TRUE(done) << done.error().message;
  }
  void refused(const std::string& path, const std::string& part) const {
    const Status checked = OutputFile::check(path);
    ASSERT_FALSE(checked) << path;
    EXPECT_EQ(checked.error().kind, ErrorKind::bad_input);
    EXPECT_NE(checked.error().message.find(part), std::string::npos) << checked.error().message;
    EXPECT_FALSE(OutputFile::create(path));
  }

  fs::path folder_;
};

TEST_F(OutputFileTest, ANewFileIsThereOnceItIsWhole) {
  {
    auto file = OutputFile::create(at("new"));
    ASSERT_TRUE(file) << file.error().message;
    put(*file, "whole");
    EXPECT_FALSE(fs::exists(at("new")));
    ASSERT_TRUE(file->finish());
    EXPECT_EQ(text_of("new"), "whole");
  }
  EXPECT_EQ(text_of("new"), "whole");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(OutputFileTest, WhatWasNotFinishedLeavesNothing) {
  std::ofstream(at("old")) << "old";
  {
    auto fresh = OutputFile::create(at("fresh")), over = OutputFile::create(at("old"));
    ASSERT_TRUE(fresh && over);
    put(*fresh, "half");
    put(*over, "half");
  }
  EXPECT_EQ(text_of("old"), "old");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(OutputFileTest, NothingIsLeftWhereTheProcessIsKilled) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto file = OutputFile::create(at("killed"));
    if (file) std::fputs("half", file->stream()), std::fflush(file->stream());
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const int fd = ::open(folder_.c_str(), O_TMPFILE | O_RDWR, 0600);
  if (fd < 0) GTEST_SKIP() << "the folder for temporary files has no nameless files";
  ::close(fd);
  EXPECT_EQ(entries(), 0u);
}

TEST_F(OutputFileTest, AnOlderFileIsReplacedAndKeepsItsMode) {
  std::ofstream(at("old")) << "a longer old text";
  fs::permissions(at("old"), fs::perms::owner_read | fs::perms::owner_write);
  write("old", "new");
  EXPECT_EQ(text_of("old"), "new");
  EXPECT_EQ(fs::status(at("old")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(entries(), 1u);
}

TEST_F(OutputFileTest, LinksAreFollowed) {
  fs::create_directory(at("sub"));
  std::ofstream(at("sub/target")) << "old";
  fs::create_symlink("sub/target", at("link"));
  fs::create_symlink("sub/not-yet", at("dangling"));
  fs::create_symlink(at("dangling"), at("twice"));
  write("link", "one");
  write("twice", "two");
  EXPECT_TRUE(fs::is_symlink(at("link")) && fs::is_symlink(at("dangling")) && fs::is_symlink(at("twice")));
  EXPECT_EQ(text_of("sub/target"), "one");
  EXPECT_EQ(text_of("sub/not-yet"), "two");
  fs::create_symlink("loop", at("loop"));
  refused(at("loop"), "symbolic links");
}

TEST_F(OutputFileTest, AFifoStaysOneAndTakesTheBytes) {
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  fs::create_symlink("fifo", at("link"));
  const int reader = ::open(at("fifo").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  write("link", "through");
  char bytes[16] = {};
  EXPECT_EQ(::read(reader, bytes, sizeof bytes), 7);
  EXPECT_STREQ(bytes, "through");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(at("fifo")));
  EXPECT_EQ(entries(), 2u);
}

TEST_F(OutputFileTest, ACharacterDeviceStaysOneAndTakesTheBytes) {
  int master = -1, slave = -1;
  char name[128];
  if (::openpty(&master, &slave, name, nullptr, nullptr) != 0) GTEST_SKIP() << "no pseudo terminals here";
  auto file = OutputFile::create(name);
  ASSERT_TRUE(file) << file.error().message;
  put(*file, "shown");
  ASSERT_TRUE(file->finish());
  char bytes[16] = {};
  EXPECT_EQ(::read(master, bytes, sizeof bytes), 5);
  EXPECT_STREQ(bytes, "shown");
  EXPECT_TRUE(fs::is_character_file(name));
  ::close(slave);
  ::close(master);
}

TEST_F(OutputFileTest, WhatCannotBeWrittenIsRefusedBeforehand) {
  refused("", "empty file name");
  refused(at(""), "found a folder");
  refused(at("missing/file"), "cannot write into its folder");
  std::ofstream(at("plain")) << "x";
  refused(at("plain/file"), "cannot be written: Not a directory");
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX};
  ASSERT_LT(at("socket").size(), sizeof address.sun_path);
  std::strcpy(address.sun_path, at("socket").c_str());
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  refused(at("socket"), "found a socket");
  ::close(listener);
  EXPECT_TRUE(OutputFile::check(at("plain")));
  EXPECT_TRUE(OutputFile::check(at("fine")));
  EXPECT_FALSE(fs::exists(at("fine")));
}

}  // namespace
}  // namespace quintet
