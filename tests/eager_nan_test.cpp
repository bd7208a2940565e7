// FindNan: which op computed eagerly made a NaN or infinity.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <thread>

#include "espalier/core/deferred/deferred.h"
#include "espalier/core/error.h"
#include "espalier/core/find_nan.h"
#include "espalier/core/subscript.h"
#include "espalier/nn/crf.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

BOOST_AUTO_TEST_SUITE(eager_nan)

BOOST_AUTO_TEST_CASE(the_forward_op_and_its_line_are_named) {
  const esp::FindNan find;
  const esp::Variable x = esp::tensor({4.0f, -1.0f}), zero = esp::tensor({0.0f});
  BOOST_CHECK_EXCEPTION(esp::sqrt(x), esp::NumericError,
                        says({"'sqrt'", "NaN", "forward", "finite operands", here()}));
  BOOST_CHECK_EXCEPTION(x / zero, esp::NumericError, says({"'divide'", "infinity", here()}));
  BOOST_TEST(esp::sqrt(esp::tensor({4.0f})).item() == 2);
}

BOOST_AUTO_TEST_CASE(the_backward_op_and_its_line_are_named) {
  const esp::Variable w = esp::parameter(esp::tensor({0.0f, 1.0f}));
  const esp::FindNan find;
  const esp::Variable root = esp::sqrt(w);
  const std::string line = here();
  const int number = std::stoi(line.substr(line.find(':') + 1)) - 1;
  const esp::Variable loss = esp::sum(root);
  BOOST_CHECK_EXCEPTION(loss.backward(), esp::NumericError,
                        says({"infinity", "backward", "eager_nan_test.cpp:" + std::to_string(number)}));
}

BOOST_AUTO_TEST_CASE(a_nan_made_of_infinities_is_found_and_infinities_of_operands_are_not) {
  const esp::FindNan find;
  const esp::Variable mask = esp::tensor({0.0f, -INFINITY}), x = esp::tensor({1.0f, 2.0f});
  for (const esp::Variable& sum : {x + mask, mask + x})
    BOOST_TEST(difference(esp::softmax(sum).value(), esp::tensor({1.0f, 0.0f})) == 0);
  BOOST_CHECK_EXCEPTION(mask - mask, esp::NumericError, says({"NaN", "infinite operands", here()}));
  const esp::Variable nan = esp::tensor({NAN});
  BOOST_TEST(std::isnan((nan * 2.0f).item()));  // it was there before
}

BOOST_AUTO_TEST_CASE(numbers_that_are_asked_for_are_no_fault) {
  const esp::FindNan find;
  const esp::Variable x = esp::tensor({1.0f, 2.0f, 3.0f});
  BOOST_TEST(esp::min(esp::full_like(x, -INFINITY)).item() == -INFINITY);
  BOOST_TEST(esp::min(esp::pad(x, {{0, 1}}, {.value = -INFINITY})).item() == -INFINITY);
  BOOST_TEST(esp::min(esp::masked_fill(x, esp::greater(x, 2.0f), -INFINITY)).item() == -INFINITY);
  BOOST_TEST(esp::min(esp::truncated_logits(x, {.top_k = 1})).item() == -INFINITY);
}

BOOST_AUTO_TEST_CASE(operands_of_which_only_the_shape_is_read_are_no_cause) {
  const esp::FindNan find;
  const esp::Variable table = esp::parameter(esp::tensor({{NAN}, {1e-30f}}));
  const esp::Variable rows = esp::gather(table, esp::tensor({1, 1}, esp::int64));
  const esp::Variable loss = esp::sum(rows * 3e38f);  // two such slopes are added up
  BOOST_CHECK_EXCEPTION(loss.gradient(table).value(), esp::NumericError,
                        says({"infinity", "finite operands"}));
}

BOOST_AUTO_TEST_CASE(it_ends_with_its_scope_and_its_thread) {
  const esp::Variable negative = esp::tensor({-1.0f});
  {
    const esp::FindNan outer;
    { const esp::FindNan inner; }
    BOOST_CHECK_THROW(esp::sqrt(negative), esp::NumericError);
    std::thread([&] { BOOST_TEST(std::isnan(esp::sqrt(negative).item())); }).join();
  }
  BOOST_TEST(std::isnan(esp::sqrt(negative).item()));
}

BOOST_AUTO_TEST_CASE(buffers_that_would_be_written_over_are_operands_still) {
  const esp::FindNan find;
  // The sum is only held by the call, whose result could take its buffer.
  BOOST_CHECK_EXCEPTION(esp::log(esp::Variable(esp::tensor({1.0f, -2.0f})) + 1.0f), esp::NumericError,
                        says({"'log'", "NaN", "finite operands", here()}));
  const esp::Variable w = esp::parameter(esp::tensor({2.0f}));
  BOOST_TEST(esp::sum(esp::square(w) + 1.0f).gradient(w).item() == 4);
}

