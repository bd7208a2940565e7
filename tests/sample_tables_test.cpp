// The tables that samples use.
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/data/csv_table.h"
#include "espalier/ops/ops.h"
#include "places.h"

using namespace espalier;
using data::CsvTable;

BOOST_AUTO_TEST_SUITE(sample_tables)

// Sizes and means are those of scikit-learn's load_iris, load_wine, load_breast_cancer, load_diabetes (not
// scaled) and load_linnerud.
BOOST_AUTO_TEST_CASE(tables_of_scikit_learn) {
  const struct {
    const char* file;
    int64_t rows, columns;
    std::vector<std::string> classes;
    double mean_of_numbers;
  } cases[] = {
      {"iris.csv", 150, 4, {"setosa", "versicolor", "virginica"}, 3.4644999999999997},
      {"wine.csv", 178, 13, {"class_0", "class_1", "class_2"}, 69.13366292091617},
      {"breast_cancer.csv", 569, 30, {"benign", "malignant"}, 61.89071233951964},
      {"diabetes.csv", 442, 11, {}, 70.68022081447964},
      {"linnerud.csv", 20, 6, {}, 82.56666666666666},
  };
  for (const auto& [file, rows, columns, classes, mean_of_numbers] : cases) BOOST_TEST_CONTEXT(file) {
      const CsvTable table =
          data::read_csv_table(std::string(testing::places::sample_tables) + "/" + file, {.dtype = float64});
      BOOST_TEST(table.rows == rows);
      BOOST_TEST(table.matrix().shape() == Shape({rows, columns}));
      BOOST_TEST(table.columns.back().categories == classes);
      for (const data::CsvColumn& column : table.columns) BOOST_TEST(column.missing == 0);
      BOOST_TEST(mean(table.matrix()).item() == mean_of_numbers, boost::test_tools::tolerance(1e-9));
    }
}

BOOST_AUTO_TEST_SUITE_END()
