// FindNan: which op computed eagerly made a NaN or infinity.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <thread>

#include "espalier/core/error.h"
#include "espalier/core/find_nan.h"
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

BOOST_AUTO_TEST_SUITE_END()
