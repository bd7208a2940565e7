// Gathering and scattering by index.
#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/core/op_registry.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/embedding.h"
#include "espalier/ops/indexing/look_up.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/shape_like_ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

BOOST_AUTO_TEST_SUITE(indexing)

BOOST_AUTO_TEST_CASE(gather) {
  const esp::Tensor at = esp::tensor({{2, 0}, {2, -1}, {1, 1}});  // -1 is the last
  const auto row = [](const Array& indices, const Index& i, int64_t size) {
    const auto k = static_cast<int64_t>(indices(i));
    return k < 0 ? k + size : k;
  };
  check_op({.name = "gather",
            .op = [](const Variables& x) { return esp::gather(x[0], x[1]); },
            .inputs = {numbers({3, 4}), at},
            .reference =
                [&](const std::vector<Array>& in) {
                  return Array({3, 2, 4}, [&](const Index& i) {
                    return in[0]({row(in[1], {i[0], i[1]}, 3), i[2]});
                  });
                }});
  check_op({.name = "look_up",
            .op = [](const Variables& x) { return esp::look_up("Words", x[0], x[1], true); },
            .inputs = {numbers({3, 4}), at},
            .reference =
                [&](const std::vector<Array>& in) {
                  return Array({3, 2, 4}, [&](const Index& i) {
                    return in[0]({row(in[1], {i[0], i[1]}, 3), i[2]});
                  });
                }});
  const esp::Variable table = numbers({3, 4}), nowhere = esp::tensor({0, -1});
  BOOST_CHECK_EXCEPTION(esp::look_up("Words", table, nowhere, false), esp::IndexError,
                        says({"Words: index -1 is outside an axis of size 3"}));
  check_op({.name = "gather along the last axis",
            .op = [](const Variables& x) { return esp::gather(x[0], x[1], -1); },
            .inputs = {numbers({2, 3}), at.to(esp::int32)},
            .reference =
                [&](const std::vector<Array>& in) {
                  return Array({2, 3, 2}, [&](const Index& i) {
                    return in[0]({i[0], row(in[1], {i[1], i[2]}, 3)});
                  });
                }});
  check_op({.name = "gather in the middle",
            .op = [](const Variables& x) { return esp::gather(x[0], x[1], 1); },
            .inputs = {numbers({2, 3, 2}), esp::tensor(2)},
            .reference =
                [&](const std::vector<Array>& in) {
                  return Array({2, 2}, [&](const Index& i) { return in[0]({i[0], 2, i[1]}); });
                }});
  check_op({.name = "gather nothing",
            .op = [](const Variables& x) { return esp::gather(x[0], x[1]); },
            .inputs = {numbers({3, 2}), esp::zeros({0}, esp::int64)},
            .reference =
                [&](const std::vector<Array>&) {
                  return Array({0, 2}, {});
                }});
  check_op({.name = "scatter_add_like",
            .op = [](const Variables& x) { return esp::scatter_add_like(x[0], x[1], x[2], 1, "gather"); },
            .inputs = {numbers({2, 3, 2}), at, numbers({2, 3})},
            .reference =
                [&](const std::vector<Array>& in) {
                  return Array({2, 3}, [&](const Index& to) {
                    double sum = 0;
                    each_index({3, 2}, [&](const Index& i) {
                      if (row(in[1], i, 3) == to[1]) sum += in[0]({to[0], i[0], i[1]});
                    });
                    return sum;
                  });
                },
            .differentiable = {0}});
}

