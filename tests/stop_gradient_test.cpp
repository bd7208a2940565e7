// stop_gradient: the value of each step, and no derivative; and disconnect, which refuses what it replaces.
#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/executor/compile.h"
#include "replica_programs.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

/// A step towards a target that is the network's own output, as in distillation: its gradient is cut.
Trace train(bool frozen, esp::ExecutorOptions how = {}) {
  esp::data::Distributor feed({numbers({29, 4}, -1, 1, 4)}, {.batch_size = 7, .shuffle = true, .seed = 9});
  const Variable x = feed.get_output_graphs()[0], w = esp::parameter(numbers({4, 3}, -1, 1, 1), "w");
  const Variable h = esp::tanh(esp::matmul(x, w));
  const Variable target = esp::stop_gradient(esp::softmax(h * 3.0));
  const Variable loss = esp::mean(esp::square(h - target)) + esp::stop_gradient(esp::mean(h)) * esp::mean(h);
  const optim::Sgd sgd({.lr = 0.3, .momentum = 0.5});
  Trace trace;
  const auto add = [&](double value) {
    trace.push_back(esp::tensor(value, esp::float64));
    trace.push_back(w.value().clone());
  };
  if (frozen) {
    how.optimizer = sgd;
    const esp::Executor executor = loss.get_executor(how);
    executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) { add(info.loss); });
    (void)executor.execute({.epochs = 2, .progress = false});
    return trace;
  }
  for (int epoch = 0; epoch < 2; ++epoch, feed.reset())
    for (int64_t step = 0; step < feed.steps(); ++step) {
      const double value = loss.forward().item();
      loss.update(sgd);
      add(value);
    }
  return trace;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(stop_gradient)

BOOST_AUTO_TEST_CASE(the_table_of_ops) {
  const auto same = [](const std::vector<Array>& in) { return in[0]; };
  for (const esp::Shape& shape : {esp::Shape{3, 4}, esp::Shape{}, esp::Shape{0, 2}})
    check_op({"stop_gradient",
              [](const Variables& x) { return esp::stop_gradient(x[0]); },
              {numbers(shape)},
              same,
              0});
  check_op({"stop_gradient",
            [](const Variables& x) { return esp::stop_gradient(x[0]); },
            {esp::tensor({1, 2, 3})},
            same,
            0});
}

BOOST_AUTO_TEST_CASE(derivatives_of_all_orders_take_it_for_a_constant) {
  const Variable a = esp::variable({3.0f});
  const Variable y = a * a * esp::stop_gradient(a * a);
  BOOST_TEST(y.item() == 81);
  const Variable first = y.gradient(a);
  BOOST_TEST(first.item() == 2 * 3 * 9);
  BOOST_TEST(first.gradient(a).item() == 2 * 9);
  BOOST_TEST(esp::stop_gradient(a * a).gradient(a).item() == 0);
  const Variable p = esp::parameter(esp::ones({1}));
  esp::sum(esp::stop_gradient(p) * p).update(optim::Sgd(0.25));
  BOOST_TEST(p.item() == 0.75);
}

/// A derivative that is constant does not depend on what it was taken by, whatever the shapes.
BOOST_AUTO_TEST_CASE(constant_derivatives_have_zeros) {
  for (const esp::Shape& shape : {esp::Shape(), esp::Shape{1, 1}, esp::Shape{2}}) {
    const Variable x = esp::variable(esp::ones(shape));
    for (const Variable& slope : {(-x).gradient(x), (x * 3.0).gradient(x), (x * 3.0).gradient(x) * 2.0}) {
      const Variable zero = slope.gradient(x);
      BOOST_TEST(zero.shape() == shape);
      BOOST_TEST(esp::max(esp::abs(zero)).item() == 0);
    }
  }
  const Variable x = esp::variable(esp::ones({3})), w = esp::variable(esp::ones({3}));
  const Variable zero = esp::dot(x, w).gradient(x).gradient(x);
  BOOST_TEST(esp::max(esp::abs(zero)).item() == 0);
  BOOST_CHECK_EXCEPTION(esp::sum(x).gradient(w), esp::Error, says({"not made of"}));
}

// Nothing is kept or built for gradients that cannot pass.
BOOST_AUTO_TEST_CASE(what_is_made_of_it_alone_needs_no_gradient) {
  const Variable a = esp::variable(numbers({4}));
  BOOST_TEST((a * 2.0).node()->needs_gradient);
  BOOST_TEST(!esp::exp(esp::stop_gradient(a) * 2.0).node()->needs_gradient);
}

BOOST_AUTO_TEST_CASE(it_is_a_view) {
  const Variable a = esp::variable(numbers({4}));
  BOOST_TEST(esp::stop_gradient(a).value().storage().get() == a.value().storage().get());
}

BOOST_AUTO_TEST_CASE(plans_do_without_it) {
  const auto steps = [](bool stopped, const std::vector<std::string>& without) {
    const Variable x = esp::placeholder("x", {64}), w = esp::parameter(esp::ones({64}));
    const Variable h = esp::tanh(x * w);
    const Variable y = esp::exp(stopped ? esp::stop_gradient(h) : h) * 2.0f;
    const esp::Plan plan = y.get_executor({.mode = esp::Mode::inference, .without = without}).plan();
    return std::pair(plan.steps(), plan.arena_bytes());
  };
  for (const std::vector<std::string>& without :
       {std::vector<std::string>{}, {"simplify", "simplify_again"}, esp::pass_names()})
    BOOST_TEST((steps(true, without) == steps(false, without)));
}

BOOST_AUTO_TEST_CASE(plans_and_replicas_train_as_eager_code_does) {
  const Trace one = train(false);
  BOOST_TEST(difference_of(train(true), one) < 1e-12);
  BOOST_TEST(difference_of(train(true, {.without = esp::pass_names()}), one) < 1e-12);
  for (const int count : {2, 3}) BOOST_TEST(difference_of(train(true, {.devices = cpus(count)}), one) < 1e-9);
}

BOOST_AUTO_TEST_CASE(features_of_a_feed_are_those_of_each_step) {
  const Tensor rows = esp::arange(8).reshape({-1, 1});
  const esp::data::Distributor feed({rows, rows}, {.batch_size = 2});
  const auto [x, y] = feed.get_output_graphs<2>();
  const Variable h = esp::stop_gradient(x * 1.0), w = esp::parameter(esp::ones({1}));
  const Variable loss = esp::mean(esp::square(h * w - y));
  const esp::Executor executor = loss.get_executor({.optimizer = optim::Sgd(0.1)});
  BOOST_TEST(executor.execute({.progress = false}).epochs[0].loss_mean == 0);
}

BOOST_AUTO_TEST_CASE(disconnect_is_refused_downstream_of_a_feed) {
  const esp::data::Distributor feed({esp::arange(8).reshape({-1, 1})}, {.batch_size = 2});
  Variable x = feed.get_output_graphs()[0], h = x * 1.0;
  for (Variable* v : {&h, &x}) {
    BOOST_CHECK_EXCEPTION(v->disconnect(), esp::Error, says({"disconnect", "feed", "stop_gradient", here()}));
    BOOST_TEST(v->node()->lazy);
  }
  h.forward();
  BOOST_CHECK_THROW(h.disconnect(), esp::Error);
  BOOST_TEST(h.forward().value().at<float>({0, 0}) == 2);
}

BOOST_AUTO_TEST_SUITE_END()
