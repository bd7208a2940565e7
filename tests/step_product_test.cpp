// Products of a recurrence by a matrix that is packed once.
#include "espalier/ops/recurrent/step_product.h"

#include <boost/test/unit_test.hpp>

#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/random.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/recurrent/panel_step_product.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// Each number of rows by one packed matrix, and the matrix again by others behind it.
template <class Product>
void check_product(Product& product, const esp::StepProductSizes& sizes) {
  for (int renewed = 0; renewed < 2; ++renewed) {
    const esp::Tensor matrix = esp::randn({sizes.inner, sizes.columns}, sizes.dtype);
    const esp::Tensor stored = sizes.transposed ? esp::transpose(matrix).value().contiguous_copy() : matrix;
    product.set_matrix(stored.address());
    for (const int64_t rows : sizes.rows) {
      const esp::Tensor a = esp::randn({rows, sizes.inner}, sizes.dtype);
      const esp::Tensor out = esp::full({rows, sizes.columns}, -7.0, sizes.dtype);
      product.run(rows, a.address(), out.address());
      BOOST_TEST(difference(out, esp::matmul(a, matrix).value()) <
                 (sizes.dtype == esp::float64 ? 1e-11 : 1e-4));
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(step_product)

BOOST_AUTO_TEST_CASE(panels_of_every_size_and_level) {
  esp::seed(1);
  const esp::VectorLevel before = esp::vector_level();
  for (const auto level : {esp::VectorLevel::baseline, esp::VectorLevel::avx2, esp::VectorLevel::avx512})
    for (const esp::DType dtype : {esp::float32, esp::float64})
      for (const bool transposed : {false, true})
        for (const int64_t columns : {3, 64, 70}) {
          esp::set_vector_level(level);
          esp::StepProductSizes sizes{dtype, {}, 65, columns, transposed};
          for (int64_t rows = 33; rows > 0; rows -= rows > 14 ? 9 : 1) sizes.rows.push_back(rows);
          BOOST_TEST_CONTEXT(name(dtype) << " " << columns << " columns, level " << static_cast<int>(level)) {
            esp::Workspace workspace;
            check_product(*esp::panel_step_product(sizes, workspace), sizes);
            esp::StepProduct chosen(sizes, workspace);
            check_product(chosen, sizes);
          }
        }
  esp::set_vector_level(before);
}

BOOST_AUTO_TEST_SUITE_END()
