#include "espalier/data/idx.h"

#include <boost/test/unit_test.hpp>
#include <cstring>

#include "espalier/core/error.h"
#include "file_samples.h"
#include "malformed_files.h"
#include "temporary_folder.h"

using namespace espalier;
using testing::from_hex, testing::says;

namespace {

struct Folder {
  Tensor parse(const std::string& bytes) const { return data::read_idx(folder.write("some-idx", bytes)); }
  testing::TemporaryFolder folder;
};

/// Digits of bytes, with spaces between them.
std::string hex(std::string digits) {
  std::erase(digits, ' ');
  return from_hex(digits);
}

template <class T>
void check(const Tensor& array, const Shape& shape, const std::vector<T>& expected) {
  BOOST_TEST(array.shape() == shape);
  const auto values = array.span<T>();
  BOOST_CHECK_EQUAL_COLLECTIONS(values.begin(), values.end(), expected.begin(), expected.end());
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(idx_files, Folder)

BOOST_AUTO_TEST_CASE(every_type) {
  check<int32_t>(parse(hex("0000 08 02 00000002 00000001 00ff")), {2, 1}, {0, 255});
  check<int32_t>(parse(hex("0000 09 01 00000002 80 7f")), {2}, {-128, 127});
  check<int32_t>(parse(hex("0000 0b 01 00000002 8000 0102")), {2}, {-32768, 258});
  check<int32_t>(parse(hex("0000 0c 01 00000002 80000000 00010203")), {2}, {INT32_MIN, 66051});
  check<float>(parse(hex("0000 0d 01 00000002 3fc00000 c0000000")), {2}, {1.5f, -2});
  check<double>(parse(hex("0000 0e 00 3ff8000000000000")), {}, {1.5});
  check<int32_t>(parse(hex("0000 08 02 00000000 00000003")), {0, 3}, {});
}

BOOST_AUTO_TEST_CASE(packed_by_gzip) {
  check<int32_t>(parse(from_hex(testing::idx_gzip)), {2, 3}, {0, 1, 2, 253, 254, 255});
}

BOOST_AUTO_TEST_CASE(what_is_written_is_read) {
  for (const DType dtype : {int32, float32, float64, boolean})
    for (const Shape& shape : {Shape{}, {3}, {2, 3}, {0, 2}}) {
      const Tensor array = arange(shape.elements()).reshape(shape).to(dtype);
      data::write_idx(folder / "some-idx", array);
      const Tensor back = data::read_idx(folder / "some-idx").to(dtype);
      BOOST_TEST(back.shape() == shape);
      BOOST_TEST((array.bytes() == 0 || std::memcmp(back.address(), array.address(), array.bytes()) == 0));
    }
  BOOST_CHECK_EXCEPTION(data::write_idx(folder / "some-idx", arange(3, int64)), TypeError,
                        says({"int64", "idx_test.cpp"}));
  BOOST_CHECK_EXCEPTION(data::write_idx(folder / "some-idx", zeros({0, int64_t{1} << 31})), ShapeError,
                        says({"32 bits"}));
  BOOST_CHECK_THROW(data::write_idx(folder / "some-idx", Tensor()), TypeError);
}

BOOST_AUTO_TEST_CASE(what_is_no_array) {
  const std::string gzip = from_hex(testing::idx_gzip);
  const auto changed = [&](size_t at, char to) {
    std::string bytes = gzip;
    bytes[at] = to;
    return bytes;
  };
  testing::refuses_all([&](const std::string& bytes) { (void)parse(bytes); },
                       {{"", {"some-idx", "too short", "idx_test.cpp"}},
                        {hex("000008"), {"too short"}},
                        {hex("0001 08 01 00000001 00"), {"not an IDX file"}},
                        {hex("0100 08 01 00000001 00"), {"not an IDX file"}},
                        {hex("0000 00 01 00000001 00"), {"0x00"}},
                        {hex("0000 0a 01 00000001 00"), {"0x0a"}},
                        {hex("0000 0f 01 00000001 00"), {"0x0f"}},
                        {hex("0000 ff 01 00000001 00"), {"0xff"}},
                        {hex("0000 08 01"), {"cut off", "1 axes"}},
                        {hex("0000 08 ff 00000001"), {"cut off", "255 axes"}},
                        {hex("0000 08 02 00000001 000000"), {"cut off"}},
                        {hex("0000 08 01 00000002 00"), {"1 bytes", "[2]", "u1"}},
                        {hex("0000 08 01 00000001"), {"0 bytes", "[1]"}},
                        {hex("0000 08 01 00000001 0000"), {"goes on", "[1]"}},
                        {hex("0000 08 01 00000000 00"), {"goes on", "[0]"}},
                        {hex("0000 0e 01 00000001 00000000"), {"4 bytes", "f8"}},
                        {hex("0000 08 01 80000000 00"), {"0x80000000", "negative"}},
                        {hex("0000 08 01 ffffffff 00"), {"0xffffffff", "negative"}},
                        {hex("0000 08 01 7fffffff 00"), {"2147483647"}},
                        {hex("0000 0e 03 7fffffff 7fffffff 7fffffff 00"), {"2147483647"}},
                        {hex("0000 0e 04 00000000 7fffffff 7fffffff 7fffffff"), {"[0, 2147483647"}},
                        {hex("1f8b"), {"cut off"}},
                        {changed(2, 7), {"damaged"}},
                        {changed(12, '\xff'), {"some-idx"}},
                        {changed(gzip.size() - 5, 'x'), {"damaged"}},
                        {gzip + "x", {"goes on"}},
                        {gzip.substr(0, gzip.size() - 1), {"some-idx"}}});
}

BOOST_AUTO_TEST_CASE(damage) {
  const auto read = [&](const std::string& bytes) { (void)parse(bytes); };
  const std::string plain = hex("0000 0b 02 00000002 00000003 000102030405060708090a0b");
  testing::refuses_every_truncation(read, plain);
  testing::survives_damage(read, plain);
  testing::refuses_every_truncation(read, from_hex(testing::idx_gzip));
  testing::survives_damage(read, from_hex(testing::idx_gzip));
}

BOOST_AUTO_TEST_SUITE_END()
