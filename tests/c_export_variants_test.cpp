// Executor::export_c: code that a particular option, layout or gradient asks for.
#include <boost/test/unit_test.hpp>

#include "exported_functions.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

using V = const Variable&;

/// A gradient by `x` of a gradient by a parameter beside it.
std::function<Variable(const Variable&)> second_order(std::function<Variable(const Variable&)> f) {
  return [f = std::move(f)](V x) {
    const Variable p = esp::parameter(values(x.shape(), 19)), q = p + x;
    const Variable y = f(q), slope = esp::sum(y * y * y).gradient(p);
    return esp::sum(slope * slope).gradient(p);
  };
}

}  // namespace

BOOST_AUTO_TEST_SUITE(c_export_variants)

BOOST_AUTO_TEST_CASE(keys_can_be_hidden_from_all_queries) {
  Tensor seen(esp::Shape{2, 5}, esp::boolean);
  for (int64_t i = 0; i < 10; ++i) seen.span<bool>()[static_cast<size_t>(i)] = i % 3 != 1;
  const Tensor mask = values({5, 5}, 2);
  check_functions(
      values({2, 2, 5, 6}, 5),
      with_gradients(
          {[=](V x) { return esp::scaled_dot_product_attention(x, x, x, {.key_mask = Variable(seen)}); },
           [=](V x) {
             return esp::scaled_dot_product_attention(x, x, x,
                                                      {.mask = Variable(mask), .key_mask = Variable(seen)});
           }}));
}

BOOST_AUTO_TEST_CASE(gradients_of_chosen_elements_go_where_they_came_from) {
  const Tensor labels = indices({5}, 3), along = indices({5, 2}, 3), shared = indices({1, 2}, 3, true);
  const Tensor places = indices({4, 2}, 3, true);
  check_functions(values({5, 3}),
                  with_gradients({[=](V x) { return esp::pick(x, Variable(labels)); },
                                  [=](V x) { return esp::take_along_axis(x, Variable(along), 1); },
                                  [=](V x) { return esp::take_along_axis(x, Variable(shared), 1); },
                                  [=](V x) { return esp::gather_nd(x, Variable(places)); },
                                  [=](V x) { return esp::slice(x, 1, 2, esp::open_end, -2); },
                                  [=](V x) { return esp::slice(x, 0, 1, esp::open_end, 3); }}));
}

BOOST_AUTO_TEST_CASE(gradients_of_gradients_of_windows_and_means) {
  for (const std::vector<std::string>& without : {std::vector<std::string>{}, {"fold_constants"}})
    check_functions(
        values({1, 2, 6, 5}, 3, -1, 1),
        {second_order([](V x) { return esp::max_pool(x, {.kernel = 3, .stride = 2, .padding = 1}); }),
         second_order([](V x) { return esp::mean(x, 2); })},
        without);
}

BOOST_AUTO_TEST_CASE(several_products_make_one_gradient) {
  const Tensor left = values({3, 4}, 1, -1, 1), right = values({4, 3}, 2, -1, 1);
  const auto of_left = [=](V w) { return esp::sum(esp::square(esp::matmul(Variable(left), w))); };
  check_functions(
      values({4, 4}, 3, -1, 1),
      {[=](V x) {  // the weight is read by products of both forms, and by itself
         const Variable w = esp::parameter(values({4, 4}, 4, -1, 1)), once = esp::matmul(Variable(left), w);
         const Variable loss = of_left(w) + esp::sum(esp::square(esp::matmul(once, w))) +
                               esp::sum(esp::square(esp::matmul(w, Variable(right)))) + esp::sum(esp::exp(w));
         return esp::sum(loss * x).gradient(w);
       },
       [=](V x) {  // what is added to is the other gradient
         const Variable w = esp::parameter(values({4, 4}, 4, -1, 1)), b = esp::parameter(values({4, 4}, 5));
         const Variable loss = esp::sum(esp::exp(w + b) * x) + of_left(w);
         return esp::concat({loss.gradient(w), loss.gradient(b)});
       }});
}

BOOST_AUTO_TEST_CASE(lengths_that_are_fed_are_checked) {
  esp::seed(2);
  const esp::nn::Gru gru(4, 3);
  const TemporaryFolder folder;
  const Variable x = esp::placeholder("x", {3, 2, 4}), lengths = esp::placeholder("lengths", {2}, esp::int64);
  const auto executor =
      gru(x, esp::nn::Lengths(lengths)).outputs.get_executor({.mode = esp::Mode::inference});
  const Tensor steps = values({3, 2, 4});
  Tensor given = esp::tensor_from(std::vector<int64_t>{2, 3}, {2});
  const Tensor expected = executor.run({{"x", steps}, {"lengths", given}});
  (void)executor.export_c(folder / "net.c");
  const CModule code(folder / "net.c");
  const auto run = [&](Tensor& result) {
    return code.function<int(const void*, const void*, float*)>("net_run")(steps.address(), given.address(),
                                                                           result.data<float>());
  };
  Tensor result(expected.shape());
  BOOST_TEST(run(result) == 0);
  BOOST_TEST(difference(result, expected) < 1e-6);
  for (const int64_t wrong : {-1, 4}) {
    given.at<int64_t>({1}) = wrong;
    BOOST_TEST(run(result) != 0);
  }
}

