#include "espalier/core/files/file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "temporary_folder.h"

using namespace espalier;
using testing::says;
using testing::TemporaryFolder;

namespace {

void write_whole(const std::filesystem::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(file)

BOOST_AUTO_TEST_CASE(what_is_written_is_read) {
  const TemporaryFolder folder;
  for (const std::string& text : {std::string(), std::string("short"), std::string(3'000'000, 'x')}) {
    write_whole(folder / "a file", text);
    BOOST_CHECK(read_file(folder / "a file") == text);
  }
  BOOST_TEST(folder.files() == 1u);
}

BOOST_AUTO_TEST_CASE(pieces_are_appended_and_read_in_turn) {
  const TemporaryFolder folder;
  AtomicFile out(folder / "f");
  out.write("ab", 2);
  out.write(nullptr, 0);
  out.write("cde", 3);
  out.commit();
  InputFile in(folder / "f");
  BOOST_TEST(in.size() == 5u);
  char piece[3] = {};
  in.read(piece, 3);
  BOOST_TEST(std::string(piece, 3) == "abc");
  BOOST_TEST(in.remaining() == 2u);
  BOOST_CHECK_EXCEPTION(in.read(piece, 3), FileError, says({"/f", "ends at byte 5"}));
}

BOOST_AUTO_TEST_CASE(what_cannot_be_read) {
  const TemporaryFolder folder;
  BOOST_CHECK_EXCEPTION(read_file(folder / "none"), FileError, says({"none", "No such file"}));
  BOOST_CHECK_EXCEPTION(read_file(folder.path()), FileError, says({"is not a regular file"}));
  BOOST_REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  BOOST_CHECK_EXCEPTION(read_file(folder / "pipe"), FileError, says({"pipe", "is not a regular file"}));
}

BOOST_AUTO_TEST_CASE(without_commit_nothing_happens) {
  const TemporaryFolder folder;
  folder.write("old", "before");
  {
    AtomicFile file(folder / "old");
    file.write("half of ");
    BOOST_TEST(read_file(folder / "old") == "before");
    AtomicFile other(folder / "new");
    other.write("anything");
  }
  BOOST_TEST(read_file(folder / "old") == "before");
  BOOST_TEST(folder.files() == 1u);
}

BOOST_AUTO_TEST_CASE(two_writers_do_not_mix) {
  const TemporaryFolder folder;
  AtomicFile a(folder / "f"), b(folder / "f");
  a.write("a");
  b.write("b");
  b.commit();
  BOOST_TEST(read_file(folder / "f") == "b");
  a.commit();
  BOOST_TEST(read_file(folder / "f") == "a");
  BOOST_TEST(folder.files() == 1u);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_written) {
  const TemporaryFolder folder;
  BOOST_CHECK_EXCEPTION(AtomicFile(folder / "no/such/folder"), FileError, says({"folder", "No such file"}));
  BOOST_CHECK_EXCEPTION(AtomicFile(folder.path()), FileError, says({"is not a regular file"}));
  BOOST_CHECK_EXCEPTION(AtomicFile("/dev/null"), FileError, says({"/dev/null", "is not a regular file"}));
}

BOOST_AUTO_TEST_CASE(a_full_disk_leaves_the_old_file) {
  const TemporaryFolder folder;
  folder.write("f", "before");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  BOOST_CHECK_EXCEPTION(write_whole(folder / "f", std::string(5000, 'x')), FileError,
                        says({"/f", "too large"}));
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  BOOST_TEST(read_file(folder / "f") == "before");
  BOOST_TEST(folder.files() == 1u);
}

BOOST_AUTO_TEST_CASE(rights_and_links_stay) {
  const TemporaryFolder folder;
  folder.write("f", "before");
  std::filesystem::permissions(folder / "f", std::filesystem::perms(0640));
  std::filesystem::create_symlink("f", folder / "link");
  write_whole(folder / "link", "after");
  BOOST_TEST(read_file(folder / "f") == "after");
  BOOST_CHECK(std::filesystem::is_symlink(folder / "link"));
  BOOST_CHECK(std::filesystem::status(folder / "f").permissions() == std::filesystem::perms(0640));
  // The target need not exist, and may be a link.
  std::filesystem::create_symlink(folder / "later", folder / "first");
  std::filesystem::create_symlink("first", folder / "second");
  write_whole(folder / "second", "made");
  BOOST_TEST(read_file(folder / "later") == "made");
  BOOST_CHECK(std::filesystem::is_symlink(folder / "first"));
  std::filesystem::create_symlink("round", folder / "round");
  BOOST_CHECK_THROW(write_whole(folder / "round", "nothing"), FileError);
  BOOST_CHECK(std::filesystem::is_symlink(folder / "round"));
}

BOOST_AUTO_TEST_SUITE_END()
