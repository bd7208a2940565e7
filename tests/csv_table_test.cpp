#include "espalier/data/csv_table.h"

#include <boost/test/unit_test.hpp>
#include <clocale>
#include <cmath>
#include <limits>
#include <locale>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/data/csv.h"
#include "malformed_files.h"
#include "temporary_folder.h"

using namespace espalier;
using data::CsvTable, data::CsvTableOptions;
using testing::says;

namespace {

struct Folder {
  CsvTable parse(const std::string& text, const CsvTableOptions& options = {}) const {
    return data::read_csv_table(folder.write("table.csv", text), options);
  }
  testing::TemporaryFolder folder;
};

template <class T>
std::vector<T> list(const Tensor& tensor) {
  const auto values = tensor.span<T>();
  return {values.begin(), values.end()};
}
using Floats = std::vector<float>;
using Codes = std::vector<int64_t>;
using Words = std::vector<std::string>;

/// The numbers of a German locale, for C++ streams, whether one is installed or not.
struct German : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};
struct InGerman {
  InGerman() : before(std::locale::global(std::locale(std::locale::classic(), new German))) {}
  ~InGerman() { std::locale::global(before); }
  const std::locale before;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(csv_table, Folder)

BOOST_AUTO_TEST_CASE(numbers_words_and_gaps) {
  const CsvTable table = parse("size, color ,weight\n1,red,2.5\n2,\"blue\",NA\n,?,-1e3\n4,red,nan\n");
  BOOST_TEST(table.rows == 4);
  BOOST_REQUIRE(table.columns.size() == 3u);
  const auto& size = table["size"];
  BOOST_TEST(!size.is_text);
  BOOST_TEST(size.missing == 1);
  BOOST_TEST(size.values.at<float>({3}) == 4.0f);
  BOOST_TEST(std::isnan(size.values.at<float>({2})));
  const auto& color = table["color"];
  BOOST_TEST(color.is_text);
  BOOST_TEST(color.categories == Words({"blue", "red"}));
  BOOST_TEST(list<int64_t>(color.values) == Codes({1, 0, -1, 1}));
  BOOST_TEST(color.missing == 1);
  BOOST_TEST(table["weight"].missing == 2);
  const Tensor matrix = table.matrix();
  BOOST_TEST(matrix.shape() == Shape({4, 2}));
  BOOST_TEST(matrix.at<float>({2, 1}) == -1000.0f);
  BOOST_TEST(list<float>(table.matrix({"weight", "size"}).slice(0, 0, 1).contiguous_copy()) ==
             Floats({2.5f, 1}));
  BOOST_CHECK_EXCEPTION((void)table["colour"], DataError,
                        says({"\"colour\"", R"("size", "color", "weight")"}));
  BOOST_CHECK_EXCEPTION(table.matrix({"color"}), DataError,
                        says({"\"color\"", "2 categories", "csv_table_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(quotes) {
  const CsvTable table =
      parse("\"a \"\"name\"\"\",b\r\n\"one, two\r\nthree\",\" 1 \"\r\n\"\"\"\"  ,2\r\nit's \"so\",3\r\n");
  BOOST_TEST(table.columns[0].name == "a \"name\"");
  BOOST_TEST(table.columns[0].categories == Words({"\"", "it's \"so\"", "one, two\r\nthree"}));
  BOOST_TEST(list<float>(table["b"].values) == Floats({1, 2, 3}));
}

BOOST_AUTO_TEST_CASE(options) {
  BOOST_TEST(parse("1\t2\n3\t\n", {.delimiter = '\t', .header = false})["1"].missing == 1);
  BOOST_TEST(parse("# a comment, \"\na\n 1\n#2\n\n3", {.comment = '#'}).rows == 2);
  BOOST_TEST(parse("a\n1\n-999\n", {.missing = {"-999"}})["a"].missing == 1);
  const CsvTable codes = parse("zip\n02134\n02134\n10001\n", {.text = {"zip"}});
  BOOST_TEST(codes["zip"].categories == Words({"02134", "10001"}));
  BOOST_CHECK(parse("a\n1.5\n", {.dtype = float64})["a"].values.dtype() == float64);
  BOOST_CHECK(parse("a\n1.5\n", {.dtype = float16})["a"].values.dtype() == float16);
  for (const DType half : {float16, bfloat16})
    BOOST_TEST(std::isinf(parse("a\n-inf\n", {.dtype = half})["a"].values.to(float32).item()));
  BOOST_TEST(list<int32_t>(parse("a\n7\n", {.dtype = int32})["a"].values) == std::vector<int32_t>{7});
  BOOST_TEST(parse("a\n1\n0\n", {.dtype = boolean})["a"].values.at<bool>({0}));
  const CsvTable nothing = parse("a,b\n1,\n2,NA\n");
  BOOST_TEST(!nothing["b"].is_text);
  BOOST_TEST(nothing["b"].missing == 2);
}

BOOST_AUTO_TEST_CASE(the_locale_does_not_matter) {
  const char* before = std::setlocale(LC_ALL, nullptr);
  const std::string kept = before ? before : "C";
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "C"}) {
    std::setlocale(LC_ALL, name);  // those that are not installed change nothing
    BOOST_TEST(list<float>(parse("a\n1.5\n")["a"].values) == Floats({1.5f}));
  }
  std::setlocale(LC_ALL, kept.c_str());
  const InGerman locale;
  const CsvTable table = parse("a,b\n12345.5,Aix\n-0.25,Como\n");
  BOOST_TEST(list<float>(table["a"].values) == Floats({12345.5f, -0.25f}));
  data::write_csv(folder / "again.csv", table);
  const CsvTable again = data::read_csv_table(folder / "again.csv");
  BOOST_TEST(list<float>(again["a"].values) == Floats({12345.5f, -0.25f}));
  BOOST_TEST(again["b"].categories == Words({"Aix", "Como"}));
  BOOST_CHECK_EXCEPTION(parse("a\n1\n1,5\n"), FileError, says({"table.csv", "3"}));
}

BOOST_AUTO_TEST_CASE(what_is_no_table) {
  const CsvTableOptions plain, bare{.header = false}, integers{.dtype = int32}, flags{.dtype = boolean},
      halves{.dtype = float16}, semicolon{.delimiter = ';'};
  const struct {
    std::string text;
    CsvTableOptions options;
    std::vector<std::string> parts;
  } cases[] = {
      {"", plain, {"table.csv", "no rows", "csv_table_test.cpp"}},
      {"\n \n\r\n", plain, {"no rows"}},
      {"a,b\n", plain, {"no rows"}},
      {"\xef\xbb\xbf", plain, {"no rows"}},
      {"a,b\n1\n", plain, {"line 2", "1 fields", "2"}},
      {"a,b\n1,2\n\n1,2,3\n", plain, {"line 4", "3 fields"}},
      {"a\n1,\n", plain, {"line 2", "2 fields"}},
      {"1;2\n3\n", {.delimiter = ';', .header = false}, {"line 2", "1 fields"}},
      {"a\n\"x\n", plain, {"line 2", "without end"}},
      {"a\n\"x\ny\nz", plain, {"line 2", "without end"}},
      {"\"", plain, {"line 1", "without end"}},
      {"a\n\"\"\"\n", plain, {"line 2", "without end"}},
      {"a\n\"x\" y\n", plain, {"line 2", "\"y\"", "\"x\""}},
      {"a\n\"x\ny\"z\n", plain, {"line 3", "\"z\""}},
      {"a\n\"x\"\"y\"\"\"\"\n", plain, {"without end"}},
      {"a,a\n1,2\n", plain, {"line 1", "two columns", "\"a\""}},
      {"a,,\n1,2,3\n", plain, {"two columns", "\"\""}},
      {"a\n1e39\n", plain, {"line 2", "field 1", "\"1e39\"", "does not fit float32"}},
      {"a\n1e999999\n", plain, {"does not fit"}},
      {"a\n2147483648\n", integers, {"does not fit int32"}},
      {"a\n1.5\n", integers, {"\"1.5\"", "not a number of type int32"}},
      {"a,b\n1,NA\n", integers, {"line 2", "\"b\"", "missing", "int32"}},
      {"a\n2\n", flags, {"\"2\"", "does not fit bool"}},
      {"a\n70000\n", halves, {"does not fit float16"}},
      {"0\n1e400\n", bare, {"line 2", "does not fit"}},
  };
  BOOST_TEST(std::size(cases) >= 20u);
  const testing::MemoryLimit limit;
  for (const auto& [text, options, parts] : cases) BOOST_TEST_CONTEXT(text) {
      for (const std::string& part : parts)
        BOOST_CHECK_EXCEPTION(parse(text, options), FileError, says({part}));
    }
  BOOST_CHECK_EXCEPTION(parse("a\n1\n", {.text = {"b"}}), DataError, says({"\"b\"", "a"}));
  for (const char delimiter : {'"', '\n', '\r', '\0', '#'})
    BOOST_CHECK_EXCEPTION(parse("a\n1\n", {.delimiter = delimiter, .comment = '#'}), DataError,
                          says({"delimiter"}));
}

BOOST_AUTO_TEST_CASE(damage) {
  testing::survives_damage([&](const std::string& text) { (void)parse(text); },
                           "id,\"name\"\n1,\"a \"\"b\"\"\"\n2.5e3,c\n-inf,\n,d\n");
}

BOOST_AUTO_TEST_CASE(what_is_written_is_read) {
  const Tensor table = tensor_from(std::vector<double>{0.1, -1e300, 1.0 / 3, 5e-324, 2, -0.0}, {3, 2});
  data::write_csv(folder / "table.csv", table, {.header = {" a", "b, \"c\""}});
  const CsvTable back = data::read_csv_table(folder / "table.csv", {.dtype = float64});
  BOOST_TEST(back.columns[0].name == " a");
  BOOST_TEST(back.columns[1].name == "b, \"c\"");
  BOOST_CHECK_EXCEPTION(back["c"], DataError,
                        says({"\"c\"", R"(columns are " a", "b, \"c\"")", "csv_table_test.cpp"}));
  BOOST_CHECK_EXCEPTION(back.matrix({"c"}), DataError, says({"\"c\"", "csv_table_test.cpp"}));
  BOOST_TEST(list<double>(back.matrix()) == list<double>(table));
  for (const DType dtype : {float32, int32, int64, boolean, float16, bfloat16}) {
    const Tensor numbers = (arange(6).reshape({2, 3})).to(dtype);
    data::write_csv(folder / "table.csv", numbers, {.delimiter = ';'});
    BOOST_TEST(list<float>(data::read_csv(folder / "table.csv", {.delimiter = ';'})) ==
               list<float>(numbers.to(float32)));
  }
  BOOST_CHECK_EXCEPTION(data::write_csv(folder / "table.csv", ones({2})), ShapeError, says({"[2]"}));
  BOOST_CHECK_EXCEPTION(data::write_csv(folder / "table.csv", ones({2, 2}), {.header = {"a"}}), DataError,
                        says({"1 names for 2 columns"}));
  BOOST_CHECK_THROW(data::write_csv(folder / "table.csv", Tensor()), TypeError);
}

BOOST_AUTO_TEST_CASE(a_table_of_words_and_gaps_is_read_back_as_it_was) {
  const std::string lines[] = {
      "id,\"full, name\",weight\n1,\" a \"\"b\"\"\",0.1\n,c,-inf\n3,,2e-3\n4,NA,\n",
      "word\nx\nNA\n\"y\nz\"\n",
  };
  for (const std::string& text : lines)
    for (const DType dtype : {float32, float64}) {
      const CsvTable table = parse(text, {.dtype = dtype});
      data::write_csv(folder / "back.csv", table, {.delimiter = ';'});
      const CsvTable back = data::read_csv_table(folder / "back.csv", {.delimiter = ';', .dtype = dtype});
      BOOST_TEST(back.rows == table.rows);
      BOOST_TEST_REQUIRE(back.columns.size() == table.columns.size());
      for (size_t i = 0; i < table.columns.size(); ++i) {
        const data::CsvColumn &a = table.columns[i], &b = back.columns[i];
        BOOST_TEST(a.name == b.name);
        BOOST_TEST(a.categories == b.categories);
        BOOST_TEST(a.missing == b.missing);
        BOOST_TEST(a.is_text == b.is_text);
        const std::vector<double> before = list<double>(a.values.to(float64)),
                                  after = list<double>(b.values.to(float64));
        for (size_t row = 0; row < before.size(); ++row)
          BOOST_TEST((before[row] == after[row] || (std::isnan(before[row]) && std::isnan(after[row]))));
      }
    }
}

BOOST_AUTO_TEST_CASE(tables_that_contradict_themselves_are_not_written) {
  CsvTable table = parse("a,b\n1,x\n2,y\n");
  BOOST_CHECK_EXCEPTION(data::write_csv(folder / "back.csv", table, {.header = {"a"}}), DataError,
                        says({"1 names for 2 columns", "csv_table_test.cpp"}));
  BOOST_CHECK_EXCEPTION(data::write_csv(folder / "back.csv", table, {.header = {"a", "a"}}), DataError,
                        says({"two columns are named \"a\"", "csv_table_test.cpp"}));
  table.columns[1].categories.pop_back();
  BOOST_CHECK_EXCEPTION(data::write_csv(folder / "back.csv", table), DataError,
                        says({"\"b\"", "position 1 among 1", "csv_table_test.cpp"}));
  table.columns[1].values = ones({3}, int64);
  BOOST_CHECK_EXCEPTION(data::write_csv(folder / "back.csv", table), ShapeError, says({"[3]", "2 rows"}));
  BOOST_CHECK_EXCEPTION(data::write_csv(folder / "back.csv", CsvTable()), DataError, says({"0 columns"}));
  BOOST_TEST(!std::filesystem::exists(folder / "back.csv"));
}

BOOST_AUTO_TEST_CASE(files_of_megabytes_are_written) {
  const Tensor table = arange(300'000).reshape({100'000, 3});
  data::write_csv(folder / "table.csv", table);
  BOOST_TEST(std::filesystem::file_size(folder / "table.csv") > 1u << 20);
  BOOST_TEST(list<float>(data::read_csv(folder / "table.csv")) == list<float>(table.to(float32)));
}

BOOST_AUTO_TEST_CASE(small_integers_are_read_as_others) {
  BOOST_CHECK_EXCEPTION(parse("a\n1\n", {.dtype = uint8}), TypeError, says({"read_csv_table", "uint8"}));
  const auto file = folder.write("numbers.csv", "1\n");
  BOOST_CHECK_EXCEPTION(data::read_csv(file, {.dtype = int8}), TypeError, says({"read_csv", "int8"}));
}

BOOST_AUTO_TEST_CASE(columns_of_words_that_are_not_there_name_the_line) {
  const auto file = folder.write("table.csv", "v\n1\n");
  BOOST_CHECK_EXCEPTION(data::read_csv_table(file, {.text = {"nope"}}), DataError,
                        says({"\"nope\"", "csv_table_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(spaces_in_quotes_are_words) {
  const CsvTable table = parse("a,b\n\"  \",1\n\"\t\",2\n   ,3\nx,4\n");
  BOOST_TEST(table["a"].categories == (std::vector<std::string>{"\t", "  ", "x"}));
  BOOST_TEST(table["a"].missing == 1);
  data::write_csv(folder / "back.csv", table);
  for (const CsvTableOptions& options : {CsvTableOptions{}, {.missing = {""}}}) {
    const CsvTable back = data::read_csv_table(folder / "back.csv", options);
    BOOST_TEST(back["a"].categories == table["a"].categories);
    BOOST_TEST(list<int64_t>(back["a"].values) == list<int64_t>(table["a"].values));
  }
}

BOOST_AUTO_TEST_CASE(numbers_in_which_the_delimiter_occurs_are_quoted) {
  const CsvTable table = parse("a,b\n1.5,-3\n1e-30,12\n");
  for (const char delimiter : {'.', '1', '-', 'e'}) {
    data::write_csv(folder / "back.csv", table, {.delimiter = delimiter});
    const CsvTable back = data::read_csv_table(folder / "back.csv", {.delimiter = delimiter});
    BOOST_TEST(list<float>(back.matrix()) == list<float>(table.matrix()));
    BOOST_CHECK_EXCEPTION(data::write_csv(folder / "plain.csv", table.matrix(), {.delimiter = delimiter}),
                          DataError, says({"write_csv", "part of a number", "csv_table_test.cpp"}));
  }
}

BOOST_AUTO_TEST_CASE(quoted_gaps_in_columns_of_numbers) {
  const CsvTable table = parse("a,b\n\"1\",\" 2 \"\n\" \",\"NA \"\n");
  BOOST_TEST(table["a"].missing == 1);
  BOOST_TEST(table["b"].missing == 1);
  BOOST_TEST(!table["a"].is_text);
  BOOST_TEST(!table["b"].is_text);
  BOOST_TEST(table["b"].values.at<float>({0}) == 2);
  BOOST_TEST(parse("a\n\" \"\n")["a"].is_text);
}

BOOST_AUTO_TEST_SUITE_END()