BOOST_AUTO_TEST_CASE(places_that_are_fed_are_checked) {
  const TemporaryFolder folder;
  const Variable x = esp::placeholder("x", {3, 4}), places = esp::placeholder("places", {2, 2}, esp::int64);
  const auto executor = esp::gather_nd(x, places).get_executor({.mode = esp::Mode::inference});
  (void)executor.export_c(folder / "net.c");
  const CModule code(folder / "net.c");
  auto* const run = code.function<int(const void*, const void*, float*)>("net_run");
  const Tensor numbers = values({3, 4});
  const auto status = [&](const std::vector<int64_t>& list, float* result) {
    const Tensor given = esp::tensor_from(list, {2, 2});
    return run(numbers.address(), given.address(), result);
  };
  float result[2] = {};
  BOOST_TEST(status({2, 3, -3, -4}, result) == 0);
  BOOST_TEST(result[0] == numbers.at<float>({2, 3}));
  BOOST_TEST(result[1] == numbers.at<float>({0, 0}));
  BOOST_TEST(status({3, 0, 0, 0}, result) != 0);
  BOOST_TEST(status({0, 0, 0, -5}, result) != 0);
}

BOOST_AUTO_TEST_CASE(uniform_numbers_are_those_of_the_executor) {
  const TemporaryFolder folder;
  const Variable x = esp::placeholder("x", {3, 7});
  const auto executor =
      (x + esp::rand_like(x) * esp::uniform({7})).get_executor({.mode = esp::Mode::inference});
  (void)executor.export_c(folder / "net.c");  // its first numbers are those of the next run
  const CModule code(folder / "net.c");
  const Tensor given = values({3, 7});
  for (int run = 0; run < 2; ++run) {
    const Tensor expected = executor.run({{"x", given}});
    Tensor result(expected.shape());
    BOOST_TEST(code.function<int(const void*, float*)>("net_run")(given.address(), result.data<float>()) ==
               0);
    BOOST_TEST(difference(result, expected) < 1e-6);
  }
}

BOOST_AUTO_TEST_CASE(extremes_and_sums_of_rows_beside_functions) {
  check_functions(values({6, 4, 5}, 2), {[](V x) { return x - esp::max(esp::square(x), -1, true); },
                                         [](V x) { return esp::exp(x - esp::min(x * 2.0, -1, true)); },
                                         [](V x) {
                                           const Variable n = esp::cast(x * 100.0, esp::int32);
                                           return n * 2 - esp::max(n, -1, true) + esp::min(n, -1, true) * 3;
                                         },
                                         [](V x) {
                                           const Variable n = esp::cast(x * 100.0, esp::int64);
                                           return n * 2 - esp::max(n, -1, true) + esp::min(n, -1, true) * 3;
                                         },
                                         [](V x) {
                                           return esp::softmax(esp::transpose(x, {1, 0, 2}), -1) * 2.0;
                                         },
                                         [](V x) { return esp::sum(esp::square(x), 0); },
                                         [](V x) { return esp::sum(esp::softmax(x, -1) * x, 0); },
                                         [](V x) {
                                           return esp::sum(esp::exp(x - esp::max(x, -1, true)), {0, 1});
                                         }});
}

BOOST_AUTO_TEST_CASE(results_may_be_views) {
  const TemporaryFolder folder;
  const Variable x = esp::placeholder("x", {3, 4});
  const auto executor = esp::transpose(x).get_executor({.mode = esp::Mode::inference});
  (void)executor.export_c(folder / "net.c");
  const CModule code(folder / "net.c");
  const Tensor given = values({3, 4});
  Tensor result(esp::Shape{4, 3});
  BOOST_TEST(code.function<int(const void*, float*)>("net_run")(given.address(), result.data<float>()) == 0);
  BOOST_TEST(difference(result, esp::transpose(Variable(given)).value()) == 0);
}

BOOST_AUTO_TEST_CASE(rows_are_for_feeds_with_data) {
  const TemporaryFolder folder;
  const Variable x = esp::placeholder("x", {3, 4});
  const auto executor = esp::exp(x).get_executor({.mode = esp::Mode::inference});
  BOOST_CHECK_EXCEPTION((void)executor.export_c(folder / "net.c", {.rows = 2}), esp::Error,
                        says({"export_c", "placeholders have .shapes"}));
  BOOST_CHECK_EXCEPTION((void)executor.export_c(folder / "net.c", {.rows = -2}), esp::Error,
                        says({"export_c", "-2 rows"}));
}

BOOST_AUTO_TEST_SUITE_END()
