// Values that are disconnected, assigned or moved while they are still in use.
#include <boost/test/unit_test.hpp>

#include <functional>
#include <vector>

#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/core/sequences.h"
#include "espalier/core/with_assignment.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"

namespace esp = espalier;

namespace {

/// Swaps its two states at every step.
struct Swap : esp::optim::UpdateRule {
  std::string_view name() const override { return "Swap"; }
  void update(esp::optim::ParameterUpdate& step) const override {
    const esp::Variable a = step.state("a", 1), b = step.state("b", 2);
    step.assign(a, b);
    step.assign(b, a);
  }
};

/// Stores the old value of the parameter, directly and through views.
struct Remember : esp::optim::UpdateRule {
  std::string_view name() const override { return "Remember"; }
  void update(esp::optim::ParameterUpdate& step) const override {
    const esp::Variable& p = step.parameter();
    const esp::Variable turned = esp::transpose(p);
    step.assign(p, p - step.gradient());
    step.assign(step.state("plain"), p);
    step.assign(step.state("turned"), esp::reshape(turned, p.shape()));
  }
};

/// Assigns to two states, directly or as a view: the new or old parameter, or a constant leaf.
struct Share : esp::optim::UpdateRule {
  enum class What { next, present, other };
  Share(What what, bool view) : what(what), view(view) {}
  std::string_view name() const override { return "Share"; }
  void update(esp::optim::ParameterUpdate& step) const override {
    const esp::Variable p = step.parameter(), after = p - step.gradient();
    const esp::Variable shown = what == What::next ? after : what == What::present ? p : other;
    step.assign(step.state("first"), view ? esp::reshape(esp::reshape(shown, {-1}), p.shape()) : shown);
    step.assign(step.state("second"), shown);
    step.assign(p, after);
  }
  What what;
  bool view;
  const esp::Variable other = esp::variable(esp::full({2, 2}, 7));
};

}  // namespace

BOOST_AUTO_TEST_SUITE(lifetime)

BOOST_AUTO_TEST_CASE(a_root_keeps_what_it_has_gradients_of) {
  esp::Variable h = esp::parameter(esp::ones({2})) * 2.0f;
  const esp::Variable v = esp::parameter(esp::ones({2})), y = esp::sum(h * v);
  y.backward();
  h.disconnect();  // now only the record refers to the first parameter
  std::vector<esp::Variable> others;
  for (int i = 0; i < 20; ++i) others.push_back(esp::parameter(esp::zeros({2})));
  y.update(esp::optim::Sgd(0.25));
  BOOST_TEST(v.value().at<float>({0}) == 0.5);
  for (const esp::Variable& other : others) BOOST_TEST(other.value().at<float>({0}) == 0);
}

BOOST_AUTO_TEST_CASE(disconnecting_changes_no_value) {
  const esp::Variable a = esp::variable({3.0f}), b = esp::variable({5.0f});
  esp::Variable h = a * 2.0f;
  const esp::Variable y = h * b;
  h.disconnect();
  BOOST_TEST(y.backward().gradient(b).item() == 6);
}

BOOST_AUTO_TEST_CASE(clearing_leaves_parameters_alone) {
  const esp::Variable w = esp::parameter(esp::ones({1}));
  w.backward({.clear_buffers = true});
  (w * 2.0f).backward().update(esp::optim::Sgd(0.25));
  BOOST_TEST(w.item() == 0.5);
}

BOOST_AUTO_TEST_CASE(products_see_what_a_transpose_shows) {
  const esp::Variable w = esp::parameter(esp::ones({1, 2})), x(esp::ones({1, 2}));
  const esp::Variable t = esp::transpose(w);
  esp::set_value(w, esp::zeros({1, 2}));
  BOOST_TEST(esp::matmul(x, t).item() == esp::matmul(x, t + 0.0f).item());
  int calls = 0;
  const auto op = esp::custom_op({.name = "counted", .forward = [&](const std::vector<esp::Tensor>& in) {
                                    ++calls;
                                    return in[0].clone();
                                  }});
  const esp::Variable once = esp::transpose(op({w}));
  for (int i = 0; i < 3; ++i) (void)esp::matmul(x, once);
  BOOST_TEST(calls == 1);
}

