// User-defined operations.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>
#include <optional>
#include <sstream>

#include "espalier/core/autograd.h"
#include "espalier/core/check_gradient.h"
#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/data/distributor.h"
#include "espalier/ops/ops.h"
#include "temporary_folder.h"

namespace esp = espalier;
using espalier::testing::says;
using Tensors = std::vector<esp::Tensor>;
using Variables = std::vector<esp::Variable>;

namespace {

/// x³; counts its evaluations in `runs`.
esp::CustomOp cube(int& runs, bool infers = false) {
  esp::CustomOpOptions options{.name = "cube",
                               .forward =
                                   [&runs](const Tensors& in) {
                                     ++runs;
                                     esp::Tensor out = in[0].clone();
                                     for (double& v : out.span<double>()) v = v * v * v;
                                     return out;
                                   },
                               .gradient =
                                   [](const esp::CustomGradient& g) {
                                     return Variables{g.output_gradient * 3 * g.inputs[0] * g.inputs[0]};
                                   }};
  if (infers) options.infer = [](const std::vector<esp::Spec>& in) { return in[0]; };
  return esp::custom_op(options);
}

/// An op whose functions return the given values.
esp::CustomOp fixed(const esp::Tensor& output, const Variables& gradients) {
  return esp::custom_op({.name = "fixed",
                         .forward = [=](const Tensors&) { return output; },
                         .gradient = [=](const esp::CustomGradient&) { return gradients; }});
}

struct UsersOwn {};

}  // namespace

BOOST_AUTO_TEST_SUITE(custom_op)

