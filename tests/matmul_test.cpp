// Matrix products.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <sstream>

#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/matmul/gemm.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

Array product_of(const Array& a, const Array& b, bool transpose_a = false, bool transpose_b = false) {
  const auto size = [](const Array& m, bool axis) { return m.shape.dims()[axis]; };
  const int64_t k = size(a, !transpose_a);
  return Array({size(a, transpose_a), size(b, !transpose_b)}, [&](const Index& i) {
    double sum = 0;
    for (int64_t j = 0; j < k; ++j)
      sum += (transpose_a ? a({j, i[0]}) : a({i[0], j})) * (transpose_b ? b({i[1], j}) : b({j, i[1]}));
    return sum;
  });
}

/// A product over leading axes, which are broadcast.
Array batched_product(const Array& a, const Array& b) {
  const auto leading = [](const esp::Shape& shape) {
    return esp::Shape(esp::Dims(shape.begin(), shape.end() - 2));
  };
  const auto with = [](esp::Shape shape, int64_t rows, int64_t columns) {
    shape.dims().push_back(rows);
    shape.dims().push_back(columns);
    return shape;
  };
  const int64_t k = a.shape[-1];
  return Array(with(both(leading(a.shape), leading(b.shape)), a.shape[-2], b.shape[-1]), [&](const Index& i) {
    double sum = 0;
    Index from_a = i, from_b = i;
    for (int64_t j = 0; j < k; ++j) {
      from_a[i.size() - 1] = from_b[i.size() - 2] = j;
      sum += a(from_a) * b(from_b);
    }
    return sum;
  });
}

OpCase batched(const esp::Shape& a, const esp::Shape& b) {
  return {.name = "matmul of " + a.str() + " and " + b.str(),
          .op = [](const Variables& x) { return esp::matmul(x[0], x[1]); },
          .inputs = {numbers(a), numbers(b, -2, 2, 1)},
          .reference = [](const std::vector<Array>& in) { return batched_product(in[0], in[1]); }};
}

/// The number of occurrences of `name` in the text of a tree.
size_t count(const esp::Variable& v, const std::string& name) {
  std::ostringstream tree;
  v.print_tree(tree);
  const std::string text = tree.str();
  size_t found = 0;
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) ++found;
  return found;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(matmul)

BOOST_AUTO_TEST_CASE(all_transposes) {
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      for (const auto& [m, k, n] :
           {std::array<int64_t, 3>{2, 3, 4}, {1, 5, 1}, {3, 1, 2}, {1, 1, 1}, {7, 2, 1}})
        check_op(
            {.name = "matmul",
             .op =
                 [&](const Variables& x) {
                   return esp::matmul(ta ? esp::transpose(x[0]) : x[0], tb ? esp::transpose(x[1]) : x[1]);
                 },
             .inputs = {numbers(ta ? esp::Shape{k, m} : esp::Shape{m, k}),
                        numbers(tb ? esp::Shape{n, k} : esp::Shape{k, n}, -2, 2, 1)},
             .reference = [&](const std::vector<Array>& in) { return product_of(in[0], in[1], ta, tb); }});
}

BOOST_AUTO_TEST_CASE(sizes_of_zero) {
  for (const auto& [m, k, n] : {std::array<int64_t, 3>{0, 3, 4}, {2, 0, 4}, {2, 3, 0}, {0, 0, 0}})
    check_op({.name = "matmul",
              .op = [](const Variables& x) { return esp::matmul(x[0], x[1]); },
              .inputs = {numbers({m, k}), numbers({k, n})},
              .reference = [](const std::vector<Array>& in) { return product_of(in[0], in[1]); }});
}

BOOST_AUTO_TEST_CASE(a_matrix_with_itself) {
  check_op({.name = "matmul",
            .op = [](const Variables& x) { return esp::matmul(x[0], x[0]); },
            .inputs = {numbers({3, 3})},
            .reference = [](const std::vector<Array>& in) { return product_of(in[0], in[0]); }});
  check_op({.name = "matmul",
            .op = [](const Variables& x) { return esp::matmul(x[0], esp::transpose(x[0])); },
            .inputs = {numbers({3, 4})},
            .reference = [](const std::vector<Array>& in) { return product_of(in[0], in[0], false, true); }});
}

