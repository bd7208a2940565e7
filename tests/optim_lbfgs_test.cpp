// L-BFGS and its line search.
#include "espalier/optim/lbfgs.h"

#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/optim/strong_wolfe.h"
#include "figures/optimizers.h"
#include "file_errors.h"
#include "optimizer_cases.h"
#include "temporary_folder.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Variable;

namespace {

struct WholeProblem : SmallProblem {
  esp::Tensor x = rational(24, 37, 19, 8, {8, 3}), y = rational(16, 23, 17, 16, {8, 2});
  optim::Lbfgs::Closure closure() const {
    return [this] {
      const Variable z = esp::matmul(x, w) + b;
      return esp::mean(esp::square(z - y) + esp::square(esp::square(z)) / 16);
    };
  }
};

optim::LbfgsOptions options_of(const LbfgsFigures& figures) {
  return {.lr = figures.line_search ? 1 : 0.3,
          .max_iterations = 5,
          .history = 4,
          .line_search = figures.line_search};
}

Variable rosenbrock(const Variable& p) {
  const Variable x = esp::slice(p, 0, 0, 1), y = esp::slice(p, 0, 1, 2);
  return esp::sum(esp::square(1.0 - x) + 100.0 * esp::square(y - esp::square(x)));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(optim_lbfgs)

BOOST_AUTO_TEST_CASE(it_agrees_with_pytorch) {
  for (const LbfgsFigures& figures : lbfgs_figures)
    BOOST_TEST_CONTEXT("line search " << figures.line_search) {
      const WholeProblem problem;
      optim::Lbfgs lbfgs(problem.parameters(), options_of(figures));
      for (size_t i = 0; i < 4; ++i) {
        BOOST_TEST(std::abs(lbfgs.step(problem.closure()) - figures.losses[i]) < 1e-12);
        const std::vector<double> values = problem.elements();
        for (size_t k = 0; k < values.size(); ++k)
          BOOST_TEST(std::abs(values[k] - figures.values[i][k]) < 1e-12, "step " << i << " element " << k);
      }
      BOOST_TEST(lbfgs.evaluations() == figures.evaluations);
    }
}

BOOST_AUTO_TEST_CASE(it_finds_the_minimum_of_rosenbrocks_valley) {
  for (const esp::DType dtype : {esp::float64, esp::float32}) {
    const Variable p = esp::parameter(esp::tensor({-1.2, 1.0}, dtype));
    optim::Lbfgs lbfgs({p}, {.max_iterations = 100});
    BOOST_TEST(std::abs(lbfgs.step([&] { return rosenbrock(p); }) - 24.2) < 1e-4);
    BOOST_TEST(difference(p.value(), esp::ones({2}, dtype)) < (dtype == esp::float64 ? 1e-4 : 2e-3));
    BOOST_TEST(lbfgs.evaluations() < 100);
    const int64_t iterations = lbfgs.iterations();
    if (dtype == esp::float32) continue;
    (void)lbfgs.step([&] { return rosenbrock(p); });
    BOOST_TEST(lbfgs.iterations() <= iterations + 2);  // there is little left to do
  }
}

BOOST_AUTO_TEST_CASE(a_file_in_the_middle_changes_no_bit) {
  const TemporaryFolder folder;
  for (const LbfgsFigures& figures : lbfgs_figures) {
    const WholeProblem whole, second;
    optim::Lbfgs lbfgs(whole.parameters(), options_of(figures)),
        other(second.parameters(), options_of(figures));
    lbfgs.save(folder / "fresh");
    for (int i = 0; i < 2; ++i) (void)lbfgs.step(whole.closure());
    lbfgs.set_learning_rate(0.7);
    lbfgs.save(folder / "f");
    const Trace middle = whole.values();
    for (int i = 0; i < 2; ++i) (void)lbfgs.step(whole.closure());
    (void)other.step(second.closure());
    other.load(folder / "f");
    BOOST_TEST(other.learning_rate() == 0.7);
    esp::set_value(second.w, middle[0]);
    esp::set_value(second.b, middle[1]);
    for (int i = 0; i < 2; ++i) (void)other.step(second.closure());
    BOOST_TEST(difference_of(second.values(), whole.values()) == 0);
    BOOST_TEST(other.iterations() == lbfgs.iterations());
    other.load(folder / "fresh");
    BOOST_TEST(other.iterations() == 0);
    const Variable wrong = esp::parameter(esp::ones({2}, esp::float64));
    optim::Lbfgs small({wrong});
    const std::string error = file_error([&] { small.load(folder / "f"); });
    BOOST_TEST((has(error, "[8]") && has(error, "[2]") && has(error, "optim_lbfgs_test.cpp")), error);
    BOOST_TEST(small.iterations() == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_closure_that_throws_changes_nothing) {
  const WholeProblem problem;
  optim::Lbfgs lbfgs(problem.parameters(), {.max_iterations = 5});
  (void)lbfgs.step(problem.closure());
  const Trace before = problem.values();
  const int64_t evaluations = lbfgs.evaluations();
  int calls = 0;
  BOOST_CHECK_THROW((void)lbfgs.step([&]() -> Variable {
    if (++calls == 3) throw std::runtime_error("not today");
    return problem.closure()();
  }),
                    std::runtime_error);
  BOOST_TEST(difference_of(problem.values(), before) == 0);
  BOOST_TEST(lbfgs.evaluations() == evaluations);
  BOOST_CHECK_EXCEPTION((void)lbfgs.step([&] { return problem.w; }), esp::Error,
                        says({"Lbfgs", "scalar", "[3, 2]", here()}));
  BOOST_CHECK_EXCEPTION((void)lbfgs.step([&] { return Variable(); }), esp::Error,
                        says({"Lbfgs", "undefined"}));
}

BOOST_AUTO_TEST_CASE(frozen_and_foreign_parameters_stay) {
  const WholeProblem problem;
  const Variable foreign = esp::parameter(esp::ones({3}));
  esp::set_trainable(problem.b, false);
  const Trace before = problem.values();
  optim::Lbfgs lbfgs({problem.w, problem.b, foreign});
  (void)lbfgs.step(problem.closure());
  BOOST_TEST(difference(problem.b.value(), before[1]) == 0);
  BOOST_TEST(difference(problem.w.value(), before[0]) > 0);
  BOOST_TEST(difference(foreign.value(), esp::ones({3})) == 0);
}

BOOST_AUTO_TEST_CASE(a_step_fulfils_the_conditions) {
  // Functions of one number, with a first step that is far too short or too long.
  const auto search = [](auto f, auto slope, double t) {
    const optim::LinePoint start{0, f(0.0), slope(0.0)};
    int count = 0;
    const optim::LinePoint found = optim::strong_wolfe(
        [&](double at) {
          ++count;
          return optim::LinePoint{at, f(at), slope(at)};
        },
        start, t, 1);
    BOOST_TEST(found.value <= start.value + 1e-4 * found.t * start.slope);
    BOOST_TEST(std::abs(found.slope) <= -0.9 * start.slope);
    BOOST_TEST(count <= 26);
  };
  for (const double t : {1e-4, 0.1, 1.0, 7.0, 300.0}) {
    search([](double x) { return (x - 3) * (x - 3); }, [](double x) { return 2 * (x - 3); }, t);
    search([](double x) { return -x / (x * x + 2); },
           [](double x) { return (x * x - 2) / ((x * x + 2) * (x * x + 2)); }, t);
    search([](double x) { return std::cos(x) - 0.1 * x; }, [](double x) { return -std::sin(x) - 0.1; }, t);
    search([](double x) { return std::exp(x) - 3 * x; }, [](double x) { return std::exp(x) - 3; }, t);
  }
}

BOOST_AUTO_TEST_CASE(options_that_make_no_sense) {
  const Variable p = esp::parameter(esp::ones({2}));
  BOOST_CHECK_EXCEPTION(optim::Lbfgs({p}, {.lr = -1}), esp::Error, says({"Lbfgs", "lr", here()}));
  BOOST_CHECK_EXCEPTION(optim::Lbfgs({p}, {.max_iterations = 0}), esp::Error,
                        says({"max_iterations", here()}));
  BOOST_CHECK_EXCEPTION(optim::Lbfgs({p}, {.history = 0}), esp::Error, says({"history", here()}));
  BOOST_CHECK_EXCEPTION(optim::Lbfgs(std::vector<Variable>{}), esp::Error, says({"Lbfgs", "no parameters"}));
  optim::Lbfgs lbfgs({p});
  BOOST_CHECK_EXCEPTION(lbfgs.set_learning_rate(NAN), esp::Error, says({"Lbfgs", "lr", here()}));
}

BOOST_AUTO_TEST_CASE(losses_that_lead_nowhere_are_refused) {
  const Variable p = esp::parameter(esp::tensor({1.0f, 2.0f}));
  optim::Lbfgs lbfgs({p});
  const auto refuses = [&](const optim::Lbfgs::Closure& closure, auto caught) {
    BOOST_CHECK_EXCEPTION(lbfgs.step(closure), decltype(caught), says({"Lbfgs", here()}));
    BOOST_TEST(difference(p.value(), esp::tensor({1.0f, 2.0f})) == 0);
    BOOST_TEST(lbfgs.iterations() == 0);
    BOOST_TEST(lbfgs.evaluations() == 0);
  };
  refuses([] { return Variable(esp::tensor(3.0f)); }, esp::Error(""));
  refuses([] { return esp::sum(esp::parameter(esp::ones({2}))); }, esp::Error(""));
  refuses([&] { return esp::sum(p) * float(NAN); }, esp::NumericError(""));
  refuses([&] { return esp::sum(p) / 0.0f; }, esp::NumericError(""));
  refuses([&] { return esp::sum(esp::sqrt(p - p)); }, esp::NumericError(""));  // its gradient is not finite
}

BOOST_AUTO_TEST_CASE(a_search_keeps_to_where_the_loss_is_finite) {
  // x - log(x), from where a whole step leads to negative numbers.
  for (const double start : {5.0, 0.1}) {
    const Variable x = esp::parameter(esp::tensor(start, esp::float64));
    optim::Lbfgs lbfgs({x}, {.lr = 100});
    for (int i = 0; i < 5; ++i) (void)lbfgs.step([&] { return x - esp::log(x); });
    BOOST_TEST(std::abs(x.item() - 1) < 1e-5);
  }
}

/// Its value and its gradient would be those of the first parameters for ever.
BOOST_AUTO_TEST_CASE(a_loss_that_is_not_written_anew) {
  const Variable p = esp::parameter(esp::tensor({1.0, 2.0}, esp::float64));
  optim::Lbfgs lbfgs({p});
  const Variable once = esp::sum(esp::square(p - 5.0));
  BOOST_CHECK_EXCEPTION(lbfgs.step([&] { return once; }), esp::Error, says({"write the loss anew", here()}));
  BOOST_TEST(difference(p.value(), esp::tensor({1.0, 2.0}, esp::float64)) == 0);
  const Variable older = esp::sum(esp::square(p));  // of the parameters before the step
  int calls = 0;
  const auto second = [&] { return ++calls > 1 ? older : esp::sum(esp::square(p - 5.0)); };
  BOOST_CHECK_EXCEPTION(lbfgs.step(second), esp::Error, says({"updated since", here()}));
  esp::data::Distributor feed({esp::tensor({{5.0, 5.0}}, esp::float64)}, {.batch_size = 1});
  const Variable fed = esp::sum(esp::square(p - esp::squeeze(feed.get_output_graphs()[0], 0)));
  BOOST_CHECK_EXCEPTION(lbfgs.step([&] { return fed; }), esp::Error, says({"write the loss anew", here()}));
  // Evaluated again, it is one of the present parameters.
  (void)lbfgs.step([&] {
    feed.reset();
    return fed.forward();
  });
  BOOST_TEST(difference(p.value(), esp::tensor({5.0, 5.0}, esp::float64)) < 1e-6);
}

BOOST_AUTO_TEST_SUITE_END()
