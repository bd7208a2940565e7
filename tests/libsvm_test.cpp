#include "espalier/data/libsvm.h"

#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "malformed_files.h"
#include "temporary_folder.h"

using namespace espalier;
using data::LibsvmOptions, data::LibsvmTable;
using testing::says;

namespace {

struct Folder {
  LibsvmTable parse(const std::string& text, const LibsvmOptions& options = {}) const {
    return data::read_libsvm(folder.write("table.svm", text), options);
  }
  testing::TemporaryFolder folder;
};

template <class T>
std::vector<T> list(const Tensor& tensor) {
  const auto values = tensor.span<T>();
  return {values.begin(), values.end()};
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(libsvm_files, Folder)

BOOST_AUTO_TEST_CASE(rows_and_labels) {
  const LibsvmTable table = parse("# two rows\n+1 1:0.5 3:-2e1 # the first\r\n\n-1\t2:1  \n");
  BOOST_TEST(table.features.shape() == Shape({2, 3}));
  BOOST_TEST(list<float>(table.features) == (std::vector<float>{0.5f, 0, -20, 0, 1, 0}));
  BOOST_TEST(list<float>(table.labels) == (std::vector<float>{1, -1}));
  BOOST_TEST(!table.queries.defined());
  const LibsvmTable wide = parse("1 0:2\n", {.features = 4, .zero_based = true, .dtype = float64});
  BOOST_TEST(list<double>(wide.features) == (std::vector<double>{2, 0, 0, 0}));
  BOOST_TEST(parse("3\n").features.shape() == Shape({1, 0}));
  BOOST_TEST(list<int64_t>(parse("1 qid:7 1:1\n0 qid:8\n").queries) == (std::vector<int64_t>{7, 8}));
}

BOOST_AUTO_TEST_CASE(what_is_written_is_read) {
  const Tensor x = tensor_from(std::vector<double>{0, 0.1, 1.0 / 3, -2e300, 0, 5e-324}, {2, 3});
  data::write_libsvm(folder / "table.svm", x, tensor({3, -1}, int64));
  BOOST_TEST(read_file(folder / "table.svm").starts_with("3 2:0.1 3:0.333"));
  const LibsvmTable back = data::read_libsvm(folder / "table.svm", {.dtype = float64});
  BOOST_TEST(list<double>(back.features) == list<double>(x));
  BOOST_TEST(list<double>(back.labels) == (std::vector<double>{3, -1}));
  BOOST_CHECK_EXCEPTION(data::write_libsvm(folder / "table.svm", ones({2, 2}), ones({3})), ShapeError,
                        says({"[2, 2]", "[3]", "libsvm_test.cpp"}));
  BOOST_CHECK_THROW(data::write_libsvm(folder / "table.svm", arange(4, int32).reshape({2, 2}), ones({2})),
                    TypeError);
  BOOST_CHECK_THROW(data::write_libsvm(folder / "table.svm", Tensor(), ones({2})), TypeError);
}

BOOST_AUTO_TEST_CASE(what_is_no_table) {
  testing::refuses_all([&](const std::string& text) { (void)parse(text); },
                       {{"", {"table.svm", "no rows", "libsvm_test.cpp"}},
                        {"# nothing\n\n", {"no rows"}},
                        {"a 1:1\n", {"line 1", "\"a\"", "not a number"}},
                        {"1 1:1\n\nx\n", {"line 3", "\"x\""}},
                        {"1,2 1:1\n", {"\"1,2\"", "several labels"}},
                        {"1:1 2:1\n", {"\"1:1\"", "label"}},
                        {"1 1\n", {"\"1\"", "index:value"}},
                        {"1 1:\n", {"\"\"", "not a number"}},
                        {"1 :1\n", {"not a number"}},
                        {"1 1:1:1\n", {"\"1:1\"", "not a number"}},
                        {"1 1.5:1\n", {"\"1.5\"", "not a number"}},
                        {"1 0:1\n", {"\"0:1\"", "below 1"}},
                        {"1 -1:1\n", {"below 1"}},
                        {"1 2:1 2:1\n", {"\"2:1\"", "ascend"}},
                        {"1 2:1 1:1\n", {"\"1:1\"", "ascend"}},
                        {"1 1:1e39\n", {"\"1e39\"", "does not fit float32"}},
                        {"1e39 1:1\n", {"does not fit float32"}},
                        {"1 9223372036854775808:1\n", {"does not fit int64"}},
                        {"1 9223372036854775807:1\n", {"9223372036854775807", "dense table"}},
                        {"1 1000000000:1\n", {"1000000000", "dense table"}},
                        {"1 1:1\n1 400000000:1\n", {"2 rows", "dense table"}},
                        {"1 1:1\n1 400000000:1\n1 2:1\n", {"line 2", "400000000", ".features = 400000000"}},
                        {"1 qid:1 1:1\n1 1:1\n", {"line 2", "no query"}},
                        {"1 1:1\n1 qid:1 1:1\n", {"line 2", "query"}},
                        {"1 qid:x 1:1\n", {"\"x\"", "not a number"}},
                        {"1 1:1 qid:1\n", {"\"qid\"", "not a number"}}});
  BOOST_CHECK_EXCEPTION(parse("1 4:1\n", {.features = 3}), FileError, says({"\"4:1\"", ".features = 3"}));
  BOOST_CHECK_EXCEPTION(parse("1 9223372036854775807:1\n", {.zero_based = true}), FileError,
                        says({"too large"}));
  BOOST_CHECK_EXCEPTION(parse("1\n", {.features = -1}), DataError,
                        says({".features", "-1", "libsvm_test.cpp"}));
  BOOST_CHECK_EXCEPTION(parse("1 1:1\n2 1:1\n", {.features = int64_t{1} << 62}), FileError,
                        says({"2 rows", ".features = 4611686018427387904", "no table"}));
  BOOST_CHECK_EXCEPTION(parse("1\n", {.dtype = int64}), TypeError, says({"int64"}));
  BOOST_CHECK_THROW(data::read_libsvm(folder / "none"), FileError);
}

BOOST_AUTO_TEST_CASE(damage) {
  testing::survives_damage([&](const std::string& text) { (void)parse(text); },
                           "+1 qid:3 1:0.5 3:-2e1 # c\n-1 qid:4 2:1 12:7\n");
}

BOOST_AUTO_TEST_SUITE_END()
