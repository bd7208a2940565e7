// The tree of Variables: building, differentiation, updates and release.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <sstream>
#include <thread>

#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/random.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/dense.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// x²; counts its evaluations in `runs`.
esp::CustomOp counting_square(int& runs) {
  return esp::custom_op(
      {.name = "counting_square",
       .forward =
           [&runs](const std::vector<esp::Tensor>& in) {
             ++runs;
             return esp::square(in[0]).value();
           },
       .gradient =
           [](const esp::CustomGradient& g) { return Variables{g.output_gradient * 2 * g.inputs[0]}; }});
}

std::string tree_of(const esp::Variable& v) {
  std::ostringstream out;
  v.print_tree(out);
  return out.str();
}
size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

esp::Variable scalar(double x) { return esp::variable(esp::tensor(x, esp::float64)); }

}  // namespace

BOOST_AUTO_TEST_SUITE(tree)

BOOST_AUTO_TEST_CASE(undefined_variables_throw) {
  const esp::Variable none;
  BOOST_TEST(!none.defined());
  BOOST_CHECK_THROW(none.value(), esp::Error);
  BOOST_CHECK_THROW(none.item(), esp::Error);
  BOOST_CHECK_THROW(none.shape(), esp::Error);
  BOOST_CHECK_THROW(none.dtype(), esp::Error);
  BOOST_CHECK_THROW(none.depth(), esp::Error);
  BOOST_CHECK_EXCEPTION(none.forward(), esp::Error, says({"undefined", here()}));
  BOOST_CHECK_EXCEPTION(none.backward(), esp::Error, says({"undefined", here()}));
  BOOST_CHECK_EXCEPTION(none.gradient(scalar(1)), esp::Error, says({"undefined", here()}));
  BOOST_CHECK_EXCEPTION(scalar(1).gradient(none), esp::Error, says({"undefined", here()}));
  BOOST_CHECK_EXCEPTION(none.update(esp::optim::Sgd(0.1)), esp::Error, says({"undefined", here()}));
  BOOST_CHECK_EXCEPTION(none.get_executor(), esp::Error, says({"undefined"}));
  BOOST_CHECK_THROW(esp::Variable().disconnect(), esp::Error);
  BOOST_CHECK_THROW(esp::set_value(none, esp::ones({1})), esp::Error);
  BOOST_CHECK_THROW(esp::Variable{esp::Tensor()}, esp::TypeError);
  BOOST_TEST(tree_of(none) == "undefined\n");
}

BOOST_AUTO_TEST_CASE(depth_is_the_longest_way_to_a_leaf) {
  const esp::Variable x = scalar(2);
  const esp::Variable y = esp::exp(x * x) + x;
  BOOST_TEST(x.depth() == 0);
  BOOST_TEST(y.depth() == 3);
  BOOST_TEST((y + x).depth() == 4);
}

BOOST_AUTO_TEST_CASE(each_node_is_computed_once_and_printed_once) {
  int runs = 0;
  const esp::CustomOp op = counting_square(runs);
  const esp::Variable x = scalar(3);
  const esp::Variable s = op({x});
  const esp::Variable y = (s + 1) * (s + 2) + s;  // s is the waist of a diamond
  BOOST_TEST(runs == 1);
  BOOST_TEST(y.item() == 10 * 11 + 9);
  const esp::Variable dx = y.gradient(x);
  BOOST_TEST(dx.item() == (11 + 10 + 1) * 6);
  BOOST_TEST(runs == 1);
  const std::string text = tree_of(y);
  BOOST_TEST(count(text, "counting_square") == 1u, text);
  BOOST_TEST(count(text, "variable ") == 1u, text);
  BOOST_TEST(count(text, "tree_test.cpp:") == count(text, "\n"), text);
  BOOST_TEST(count(text, "Backward") > 0u);
}

BOOST_AUTO_TEST_CASE(print_tree_shows_updates_and_lines) {
  const esp::Variable w = esp::parameter(esp::ones({2, 3}), "weight");
  const auto [loss, line] = std::pair(esp::sum(esp::square(w)), here());
  BOOST_TEST(count(tree_of(loss), "Update") == 0u);
  loss.update(esp::optim::Sgd(0.1));
  const std::string text = tree_of(loss);
  BOOST_TEST(count(text, line) >= 2u, text);
  BOOST_TEST(count(text, "Update") > 0u, text);
  BOOST_TEST(count(text, "weight") == 1u, text);
  BOOST_TEST(count(text, "[2, 3]") > 0u, text);
  // The text of other roots does not contain the updates of this one.
  BOOST_TEST(count(tree_of(w * 2), "Update") == 0u);
}

