// Errors in functions of the user's that the library calls, and runs later: they have the user's lines in
// them.
#include <boost/test/unit_test.hpp>

#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/recompute.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/bilinear.h"
#include "espalier/ops/functions/loop.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/optimizer.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

using Tensors = std::vector<Tensor>;

/// Five matrices, of which that one is singular.
Tensor singular_from(int64_t singular) {
  Tensor all = esp::zeros({5, 2, 2}, esp::float64);
  for (int64_t t = 0; t < 5; ++t)
    for (int64_t i = 0; i < 2; ++i) all.at<double>({t, i, i}) = t == singular ? 0 : 2;
  return all;
}

std::string mistake;  // of the mistake

/// s = a⁻¹ s
esp::ScanResult solving_step(const Variables& s, const Variables& a) {
  return {{(mistake = here(), esp::solve(a[0], s[0]))}, {}};
}

std::string said_of_step(int64_t step) { return "in step " + std::to_string(step) + " of the scan ("; }

}  // namespace

BOOST_AUTO_TEST_SUITE(error_lines)

BOOST_AUTO_TEST_CASE(the_function_that_was_called_is_named) {
  const Variable a = esp::placeholder("a", {-1, 3}), b = esp::placeholder("b", {-1, 3});
  const auto check = [&](const Variable& y, const std::string& mistake, const std::string& op,
                         const std::string& function) {
    BOOST_CHECK_EXCEPTION(y.get_executor().run({{"a", esp::ones({2, 3})}, {"b", esp::ones({4, 3})}}),
                          esp::ShapeError, says({op, mistake, "(" + function}));
  };
  check(esp::stack({a, b}), here(), "concat: ", "in stack, ");
  check(a * b, here(), "multiply: ", "/");
  check(esp::cosine_similarity(a, b, 1), here(), "multiply: ", "in cosine_similarity, ");
  check(esp::nn::Bilinear(3, 3, 2)(a, b), here(), "multiply: ", "in Bilinear, ");
}

BOOST_AUTO_TEST_CASE(names_in_signatures) {
  const auto named = [](const char* signature) { return std::string(esp::CallSite({}, signature).called()); };
  BOOST_TEST(named(nullptr) == "");
  BOOST_TEST(named("") == "");
  BOOST_TEST(named("cdist") == "cdist");
  BOOST_TEST(named("espalier::Variable espalier::stack(const std::vector<Variable>&, int64_t, Where)") ==
             "stack");
  BOOST_TEST(named("std::map<std::string, std::pair<int, int> > espalier::f(X<(A)0>)") == "f");
  BOOST_TEST(named("Variable espalier::nn::Crf::operator()(const espalier::Variable &, Where) const") ==
             "Crf");
  BOOST_TEST(named("espalier::nn::Dense::Dense(const espalier::nn::Sizes&)") == "Dense");
  BOOST_TEST(named("espalier::nn::Variable espalier::nn::Crf::loss(const Variable&)") == "Crf::loss");
  BOOST_TEST(named("Variable espalier::{anonymous}::inner(int)") == "");
  BOOST_TEST(named("Variable espalier::(anonymous namespace)::inner(int)") == "");
  BOOST_TEST(named("void espalier::internal::at_line(const std::source_location&)") == "");
  BOOST_TEST(named("espalier::Variable espalier::Builder<Cell, O>::add(int) [with Cell = A]") == "");
  BOOST_TEST(named("espalier::scan(const espalier::ScanStep&)::<lambda()>") == "scan");
}

BOOST_AUTO_TEST_CASE(a_step_is_written) {
  const auto step = [](const Variables& s, const Variables& x) -> esp::ScanResult {
    return {{(mistake = here(), esp::matmul(s[0], x[0]))}, {}};
  };
  const auto run = [&] { esp::scan(step, {esp::ones({2, 3})}, {Variable(esp::ones({5, 4, 3}))}); };
  BOOST_CHECK_EXCEPTION(run(), esp::ShapeError, says({"matmul", mistake + ")"}));
  const auto nested = [&](const Variables& s, const Variables& x) -> esp::ScanResult {
    return {{esp::scan(step, {s[0]}, {x[0]}).state[0]}, {}};
  };
  BOOST_CHECK_EXCEPTION(esp::scan(nested, {esp::ones({2, 3})}, {Variable(esp::ones({5, 2, 4, 3}))}),
                        esp::ShapeError, says({"matmul", mistake + ")"}));
  // Whose mistake it is, where a library function has called the scan, is in the call of that.
  const auto where = std::source_location::current();
  const esp::CallScope scope(where);
  BOOST_CHECK_EXCEPTION(run(), esp::ShapeError, says({"matmul", here(where) + ")"}));
}

BOOST_AUTO_TEST_CASE(a_step_runs) {
  const Variable s = esp::ones({2, 1}, esp::float64), a = esp::placeholder("a", {5, 2, 2}, esp::float64);
  for (const int64_t segment : {0, 2})
    for (const bool reverse : {false, true})
      for (const int64_t singular : {0, 1, 3, 4}) {
        const esp::ScanOptions options{.reverse = reverse, .segment = segment};
        BOOST_CHECK_EXCEPTION(esp::scan(solving_step, {s}, {Variable(singular_from(singular))}, options),
                              esp::LinAlgError,
                              says({"solve", "singular", said_of_step(singular), mistake + ")"}));
        const esp::Executor executor = esp::scan(solving_step, {s}, {a}, options).state[0].get_executor();
        BOOST_CHECK_EXCEPTION(executor.run({{"a", singular_from(singular)}}), esp::LinAlgError,
                              says({"solve", "singular", said_of_step(singular), mistake + ")"}));
      }
}

