#include "espalier/data/npy.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "many_cases.h"
#include "temporary_folder.h"

using namespace espalier;
using testing::says;

namespace {

/// A .npy file, by the specification of the format.
std::string npy(const std::string& header, const std::string& elements, char version = 1) {
  std::string text = "\x93NUMPY";
  text += {version, '\0', static_cast<char>(header.size()), static_cast<char>(header.size() >> 8)};
  if (version > 1) text.append(2, '\0');
  return text + header + elements;
}

std::string dict(const std::string& descr, const std::string& shape,
                 const std::string& fortran_order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran_order + ", 'shape': " + shape + ", }\n";
}

template <class T>
std::string bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

struct Folder {
  Tensor parse(const std::string& text) const { return data::read_npy(folder.write("array.npy", text)); }
  testing::TemporaryFolder folder;
};

template <class T>
void check(const Tensor& array, const Shape& shape, const std::vector<T>& expected) {
  BOOST_TEST(array.shape() == shape);
  const auto values = array.span<T>();
  BOOST_CHECK_EQUAL_COLLECTIONS(values.begin(), values.end(), expected.begin(), expected.end());
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(npy_files, Folder)

BOOST_AUTO_TEST_CASE(what_is_written_is_read) {
  Shape many(Dims(64, 1));  // as many axes as there may be: the header is longer than 255 bytes
  many.dims()[0] = 12;
  for (const DType dtype : {float32, float64, int32, int64, boolean})
    for (const Shape& shape : {Shape{}, {1}, {5}, {2, 3}, {2, 3, 4}, {0}, {3, 0, 2}, {1, 1, 1, 1, 1}, many}) {
      const Tensor array = (arange(shape.elements()).reshape(shape)).to(dtype);
      data::write_npy(folder / "array.npy", array);
      const Tensor back = data::read_npy(folder / "array.npy");
      BOOST_CHECK(back.spec() == array.spec());
      BOOST_CHECK(std::memcmp(back.address(), array.address(), array.bytes()) == 0);
    }
  BOOST_TEST(folder.files() == 1u);
}

BOOST_AUTO_TEST_CASE(the_file_is_the_one_numpy_writes) {
  data::write_npy(folder / "array.npy", tensor({{1.0f, 2.0f, 3.0f}}));
  const std::string text = read_file(folder / "array.npy");
  BOOST_TEST(text.substr(0, 10) == std::string("\x93NUMPY\1\0\x76\0", 10));
  BOOST_TEST(text.substr(10, 61) == "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }  ");
  BOOST_TEST(text[127] == '\n');
  BOOST_TEST(text.substr(128) == bytes<float>({1, 2, 3}));
}

BOOST_AUTO_TEST_CASE(views_are_written_as_they_look) {
  const Tensor column = arange(6).reshape({2, 3}).slice(1, 1, 2);
  data::write_npy(folder / "array.npy", column);
  check<float>(data::read_npy(folder / "array.npy"), {2, 1}, {1, 4});
}

BOOST_AUTO_TEST_CASE(every_version_and_spelling) {
  const std::string elements = bytes<int32_t>({1, 2, 3, 4, 5, 6});
  for (const char version : {1, 2, 3})
    check<int32_t>(parse(npy(dict("<i4", "(2, 3)"), elements, version)), {2, 3}, {1, 2, 3, 4, 5, 6});
  for (const char* header : {
           "{'shape':(2,3),'fortran_order':False,'descr':'<i4'}",
           "  { \"descr\" : \"<i4\" , \"fortran_order\" : False , \"shape\" : ( 2 , 3 , ) , } \n",
           "{'descr': '=i4', 'fortran_order': False, 'shape': (2L, 3L), }",
       })
    check<int32_t>(parse(npy(header, elements)), {2, 3}, {1, 2, 3, 4, 5, 6});
  check<int32_t>(parse(npy(dict("<i4", "()"), bytes<int32_t>({7}))), {}, {7});
}

BOOST_AUTO_TEST_CASE(column_major_arrays_become_row_major) {
  check<int64_t>(parse(npy(dict("<i8", "(2, 3)", "True"), bytes<int64_t>({1, 4, 2, 5, 3, 6}))), {2, 3},
                 {1, 2, 3, 4, 5, 6});
  check<int32_t>(parse(npy(dict("|u1", "(3,)", "True"), "\1\2\3")), {3}, {1, 2, 3});
}

BOOST_AUTO_TEST_CASE(other_types_are_converted_exactly) {
  check<bool>(parse(npy(dict("|b1", "(4,)"), std::string("\0\1\2\xff", 4))), {4}, {false, true, true, true});
  check<int32_t>(parse(npy(dict("|i1", "(2,)"), "\x80\x7f")), {2}, {-128, 127});
  check<int32_t>(parse(npy(dict("|u1", "(2,)"), "\x80\xff")), {2}, {128, 255});
  check<int32_t>(parse(npy(dict("<i2", "(2,)"), bytes<int16_t>({INT16_MIN, INT16_MAX}))), {2},
                 {INT16_MIN, INT16_MAX});
  check<int32_t>(parse(npy(dict("<u2", "(1,)"), bytes<uint16_t>({UINT16_MAX}))), {1}, {UINT16_MAX});
  check<int64_t>(parse(npy(dict("<u4", "(1,)"), bytes<uint32_t>({UINT32_MAX}))), {1}, {UINT32_MAX});
}

BOOST_AUTO_TEST_CASE(big_endian_numbers) {
  check<float>(parse(npy(dict(">f4", "(2,)"), std::string("\x3f\xc0\0\0\xc0\0\0\0", 8))), {2}, {1.5f, -2});
  check<double>(parse(npy(dict(">f8", "()"), std::string("\x3f\xf8\0\0\0\0\0\0", 8))), {}, {1.5});
  check<float>(parse(npy(dict(">f2", "()"), std::string("\xc0\0", 2))).to(float32), {}, {-2});
  check<int32_t>(parse(npy(dict(">i4", "()"), std::string("\0\1\2\3", 4))), {}, {66051});
  check<int64_t>(parse(npy(dict(">i8", "()"), std::string("\0\0\0\0\0\1\2\3", 8))), {}, {66051});
  check<int32_t>(parse(npy(dict(">i2", "(1, 2)", "True"), std::string("\xff\xfe\1\0", 4))), {1, 2},
                 {-2, 256});
  check<int32_t>(parse(npy(dict(">u2", "()"), "\xff\xfe")), {}, {65534});
  check<int64_t>(parse(npy(dict(">u4", "()"), "\xff\xff\xff\xfe")), {}, {4294967294});
  check<int64_t>(parse(npy(dict(">u8", "()"), std::string("\x7f") + std::string(7, '\xff'))), {},
                 {INT64_MAX});
  check<int64_t>(parse(npy(dict("<u8", "()"), std::string(7, '\xff') + "\x7f")), {}, {INT64_MAX});
}

BOOST_AUTO_TEST_CASE(half_precision) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<uint16_t> halves{0x0000, 0x3c00, 0xc000, 0x7bff, 0x0400,
                                     0x0001, 0x03ff, 0x3555, 0x7c00, 0xfc00};
  const Tensor read = parse(npy(dict("<f2", "(10,)"), bytes(halves)));
  BOOST_TEST(read.dtype() == float16);
  check<float>(read.to(float32), {10},
               {0, 1, -2, 65504, 0x1p-14f, 0x1p-24f, 0x3ffp-24f, 0x1.554p-2f, infinity, -infinity});
  BOOST_TEST(std::isnan(parse(npy(dict("<f2", "()"), bytes<uint16_t>({0x7e00}))).item()));
  BOOST_TEST(std::signbit(parse(npy(dict("<f2", "()"), bytes<uint16_t>({0x8000}))).item()));
  data::write_npy(folder / "half.npy", read);
  const Tensor again = data::read_npy(folder / "half.npy");
  BOOST_TEST(again.dtype() == float16);
  BOOST_TEST(std::memcmp(again.address(), halves.data(), again.bytes()) == 0);
  BOOST_CHECK_EXCEPTION(data::write_npy(folder / "brain.npy", read.to(bfloat16)), TypeError,
                        says({"bfloat16", "float32"}));
}

BOOST_AUTO_TEST_CASE(what_is_no_array) {
  const std::string four(4, 'x');
  const struct {
    std::string text;
    std::vector<std::string> parts;
  } cases[] = {
      {"", {"too short"}},
      {"\x93NUMPY\1", {"too short"}},
      {std::string(100, 'x'), {"not a .npy file"}},
      {npy(dict("<f4", "()"), four, 4), {"version 4"}},
      {npy(dict("<f4", "()"), four, 0), {"version 0"}},
      {std::string("\x93NUMPY\1\0\xff\xff{}", 12), {"header of 65535 bytes"}},
      {std::string("\x93NUMPY\2\0\xff\xff\xff\xff{}", 14), {"header of 4294967295 bytes"}},
      {npy(dict("!f4", "()"), four), {"!f4", "not supported"}},
      {npy(dict("<bf2", "()"), four), {"<bf2"}},
      {npy(dict("<c8", "()"), four), {"\"<c8\"", "not supported"}},
      {npy(dict("<u8", "()"), std::string(8, '\xff')), {"int64 cannot hold", "element 0", "u8"}},
      {npy(dict("<u16", "()"), four), {"\"<u16\""}},
      {npy(dict("|f4", "()"), four), {"\"|f4\""}},
      {npy(dict("", "()"), four), {"\"\""}},
      {npy(dict("<f4", "(2,)"), four), {"4 bytes", "[2]", "f4"}},
      {npy(dict("<f4", "()"), four + "x"), {"5 bytes", "[]"}},
      {npy(dict("<f4", "(0,)"), four), {"4 bytes", "[0]"}},
      {npy(dict("<f4", "(9223372036854775807,)"), four), {"9223372036854775807"}},
      {npy(dict("<f4", "(4294967296, 4294967296)"), ""), {"4294967296"}},
      {npy(dict("<f4", "(0, 9223372036854775807, 9223372036854775807)"), ""), {"9223372036854775807"}},
      {npy(dict("<f4", "(9223372036854775808,)"), four), {"the size"}},
      {npy(dict("<f4", "(-1,)"), four), {"the size \"-1"}},
      {npy(dict("<f4", "(1.5,)"), four), {"expected"}},
      {npy(dict("<f4", "[1]"), four), {"'(' expected"}},
      {npy(dict("<f4", "(1;)"), four), {"')' expected"}},
      {npy(dict("<f4", "()", "Maybe"), four), {"fortran_order"}},
      {npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", four), {"expected before \"[("}},
      {npy("{'descr': '<f4', 'shape': ()}", four), {"missing"}},
      {npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}", four), {"\"descr\""}},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (), 'more': 1}", four), {"\"more\""}},
      {npy("{'descr': '<f4", four), {"without end"}},
      {npy("", four), {"'{' expected"}},
      {npy(dict("<f4", "()") + "x", four), {"after it"}},
  };
  for (const auto& [text, parts] : cases)
    for (const std::string& part : parts)
      BOOST_CHECK_EXCEPTION(parse(text), FileError, says({"array.npy", part, "npy_test.cpp"}));
  std::string axes = "(";
  for (int i = 0; i < 100; ++i) axes += "1,";
  BOOST_CHECK_EXCEPTION(parse(npy(dict("<f4", axes + ")"), four)), FileError, says({"more than 64 axes"}));
}

