// Training by hand on what a Distributor feeds: every step is computed at its own batch and its own
// parameters.
#include <boost/test/unit_test.hpp>

#include <sstream>

#include "espalier/core/error.h"
#include "espalier/data/distributor.h"
#include "espalier/ops/ops.h"
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
  for (const double expected : {0.5, 0.25, 0.125}) {  // the gradient is 2w, of the present w
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

BOOST_AUTO_TEST_CASE(two_updates_after_one_forward_are_at_one_point) {
  const auto [x] = counting(4).get_output_graphs<1>();
  const esp::Variable v = esp::parameter(esp::ones({1}));
  const esp::Variable loss = esp::sum(x) + esp::sum(esp::square(v));
  const esp::optim::Sgd sgd(0.1);
  loss.forward().backward().update(sgd).update(sgd);
  BOOST_TEST(v.item() == 0.6, boost::test_tools::tolerance(1e-6));
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

BOOST_AUTO_TEST_CASE(squeezing_a_short_batch_keeps_its_rows) {
  const auto [x] = counting(3, 2).get_output_graphs<1>();
  const esp::Variable s = esp::sum(esp::squeeze(x), 0);
  s.forward();
  BOOST_TEST(s.forward().item() == 2);
}

BOOST_AUTO_TEST_SUITE_END()