BOOST_AUTO_TEST_CASE(states_may_be_assigned_to_each_other) {
  const esp::optim::Optimizer swap(std::make_shared<Swap>(), {});
  const esp::Variable w = esp::parameter(esp::ones({1})), loss = esp::sum(w);
  for (double a : {2.0, 1.0, 2.0}) {
    loss.update(swap);
    BOOST_TEST(swap.state_of(w)[0].second.item() == a);
    BOOST_TEST(swap.state_of(w)[1].second.item() == 3 - a);
  }
  BOOST_CHECK_THROW(esp::optim::Optimizer(nullptr, {}), esp::Error);
}

BOOST_AUTO_TEST_CASE(states_remember_what_a_parameter_was) {
  for (const bool frozen : {false, true}) {
    const esp::optim::Optimizer remember(std::make_shared<Remember>(), {});
    const esp::Variable w = esp::parameter(esp::tensor({{1.0f, 2.0f}, {3.0f, 4.0f}})), loss = esp::sum(w);
    if (frozen)
      loss.get_executor({.optimizer = remember}).execute({.progress = false});
    else
      loss.update(remember);
    BOOST_TEST(w.value().at<float>({0, 1}) == 1);
    BOOST_TEST(remember.state_of(w)[0].second.value().at<float>({0, 1}) == 2);
    BOOST_TEST(remember.state_of(w)[1].second.value().at<float>({0, 1}) == 3);
  }
}

BOOST_AUTO_TEST_CASE(leaves_share_no_memory) {
  for (const bool frozen : {false, true})
    for (const auto what : {Share::What::next, Share::What::present, Share::What::other})
      for (const bool view : {false, true}) {
        const auto rule = std::make_shared<Share>(what, view);
        const esp::optim::Optimizer share(rule, {});
        const esp::Variable w = esp::parameter(esp::tensor({{2.0f, 2.0f}, {2.0f, 2.0f}})), loss = esp::sum(w);
        if (frozen)
          loss.get_executor({.optimizer = share}).execute({.progress = false});
        else
          loss.update(share);
        std::vector<esp::Tensor> values{w.value(), rule->other.value()};
        for (const auto& [name, state] : share.state_of(w)) values.push_back(state.value());
        BOOST_REQUIRE(values.size() == 4u);
        const float given = what == Share::What::next ? 1 : what == Share::What::present ? 2 : 7;
        const float expected[] = {1, 7, given, given};
        // Writing into one of them in place does not change the others.
        for (size_t i = 0; i < 4; ++i) {
          for (size_t k = 0; k < 4; ++k)
            for (const float value : values[k].span<float>())
              BOOST_TEST(value == expected[k] + (k < i ? 100 : 0));
          for (float& value : values[i].span<float>()) value += 100;
        }
      }
}

BOOST_AUTO_TEST_CASE(logical_devices_share_their_memory) {
  const esp::Variable x = esp::variable({2.0f});
  const esp::Variable y = x.to(esp::cpu(1)) * 3.0f;
  BOOST_TEST(y.backward().gradient(x).item() == 3);
  BOOST_TEST(y.device().str() == "cpu:1");
  BOOST_TEST(y.gradient(x).device().str() == "cpu:0");
  BOOST_CHECK_THROW((void)x.to(esp::gpu(1000)), esp::DeviceError);
}

BOOST_AUTO_TEST_CASE(no_grad_stops_gradients_downstream_of_a_feed) {
  const esp::Variable w = esp::parameter(esp::ones({1})), x = esp::placeholder("x", {1});
  esp::Variable c;
  {
    esp::NoGrad no_grad;
    c = x * w;
  }
  BOOST_CHECK_THROW((void)esp::sum(c).gradient(w), esp::Error);
}

BOOST_AUTO_TEST_CASE(powers_have_derivatives_at_and_below_zero) {
  for (const float base : {-1.0f, 0.0f}) {
    const esp::Variable x = esp::variable({base}), y = esp::variable({2.0f});
    const esp::Variable z = esp::power(x, y);
    BOOST_TEST(z.gradient(x).item() == 2 * base);
    BOOST_TEST(z.gradient(y).item() == 0);
  }
}

