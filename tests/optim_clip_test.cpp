// Gradient clipping, against plain loops.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adagrad.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/rmsprop.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;

namespace {

constexpr int steps = 5;
constexpr double lr = 0.1;

/// Two parameters of different shapes, with the loss Σ a·p² over all elements, so that g = 2ap.
const std::vector<double> a{0.5, 3.0, 1.0, 0.1, 2.0, 0.25}, start{1.0, -2.0, 0.5, 3.0, -0.7, 4.0};

struct Model {
  esp::Variable p, q;
  explicit Model(esp::DType first, esp::DType second) {
    p = esp::parameter(part(start, 0, 2).to(first), "p");
    q = esp::parameter(part(start, 2, 6).to(second), "q");
  }
  esp::Variable loss() const {
    const esp::Variable of_p = esp::sum(part(a, 0, 2).to(p.dtype()) * esp::square(p)),
                        of_q = esp::sum(part(a, 2, 6).to(q.dtype()) * esp::square(q));
    return esp::cast(of_p, esp::float64) + esp::cast(of_q, esp::float64);
  }
  static esp::Tensor part(const std::vector<double>& all, size_t begin, size_t end) {
    return esp::tensor_from(std::span<const double>(all).subspan(begin, end - begin),
                            {static_cast<int64_t>(end - begin)});
  }
  double error(const std::vector<double>& wanted) const {
    return std::max(difference(part(wanted, 0, 2), p.value()), difference(part(wanted, 2, 6), q.value()));
  }
};

std::vector<double> by_loops(double norm_limit, double value_limit) {
  std::vector<double> p = start, g(p.size());
  for (int t = 0; t < steps; ++t) {
    double squares = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      g[i] = 2 * a[i] * p[i];
      if (value_limit > 0) g[i] = std::clamp(g[i], -value_limit, value_limit);
      squares += g[i] * g[i];
    }
    const double scale = norm_limit > 0 ? std::min(1.0, norm_limit / (std::sqrt(squares) + 1e-6)) : 1;
    for (size_t i = 0; i < p.size(); ++i) p[i] -= lr * scale * g[i];
  }
  return p;
}

struct Case {
  double norm, value;
};
// The norm starts at about 12.7 and falls; the largest element at 12.
const Case cases[] = {{0, 0}, {1.5, 0}, {0, 0.75}, {2, 3}, {1e6, 1e6}, {10, 0}};

}  // namespace

BOOST_AUTO_TEST_SUITE(optim_clip)

BOOST_AUTO_TEST_CASE(clipping_agrees_with_plain_loops) {
  for (const Case& c : cases)
    for (const auto& [first, second] :
         {std::pair(esp::float64, esp::float64), std::pair(esp::float32, esp::float32),
          std::pair(esp::float32, esp::float64)})
      BOOST_TEST_CONTEXT("norm " << c.norm << " value " << c.value << " of " << esp::name(first) << " and "
                                 << esp::name(second)) {
        const double tolerance = first == esp::float64 ? 1e-13 : 1e-5;
        const std::vector<double> wanted = by_loops(c.norm, c.value);
        const optim::Sgd sgd({.lr = lr, .clip_norm = c.norm, .clip_value = c.value});

        const Model eager(first, second);
        for (int t = 0; t < steps; ++t) eager.loss().update(sgd);
        BOOST_TEST(eager.error(wanted) < tolerance);

        const Model frozen(first, second);
        frozen.loss()
            .get_executor({.mode = esp::Mode::training, .optimizer = sgd})
            .execute({.epochs = steps, .progress = false});
        BOOST_TEST(frozen.error(wanted) < tolerance);
      }
}

BOOST_AUTO_TEST_CASE(every_optimizer_clips) {
  const auto after_a_step = [](const optim::Optimizer& optimizer, double gradient) {
    const esp::Variable p = esp::parameter(esp::tensor(1.0, esp::float64));
    (p * gradient).update(optimizer);
    return p.item();
  };
  const auto clips = [&](const auto& make) {
    const optim::Optimizer by_norm = make(0.25, 0.0), by_value = make(0.0, 0.25), free = make(0.0, 0.0);
    BOOST_TEST_CONTEXT(free.name()) {
      const double wanted = after_a_step(make(0.0, 0.0), 0.25);
      BOOST_TEST(after_a_step(by_value, 8) == wanted);
      BOOST_TEST(after_a_step(by_norm, 8) == wanted, boost::test_tools::tolerance(1e-6));
      BOOST_TEST(after_a_step(free, 8) != wanted);
    }
  };
  // A large epsilon, so that results depend on the size of gradients.
  clips([](double n, double v) { return optim::Sgd({.clip_norm = n, .clip_value = v}); });
  clips([](double n, double v) { return optim::Adam({.epsilon = 1, .clip_norm = n, .clip_value = v}); });
  clips([](double n, double v) { return optim::AdamW({.epsilon = 1, .clip_norm = n, .clip_value = v}); });
  clips([](double n, double v) { return optim::Adagrad({.epsilon = 1, .clip_norm = n, .clip_value = v}); });
  clips([](double n, double v) { return optim::RmsProp({.epsilon = 1, .clip_norm = n, .clip_value = v}); });
}

// As in PyTorch, the term of weight decay is not clipped.
BOOST_AUTO_TEST_CASE(decay_comes_after_clipping) {
  const esp::Variable p = esp::parameter(esp::tensor(10.0, esp::float64));
  (p * 5.0).update(optim::Sgd({.lr = 1, .weight_decay = 0.5, .clip_value = 1}));
  BOOST_TEST(p.item() == 10 - (1 + 0.5 * 10));
}

BOOST_AUTO_TEST_CASE(a_gradient_that_is_not_finite_stays_so) {
  for (const double bad : {double{NAN}, double{INFINITY}}) {
    const esp::Variable p = esp::parameter(esp::tensor(1.0, esp::float64)),
                        q = esp::parameter(esp::tensor(1.0, esp::float64));
    (p * bad + q).update(optim::Sgd({.lr = 1, .clip_norm = 1}));
    BOOST_TEST(std::isnan(p.item()));
  }
}

BOOST_AUTO_TEST_CASE(a_gradient_of_zero_stays_zero) {
  const esp::Variable p = esp::parameter(esp::tensor(1.0, esp::float64));
  (p * 0.0).update(optim::Sgd({.lr = 1, .clip_norm = 0.5}));
  BOOST_TEST(p.item() == 1);
}

BOOST_AUTO_TEST_CASE(limits_that_make_no_sense) {
  BOOST_CHECK_EXCEPTION(optim::Sgd({.clip_norm = -1}), esp::Error, says({"Sgd", "clip_norm", "-1", here()}));
  BOOST_CHECK_EXCEPTION(optim::Adam({.clip_value = NAN}), esp::Error, says({"Adam", "clip_value", here()}));
  BOOST_CHECK_THROW(optim::Adagrad({.clip_norm = INFINITY}), esp::Error);
}

BOOST_AUTO_TEST_SUITE_END()