BOOST_AUTO_TEST_CASE(loops_in_each_other_run) {
  const auto outer = [](const Variables& s, const Variables& a) -> esp::ScanResult {
    return {{esp::scan(solving_step, {s[0]}, {a[0]}).state[0]}, {}};
  };
  const Variable many = esp::stack({Variable(singular_from(-1)), Variable(singular_from(3))});
  BOOST_CHECK_EXCEPTION(esp::scan(outer, {esp::ones({2, 1}, esp::float64)}, {many}), esp::LinAlgError,
                        says({"in step 3 of the scan, in step 1 of the scan (", mistake + ")"}));
}

BOOST_AUTO_TEST_CASE(gradients_of_steps_run) {
  const auto step = [](const Variables& s, const Variables& a) -> esp::ScanResult {
    return {{s[0] + (mistake = here(), esp::slogdet(a[0])).log_abs}, {}};
  };
  const Variable a = esp::variable(singular_from(3));
  const Variable y = esp::scan(step, {esp::zeros({}, esp::float64)}, {a}).state[0];
  BOOST_CHECK_EXCEPTION(y.gradient(a), esp::LinAlgError,
                        says({"slogdet", "in the gradient of step 3 of the scan (", mistake + ")"}));
  const Variable x = esp::variable(esp::zeros({2, 2}, esp::float64));
  const Variable again =
      esp::recompute([](const Variable& v) { return (mistake = here(), esp::slogdet(v)).log_abs * 2.0; }, x);
  BOOST_CHECK_EXCEPTION(again.gradient(x), esp::LinAlgError, says({"slogdet", mistake + ")"}));
}

BOOST_AUTO_TEST_CASE(functions_of_custom_ops) {
  const Variable v = esp::variable(esp::ones({2, 3}));
  const auto forward = esp::custom_op({.name = "mine", .forward = [](const Tensors& in) {
                                         return (mistake = here(), esp::matmul(in[0], in[0])).value();
                                       }});
  const std::string in_forward = "in the forward function of the custom op 'mine' (";
  BOOST_CHECK_EXCEPTION(forward({v}), esp::ShapeError, says({"matmul", in_forward, mistake + ")"}));
  const auto backward =
      esp::custom_op({.name = "mine",
                      .forward = [](const Tensors& in) { return in[0]; },
                      .gradient = [](const esp::CustomGradient& g) -> Variables {
                        return {(mistake = here(), esp::matmul(g.inputs[0], g.output_gradient))};
                      }});
  BOOST_CHECK_EXCEPTION(
      backward({v}).gradient(v), esp::ShapeError,
      says({"matmul", "in the gradient function of the custom op 'mine' (", mistake + ")"}));
  const auto infers = esp::custom_op(
      {.name = "mine",
       .forward = [](const Tensors& in) { return in[0]; },
       .infer = [](const std::vector<esp::Spec>&) -> esp::Spec { throw esp::ShapeError("not this shape"); }});
  BOOST_CHECK_EXCEPTION(infers({v}), esp::ShapeError,
                        says({"not this shape, in the infer function of the custom op 'mine' (", here()}));
  // In a plan, and in a layer or another library function.
  const auto root = esp::custom_op(
      {.name = "mine",
       .forward = [](const Tensors& in) { return (mistake = here(), esp::cholesky(in[0])).value(); },
       .infer = [](const std::vector<esp::Spec>& in) { return in[0]; }});
  const Variable a = esp::placeholder("a", {2, 2});
  const esp::Executor executor = [&] {
    const auto where = std::source_location::current();
    const esp::CallScope scope(where);
    return esp::recompute([&](const Variable& x) { return root({x}); }, a).get_executor();
  }();
  BOOST_CHECK_EXCEPTION(executor.run({{"a", esp::full({2, 2}, -9)}}), esp::LinAlgError,
                        says({"cholesky", in_forward, mistake + ")"}));
}

BOOST_AUTO_TEST_CASE(update_rules) {
  struct Rule : esp::optim::UpdateRule {
    explicit Rule(int what) : what(what) {}
    std::string_view name() const override { return "Mine"; }
    void update(esp::optim::ParameterUpdate& step) const override {
      const Variable &p = step.parameter(), &g = step.gradient();
      if (what == 0) step.assign(p, (mistake = here(), p - esp::matmul(g, g)));
      if (what == 1) step.assign(p, (mistake = here(), esp::sum(g)));
      if (what == 2) step.assign(p, p - (mistake = here(), esp::inverse(g * 0.0)) * step.state("m"));
    }
    int what;
  };
  const auto optimizer = [](int what) { return esp::optim::Optimizer(std::make_shared<Rule>(what), {}); };
  const Variable w = esp::parameter(esp::ones({2, 3}), "w");
  const std::string rule = "in the update rule 'Mine' for the parameter 'w' (";
  for (const int what : {0, 1}) {
    BOOST_CHECK_EXCEPTION(esp::sum(w).update(optimizer(what)), esp::ShapeError, says({rule, mistake + ")"}));
    BOOST_CHECK_EXCEPTION(esp::sum(w).get_executor({.optimizer = optimizer(what)}), esp::ShapeError,
                          says({rule, mistake + ")"}));
  }
  const Variable square =
      esp::parameter(esp::ones({2, 2}), "w");  // the rule goes through, but not what it made
  BOOST_CHECK_EXCEPTION(esp::sum(square).update(optimizer(2)), esp::LinAlgError,
                        says({"inverse", "singular", mistake + ")"}));
  const auto executor =
      esp::sum(square).get_executor({.mode = esp::Mode::training, .optimizer = optimizer(2)});
  BOOST_CHECK_EXCEPTION(executor.step(), esp::LinAlgError, says({"singular", mistake + ")"}));
}

BOOST_AUTO_TEST_SUITE_END()