BOOST_AUTO_TEST_CASE(infinities_that_are_written_down_or_lie_beside_the_result_are_no_fault) {
  const esp::FindNan find;
  const esp::Variable w = esp::parameter(esp::randn({2, 5}));
  BOOST_TEST(std::isinf(esp::full_like(w, -INFINITY).value().at<float>({0, 0})));
  BOOST_CHECK_NO_THROW(esp::sum(esp::logcumsumexp(w)).backward());
  BOOST_CHECK_NO_THROW(esp::sample_logits(w, {.top_k = 2}).value());
  const esp::nn::Crf crf(5);
  const esp::Variable scores = esp::randn({1, 3, 5}), mask = esp::tensor({{true, true, false}});
  BOOST_CHECK_NO_THROW(
      esp::sum(crf.log_likelihood(scores, esp::tensor({{0, 1, 2}}), mask)).backward().value());
  BOOST_CHECK_NO_THROW(crf.decode(scores).value());
  // A query that sees nothing, and a sequence too short for its labels: their results are 0.
  const esp::Variable q = esp::variable(esp::randn({1, 1, 2, 4}));
  const esp::Variable attended =
      esp::scaled_dot_product_attention(q, q, q, {.mask = esp::tensor({{true, true}, {false, false}})});
  BOOST_TEST(esp::sum(esp::abs(attended[{0, 0, 1}])).item() == 0);
  BOOST_CHECK_NO_THROW(esp::sum(attended).backward().value());
  const esp::Variable x = esp::variable(esp::randn({3, 1, 4}));
  const esp::Variable lost = esp::ctc_loss(esp::log_softmax(x), esp::tensor({{1, 2, 2}}), esp::tensor({3}),
                                           esp::tensor({3}), {.zero_infinity = true});
  BOOST_TEST(lost.item() == 0);
  BOOST_CHECK_NO_THROW(lost.backward().value());
  BOOST_CHECK_THROW(esp::full_like(w, -INFINITY) - esp::full_like(w, -INFINITY), esp::NumericError);
}

BOOST_AUTO_TEST_CASE(elements_of_pointwise_operations_are_looked_at_one_by_one) {
  const esp::FindNan find;
  const esp::Variable x = esp::tensor({NAN, -1.0f, INFINITY}), column = esp::tensor({{NAN}, {1.0f}});
  BOOST_CHECK_EXCEPTION(esp::sqrt(x), esp::NumericError, says({"'sqrt'", "NaN", "finite operands", here()}));
  BOOST_CHECK_EXCEPTION(x - x, esp::NumericError, says({"'subtract'", "infinite operands", here()}));
  BOOST_TEST(std::isnan((column * esp::tensor({1.0f, 2.0f})).value().at<float>({0, 1})));
  BOOST_CHECK_EXCEPTION(column / esp::tensor({1.0f, 0.0f}), esp::NumericError,
                        says({"'divide'", "infinity", "finite operands", here()}));
}

BOOST_AUTO_TEST_CASE(a_deferred_hides_no_fault_behind_the_nan_of_another_sample) {
  const esp::Deferred guard;
  const esp::FindNan find;
  const esp::Variable had = esp::sqrt(esp::tensor({NAN}));
  const esp::Variable made = esp::sqrt(esp::tensor({-1.0f}));
  const std::string line = here();
  const int number = std::stoi(line.substr(line.find(':') + 1)) - 1;
  BOOST_CHECK_EXCEPTION(made.value(), esp::NumericError,
                        says({"'sqrt'", "NaN", "eager_nan_test.cpp:" + std::to_string(number)}));
}

/// Elements that a scan gives out are behind its last state.
BOOST_AUTO_TEST_CASE(infinities_in_further_results) {
  const esp::FindNan find;
  const esp::Variable x = esp::tensor({1.0f, 100.0f}), start = esp::tensor(0.0f);
  const auto run = [&](float scale) {
    return esp::scan(
        [&](const Variables& state, const Variables& element) -> esp::ScanResult {
          return {{state[0] + element[0]}, {esp::exp(element[0] * scale)}};
        },
        {start}, {x});
  };
  BOOST_CHECK_NO_THROW(run(0.5f));
  BOOST_CHECK_EXCEPTION(run(1.0f), esp::NumericError, says({"'scan'", "infinity"}));
}

BOOST_AUTO_TEST_SUITE_END()
