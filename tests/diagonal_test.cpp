// Diagonals and triangles of matrices, beside plain loops.
#include "espalier/ops/functions/diagonal.h"

#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "moved_elements.h"

namespace esp = espalier;
using namespace espalier::testing;
using V = const esp::Variable&;

BOOST_AUTO_TEST_SUITE(diagonal)

BOOST_AUTO_TEST_CASE(diagonals) {
  check_moved(
      {{"diagonal",
        [](V x) { return esp::diagonal(x); },
        {3, 4},
        {3},
        [](const Index& i) {
          return Index{i[0], i[0]};
        }},
       {"diagonal",
        [](V x) { return esp::diagonal(x, 1, -1, 0); },
        {4, 2, 3},
        {2, 3},
        [](const Index& i) {
          return Index{i[1] + 1, i[0], i[1]};
        }},
       {"diagonal",
        [](V x) { return esp::diagonal(x, -2); },
        {3, 4},
        {1},
        [](const Index&) {
          return Index{2, 0};
        }},
       {"diagonal", [](V x) { return esp::diagonal(x, 9); }, {3, 4}, {0}, [](const Index& i) { return i; }},
       {"diag_embed",
        [](V x) { return esp::diag_embed(x, -1); },
        {2, 2},
        {2, 3, 3},
        [](const Index& i) -> std::optional<Index> {
          if (i[1] != i[2] + 1) return std::nullopt;
          return Index{i[0], i[2]};
        }},
       {"diag",
        [](V x) { return esp::diag(x); },
        {3},
        {3, 3},
        [](const Index& i) -> std::optional<Index> {
          if (i[0] != i[1]) return std::nullopt;
          return Index{i[0]};
        }},
       {"tril",
        [](V x) { return esp::tril(x); },
        {2, 3, 4},
        {2, 3, 4},
        [](const Index& i) { return i[2] <= i[1] ? std::optional(i) : std::nullopt; }},
       {"tril",
        [](V x) { return esp::tril(x, -1); },
        {3, 3},
        {3, 3},
        [](const Index& i) { return i[1] < i[0] ? std::optional(i) : std::nullopt; }},
       {"triu",
        [](V x) { return esp::triu(x, 1); },
        {3, 4},
        {3, 4},
        [](const Index& i) { return i[1] > i[0] ? std::optional(i) : std::nullopt; }}});
  check_op(
      {.name = "trace",
       .op = [](const Variables& x) { return esp::trace(x[0], 1, 0, 2); },
       .inputs = {numbers({2, 2, 3})},
       .reference =
           [](const std::vector<Array>& in) {
             return Array({2}, [&](const Index& i) { return in[0]({0, i[0], 1}) + in[0]({1, i[0], 2}); });
           },
       .roundings = 2});
  check_op({.name = "block_diag",
            .op =
                [](const Variables& x) {
                  return esp::block_diag({x[0], x[1], x[2], x[0]});
                },
            .inputs = {numbers({2, 3}), numbers({2}, -2, 2, 1), numbers({}, -2, 2, 2)},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({6, 9}, [&](const Index& i) {
                    const int64_t row = i[0], column = i[1];
                    if (row < 2) return column < 3 ? in[0]({row, column}) : 0;
                    if (row == 2) return column >= 3 && column < 5 ? in[1]({column - 3}) : 0;
                    if (row == 3) return column == 5 ? in[2]({}) : 0;
                    return column >= 6 ? in[0]({row - 4, column - 6}) : 0;
                  });
                }});
  BOOST_TEST(esp::block_diag({esp::zeros({0, 2}), esp::ones({1, 1})}).shape() == esp::Shape({1, 3}));
  BOOST_TEST(esp::tril(esp::full({2, 2}, NAN, esp::float64)).value().at<double>({0, 1}) == 0);
  const esp::Variable square = esp::ones({3, 3});
  BOOST_TEST(esp::diagonal(square).value().storage().get() == square.value().storage().get());
}

BOOST_AUTO_TEST_CASE(short_batches_of_a_plan) {
  const esp::Variable x = esp::placeholder("x", {4, 6}, esp::float64);
  for (const auto op : {+[](V v) { return esp::diagonal(v, 1); }, +[](V v) { return esp::tril(v, 1); }}) {
    const esp::Executor executor = op(x).get_executor();
    for (const int64_t rows : {4, 2, 3}) {
      const esp::Tensor some = numbers({rows, 6});
      BOOST_TEST(difference(op(some).value(), executor.run({{"x", some}})) == 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(replicas_train_as_one_device_does) {
  std::vector<esp::Tensor> trained;
  for (const std::vector<esp::Device>& devices :
       {std::vector{esp::cpu(0)}, std::vector{esp::cpu(0), esp::cpu(1)}}) {
    esp::data::Distributor feed({numbers({6, 3, 3})}, {.batch_size = 4});
    const auto [x] = feed.get_output_graphs<1>();
    const esp::Variable w = esp::parameter(numbers({3, 3}, -1, 1, 1));
    const esp::Variable loss = esp::mean(esp::square(esp::tril(esp::matmul(x, w)))) +
                               esp::mean(esp::square(esp::diagonal(x * w, 1, 1, 2)));
    loss.get_executor({.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(0.1), .devices = devices})
        .execute({.epochs = 2, .progress = false});
    trained.push_back(w.value());
  }
  BOOST_TEST(difference(trained[0], trained[1]) < 1e-12);
}

BOOST_AUTO_TEST_CASE(mistakes_name_function_shapes_and_line) {
  const esp::Variable x = esp::ones({3, 4});
  BOOST_CHECK_EXCEPTION(esp::diagonal(x, 0, 1, -1), esp::ShapeError, says({"diagonal", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::diag(esp::ones({2, 2, 2})), esp::ShapeError,
                        says({"diag", "[2, 2, 2]", here()}));
  BOOST_CHECK_EXCEPTION(esp::tril(esp::ones({2})), esp::ShapeError, says({"tril", "[2]", here()}));
  BOOST_CHECK_EXCEPTION(esp::trace(esp::full({2, 2}, true, esp::boolean)), esp::TypeError,
                        says({"bool", here()}));
  BOOST_CHECK_EXCEPTION(esp::block_diag({esp::ones({2, 2}), esp::ones({1, 2, 2})}), esp::ShapeError,
                        says({"block_diag", "[1, 2, 2]", here()}));
  BOOST_CHECK_EXCEPTION(esp::block_diag({}), esp::Error, says({"block_diag", here()}));
}

BOOST_AUTO_TEST_CASE(diag_of_a_matrix_is_its_diagonal) {
  const esp::Variable m = numbers({3, 4});
  for (const int64_t offset : {-1, 0, 2})
    BOOST_TEST(difference(esp::diag(m, offset).value(), esp::diagonal(m, offset).value()) == 0);
  BOOST_TEST(esp::diag(m, 2).shape() == esp::Shape({2}));
}

BOOST_AUTO_TEST_SUITE_END()