BOOST_AUTO_TEST_CASE(runs_once_an_application) {
  for (bool infers : {false, true}) {
    int runs = 0;
    const esp::CustomOp op = cube(runs, infers);
    const esp::Variable x = esp::variable(esp::tensor({2.0, 3.0}, esp::float64));
    const esp::Variable y = op({x});
    BOOST_TEST(y.value().at<double>({1}) == 27);
    BOOST_TEST(runs == 1);
    const esp::Variable z = op(op({x}));
    BOOST_TEST(z.value().at<double>({0}) == 512);
    BOOST_TEST(runs == 3);
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_both_orders) {
  int runs = 0;
  const esp::CustomOp op = cube(runs);
  const auto result =
      esp::check_gradient([&](const Variables& v) { return op({v[0] * v[1]}); },
                          {esp::randn({2, 3}, esp::float64), esp::randn({3}, esp::float64)}, {.order = 2});
  BOOST_TEST(result.passed, result.message);
}

BOOST_AUTO_TEST_CASE(a_gradient_may_use_the_output_and_leave_inputs_out) {
  const auto op = esp::custom_op({
      .name = "exp_of_first",
      .forward =
          [](const Tensors& in) {
            esp::Tensor out = in[0].clone();
            for (double& v : out.span<double>()) v = std::exp(v);
            return out;
          },
      .gradient =
          [](const esp::CustomGradient& g) {
            return Variables{g.output_gradient * g.output, esp::Variable()};
          },
  });
  const auto result = esp::check_gradient(
      [&](const Variables& v) {
        return op({v[0], v[1]});
      },
      {esp::randn({4}, esp::float64), esp::randn({2}, esp::float64)}, {.order = 2});
  BOOST_TEST(result.passed, result.message);
}

BOOST_AUTO_TEST_CASE(larger_gradients_are_summed_down) {
  const auto scale = esp::custom_op({
      .name = "scale",
      .forward =
          [](const Tensors& in) {
            esp::Tensor out = in[0].clone();
            for (double& v : out.span<double>()) v *= in[1].item();
            return out;
          },
      .gradient =
          [](const esp::CustomGradient& g) {
            return Variables{g.output_gradient * g.inputs[1], g.output_gradient * g.inputs[0]};
          },
  });
  const auto result = esp::check_gradient(
      [&](const Variables& v) {
        return scale({v[0], v[1]});
      },
      {esp::randn({2, 3}, esp::float64), esp::randn({}, esp::float64)}, {.order = 2});
  BOOST_TEST(result.passed, result.message);
}

BOOST_AUTO_TEST_CASE(inputs_come_without_gaps) {
  const auto first = esp::custom_op({.name = "sum_all", .forward = [](const Tensors& in) {
                                       double sum = 0;
                                       for (double v : in[0].span<double>()) sum = 10 * sum + v;
                                       return esp::tensor(sum, esp::float64);
                                     }});
  BOOST_TEST(first({esp::transpose(esp::tensor({{1.0, 2.0}, {3.0, 4.0}}, esp::float64))}).item() == 1324);
}

BOOST_AUTO_TEST_CASE(downstream_of_a_feed_the_shape_comes_from_zeros_or_infer) {
  const esp::Variable source = esp::placeholder("x", {4, 2}, esp::float64);
  int runs = 0;
  const esp::CustomOp op = cube(runs);
  BOOST_TEST(op({source}).shape() == esp::Shape({4, 2}));
  BOOST_TEST(op({source}).shape() == esp::Shape({4, 2}));
  BOOST_TEST(runs == 1);  // the shape is cached
  int more = 0;
  BOOST_TEST(cube(more, true)({source}).shape() == esp::Shape({4, 2}));
  BOOST_TEST(more == 0);
}

BOOST_AUTO_TEST_CASE(downstream_of_feeds_of_two_types_one_op_has_both) {
  const esp::CustomOp op =
      esp::custom_op({.name = "same", .forward = [](const Tensors& in) { return in[0]; }});
  for (const esp::DType dtype : {esp::float32, esp::float64, esp::int32, esp::float32})
    BOOST_TEST((op({esp::placeholder("x", {4}, dtype)}).dtype() == dtype));
}

BOOST_AUTO_TEST_CASE(an_application_to_values_leaves_trees_of_feeds_alone) {
  int runs = 0;
  const esp::CustomOp op = cube(runs);
  const esp::data::Distributor feed({esp::tensor({1.0, 2.0, 3.0}, esp::float64)}, {.batch_size = 3});
  const esp::Variable fed = op({feed.get_output_graphs()[0]});
  BOOST_TEST(op({esp::tensor(5.0, esp::float64)}).item() == 125);
  BOOST_TEST(esp::sum(fed).forward().item() == 1 + 8 + 27);
}

BOOST_AUTO_TEST_CASE(nodes_show_name_and_line) {
  int runs = 0;
  std::ostringstream tree;
  cube(runs)({esp::variable(esp::tensor(1.0, esp::float64))}).print_tree(tree);
  BOOST_TEST(tree.str().find("cube") != std::string::npos);
  BOOST_TEST(tree.str().find("custom_op_test.cpp") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(two_ops_of_one_name_are_two_ops) {
  int a = 0, b = 0;
  const esp::Variable x = esp::variable(esp::tensor(1.0, esp::float64));
  const esp::Variable y = cube(a)({x}), z = cube(b)({x});
  BOOST_TEST((y.node()->op().attributes() != z.node()->op().attributes()));
}

BOOST_AUTO_TEST_CASE(mistakes_are_named) {
  const esp::Tensor one = esp::tensor({1.0f});
  const esp::Variable x = esp::variable({1.0f});
  BOOST_CHECK_EXCEPTION(esp::custom_op({.name = "", .forward = [](const Tensors& in) { return in[0]; }}),
                        esp::Error, says({"name", "custom_op_test.cpp"}));
  BOOST_CHECK_EXCEPTION(esp::custom_op({.name = "idle"}), esp::Error, says({"idle", "forward"}));
  BOOST_CHECK_EXCEPTION(fixed({}, {})({x}), esp::TypeError,
                        says({"fixed", "undefined", "custom_op_test.cpp"}));
  BOOST_CHECK_EXCEPTION(fixed(one, {})({esp::Variable()}), esp::Error, says({"fixed", "undefined"}));

  auto inferring = [&](const esp::Spec& spec) {
    return esp::custom_op({.name = "liar",
                           .forward = [&](const Tensors&) { return one; },
                           .infer = [=](const std::vector<esp::Spec>&) { return spec; }});
  };
  BOOST_CHECK_EXCEPTION(inferring({esp::float32, {2}})({x}), esp::ShapeError,
                        says({"liar", "[1]", "[2]", "custom_op_test.cpp"}));
  BOOST_CHECK_EXCEPTION(inferring({esp::float64, {1}})({x}), esp::TypeError,
                        says({"liar", "float32", "float64"}));

  const auto no_gradient =
      esp::custom_op({.name = "step", .forward = [&](const Tensors& in) { return in[0]; }});
  BOOST_CHECK_EXCEPTION(no_gradient({x}).gradient(x), esp::UnsupportedError, says({"step", "gradient"}));
  BOOST_CHECK_EXCEPTION(fixed(one, {})({x}).gradient(x), esp::ShapeError,
                        says({"fixed", "0 gradients", "1 inputs"}));
  BOOST_CHECK_EXCEPTION(fixed(one, {x, x})({x}).gradient(x), esp::ShapeError, says({"fixed", "2 gradients"}));
  const esp::Variable pair = esp::variable({1.0f, 2.0f});
  BOOST_CHECK_EXCEPTION(fixed(one, {x})({pair}).gradient(pair), esp::ShapeError,
                        says({"fixed", "[1]", "[2]"}));
  const esp::Variable wide = esp::cast(x, esp::float64);
  BOOST_CHECK_EXCEPTION(fixed(one, {wide})({x}).gradient(x), esp::TypeError,
                        says({"fixed", "float64", "float32"}));
}

BOOST_AUTO_TEST_CASE(what_user_functions_throw_passes_through) {
  const esp::Variable x = esp::variable({1.0f});
  const auto op =
      esp::custom_op({.name = "thrower", .forward = [](const Tensors&) -> esp::Tensor { throw UsersOwn(); }});
  BOOST_CHECK_THROW(op({x}), UsersOwn);
  const auto late =
      esp::custom_op({.name = "late",
                      .forward = [](const Tensors& in) { return in[0]; },
                      .gradient = [](const esp::CustomGradient&) -> Variables { throw UsersOwn(); }});
  const esp::Variable y = late({x});
  BOOST_CHECK_THROW(y.gradient(x), UsersOwn);
  BOOST_TEST(y.item() == 1);
  BOOST_TEST((y + x).item() == 2);  // a failed op leaves no state
}

BOOST_AUTO_TEST_CASE(forward_may_call_ops_of_its_own) {
  int runs = 0;
  const esp::CustomOp inner = cube(runs);
  const auto outer = esp::custom_op(
      {.name = "outer", .forward = [&](const Tensors& in) { return (inner({in[0]}) + 1).value(); }});
  BOOST_TEST(outer({outer({esp::tensor(1.0, esp::float64)})}).item() == 9);
}

BOOST_AUTO_TEST_CASE(gradient_functions_that_call_themselves) {
  const auto with = [](const std::function<esp::Variable(const esp::CustomGradient&)>& whole) {
    return esp::custom_op({.name = "twice",
                           .forward = [](const Tensors& in) { return (in[0] * 2).value(); },
                           .gradient = [=](const esp::CustomGradient& g) -> Variables {
                             return {esp::sum(whole(g)).gradient(g.inputs[0])};
                           }});
  };
  const esp::Variable w = esp::variable(esp::tensor({1.0, 2.0}, esp::float64));
  const auto refused = says({"custom op 'twice'", "the op's own output", "stop_gradient(g.output)"});
  const auto own = with([](const auto& g) { return g.output * g.inputs[0] * g.output_gradient; });
  BOOST_CHECK_EXCEPTION(own({w}).gradient(w), esp::Error, refused);
  const esp::Variable loss = esp::sum(own({w}));
  BOOST_CHECK_EXCEPTION(loss.backward(), esp::Error, refused);
  BOOST_CHECK_EXCEPTION(esp::new_parameter_gradients(loss), esp::Error, refused);
  // The gradient that arrives may be made of the output.
  const auto arriving = with([](const auto& g) { return g.inputs[0] * g.output_gradient; });
  BOOST_TEST(arriving({w}).gradient(w).value().at<double>({1}) == 1);
  BOOST_CHECK_EXCEPTION(esp::sum(esp::square(arriving({w}))).gradient(w), esp::Error, refused);
  // As it should be: 2w · w, and again for derivatives of it, also of applications in each other.
  const auto stopped = with([](const auto& g) {
    return esp::stop_gradient(g.output) * g.inputs[0] * esp::stop_gradient(g.output_gradient);
  });
  const esp::Variable g = esp::sum(stopped({stopped({w})})).gradient(w);
  BOOST_TEST(g.value().at<double>({1}) == 32);  // 2·2·2 by the outer one, which comes to 2·2 in the inner one
  BOOST_CHECK_NO_THROW((void)esp::sum(g).gradient(w));

  // Gradient functions of other nodes of the op may be called meanwhile, but not without end.
  std::optional<esp::CustomOp> nested;
  int left = 0;
  nested = esp::custom_op({.name = "nested",
                           .forward = [](const Tensors& in) { return (in[0] * 2).value(); },
                           .gradient = [&](const esp::CustomGradient& of) -> Variables {
                             if (left-- <= 0) return {of.output_gradient * 2};
                             const esp::Variable x = esp::variable(of.inputs[0].value());
                             return {of.output_gradient * esp::sum((*nested)({x})).gradient(x)};
                           }});
  left = 100;
  BOOST_TEST((*nested)({w}).gradient(w).value().at<double>({1}) == 2);
  left = 1000000;
  BOOST_CHECK_EXCEPTION((*nested)({w}).gradient(w), esp::Error,
                        says({"custom op 'nested'", "256 gradient functions", "never ends"}));
  left = 0;
  BOOST_TEST((*nested)({w}).gradient(w).value().at<double>({1}) == 2);
}

BOOST_AUTO_TEST_SUITE_END()
