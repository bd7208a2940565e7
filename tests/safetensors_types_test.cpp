// Types of safetensors files that tensors do not have, and files as memory.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/core/files/safetensors.h"
#include "espalier/core/files/safetensors_map.h"
#include "malformed_files.h"
#include "temporary_folder.h"

using namespace espalier;
using testing::says;

namespace {

std::string safetensors_file(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + data;
}

std::string one_tensor(const std::string& type, const std::string& shape, const std::string& data) {
  return safetensors_file("{\"t\":{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":[0," +
                              std::to_string(data.size()) + "]}}",
                          data);
}

struct Folder {
  /// Read and mapped alike.
  Tensor parse(const std::string& bytes) const {
    const auto path = folder.write("some.safetensors", bytes);
    const NamedTensors read = read_safetensors(path), mapped = map_safetensors(path);
    BOOST_REQUIRE(read.size() == mapped.size());
    for (size_t i = 0; i < read.size(); ++i) {
      const Tensor &a = read[i].second, &b = mapped[i].second;
      BOOST_TEST(read[i].first == mapped[i].first);
      BOOST_CHECK(a.spec() == b.spec());
      BOOST_TEST((a.bytes() == 0 || std::memcmp(a.address(), b.address(), a.bytes()) == 0));
    }
    return read.empty() ? Tensor() : read[0].second;
  }
  testing::TemporaryFolder folder;
};

template <class T>
void check(const Tensor& array, const std::vector<T>& expected) {
  const auto values = array.span<T>();
  BOOST_CHECK_EQUAL_COLLECTIONS(values.begin(), values.end(), expected.begin(), expected.end());
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(safetensors_types, Folder)

BOOST_AUTO_TEST_CASE(integers) {
  check<int8_t>(parse(one_tensor("I8", "[2]", "\x80\x7f")), {-128, 127});
  check<uint8_t>(parse(one_tensor("U8", "[2]", "\x80\xff")), {128, 255});
  check<int16_t>(parse(one_tensor("I16", "[1]", "\xfe\xff")), {-2});
  check<int32_t>(parse(one_tensor("U16", "[1]", "\xfe\xff")), {65534});
  check<int64_t>(parse(one_tensor("U32", "[1]", "\xfe\xff\xff\xff")), {4294967294});
  check<int64_t>(parse(one_tensor("U64", "[1]", std::string(7, '\xff') + "\x7f")), {INT64_MAX});
  check<uint8_t>(parse(one_tensor("U8", "[3, 0]", "")), {});
  BOOST_CHECK_EXCEPTION(parse(one_tensor("U64", "[2]", std::string(15, '\0') + "\x80")), FileError,
                        says({"some.safetensors", "'t'", "int64", "element 1"}));
}

// Micikevicius et al., FP8 formats for deep learning, 2022, table 1.
BOOST_AUTO_TEST_CASE(reals_of_8_bits) {
  const Tensor e4m3 = parse(one_tensor("F8_E4M3", "[7]", std::string("\x00\x80\x01\x08\x38\x7e\xfe", 7)));
  BOOST_CHECK(e4m3.dtype() == float16);
  check<float>(e4m3.to(float32), {0, -0.0f, 0x1p-9f, 0x1p-6f, 1, 448, -448});
  BOOST_TEST(std::signbit(e4m3.to(float32).at<float>({1})));
  BOOST_TEST(std::isnan(parse(one_tensor("F8_E4M3", "[1]", "\x7f")).to(float32).at<float>({0})));
  BOOST_TEST(std::isnan(parse(one_tensor("F8_E4M3", "[1]", "\xff")).to(float32).at<float>({0})));

  const Tensor e5m2 = parse(one_tensor("F8_E5M2", "[7]", std::string("\x00\x01\x04\x3c\x7b\xfb\x7c", 7)));
  BOOST_CHECK(e5m2.dtype() == float16);
  check<float>(e5m2.to(float32),
               {0, 0x1p-16f, 0x1p-14f, 1, 57344, -57344, std::numeric_limits<float>::infinity()});
  BOOST_TEST(std::isnan(parse(one_tensor("F8_E5M2", "[1]", "\x7e")).to(float32).at<float>({0})));
}

BOOST_AUTO_TEST_CASE(mapped_tensors_outlive_what_made_them) {
  const Tensor x = randn({100, 30}), y = arange(7, int64);
  const auto file = folder / "some.safetensors";
  write_safetensors(file, {{"x", x}, {"y", y}, {"none", zeros({0, 2})}}, {{"by", "a test"}});
  FileNotes notes;
  NamedTensors mapped = map_safetensors(file, &notes);
  BOOST_TEST(notes["by"] == "a test");
  BOOST_REQUIRE(mapped.size() == 3u);
  BOOST_TEST(mapped[0].first == "y");
  Tensor kept = mapped[1].second;
  mapped.clear();
  BOOST_TEST(!kept.storage().unique());  // nothing may reuse pages of a file
  BOOST_TEST(std::memcmp(kept.address(), x.address(), x.bytes()) == 0);
  // Writing changes this process's copy only, and a new file does not change the old one's pages.
  kept.span<float>()[0] = 12345;
  BOOST_TEST(read_safetensors(file)[1].second.at<float>({0, 0}) == x.at<float>({0, 0}));
  write_safetensors(file, {{"x", zeros({100, 30})}});
  BOOST_TEST(kept.at<float>({99, 29}) == x.at<float>({99, 29}));
  BOOST_TEST(kept.at<float>({0, 0}) == 12345.0f);
}

BOOST_AUTO_TEST_CASE(tensors_that_are_not_aligned_are_copied) {
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("b":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}})";
  const double value = 2.5;
  std::string data(9, '\7');
  std::memcpy(data.data() + 1, &value, 8);
  const auto file = folder.write("some.safetensors", safetensors_file(header, data));
  const NamedTensors mapped = map_safetensors(file);
  check<uint8_t>(mapped[0].second, {7});
  check<double>(mapped[1].second, {2.5});
  BOOST_TEST(reinterpret_cast<uintptr_t>(mapped[1].second.address()) % 8 == 0u);
}

BOOST_AUTO_TEST_CASE(malformed_files) {
  const auto one = [](const std::string& fields) {
    return safetensors_file("{\"t\":{" + fields + "}}", "1234");
  };
  const std::string f32 = "\"dtype\":\"F32\"", offsets = "\"data_offsets\":[0,4]", shape = "\"shape\":[1]";
  const auto read = [&](const std::string& bytes) { (void)parse(bytes); };
  testing::refuses_all(
      read, {{"", {"some.safetensors", "too short"}},
             {std::string(7, '\0'), {"too short"}},
             {std::string(8, '\xff'), {"claims a header of 18446744073709551615 bytes"}},
             {safetensors_file("", ""), {"no JSON object"}},
             {safetensors_file("[]", ""), {"no JSON object"}},
             {safetensors_file("{", ""), {"malformed"}},
             {safetensors_file("{}", "x"), {"1 bytes of data"}},
             {one(f32 + "," + shape), {"'t'", "without"}},
             {one(f32 + "," + offsets), {"without"}},
             {one(shape + "," + offsets), {"without"}},
             {one("\"dtype\":1," + shape + "," + offsets), {"wrong kind"}},
             {one("\"dtype\":\"F4\"," + shape + "," + offsets), {"F4", "not supported"}},
             {one("\"dtype\":\"C64\"," + shape + "," + offsets), {"C64", "not supported"}},
             {one(f32 + ",\"shape\":[-1]," + offsets), {"-1"}},
             {one(f32 + ",\"shape\":[1.5]," + offsets), {"1.5"}},
             {one(f32 + ",\"shape\":[9223372036854775808]," + offsets), {"9223372036854775808"}},
             {one(f32 + ",\"shape\":[4294967296,4294967296]," + offsets), {"no memory holds"}},
             {one(f32 + ",\"shape\":[0,4294967296,4294967296]," + offsets), {"no memory holds"}},
             {one("\"dtype\":\"F8_E4M3\",\"shape\":[0,9223372036854775807]," + offsets), {"no memory holds"}},
             {one("\"dtype\":\"F8_E4M3\",\"shape\":[5]," + offsets), {"4 bytes", "[5]", "5"}},
             {one(f32 + ",\"shape\":[2]," + offsets), {"4 bytes", "[2]", "8"}},
             {one(f32 + "," + shape + ",\"data_offsets\":[4,0]"), {"outside"}},
             {one(f32 + "," + shape + ",\"data_offsets\":[0,9223372036854775807]"), {"outside"}},
             {one(f32 + "," + shape + ",\"data_offsets\":[0]"), {"data_offsets"}},
             {one(f32 + "," + shape + ",\"data_offsets\":[-4,0]"), {"data_offsets"}},
             {one(f32 + ",\"shape\":[0],\"data_offsets\":[0,0]"), {"4 bytes of data"}}});
  const std::string whole = one_tensor("I16", "[2, 2]", "12345678");
  testing::refuses_every_truncation(read, whole);
  testing::survives_damage(read, whole);
}

BOOST_AUTO_TEST_SUITE_END()