BOOST_AUTO_TEST_CASE(larger_ones_from_any_strides) {
  const esp::Tensor a = numbers({70, 33}), b = numbers({33, 45}, -2, 2, 1);
  const Array reference = product_of(Array(a), Array(b));
  using Layouts = esp::Tensor (*)(const esp::Tensor&);
  const Layouts layouts[] = {[](const esp::Tensor& x) { return x; }, laid_out_in_reverse, sliced_from_larger,
                             // Neither axis has stride 1.
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
        BOOST_TEST(difference(product_of(Array(b), Array(a), true, true),
                              esp::matmul(esp::transpose(y), esp::transpose(x)).value()) <
                   (dtype == esp::float64 ? 1e-13 : 1e-5));
      }
}

BOOST_AUTO_TEST_CASE(batches) {
  check_op(batched({2, 3, 4}, {2, 4, 2}));
  check_op(batched({2, 2, 1, 3}, {2, 2, 3, 2}));
  check_op(batched({1, 1, 2}, {1, 2, 1}));
  check_op(batched({5, 2, 1}, {5, 1, 2}));
}

BOOST_AUTO_TEST_CASE(batches_are_broadcast) {
  check_op(batched({2, 3, 4}, {4, 2}));  // one product of [6, 4]
  check_op(batched({2, 1, 4}, {4, 2}));
  check_op(batched({2, 2, 2, 3}, {1, 3, 2}));
  check_op(batched({3, 4}, {2, 4, 2}));
  check_op(batched({2, 1, 2, 3}, {3, 3, 2}));
  check_op(batched({1, 3, 2}, {2, 2, 1, 2, 1}));
}

BOOST_AUTO_TEST_CASE(batches_of_size_zero) {
  check_op(batched({0, 3, 4}, {0, 4, 2}));
  check_op(batched({0, 3, 4}, {4, 2}));
  check_op(batched({2, 0, 4}, {4, 2}));
  check_op(batched({2, 3, 0}, {2, 0, 2}));
  check_op(batched({2, 3, 0}, {0, 2}));
  check_op(batched({2, 3, 4}, {2, 4, 0}));
}

BOOST_AUTO_TEST_CASE(transposes_in_batches) {
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      for (bool one : {false, true}) {
        OpCase c = batched(ta ? esp::Shape{2, 4, 3} : esp::Shape{2, 3, 4},
                           one ? (tb ? esp::Shape{2, 4} : esp::Shape{4, 2})
                               : (tb ? esp::Shape{2, 2, 4} : esp::Shape{2, 4, 2}));
        c.op = [=](const Variables& x) {
          return esp::matmul(ta ? esp::transpose(x[0]) : x[0], tb ? esp::transpose(x[1]) : x[1]);
        };
        const auto turned = [](const Array& x, bool t) {
          esp::Dims sizes = x.shape.dims();
          if (t) std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
          return Array(esp::Shape(sizes), [&](Index i) {
            if (t) std::swap(i[i.size() - 1], i[i.size() - 2]);
            return x(i);
          });
        };
        c.reference = [=](const std::vector<Array>& in) {
          return batched_product(turned(in[0], ta), turned(in[1], tb));
        };
        check_op(c);
      }
}

/// Attention: [rows, time, heads, width] as a view [rows, heads, time, width].
BOOST_AUTO_TEST_CASE(heads_are_not_copied) {
  const esp::Axes heads_first = {0, 2, 1, 3};
  OpCase c = batched({2, 3, 2, 4}, {2, 3, 2, 4});
  c.op = [=](const Variables& x) {
    return esp::matmul(esp::transpose(x[0], heads_first), esp::transpose(esp::transpose(x[1], heads_first)));
  };
  c.reference = [](const std::vector<Array>& in) {
    return Array({2, 2, 3, 3}, [&](const Index& i) {
      double sum = 0;
      for (int64_t j = 0; j < 4; ++j) sum += in[0]({i[0], i[2], i[1], j}) * in[1]({i[0], i[3], i[1], j});
      return sum;
    });
  };
  check_op(c);

  const esp::Variable q = esp::variable(c.inputs[0]), k = esp::variable(c.inputs[1]);
  const esp::Variable a = esp::transpose(q, heads_first), b = esp::transpose(k, heads_first);
  const int64_t before = esp::memory_stats().allocations;
  const esp::Variable y = esp::matmul(a, esp::transpose(b));
  BOOST_TEST(esp::memory_stats().allocations == before + 1);
  // Only the transposes that move the heads forward and back.
  BOOST_TEST(count(y, "transpose(") == 2u);
}

BOOST_AUTO_TEST_CASE(one_matrix_for_a_batch_has_its_gradient_from_one_product) {
  const esp::Variable x = esp::variable(numbers({4, 5, 3})), w = esp::variable(numbers({2, 3}));
  const esp::Variable y = esp::matmul(x, esp::transpose(w));
  const esp::Variable gradient = y.gradient(w);
  BOOST_TEST(count(gradient, "\nfold_rows ") == 2u);
  BOOST_TEST(count(gradient, "sum_to_like") == 0u);
}