BOOST_AUTO_TEST_CASE(threads_share_large_ones) {
  const int before = esp::num_threads();
  const int64_t rows = 1000, count = 3000, width = 150;
  esp::Tensor at({count}, esp::int64);
  for (int64_t i = 0; i < count; ++i) at.at<int64_t>({i}) = i * i % rows - (i % 2) * rows;
  const esp::Tensor x = numbers({rows, width}), g = numbers({count, width}, -2, 2, 1);
  std::vector<esp::Tensor> seen, sums;
  for (const int threads : {1, 3}) {
    esp::set_num_threads(threads);
    seen.push_back(esp::gather(x, at).value());
    sums.push_back(esp::scatter_add_like(g, at, x, 0, "gather").value());
  }
  esp::set_num_threads(before);
  BOOST_TEST(difference(seen[0], seen[1]) == 0);
  BOOST_TEST(difference(sums[0], sums[1]) == 0);  // to the bit
  BOOST_TEST(seen[1].at<double>({2999, 149}) == x.at<double>({1, 149}));
  double sum = 0;
  for (int64_t i = 0; i < count; ++i)
    if (i * i % rows == 1) sum += g.at<double>({i, 149});
  BOOST_TEST(sums[1].at<double>({1, 149}) == sum, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(nothing_is_allocated_but_the_result) {
  const esp::Variable x = numbers({10, 4}), at = esp::tensor({1, 2, 9, -1}), g = numbers({4, 4});
  const auto allocations = [](const auto& f) {
    const int64_t before = esp::memory_stats().allocations;
    const esp::Variable y = f();
    return esp::memory_stats().allocations - before;
  };
  BOOST_TEST(allocations([&] { return esp::gather(x, at); }) == 1);
  BOOST_TEST(allocations([&] { return esp::scatter_add_like(g, at, x, 0, "gather"); }) == 1);
}

BOOST_AUTO_TEST_CASE(pick) {
  check_op({.name = "pick",
            .op = [](const Variables& x) { return esp::pick(x[0], x[1]); },
            .inputs = {numbers({2, 3, 4}), esp::tensor({{3, 0, 1}, {2, 2, 0}})},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({2, 3}, [&](const Index& i) {
                    return in[0]({i[0], i[1], static_cast<int64_t>(in[1](i))});
                  });
                }});
  check_op(
      {.name = "pick from one row",
       .op = [](const Variables& x) { return esp::pick(x[0], x[1]); },
       .inputs = {numbers({4}), esp::tensor(2, esp::int32)},
       .reference =
           [](const std::vector<Array>& in) { return Array({}, [&](const Index&) { return in[0]({2}); }); }});
  check_op({.name = "pick from nothing",
            .op = [](const Variables& x) { return esp::pick(x[0], x[1]); },
            .inputs = {numbers({0, 4}), esp::zeros({0}, esp::int64)},
            .reference = [](const std::vector<Array>&) { return Array({0}, {}); }});
  check_op({.name = "put_like",
            .op = [](const Variables& x) { return esp::put_like(x[0], x[1], x[2], "pick"); },
            .inputs = {numbers({3}), esp::tensor({3, 0, 3}), numbers({3, 4})},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({3, 4}, [&](const Index& i) {
                    return static_cast<int64_t>(in[1]({i[0]})) == i[1] ? in[0]({i[0]}) : 0;
                  });
                },
            .differentiable = {0}});
}

BOOST_AUTO_TEST_CASE(one_hot) {
  for (esp::DType dtype : {esp::float32, esp::float64, esp::int32, esp::int64, esp::boolean})
    check_op({.name = "one_hot",
              .op = [=](const Variables& x) { return esp::one_hot(x[0], 4, dtype); },
              .inputs = {esp::tensor({{3, 0}, {1, 1}})},
              .reference =
                  [](const std::vector<Array>& in) {
                    return Array({2, 2, 4}, [&](const Index& i) {
                      return double(in[0]({i[0], i[1]}) == double(i[2]));
                    });
                  }});
  BOOST_TEST(esp::one_hot(2, 3).shape() == esp::Shape({3}));
  BOOST_TEST(esp::one_hot(esp::zeros({0}, esp::int64), 3).shape() == esp::Shape({0, 3}));
}

BOOST_AUTO_TEST_CASE(other_element_types) {
  const esp::Variable whole = esp::tensor({{int64_t{1}, int64_t{2}}, {INT64_MAX, int64_t{4}}});
  BOOST_TEST(esp::gather(whole, esp::tensor({1})).value().at<int64_t>({0, 0}) == INT64_MAX);
  BOOST_TEST(esp::pick(whole, esp::tensor({0, 0})).value().at<int64_t>({1}) == INT64_MAX);
  BOOST_TEST(esp::gather(esp::tensor({true, false}), esp::tensor({1, 0, 0})).value().at<bool>({2}));
}

/// Where the gradient alone is computed, as its kernel may be the first that reads the indices.
BOOST_AUTO_TEST_CASE(gradients_name_the_function_that_was_called) {
  const esp::Variable w = esp::variable(numbers({3, 4})), at = esp::placeholder("at", {3}, esp::int64),
                      put = esp::variable(numbers({3, 1}));
  const esp::nn::Embedding words(4, 2);
  const struct {
    const char* function;
    esp::Variable loss, by;
    int64_t wrong;
    const char* noun = "index";
  } cases[] = {
      {"pick", esp::pick(w, at), w, 4},
      {"softmax_cross_entropy", esp::softmax_cross_entropy(w, at, {.label_smoothing = 0.1}), w, 4, "label"},
      {"nll_loss", esp::nll_loss(w, at), w, -1, "label"},
      {"gather", esp::gather(w, at), w, 3},
      {"gather", esp::gather(w, at, 1), w, -5},
      {"Embedding", words(at), words.parameter("weight"), -1},
      {"take_along_axis", esp::take_along_axis(w, esp::unsqueeze(at, 1), 1), w, 4},
      {"put_along_axis", esp::put_along_axis(w, esp::unsqueeze(at, 1), put, 1), put, 4},
  };
  for (const auto& c : cases) {
    const esp::Executor executor = esp::sum(c.loss).gradient(c.by).get_executor();
    BOOST_CHECK_EXCEPTION(executor.run({{"at", esp::full({3}, c.wrong, esp::int64)}}), esp::IndexError,
                          says({std::string(c.function) + ": " + c.noun + " " + std::to_string(c.wrong)}));
  }
  const esp::Executor counts = esp::bincount(at, {.weights = esp::ones({3}), .length = 4}).get_executor();
  BOOST_CHECK_EXCEPTION(counts.run({{"at", esp::full({3}, -1, esp::int64)}}), esp::IndexError,
                        says({"bincount: index -1"}));
}

