// Eager training loops over a Distributor: every step uses its own batch and the current parameters.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <sstream>
#include <string>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/random.h"
#include "espalier/core/values_later.h"
#include "espalier/data/distributor.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/parameter_list.h"
#include "espalier/optim/sgd.h"

namespace esp = espalier;

namespace {

/// 0, 1, 2, … as a column, one row a step.
esp::data::Distributor counting(int64_t rows, int64_t batch = 1) {
  return esp::data::Distributor({esp::arange(rows).reshape({-1, 1})}, {.batch_size = batch});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(fed)

BOOST_AUTO_TEST_CASE(gradients_that_no_feed_reaches_are_those_of_the_step) {
  const esp::data::Distributor feed({esp::zeros({3})});
  const esp::Variable w = esp::parameter(esp::tensor(1.0f));
  const esp::Variable loss = esp::square(w) + esp::sum(feed.get_output_graphs()[0]);
  for (const double expected : {0.5, 0.25, 0.125}) {  // the gradient is 2w, with the current w
    loss.forward().update(esp::optim::Sgd(0.25));
    BOOST_TEST(w.item() == expected);
  }
}

BOOST_AUTO_TEST_CASE(what_depends_on_parameters_alone_follows_them) {
  const auto [x] = counting(4).get_output_graphs<1>();
  const esp::Variable w = esp::parameter(esp::ones({1})), v = esp::parameter(esp::ones({1}));
  const esp::Variable loss = esp::sum(x * w) + esp::sum(esp::square(v));
  double expected = 1;
  for (int step = 0; step < 3; ++step) {
    loss.forward().backward().update(esp::optim::Sgd(0.1));
    expected -= 0.1 * 2 * expected;
    BOOST_TEST(v.item() == expected, boost::test_tools::tolerance(1e-6));
  }
}

BOOST_AUTO_TEST_CASE(weight_decay_in_the_loss_trains) {
  const auto [x] = counting(4).get_output_graphs<1>();
  const esp::Variable w = esp::parameter(esp::ones({1, 1}));
  const esp::Variable loss = esp::mean(esp::square(esp::matmul(x, w))) * 0.0 + esp::sum(esp::square(w));
  for (int step = 0; step < 3; ++step) loss.forward().backward().update(esp::optim::Sgd(0.1));
  BOOST_TEST(w.item() == 0.512, boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(what_is_refreshed_can_be_computed_again) {
  const auto [x] = counting(4).get_output_graphs<1>();
  const esp::Variable v = esp::parameter(esp::ones({1}));
  const esp::Variable y = (v * 2.0f) + 1.0f;  // v · 2 is released
  const esp::Variable loss = esp::sum(x) + esp::sum(y);
  esp::Variable held;
  for (const float now : {5.0f, 7.0f}) {
    held = {};
    esp::set_value(v, esp::full({1}, now));
    loss.forward();
    BOOST_TEST(y.item() == 2 * now + 1);
    held = y.node()->inputs[0].variable();
    BOOST_TEST(!held.node()->has_value());
    BOOST_TEST(held.item() == 2 * now);
  }
  esp::set_value(v, esp::ones({1}));
  BOOST_TEST(held.item() == 14);  // the value of its step
}

BOOST_AUTO_TEST_CASE(what_was_written_after_an_update_follows_what_it_is_made_of) {
  const auto [x] = counting(4).get_output_graphs<1>();
  const esp::Variable w = esp::parameter(esp::ones({1}));
  const esp::Variable before = w * 2.0f;
  esp::set_value(w, esp::full({1}, 10));
  const esp::Variable after = before * 3.0f;  // computed from the old `before`
  BOOST_TEST(after.item() == 6);
  const esp::Variable loss = esp::sum(x) + esp::sum(after);
  BOOST_TEST(loss.forward().item() == 60);  // a step reads the current parameters
  BOOST_TEST(loss.forward().item() == 61);
}

BOOST_AUTO_TEST_CASE(what_is_asked_for_late_is_of_the_epoch_that_was_shown) {
  esp::data::Distributor feed({esp::arange(64).reshape({-1, 1})}, {.batch_size = 4, .shuffle = true});
  esp::Variable first, second, next;
  {
    const auto [x] = feed.get_output_graphs<1>();
    const esp::Variable cubes = x * x * x;
    first = esp::sum(cubes), second = esp::sum(cubes * 2.0f), next = esp::sum(cubes * 3.0f);
  }
  const double shown = first.forward().item();
  feed.reset();
  BOOST_TEST(second.item() == 2 * shown);
  BOOST_TEST(next.forward().item() != 3 * shown);
}

BOOST_AUTO_TEST_CASE(late_gradients_are_of_the_epoch_that_was_shown) {
  esp::data::Distributor feed({esp::square(esp::arange(64)).value()}, {.batch_size = 4, .shuffle = true});
  const auto [x] = feed.get_output_graphs<1>();
  const esp::Variable w = esp::parameter(esp::tensor(2.0f));
  const esp::Variable loss = esp::sum(x * w), other = esp::sum(x);
  const double shown = loss.forward().item();
  feed.reset();
  BOOST_TEST(other.forward().item() != shown / 2);  // the first batch of the next epoch
  BOOST_TEST(loss.gradient(w).item() == shown / 2);
}

BOOST_AUTO_TEST_CASE(the_feed_that_was_shown_last_says_the_step) {
  for (const bool longer_first : {false, true}) {
    const auto a = counting(longer_first ? 5 : 4).get_output_graphs(),
               b = counting(longer_first ? 4 : 5).get_output_graphs();
    const esp::Variable early = esp::sum(a[0] + 10.0f * b[0]), late = esp::sum(a[0] + 10.0f * b[0]),
                        both = esp::sum(b[0] + a[0]);
    for (int step = 0; step < 3; ++step) a[0].forward();
    BOOST_TEST(early.item() == 22);
    for (int step = 0; step < 2; ++step) b[0].forward();
    BOOST_TEST(late.item() == 11);
    for (int step = 0; step < 4; ++step) BOOST_TEST(both.forward().item() == 2 * step);
    BOOST_CHECK_THROW(both.forward(), esp::EndOfData);  // ends with the shorter feed
  }
}

BOOST_AUTO_TEST_CASE(the_end_of_one_feed_moves_no_other) {
  const auto a = counting(5).get_output_graphs(), b = counting(4).get_output_graphs(),
             c = counting(5).get_output_graphs();
  const esp::Variable all = esp::sum(a[0] + b[0] + c[0]);
  for (int step = 0; step < 4; ++step) all.forward();
  BOOST_CHECK_THROW(all.forward(), esp::EndOfData);
  for (const auto* shown : {&a, &b, &c}) BOOST_TEST((*shown)[0].item() == 3);
  BOOST_TEST(esp::sum(a[0] * 2.0f + c[0]).item() == 9);
}

BOOST_AUTO_TEST_CASE(a_fed_tree_cannot_be_cleared) {
  const auto [x] = counting(4).get_output_graphs<1>();
  const esp::Variable w = esp::parameter(esp::ones({1}));
  const esp::Variable loss = esp::sum(x * w);
  for (int step = 0; step < 4; ++step) {
    loss.forward().backward({.clear_buffers = true});
    BOOST_TEST(loss.gradient(w).item() == step);
  }
  // A gradient of a root without a step reads no batch.
  const esp::Variable open = esp::sum(esp::placeholder("p", {2}) * w);
  BOOST_CHECK_NO_THROW((void)open.gradient(w));
  BOOST_CHECK_THROW((void)open.gradient(w).item(), esp::DataError);
}

BOOST_AUTO_TEST_CASE(two_updates_after_one_forward_are_at_one_point) {
  const auto [x] = counting(4).get_output_graphs<1>();
  const esp::Variable v = esp::parameter(esp::ones({1}));
  const esp::Variable loss = esp::sum(x) + esp::sum(esp::square(v));
  const esp::optim::Sgd sgd(0.1);
  loss.forward().backward().update(sgd).update(sgd);
  BOOST_TEST(v.item() == 0.6, boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(a_first_look_after_an_update_is_at_one_point) {
  // Each metric is made of a part that no feed reaches, and of a product that reads the parameter itself.
  for (const bool written_before : {true, false}) {
    const auto [x] = counting(4, 2).get_output_graphs<1>();
    const esp::Variable w = esp::parameter(esp::full({1, 1}, 2));
    const esp::Variable loss = esp::sum(esp::square(esp::matmul(x, w)));
    const auto make = [&] { return esp::sum(x * esp::exp(w * 0.5f)) + esp::sum(esp::matmul(x, w)); };
    const auto value_at = [](double w, double rows) { return rows * (std::exp(0.5 * w) + w); };
    esp::Variable metric = written_before ? make() : esp::Variable();
    loss.forward().update(esp::optim::Sgd(0.25));  // rows 0 and 1: the gradient is 2 w
    BOOST_TEST(w.item() == 1);
    BOOST_TEST(loss.item() == 4);  // the step that was shown
    if (!written_before) metric = make();
    BOOST_TEST(metric.item() == value_at(1, 1), boost::test_tools::tolerance(1e-6));
    loss.forward().update(esp::optim::Sgd(0.25 / 13));  // rows 2 and 3
    BOOST_TEST(w.item() == 0.5, boost::test_tools::tolerance(1e-6));
    BOOST_TEST(metric.item() == value_at(1, 1), boost::test_tools::tolerance(1e-6));  // shows its step
    BOOST_TEST(make().item() == value_at(0.5, 5), boost::test_tools::tolerance(1e-6));
    BOOST_TEST(metric.forward().item() == value_at(0.5, 1), boost::test_tools::tolerance(1e-6));
  }
}

BOOST_AUTO_TEST_CASE(a_first_look_after_an_update_is_of_the_epoch_that_was_shown) {
  esp::data::Distributor feed({esp::square(esp::arange(64)).value().reshape({-1, 1})},
                              {.batch_size = 4, .shuffle = true});
  const auto [x] = feed.get_output_graphs<1>();
  const esp::Variable w = esp::parameter(esp::full({1, 1}, 2));
  const esp::Variable loss = esp::sum(esp::matmul(x, w));
  const esp::Variable metric = esp::sum(x * esp::exp(w * 0.5f)) + esp::sum(esp::matmul(x, w));
  const double rows = loss.forward().item() / 2;
  esp::set_value(w, esp::full({1, 1}, 1));
  feed.reset();
  BOOST_TEST(metric.item() == rows * (std::exp(0.5) + 1), boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(what_is_derived_from_a_step_is_of_that_step) {
  const auto [x] = counting(4, 2).get_output_graphs<1>();
  const esp::Variable w = esp::parameter(esp::full({1, 1}, 2));
  const esp::Variable hidden = esp::matmul(x, w), loss = esp::sum(esp::square(hidden));
  loss.forward().update(esp::optim::Sgd(0.25));
  BOOST_TEST(esp::sum(hidden).item() == 2);                  // reads what the step has computed
  BOOST_TEST(esp::abs(loss.gradient(w)).item() == 4);        // as does the gradient that the update read
  BOOST_TEST(esp::sum(esp::matmul(hidden, w)).item() == 1);  // w is now 1, so hidden is computed again
  BOOST_TEST(esp::sum(hidden).item() == 1);
}

BOOST_AUTO_TEST_CASE(no_gradient_mixes_two_points) {
  const auto [x] = counting(4, 2).get_output_graphs<1>();
  const esp::Variable v = esp::parameter(esp::full({1, 1}, 2)), w = esp::parameter(esp::full({1, 1}, 3));
  const esp::Variable hidden = esp::matmul(x, v), a = esp::sum(esp::matmul(hidden, w)),
                      b = esp::sum(esp::square(esp::matmul(hidden, w)));
  const esp::optim::Sgd sgd(0.5);
  a.forward();
  b.forward();
  a.update(sgd);
  // The gradient of b reads w, which is not the one that b was computed with.
  BOOST_CHECK_EXCEPTION(b.update(sgd), esp::Error, [](const esp::Error& error) {
    return std::string(error.what()).find("forward() again") != std::string::npos;
  });
  BOOST_TEST(v.item() == 0.5);
  BOOST_TEST(w.item() == 2);
  b.forward();
  b.update(sgd);  // rows 2 and 3: the gradient of w is 2 w v² (4 + 9)
  BOOST_TEST(w.item() == 2 - 0.5 * 2 * 2 * 0.25 * 13);
}

BOOST_AUTO_TEST_CASE(updates_of_parts_are_at_one_point) {
  const auto [x] = counting(4, 2).get_output_graphs<1>();
  const esp::Variable v = esp::parameter(esp::full({1, 1}, 2)), w = esp::parameter(esp::full({1, 1}, 3));
  const esp::Variable loss = esp::sum(esp::matmul(esp::matmul(x, v), w));
  const esp::optim::Sgd sgd(0.5);
  loss.forward().update(sgd, {w}).update(sgd, {v});
  BOOST_TEST(w.item() == 2);
  BOOST_TEST(v.item() == 0.5);  // with the gradient 3, not 2
}

BOOST_AUTO_TEST_CASE(no_update_follows_a_step_that_threw) {
  esp::data::Distributor feed({esp::ones({3, 2}), esp::tensor({1, 7, 0})}, {.batch_size = 1});
  const auto [x, label] = feed.get_output_graphs<2>();
  const esp::Variable w = esp::parameter(esp::ones({2, 2}));
  const esp::Variable loss = esp::softmax_cross_entropy(esp::matmul(x, w), label);
  const esp::optim::Sgd sgd(0.5);
  loss.forward().update(sgd);
  const float before = w.value().at<float>({0, 0});
  BOOST_CHECK_THROW(loss.forward(), esp::IndexError);  // there is no class 7
  BOOST_CHECK_THROW(loss.update(sgd), esp::Error);
  BOOST_TEST(w.value().at<float>({0, 0}) == before);
  // With another batch it goes on.
  feed.reset();
  loss.forward().update(sgd);
  BOOST_TEST(w.value().at<float>({0, 0}) != before);
}

BOOST_AUTO_TEST_CASE(looking_at_a_batch_moves_no_gradient) {
  const auto [x] = counting(5).get_output_graphs<1>();
  const esp::Variable w = esp::parameter(esp::ones({1}));
  const esp::Variable loss = esp::sum(x * w);
  for (int step = 0; step < 3; ++step) loss.forward();  // shows x = 2
  std::ostringstream out;
  out << x;  // shows its own first step
  BOOST_TEST(out.str() == "[[0]]");
  BOOST_TEST(loss.backward().gradient(w).item() == 2);
  loss.update(esp::optim::Sgd(0.25));
  BOOST_TEST(w.item() == 0.5);
}

BOOST_AUTO_TEST_CASE(each_feed_shows_its_own_epoch) {
  const esp::Tensor rows = esp::arange(8).reshape({-1, 1});
  const esp::data::DistributorOptions options{.batch_size = 4, .shuffle = true};
  esp::data::Distributor a({rows}, options), b({rows}, options);
  const auto [xa] = a.get_output_graphs<1>();
  const auto [xb] = b.get_output_graphs<1>();
  const esp::Tensor first = xa.value().clone();
  b.reset();
  b.reset();
  const esp::Variable both = esp::concat({xa, xb}, 1);
  xb.forward();
  BOOST_TEST(esp::max(esp::abs(esp::slice(both.value(), 1, 0, 1) - first)).item() == 0);
}

BOOST_AUTO_TEST_CASE(second_derivatives_in_a_short_batch) {
  const auto [x] = counting(5, 3).get_output_graphs<1>();
  const esp::Variable w = esp::parameter(esp::full({1}, 2));
  // Σ of all rows but the last of (x·w)⁴: in the batch of 3 and 4 it is 3⁴w⁴.
  const esp::Variable s = esp::sum(esp::square(esp::slice(esp::square(x * w), 0, 0, -1)));
  const esp::Variable second = s.gradient(w).gradient(w);
  second.forward();
  BOOST_TEST(second.forward().item() == 12 * 81 * 4, boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(all_that_is_asked_of_a_step_is_of_one_mask) {
  esp::seed(4);
  for (const int64_t steps : {0, 1, 3}) {
    const esp::data::Distributor feed({esp::ones({64, 100}, esp::float64)}, {.batch_size = 16});
    const auto [x] = feed.get_output_graphs<1>();
    for (int64_t step = 0; step < steps; ++step) x.forward();
    esp::Variable y1, y2, y3;
    {
      const esp::Variable h = esp::dropout(x, 0.5);  // no handle holds it: it is computed for each sum
      y1 = esp::sum(h);
      y2 = esp::sum(h * 3.0);
      y3 = esp::sum(esp::square(h));
    }
    const double first = y1.item();
    BOOST_TEST(first > 0);
    BOOST_TEST(y2.item() == 3 * first);
    BOOST_TEST(y3.item() == 2 * first);  // each element is 0 or 2
    BOOST_TEST(y1.item() == first);
    y1.forward();
    BOOST_TEST(y1.item() != first);
  }
}

BOOST_AUTO_TEST_CASE(squeezing_a_short_batch_keeps_its_rows) {
  const auto [x] = counting(3, 2).get_output_graphs<1>();
  const esp::Variable s = esp::sum(esp::squeeze(x), 0);
  s.forward();
  BOOST_TEST(s.forward().item() == 2);
}

/// A node of which no element is read gives its shape without a value.
BOOST_AUTO_TEST_CASE(shapes_of_values_that_have_not_been_asked_for) {
  const esp::data::Distributor feed({esp::ones({5, 1}, esp::float64)}, {.batch_size = 2});
  const esp::Variable x = feed.get_output_graphs()[0];
  const esp::Variable wide = [&] {
    const esp::ValuesLater later;
    return esp::broadcast_tensors(
        {x, esp::broadcast_to(esp::Variable(esp::zeros({}, esp::float64)), {4})})[0];
  }();
  for (const int64_t rows : {2, 2, 1}) BOOST_TEST(wide.forward().value().shape() == (esp::Shape{rows, 4}));
}

BOOST_AUTO_TEST_SUITE_END()