BOOST_AUTO_TEST_CASE(plans_leave_no_trace_in_the_gradients_of_the_tree) {
  const esp::Variable p = esp::parameter(esp::ones({1}));
  const esp::Variable h = p * p, l = esp::sum(h * p);
  l.get_executor({.optimizer = esp::optim::Sgd(0.1)}).execute({.progress = false});
  BOOST_TEST(p.item() == 0.7, boost::test_tools::tolerance(1e-6));
  // The tree still has the value for p = 1, and its gradient would need the old p.
  BOOST_CHECK_THROW((void)l.gradient(p), esp::Error);
  // A plan computes everything again, so it can be compiled from a tree whose leaves have changed.
  l.get_executor({.optimizer = esp::optim::Sgd(0.1)}).execute({.progress = false});
  BOOST_TEST(p.item() == 0.7 - 0.1 * 3 * 0.49, boost::test_tools::tolerance(1e-5));
}

BOOST_AUTO_TEST_CASE(callbacks_may_add_callbacks_and_let_go_of_the_executor) {
  const esp::Variable p = esp::parameter(esp::ones({1}));
  std::optional<esp::Executor> executor = esp::sum(p).get_executor({.optimizer = esp::optim::Sgd(0.1)});
  int called = 0;
  executor->on(esp::Event::step_finish, [&](const esp::StepInfo&) {
    for (int i = 0; i < 10; ++i)
      if (executor) executor->on(esp::Event::epoch_finish, [&](const esp::StepInfo&) { ++called; });
    executor.reset();
  });
  executor->execute({.epochs = 1, .progress = false});
  BOOST_TEST(called == 10);
}

BOOST_AUTO_TEST_CASE(values_taken_in_callbacks_stay) {
  const esp::Variable p = esp::parameter(esp::ones({1}));
  const esp::Executor executor = esp::sum(p).get_executor({.optimizer = esp::optim::Sgd(0.25)});
  std::vector<esp::Tensor> taken;
  executor.on(esp::Event::step_finish, [&](const esp::StepInfo&) { taken.push_back(p.value()); });
  executor.execute({.epochs = 2, .progress = false});
  BOOST_TEST(taken[0].item() == 0.75);
  BOOST_TEST(taken[1].item() == 0.5);
  BOOST_CHECK_THROW(executor.on(esp::Event::step_finish, nullptr), esp::Error);
}

/// Losses and products of leaves have their gradients after these were assigned.
BOOST_AUTO_TEST_CASE(gradients_read_leaves_as_they_were) {
  using esp::Variable;
  const std::vector<std::function<Variable(const Variable&, const Variable&)>> functions = {
      [](const Variable& x, const Variable& s) { return esp::huber_loss(x, s, {.delta = 0.5}); },
      [](const Variable& x, const Variable& s) { return esp::smooth_l1_loss(x, s, {.beta = 0.5}); },
      [](const Variable& x, const Variable& s) { return esp::sum(esp::square(esp::cross(x, s))); },
      [](const Variable& x, const Variable& s) {
        return esp::square(esp::dot(esp::reshape(x, {-1}), esp::reshape(s, {-1})));
      },
      [](const Variable& x, const Variable& s) { return esp::sum(esp::square(esp::nan_to_num(s) * x)); },
      [](const Variable& x, const Variable& s) {
        return esp::sum(esp::square(esp::glu(esp::concat({s, s}, 0), 0) * x));
      }};
  for (const auto& f : functions) {
    const esp::Tensor begin = esp::linspace(-1, 2, 12).reshape({4, 3}), other = esp::full({4, 3}, 0.25);
    const auto slope = [&](bool assigned) {
      const Variable p = esp::parameter(begin.clone()), s = esp::state(other.clone());
      Variable y = f(p * 2.0, s);
      if (assigned) y = esp::with_assignment(y, s, esp::full({4, 3}, 7.0));
      (void)y.value();
      return y.gradient(p).value();
    };
    BOOST_TEST(esp::sum(esp::abs(Variable(slope(true)) - slope(false))).item() == 0);
    BOOST_TEST(esp::sum(esp::abs(slope(true))).item() > 0.1);
  }
}

BOOST_AUTO_TEST_SUITE_END()
