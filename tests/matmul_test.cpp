// Matrix products.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <sstream>

#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

Array product(const Array& a, const Array& b, bool transpose_a = false, bool transpose_b = false) {
  const auto size = [](const Array& m, bool axis) { return m.shape.dims()[axis]; };
  const int64_t k = size(a, !transpose_a);
  return Array({size(a, transpose_a), size(b, !transpose_b)}, [&](const Index& i) {
    double sum = 0;
    for (int64_t j = 0; j < k; ++j)
      sum += (transpose_a ? a({j, i[0]}) : a({i[0], j})) * (transpose_b ? b({i[1], j}) : b({j, i[1]}));
    return sum;
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(matmul)

BOOST_AUTO_TEST_CASE(all_transposes) {
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      for (const auto& [m, k, n] :
           {std::array<int64_t, 3>{2, 3, 4}, {1, 5, 1}, {3, 1, 2}, {1, 1, 1}, {7, 2, 1}})
        check_op({.name = "matmul",
                  .op =
                      [&](const Variables& x) {
                        return esp::matmul(ta ? esp::transpose(x[0]) : x[0],
                                           tb ? esp::transpose(x[1]) : x[1]);
                      },
                  .inputs = {numbers(ta ? esp::Shape{k, m} : esp::Shape{m, k}),
                             numbers(tb ? esp::Shape{n, k} : esp::Shape{k, n}, -2, 2, 1)},
                  .reference = [&](const std::vector<Array>& in) { return product(in[0], in[1], ta, tb); }});
}

BOOST_AUTO_TEST_CASE(sizes_of_zero) {
  for (const auto& [m, k, n] : {std::array<int64_t, 3>{0, 3, 4}, {2, 0, 4}, {2, 3, 0}, {0, 0, 0}})
    check_op({.name = "matmul",
              .op = [](const Variables& x) { return esp::matmul(x[0], x[1]); },
              .inputs = {numbers({m, k}), numbers({k, n})},
              .reference = [](const std::vector<Array>& in) { return product(in[0], in[1]); }});
}

BOOST_AUTO_TEST_CASE(a_matrix_with_itself) {
  check_op({.name = "matmul",
            .op = [](const Variables& x) { return esp::matmul(x[0], x[0]); },
            .inputs = {numbers({3, 3})},
            .reference = [](const std::vector<Array>& in) { return product(in[0], in[0]); }});
  check_op({.name = "matmul",
            .op = [](const Variables& x) { return esp::matmul(x[0], esp::transpose(x[0])); },
            .inputs = {numbers({3, 4})},
            .reference = [](const std::vector<Array>& in) { return product(in[0], in[0], false, true); }});
}

BOOST_AUTO_TEST_CASE(larger_ones_from_any_strides) {
  const esp::Tensor a = numbers({70, 33}), b = numbers({33, 45}, -2, 2, 1);
  const Array reference = product(Array(a), Array(b));
  using Layouts = esp::Tensor (*)(const esp::Tensor&);
  const Layouts layouts[] = {[](const esp::Tensor& x) { return x; }, laid_out_in_reverse, sliced_from_larger,
                             // Neither axis steps by 1.
                             [](const esp::Tensor& x) {
                               esp::Tensor wide = esp::zeros({x.shape()[0], x.shape()[1], 2}, x.dtype());
                               esp::Tensor part = wide.slice(2, 1, 2);
                               esp::copy_elements(x.reshape({x.shape()[0], x.shape()[1], 1}), part);
                               return esp::squeeze(part, 2).value();
                             }};
  for (esp::DType dtype : {esp::float64, esp::float32})
    for (Layouts first : layouts)
      for (Layouts second : layouts) {
        const esp::Tensor x = first(a.to(dtype)), y = second(b.to(dtype));
        BOOST_TEST(difference(reference, esp::matmul(x, y).value()) < (dtype == esp::float64 ? 1e-13 : 1e-5));
        BOOST_TEST(difference(product(Array(b), Array(a), true, true),
                              esp::matmul(esp::transpose(y), esp::transpose(x)).value()) <
                   (dtype == esp::float64 ? 1e-13 : 1e-5));
      }
}

BOOST_AUTO_TEST_CASE(nan_reaches_the_result) {
  esp::Tensor a = esp::zeros({2, 2});
  a.at<float>({0, 0}) = NAN;
  const esp::Tensor y = esp::matmul(a, esp::zeros({2, 2})).value();
  BOOST_TEST(std::isnan(y.at<float>({0, 1})));
  BOOST_TEST(y.at<float>({1, 0}) == 0);
}

BOOST_AUTO_TEST_CASE(transposes_are_not_computed) {
  const esp::Variable a = esp::variable(numbers({3, 2})), b = esp::variable(numbers({3, 4}));
  const esp::Variable y = esp::matmul(esp::transpose(a), b);
  std::ostringstream tree;
  y.backward().print_tree(tree);
  BOOST_TEST(tree.str().find("transpose(") == std::string::npos, tree.str());
}

BOOST_AUTO_TEST_CASE(mistakes_name_shapes_and_line) {
  const esp::Variable a = esp::ones({3, 4}), b = esp::ones({5, 6});
  BOOST_CHECK_EXCEPTION(esp::matmul(a, b), esp::ShapeError, says({"matmul", "[3, 4]", "[5, 6]", here()}));
  BOOST_CHECK_EXCEPTION(esp::matmul(a, esp::transpose(b)), esp::ShapeError,
                        says({"[3, 4]", "[6, 5]", here()}));
  BOOST_CHECK_EXCEPTION(esp::matmul(a, esp::ones({4})), esp::ShapeError,
                        says({"matmul", "[3, 4]", "[4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::matmul(a, esp::ones({2, 4, 5})), esp::ShapeError, says({"[2, 4, 5]", here()}));
  BOOST_CHECK_EXCEPTION(esp::matmul(a, 2.0), esp::ShapeError, says({"matmul", "[]", here()}));
  BOOST_CHECK_EXCEPTION(esp::matmul(a, esp::ones({4, 3}, esp::float64)), esp::TypeError,
                        says({"matmul", "float32", "float64", here()}));
  BOOST_CHECK_EXCEPTION(esp::matmul(esp::ones({3, 3}, esp::int64), esp::ones({3, 3}, esp::int64)),
                        esp::TypeError, says({"matmul", "int64", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
