#include "espalier/data/csv.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "espalier/core/error.h"
#include "temporary_folder.h"

using namespace espalier;
using data::CsvOptions;
using testing::says;

namespace {

struct Folder {
  Tensor parse(const std::string& text, const CsvOptions& options = {}) const {
    return data::read_csv(folder.write("table.csv", text), options);
  }
  testing::TemporaryFolder folder;
};

template <class T>
void check(const Tensor& table, const Shape& shape, const std::vector<T>& expected) {
  BOOST_TEST(table.shape() == shape);
  const auto values = table.span<T>();
  BOOST_CHECK_EQUAL_COLLECTIONS(values.begin(), values.end(), expected.begin(), expected.end());
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(csv, Folder)

BOOST_AUTO_TEST_CASE(spellings_of_one_table) {
  const CsvOptions header{.header = true}, tab{.delimiter = '\t'}, space{.delimiter = ' '},
      semicolon{.delimiter = ';'};
  const struct {
    const char* text;
    CsvOptions options;
  } cases[] = {
      {"1,2,3\n4,5,6\n", {}},
      {"1,2,3\n4,5,6", {}},
      {"1,2,3\r\n4,5,6\r\n", {}},
      {"\n1,2,3\n\n  \n4,5,6\n\r\n\n", {}},
      {" 1 ,\t2, 3 \n4 ,5,6\n", {}},
      {"+1,2.0,3e0\n.4e1,5.,0.6E+1\n", {}},
      {"\"1\",\"2\",3\n\" 4 \", \"5\" ,6\n", {}},
      {"\xef\xbb\xbf"
       "1,2,3\n4,5,6\n",
       {}},
      {"a,b,\"c, d\"\n1,2,3\n4,5,6\n", header},
      {"\na,b,c\n1,2,3\n4,5,6\n", header},
      {"1\t2\t3\n4\t 5\t6\n", tab},
      {"1 2 3\n4 5 6\n", space},
      {"1;2;3\n4;5;6\n", semicolon},
  };
  for (const auto& [text, options] : cases) BOOST_TEST_CONTEXT(text) {
      check<float>(parse(text, options), {2, 3}, {1, 2, 3, 4, 5, 6});
    }
}

BOOST_AUTO_TEST_CASE(one_column_and_one_number) {
  check<float>(parse("1\n2\n3\n"), {3, 1}, {1, 2, 3});
  check<float>(parse("7"), {1, 1}, {7});
}

BOOST_AUTO_TEST_CASE(every_dtype) {
  check<double>(parse("0.1,-1e300", {.dtype = float64}), {1, 2}, {0.1, -1e300});
  check<int32_t>(parse("-2147483648,2147483647", {.dtype = int32}), {1, 2}, {INT32_MIN, INT32_MAX});
  check<int64_t>(parse("-9223372036854775808,9223372036854775807", {.dtype = int64}), {1, 2},
                 {INT64_MIN, INT64_MAX});
  check<bool>(parse("1,0\n0,1", {.dtype = boolean}), {2, 2}, {true, false, false, true});
}

BOOST_AUTO_TEST_CASE(reals_that_are_not_ordinary) {
  const Tensor table = parse("nan,inf,-Infinity,1e-60,-1e-400,1e-40");
  const auto values = table.span<float>();
  BOOST_TEST(std::isnan(values[0]));
  BOOST_TEST(values[1] == std::numeric_limits<float>::infinity());
  BOOST_TEST(values[2] == -std::numeric_limits<float>::infinity());
  BOOST_TEST(values[3] == 0.0f);
  BOOST_TEST(values[4] == 0.0f);
  BOOST_TEST(values[5] == 1e-40f);  // smaller than the smallest normal number
  BOOST_TEST(parse("1e-400", {.dtype = float64}).item() == 0.0);
}

BOOST_AUTO_TEST_CASE(what_is_no_table) {
  const CsvOptions header{.header = true}, integers{.dtype = int32}, longs{.dtype = int64},
      flags{.dtype = boolean}, doubles{.dtype = float64}, tab{.delimiter = '\t'}, space{.delimiter = ' '};
  const struct {
    const char* text;
    CsvOptions options;
    std::vector<const char*> parts;
  } cases[] = {
      {"", {}, {"no numbers"}},
      {"\n \r\n", {}, {"no numbers"}},
      {"a,b\n", header, {"no numbers"}},
      {"1,2\n3,4,5\n", {}, {"line 2", "3 fields", "2"}},
      {"1,2\n\n3\n", {}, {"line 3", "1 field", "2"}},
      {"1,2\n3,abc\n", {}, {"line 2", "field 2", "\"abc\"", "float32"}},
      {"1,,2\n", {}, {"line 1", "field 2", "\"\""}},
      {"1,2,\n", {}, {"line 1", "field 3", "\"\""}},
      {"1\t2\t\n", tab, {"line 1", "field 3", "\"\""}},
      {"\t1\n", tab, {"line 1", "field 1", "\"\""}},
      {"1 2 \n", space, {"field 3"}},
      {"1 2\n", {}, {"\"1 2\""}},
      {"0x10\n", {}, {"\"0x10\""}},
      {"+-1\n", {}, {"\"+-1\""}},
      {"\"1\n", {}, {"\\\"1"}},
      {"\"\"\n", {}, {"not a number"}},
      {"1e39\n", {}, {"line 1", "\"1e39\"", "does not fit float32"}},
      {"-1e309\n", doubles, {"\"-1e309\"", "does not fit float64"}},
      {"1\n2147483648\n", integers, {"line 2", "\"2147483648\"", "does not fit int32"}},
      {"9223372036854775808\n", longs, {"does not fit int64"}},
      {"1.5\n", integers, {"\"1.5\"", "int32"}},
      {"2\n", flags, {"neither 0 nor 1"}},
      {"999\n", flags, {"\"999\""}},
  };
  for (const auto& [text, options, parts] : cases) BOOST_TEST_CONTEXT(text) {
      for (const char* part : parts)
        BOOST_CHECK_EXCEPTION(parse(text, options), FileError, says({"table.csv", part, "csv_test.cpp"}));
    }
  BOOST_CHECK_EXCEPTION(parse(std::string("1\0", 2)), FileError, says({"line 1"}));
  BOOST_CHECK_EXCEPTION(parse(std::string(100, 'y')), FileError, says({"yyyyy…"}));
}

BOOST_AUTO_TEST_CASE(arguments) {
  BOOST_CHECK_EXCEPTION(data::read_csv(folder / "none.csv"), FileError, says({"none.csv", "No such file"}));
  for (const char delimiter : {'1', 'e', '.', '-', '"', '\n', '\0'})
    BOOST_CHECK_EXCEPTION(parse("1", {.delimiter = delimiter}), DataError, says({"delimiter"}));
}

BOOST_AUTO_TEST_CASE(a_wide_line_before_many_empty_ones_takes_no_room) {
  std::string text = "1";
  for (int i = 0; i < 100'000; ++i) text += ",1";
  text.append(1'000'000, '\n');
  BOOST_TEST(parse(text).shape() == Shape({1, 100'001}));
}

BOOST_AUTO_TEST_CASE(random_bytes_never_do_worse_than_throw) {
  std::mt19937 random(1);
  const std::string letters = "0123456789,,,\n\r\"+-.eE infa\t\xef\xff";
  for (int i = 0; i < 5000; ++i) {
    std::string text(random() % 40, ' ');
    for (char& c : text) c = letters[random() % letters.size()];
    try {
      BOOST_TEST(parse(text, {.dtype = static_cast<DType>(random() % 5)}).rank() == 2u);
    } catch (const FileError&) {
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