BOOST_AUTO_TEST_CASE(gradients_of_leaves_and_middles_and_of_itself) {
  const esp::Variable x = scalar(2), c = esp::tensor(5.0, esp::float64);
  const esp::Variable h = x * x;
  const esp::Variable y = h * h * c;
  BOOST_TEST(y.gradient(x).item() == 4 * 8 * 5);
  BOOST_TEST(y.gradient(h).item() == 2 * 4 * 5);
  BOOST_TEST(y.gradient(c).item() == 16);  // a constant has a gradient, too
  BOOST_TEST(y.gradient(y).item() == 1);
  BOOST_TEST(y.backward().gradient(x).item() == 160);
  BOOST_TEST(y.gradient(x).node() == y.gradient(x).node());  // built once
  // Higher orders.
  BOOST_TEST(y.gradient(x).gradient(x).item() == 5 * 12 * 4);
  BOOST_TEST(y.gradient(x).gradient(x).gradient(x).item() == 5 * 24 * 2);
}

BOOST_AUTO_TEST_CASE(the_order_of_asking_does_not_matter) {
  const auto grow = [](const esp::Variable& x, esp::Variable& h) {
    h = esp::tanh(x) * x;
    return esp::exp(h) * h + x;
  };
  for (bool backward_first : {false, true}) {
    const esp::Variable x = scalar(0.7);
    esp::Variable h;
    const esp::Variable y = grow(x, h);
    if (backward_first) y.backward();
    const double by_h = y.gradient(h).item(), by_x = y.gradient(x).item();
    if (!backward_first) y.backward();
    const double t = std::tanh(0.7), v = 0.7 * t, dh = std::exp(v) * (v + 1);
    BOOST_TEST(by_h == dh, boost::test_tools::tolerance(1e-14));
    BOOST_TEST(by_x == dh * (t + 0.7 * (1 - t * t)) + 1, boost::test_tools::tolerance(1e-14));
    BOOST_TEST(y.gradient(x).item() == by_x);
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_what_it_is_not_made_of) {
  const esp::Variable x = scalar(2), other = scalar(3), y = x * x;
  BOOST_CHECK_EXCEPTION(y.gradient(other), esp::Error, says({"gradient", "not made of", here()}));
  BOOST_CHECK_EXCEPTION(x.gradient(y), esp::Error, says({"not made of", here()}));
  const esp::Variable flags = esp::greater(x, 1.0);
  BOOST_CHECK_EXCEPTION(flags.backward(), esp::TypeError, says({"bool", here()}));
  BOOST_CHECK_EXCEPTION(esp::argmax(esp::variable({1.0f})).gradient(x), esp::TypeError,
                        says({"int64", here()}));
  // It depends on x, but the derivative is 0.
  BOOST_TEST(esp::floor(x).gradient(x).item() == 0);
  BOOST_TEST(esp::cast(flags, esp::float64).gradient(x).item() == 0);
}

BOOST_AUTO_TEST_CASE(a_root_that_is_no_scalar_is_summed) {
  const esp::Variable x = esp::variable(numbers({2, 3}));
  const esp::Variable y = x * x;
  BOOST_TEST(difference((x * 2).value(), y.backward().gradient(x).value()) < 1e-15);
}

BOOST_AUTO_TEST_CASE(contributions_are_merged_before_one_update) {
  const esp::Variable w = esp::parameter(esp::tensor(1.0, esp::float64));
  const esp::Variable loss = w * 2 + w * 3 + w * 4 + w;
  loss.update(esp::optim::Sgd(0.1));
  BOOST_TEST(w.item() == 0.0, boost::test_tools::tolerance(1e-15));
  BOOST_TEST(count(tree_of(loss), "assign") == 1u);
}

BOOST_AUTO_TEST_CASE(updates_change_parameters_alone_and_again_each_time) {
  const esp::Variable w = esp::parameter(esp::tensor(1.0, esp::float64)), v = scalar(2);
  const esp::Variable loss = w * v;
  const esp::optim::Sgd sgd(0.25);
  loss.update(sgd);
  BOOST_TEST(w.item() == 0.5);
  BOOST_TEST(v.item() == 2);
  loss.update(sgd);  // uses the same gradient
  BOOST_TEST(w.item() == 0.0);
  BOOST_TEST(loss.item() == 2);  // the eager value is unchanged
  BOOST_TEST((w * v).item() == 0);
}

BOOST_AUTO_TEST_CASE(gradients_at_a_point_that_is_gone_are_refused) {
  const esp::Variable w = esp::parameter(esp::tensor(3.0, esp::float64));
  const esp::Variable y = w * w;
  esp::set_value(w, esp::tensor(10.0, esp::float64));
  BOOST_CHECK_EXCEPTION(y.gradient(w), esp::Error, says({"updated", "tree_test.cpp"}));

  const esp::Variable u = esp::parameter(esp::tensor(3.0, esp::float64));
  const esp::Variable z = esp::exp(u) * u;
  z.update(esp::optim::Sgd(0.1));
  const double there = std::exp(3.0) * 4;
  BOOST_TEST(z.gradient(u).item() == there, boost::test_tools::tolerance(1e-14));  // built before
  BOOST_CHECK_THROW(z.gradient(u).gradient(u).item(), esp::Error);                 // would mix two points
  // A rule that reads no leaf stays valid after updates.
  const esp::Variable p = esp::parameter(esp::tensor(3.0, esp::float64));
  const esp::Variable q = esp::exp(p);
  esp::set_value(p, esp::tensor(0.0, esp::float64));
  BOOST_TEST(q.gradient(p).item() == std::exp(3.0), boost::test_tools::tolerance(1e-14));
}

BOOST_AUTO_TEST_CASE(released_values_are_not_computed_at_another_point) {
  const esp::Variable w = esp::parameter(esp::tensor(3.0, esp::float64));
  const esp::Variable y = (w + 1) + 2;  // no handle on w + 1
  const esp::Variable middle = y.node()->inputs[0].variable();
  BOOST_TEST(middle.item() == 4);
  const esp::Variable z = (w + 1) + 2;
  esp::set_value(w, esp::tensor(7.0, esp::float64));
  const esp::Variable late = z.node()->inputs[0].variable();
  BOOST_CHECK_EXCEPTION(late.value(), esp::Error, says({"add", "updated", "tree_test.cpp"}));
  BOOST_TEST(z.item() == 6);
}

BOOST_AUTO_TEST_CASE(disconnect_makes_a_leaf) {
  const esp::Variable x = scalar(2);
  esp::Variable h = x * x;
  const esp::Variable same = h, before = h * 3;
  h.disconnect();
  BOOST_TEST(h.depth() == 0);
  BOOST_TEST(h.item() == 4);
  BOOST_TEST(same.depth() == 0);
  const esp::Variable y = h * 5;
  BOOST_CHECK_THROW(y.gradient(x), esp::Error);
  BOOST_TEST(y.gradient(h).item() == 5);
  BOOST_CHECK_THROW(before.gradient(x), esp::Error);
  // Also of a root that has been differentiated.
  esp::Variable root = x * x;
  BOOST_TEST(root.backward().gradient(x).item() == 4);
  root.disconnect();
  BOOST_CHECK_THROW(root.gradient(x), esp::Error);
  esp::Variable leaf = x;
  leaf.disconnect();
  BOOST_TEST((leaf * leaf).gradient(x).item() == 4);
}

BOOST_AUTO_TEST_CASE(clear_buffers_keeps_gradients_and_nothing_else) {
  const esp::Variable w = esp::parameter(esp::tensor(2.0, esp::float64)), v = scalar(3);
  const esp::Variable loss = w * w * v;
  loss.backward({.clear_buffers = true});
  BOOST_TEST(loss.item() == 12);
  BOOST_TEST(loss.depth() == 0);
  BOOST_TEST(loss.gradient(w).item() == 12);
  BOOST_TEST(loss.gradient(v).item() == 4);
  BOOST_TEST(loss.gradient(w).depth() == 0);
  BOOST_CHECK_THROW(loss.gradient(w).gradient(w), esp::Error);
  loss.update(esp::optim::Sgd(0.5));
  BOOST_TEST(w.item() == -4);
}

BOOST_AUTO_TEST_CASE(clear_buffers_keeps_what_two_backward_calls_found) {
  const esp::Variable a = esp::parameter(esp::tensor(2.0, esp::float64)),
                      b = esp::parameter(esp::tensor(3.0, esp::float64)),
                      c = esp::parameter(esp::tensor(5.0, esp::float64));
  const esp::Variable loss = a * b * c;
  esp::set_trainable(b, false), esp::set_trainable(c, false);
  loss.backward();
  esp::set_trainable(b, true), esp::set_trainable(c, true);
  loss.backward({.clear_buffers = true});
  BOOST_TEST(loss.depth() == 0);
  BOOST_TEST(loss.gradient(a).item() == 15);
  BOOST_TEST(loss.gradient(b).item() == 10);
  BOOST_TEST(loss.gradient(c).item() == 6);
}

BOOST_AUTO_TEST_CASE(no_grad_keeps_no_tree) {
  const esp::Variable x = scalar(2);
  esp::Variable y;
  {
    const esp::NoGrad outer;
    {
      const esp::NoGrad inner;
      y = x * x;
    }
    BOOST_TEST((x * x).depth() == 0);
  }
  BOOST_TEST(y.item() == 4);
  BOOST_TEST(y.depth() == 0);
  BOOST_CHECK_THROW(y.gradient(x), esp::Error);
  BOOST_TEST((x * x).gradient(x).item() == 4);
}

BOOST_AUTO_TEST_CASE(values_of_leaves) {
  const esp::Variable w = esp::parameter(esp::ones({2}));
  const esp::Tensor before = w.value(), mine = esp::full({2}, 7);
  esp::set_value(w, mine);
  BOOST_TEST(before.at<float>({0}) == 1);  // a tensor that is held does not change
  BOOST_TEST(w.value().at<float>({0}) == 7);
  BOOST_TEST(w.value().storage().get() != mine.storage().get());
  BOOST_CHECK_EXCEPTION(esp::set_value(w, esp::ones({3})), esp::ShapeError, says({"[2]", "[3]"}));
  BOOST_CHECK_EXCEPTION(esp::set_value(w, esp::ones({2}, esp::float64)), esp::TypeError,
                        says({"float32", "float64"}));
  BOOST_CHECK_THROW(esp::set_value(w * 2, esp::ones({2})), esp::Error);
  BOOST_CHECK_EXCEPTION(esp::set_value(esp::Variable(esp::ones({2})), esp::ones({2})), esp::Error,
                        says({"constant", here()}));
  BOOST_CHECK_EXCEPTION(esp::placeholder("x", {2, -2}), esp::ShapeError, says({"[2, -2]", here()}));
  BOOST_CHECK_EXCEPTION(esp::variable({1, 2}), esp::TypeError, says({"variable", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::parameter(esp::tensor(true)), esp::TypeError, says({"bool", here()}));
}

BOOST_AUTO_TEST_CASE(errors_leave_the_tree_as_it_was) {
  const esp::Variable x = scalar(2), wide = esp::variable(numbers({3}));
  const esp::Variable y = x * x;
  BOOST_CHECK_THROW(esp::matmul(y, wide), esp::ShapeError);
  BOOST_TEST((y + 1).gradient(x).item() == 4);
  // A rule that throws in the middle of a walk leaves no partial gradients behind.
  bool fail = true;
  const auto op = esp::custom_op({.name = "moody",
                                  .forward = [](const std::vector<esp::Tensor>& in) { return in[0].clone(); },
                                  .gradient =
                                      [&](const esp::CustomGradient& g) {
                                        if (fail) throw std::runtime_error("not today");
                                        return Variables{g.output_gradient * 10};
                                      }});
  const esp::Variable z = op({x * 3}) + x;
  BOOST_CHECK_THROW(z.backward(), std::runtime_error);
  BOOST_CHECK_THROW(z.gradient(x), std::runtime_error);
  fail = false;
  BOOST_TEST(z.gradient(x).item() == 31);
}

BOOST_AUTO_TEST_CASE(a_rule_may_ask_for_gradients_itself) {
  const auto op = esp::custom_op(
      {.name = "cube",
       .forward = [](const std::vector<esp::Tensor>& in) { return (esp::square(in[0]) * in[0]).value(); },
       .gradient =
           [](const esp::CustomGradient& g) {
             const esp::Variable& x = g.inputs[0];
             return Variables{g.output_gradient * (x * x * x).gradient(x)};
           }});
  const esp::Variable x = scalar(2), y = op({x * 2}) * x;
  BOOST_TEST(y.gradient(x).item() == 64 + 2 * 3 * 16 * 2);
  BOOST_TEST(y.gradient(x).gradient(x).item() == 12 * 8 * 4);  // y = 8x⁴
}

BOOST_AUTO_TEST_CASE(threads_train_trees_of_their_own) {
  const auto train = [](double start) {
    const esp::Variable w = esp::parameter(esp::full({64}, start, esp::float64));
    const esp::optim::Adam adam(0.1);
    for (int step = 0; step < 200; ++step) {
      const esp::Variable loss = esp::sum(esp::square(w - 3.0));
      loss.update(adam);
    }
    return w.value();
  };
  const esp::Tensor expected[] = {train(0), train(10)};
  std::vector<esp::Tensor> found(8);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < found.size(); ++t)
    threads.emplace_back([&, t] { found[t] = train(t % 2 ? 10 : 0); });
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < found.size(); ++t) BOOST_TEST(difference(found[t], expected[t % 2]) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
