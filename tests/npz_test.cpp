#include "espalier/data/npz.h"

#include <boost/test/unit_test.hpp>
#include <cstring>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "file_samples.h"
#include "malformed_files.h"
#include "temporary_folder.h"

using namespace espalier;
using testing::from_hex, testing::says;

namespace {

struct Folder {
  NamedTensors parse(const std::string& bytes) const {
    return data::read_npz(folder.write("some.npz", bytes));
  }
  testing::TemporaryFolder folder;
};

/// `bytes` with those at `at` replaced.
std::string with_bytes(std::string bytes, size_t at, const std::string& other) {
  return bytes.replace(at, other.size(), other);
}

/// The directory's entries and its end in an archive of NumPy's.
struct Places {
  explicit Places(const std::string& archive)
      : entry(archive.find("PK\1\2")), end(archive.find(std::string("PK\5\6"))) {}
  size_t entry, end;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(npz_files, Folder)

BOOST_AUTO_TEST_CASE(archives_of_numpy) {
  const NamedTensors stored = parse(from_hex(testing::npz_stored));
  BOOST_REQUIRE(stored.size() == 2u);
  BOOST_TEST(stored[0].first == "a");
  BOOST_TEST(stored[0].second.shape() == Shape({2, 3}));
  BOOST_TEST(stored[0].second.at<float>({1, 2}) == 5.0f);
  BOOST_TEST(stored[1].first == "b");
  BOOST_TEST(stored[1].second.item<int64_t>() == -7);

  const NamedTensors packed = parse(from_hex(testing::npz_deflated));
  BOOST_REQUIRE(packed.size() == 2u);
  BOOST_TEST(packed[0].second.shape() == Shape({5000}));
  BOOST_CHECK(packed[0].second.dtype() == int32);
  for (const int32_t value : packed[0].second.span<int32_t>()) BOOST_REQUIRE(value == 0);
  BOOST_CHECK(packed[1].second.dtype() == int64);
  BOOST_TEST(packed[1].second.at<int64_t>({3}) == 3);
}

BOOST_AUTO_TEST_CASE(what_is_written_is_read) {
  const NamedTensors tensors{{"half", arange(5).to(float16)},
                             {"view", arange(12).reshape({3, 4}).slice(1, 1, 3)},
                             {"scalar", tensor(2.5, float64)},
                             {"empty", zeros({0, 3}, int32)},
                             {"flags", tensor({true, false})},
                             {"long", arange(20000, int64)},
                             {"", ones({1})}};
  for (const bool compress : {false, true}) {
    data::write_npz(folder / "some.npz", tensors, {.compress = compress});
    const NamedTensors back = data::read_npz(folder / "some.npz");
    BOOST_REQUIRE(back.size() == tensors.size());
    for (size_t i = 0; i < back.size(); ++i) {
      const Tensor expected = tensors[i].second.contiguous_copy();
      BOOST_TEST(back[i].first == tensors[i].first);
      BOOST_CHECK(back[i].second.spec() == expected.spec());
      BOOST_TEST((expected.bytes() == 0 ||
                  std::memcmp(back[i].second.address(), expected.address(), expected.bytes()) == 0));
    }
  }
  BOOST_TEST(read_file(folder / "some.npz").size() < 60'000u);
  data::write_npz(folder / "some.npz", {});
  BOOST_TEST(data::read_npz(folder / "some.npz").empty());
  BOOST_TEST(folder.files() == 1u);
}

BOOST_AUTO_TEST_CASE(what_is_no_archive) {
  const std::string stored = from_hex(testing::npz_stored), packed = from_hex(testing::npz_deflated);
  const Places at(stored), in(packed);
  const std::string most(4, '\xff');
  testing::refuses_all(
      [&](const std::string& bytes) { (void)parse(bytes); },
      {{"", {"some.npz", "too short", "npz_test.cpp"}},
       {std::string(21, 'P'), {"too short"}},
       {std::string(22, 'P'), {"not a zip archive"}},
       {std::string(100'000, '\0'), {"not a zip archive"}},
       {stored.substr(0, stored.size() - 1), {"not a zip archive", "cut off"}},
       {stored + "x", {"not a zip archive"}},
       {with_bytes(stored, at.end + 4, "\1"), {"several volumes"}},
       {with_bytes(stored, at.end + 10, "\xff\xff"), {"65535 entries"}},
       {with_bytes(stored, at.end + 10, "\3"), {"claims 3 entries"}},
       {with_bytes(stored, at.end + 12, most), {"directory of 4294967295 bytes"}},
       {with_bytes(stored, at.end + 16, most), {"at byte 4294967295", "outside"}},
       {with_bytes(stored, at.entry, "xx"), {"entry 0", "is not there"}},
       {with_bytes(stored, at.entry + 28, "\xff\xff"), {"entry 0", "leaves it"}},
       {with_bytes(stored, at.entry + 8, "\1"), {"entry 0", "'a.npy'", "encrypted"}},
       {with_bytes(stored, at.entry + 10, "\x0c"), {"'a.npy'", "method 12"}},
       {with_bytes(stored, at.entry + 20, most), {"zip64"}},
       {with_bytes(stored, at.entry + 20, "\xff\xff\xff\x7f"), {"'a.npy'", "2147483647 bytes", "outside"}},
       {with_bytes(stored, at.entry + 24, "\1"), {"'a.npy'", "cannot be"}},
       {with_bytes(packed, in.entry + 24, "\xff\xff\xff\x7f"), {"'zeros.npy'", "2147483647", "cannot be"}},
       {with_bytes(stored, at.entry + 42, "\xff\xff\xff\x7f"), {"'a.npy'", "outside"}},
       {with_bytes(stored, at.entry + 42, "\1"), {"'a.npy'", "local header"}},
       {with_bytes(stored, 0, "xx"), {"'a.npy'", "local header"}},
       {with_bytes(stored, 26, "\xff\xff"), {"'a.npy'", "after the file's end"}},
       {with_bytes(stored, at.entry + 16, "\1\2\3\4"), {"'a.npy'", "damaged", "checksum", "04030201"}},
       {with_bytes(stored, stored.find("NUMPY") + 140, "x"), {"'a.npy'", "checksum"}},
       {with_bytes(stored, stored.find("NUMPY"), "x"), {"'a.npy'", "not a .npy file"}},
       {with_bytes(packed, packed.find("zeros.npy") + 29, std::string(10, '\xff')),
        {"'zeros.npy'", "damaged"}}});
}

BOOST_AUTO_TEST_CASE(entries_that_share_their_bytes) {
  const std::string archive = from_hex(testing::npz_stored);
  const Places at(archive);
  const std::string entry = archive.substr(at.entry, archive.find("PK\1\2", at.entry + 1) - at.entry);
  std::string more = archive;
  more.insert(at.entry, entry + entry);  // the first entry three times
  const size_t end = at.end + 2 * entry.size(), bytes = end - at.entry;
  BOOST_REQUIRE(bytes < 256u);
  more[end + 8] = more[end + 10] = '\4';
  more[end + 12] = static_cast<char>(bytes);
  BOOST_CHECK_EXCEPTION(parse(more), FileError, says({"entry 2", "'a.npy'", "shares its bytes"}));
}

BOOST_AUTO_TEST_CASE(a_comment_that_looks_like_an_end) {
  const std::string archive = from_hex(testing::npz_stored), comment = "PK\5\6" + std::string(30, '\0');
  const NamedTensors tensors = parse(with_bytes(archive, archive.size() - 2, "\x22") + comment);
  BOOST_REQUIRE(tensors.size() == 2u);
  BOOST_TEST(tensors[1].second.item<int64_t>() == -7);
}

BOOST_AUTO_TEST_CASE(damage) {
  const auto read = [&](const std::string& bytes) { (void)parse(bytes); };
  for (const auto& sample : {testing::npz_stored, testing::npz_deflated}) {
    testing::refuses_every_truncation(read, from_hex(sample));
    testing::survives_damage(read, from_hex(sample));
  }
}

BOOST_AUTO_TEST_CASE(arguments) {
  const Tensor one = ones({1});
  BOOST_CHECK_EXCEPTION(data::read_npz(folder / "none.npz"), FileError, says({"none.npz", "No such file"}));
  BOOST_CHECK_EXCEPTION(data::write_npz(folder / "some.npz", {{"a", one}, {"a", one}}), FileError,
                        says({"two arrays named 'a'", "npz_test.cpp"}));
  BOOST_CHECK_EXCEPTION(data::write_npz(folder / "some.npz", {{"a", Tensor()}}), TypeError, says({"'a'"}));
  BOOST_CHECK_EXCEPTION(data::write_npz(folder / "some.npz", {{"a", one.to(bfloat16)}}), TypeError,
                        says({"write_npz", "bfloat16"}));
  BOOST_TEST(folder.files() == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