BOOST_AUTO_TEST_CASE(arguments) {
  BOOST_CHECK_EXCEPTION(data::read_npy(folder / "none.npy"), FileError, says({"none.npy", "No such file"}));
  BOOST_CHECK_EXCEPTION(data::write_npy(folder / "no/folder.npy", tensor(1.0f)), FileError,
                        says({"npy_test.cpp"}));
  BOOST_CHECK_EXCEPTION(data::write_npy(folder / "array.npy", Tensor()), TypeError, says({"undefined"}));
  BOOST_CHECK_EXCEPTION(data::write_npy(folder / "array.npy", ones(std::vector<int64_t>(65, 1))), ShapeError,
                        says({"64 axes"}));
  BOOST_TEST(folder.files() == 0u);
}

BOOST_AUTO_TEST_CASE(every_truncation_throws) {
  const std::string whole = npy(dict("<f8", "(2, 3)", "True"), std::string(48, '\1'), 2);
  for (size_t length = 0; length < whole.size(); ++length)
    BOOST_CHECK_THROW(parse(whole.substr(0, length)), FileError);
}

BOOST_AUTO_TEST_CASE(damage_never_does_worse_than_throw) {
  const auto survive = [&](const std::string& text) {
    try {
      const Tensor array = parse(text);
      BOOST_TEST(array.bytes() <= 4 * text.size());
    } catch (const FileError&) {
    }
  };
  const std::string whole = npy(dict("|b1", "(2, 4)"), std::string("\0\1\0\1\1\1\0\1", 8));
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    survive(damaged);
  }
  std::mt19937 random(1);
  const std::string letters = "{}()[],:'\" \n0123456789<>|=bfiuTFL\x93";
  for (int64_t i = 0; i < testing::many_cases(5000); ++i) {
    std::string damaged = whole;
    for (unsigned k = 0; k <= random() % 4; ++k)
      damaged[8 + random() % (whole.size() - 8)] = letters[random() % letters.size()];
    survive(damaged);
  }
}

BOOST_AUTO_TEST_CASE(a_header_that_is_too_long_is_not_read) {
  const std::string start("\x93NUMPY\2\0\0\0\x20\0", 12);  // of 2 MiB
  BOOST_CHECK_EXCEPTION(parse(start + std::string(size_t{1} << 21, ' ')), FileError,
                        says({"2097152 bytes", "no array needs"}));
}

BOOST_AUTO_TEST_SUITE_END()