/// Plan files that were written before an attribute was there lack it.
BOOST_AUTO_TEST_CASE(ops_of_older_plans) {
  const esp::Attributes axis{{"axis", int64_t{1}}};
  BOOST_TEST(esp::to_string(esp::make_op("put_like", {})->attributes()) ==
             esp::to_string({{"function", std::string("put_like")}}));
  BOOST_TEST(esp::attribute<std::string>(*esp::make_op("add_along_axis_like", axis), "function") ==
             "add_along_axis_like");
  BOOST_TEST(esp::attribute<bool>(*esp::make_op("scatter_add_like", axis), "from_end"));
}

BOOST_AUTO_TEST_CASE(indices_outside_are_named) {
  const esp::Variable x = esp::ones({3, 4});
  BOOST_CHECK_EXCEPTION(esp::gather(x, esp::tensor({0, 9})), esp::IndexError,
                        says({"gather", "9", "3", here()}));
  BOOST_CHECK_EXCEPTION(esp::gather(x, esp::tensor({-4})), esp::IndexError,
                        says({"gather", "-4", "3", here()}));
  BOOST_CHECK_EXCEPTION(esp::gather(x, esp::tensor({4}), 1), esp::IndexError, says({"gather", "4", here()}));
  BOOST_CHECK_EXCEPTION(esp::gather(x, esp::tensor({INT64_MIN, int64_t{0}})), esp::IndexError,
                        says({"gather", here()}));
  BOOST_CHECK_EXCEPTION(esp::gather(esp::zeros({0, 4}), 0), esp::IndexError, says({"gather", "0", here()}));
  BOOST_CHECK_EXCEPTION(esp::pick(x, esp::tensor({0, 4, 0})), esp::IndexError, says({"pick", "4", here()}));
  BOOST_CHECK_EXCEPTION(esp::one_hot(esp::tensor({5}), 5), esp::IndexError, says({"one_hot", "5", here()}));
  // Classes do not count from the end: -1 often marks a missing label.
  BOOST_CHECK_EXCEPTION(esp::one_hot(esp::tensor({-1}), 5), esp::IndexError, says({"one_hot", "-1", here()}));
  BOOST_CHECK_EXCEPTION(esp::pick(x, esp::tensor({0, -1, 0})), esp::IndexError, says({"pick", "-1", here()}));
}

BOOST_AUTO_TEST_CASE(mistakes_name_op_shapes_and_line) {
  const esp::Variable x = esp::ones({3, 4});
  BOOST_CHECK_EXCEPTION(esp::gather(x, 0.5), esp::TypeError, says({"gather", "float32", here()}));
  BOOST_CHECK_EXCEPTION(esp::gather(x, esp::tensor(true)), esp::TypeError, says({"gather", "bool", here()}));
  BOOST_CHECK_EXCEPTION(esp::gather(x, 0, 2), esp::ShapeError, says({"gather", "axis 2", here()}));
  BOOST_CHECK_EXCEPTION(esp::gather(1.0, 0), esp::ShapeError, says({"gather", "axis 0", here()}));
  BOOST_CHECK_EXCEPTION(esp::pick(x, esp::tensor({0, 1})), esp::ShapeError,
                        says({"pick", "[2]", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::pick(x, esp::tensor({{0}, {1}, {2}})), esp::ShapeError,
                        says({"pick", "[3, 1]", here()}));
  BOOST_CHECK_EXCEPTION(esp::pick(x, x), esp::TypeError, says({"pick", "float32", here()}));
  BOOST_CHECK_EXCEPTION(esp::one_hot(1, 0), esp::ShapeError, says({"one_hot", "0", here()}));
  BOOST_CHECK_EXCEPTION(esp::one_hot(1.0, 3), esp::TypeError, says({"one_hot", "float32", here()}));
  const int64_t many = int64_t{1} << 40;
  const esp::Variable long_x = esp::broadcast_to(esp::tensor({1}), {many});
  BOOST_CHECK_EXCEPTION(esp::one_hot(long_x, many), esp::ShapeError, says({"one_hot: ", "64 bits", here()}));
  BOOST_CHECK_EXCEPTION(esp::broadcast_to(1.0, {many, many}), esp::ShapeError,
                        says({"broadcast_to: ", "64 bits", here()}));
  BOOST_CHECK_EXCEPTION(esp::gather(esp::unsqueeze(long_x, 0), long_x), esp::ShapeError,
                        says({"gather: ", "64 bits", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