BOOST_AUTO_TEST_CASE(many_small_ones_and_few_large_ones) {
  const int before = esp::num_threads();
  for (const int threads : {1, 2, 3}) {
    esp::set_num_threads(threads);
    for (const auto& [shape, other] :
         {std::pair<esp::Shape, esp::Shape>{{40, 64, 48}, {40, 48, 56}},  // divided over threads
          {{2, 3, 300, 200}, {3, 200, 300}},
          {{2, 400, 400}, {2, 400, 400}}})
      for (esp::DType dtype : {esp::float64, esp::float32}) {
        const esp::Tensor a = numbers(shape).to(dtype), b = numbers(other, -2, 2, 1).to(dtype);
        const esp::Tensor y = esp::matmul(a, b).value();
        const int64_t last = shape[0] - 1;
        const auto part = [&](const esp::Tensor& t, bool whole) {
          return whole ? t
                       : t.slice(0, last, last + 1)
                             .reshape(esp::Shape(esp::Dims(t.shape().begin() + 1, t.shape().end())));
        };
        const esp::Tensor x = part(a, false), z = part(b, b.rank() < a.rank());
        BOOST_TEST(difference(esp::matmul(x, z).value(), part(y, false)) <
                   (dtype == esp::float64 ? 1e-13 : 1e-5));
      }
  }
  esp::set_num_threads(before);
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

BOOST_AUTO_TEST_CASE(a_gemm_scales_and_adds) {
  for (esp::DType dtype : {esp::float32, esp::float64})
    for (esp::GemmLibrary library : {esp::GemmLibrary::openblas, esp::GemmLibrary::onednn}) {
      const esp::Tensor a = numbers({5, 3}).to(dtype), b = numbers({3, 4}, -2, 2, 1).to(dtype);
      const esp::Tensor before = numbers({5, 4}, -2, 2, 2).to(dtype), plain = esp::matmul(a, b).value();
      esp::Tensor c = before.clone();
      esp::Gemm gemm{dtype, false, false, 5, 4, 3, 3, 4, 4, 0.5, -2};
      esp::run_gemm(gemm, a.address(), b.address(), c.address(), library);
      BOOST_TEST(difference(c, (plain * 0.5 - before * 2.0).value()) < 1e-6);
      c = esp::full({5, 4}, NAN, dtype);  // beta 0 reads nothing
      gemm.alpha = 3, gemm.beta = 0;
      esp::run_gemm(gemm, a.address(), b.address(), c.address(), library);
      BOOST_TEST(difference(c, (plain * 3.0).value()) < 1e-6);
    }
}

BOOST_AUTO_TEST_CASE(mistakes_name_shapes_and_line) {
  const esp::Variable a = esp::ones({3, 4}), b = esp::ones({5, 6});
  BOOST_CHECK_EXCEPTION(esp::matmul(a, b), esp::ShapeError, says({"matmul", "[3, 4]", "[5, 6]", here()}));
  BOOST_CHECK_EXCEPTION(esp::matmul(a, esp::transpose(b)), esp::ShapeError,
                        says({"[3, 4]", "[6, 5]", here()}));
  BOOST_CHECK_EXCEPTION(esp::matmul(a, esp::ones({4})), esp::ShapeError,
                        says({"matmul", "[3, 4]", "[4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::matmul(a, esp::ones({2, 5, 4})), esp::ShapeError, says({"[2, 5, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::matmul(esp::ones({3, 2, 4}), esp::ones({2, 4, 5})), esp::ShapeError,
                        says({"matmul", "[3, 2, 4]", "[2, 4, 5]", "[3]", "[2]", here()}));
  BOOST_CHECK_EXCEPTION(esp::matmul(esp::ones({4}), esp::ones({2, 4, 5})), esp::ShapeError,
                        says({"matmul", "[4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::matmul(a, 2.0), esp::ShapeError, says({"matmul", "[]", here()}));
  BOOST_CHECK_EXCEPTION(esp::matmul(a, esp::ones({4, 3}, esp::float64)), esp::TypeError,
                        says({"matmul", "float32", "float64", here()}));
  BOOST_CHECK_EXCEPTION(esp::matmul(esp::ones({3, 3}, esp::int64), esp::ones({3, 3}, esp::int64)),
                        esp::TypeError, says({"matmul", "int64", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
