// Losses compare shapes in each batch: rows and open axes have other sizes there than in the tree.
#include <boost/test/unit_test.hpp>

#include <functional>
#include <string>

#include "espalier/core/error.h"
#include "espalier/espalier.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

struct Loss {
  std::string name;
  std::function<Variable(const Variable&, const Variable&)> of;
};

const std::vector<Loss>& pairs() {
  static const std::vector<Loss> all{
      {"mean_squared_error", [](auto& x, auto& t) { return esp::mean_squared_error(x, t); }},
      {"mean_absolute_error", [](auto& x, auto& t) { return esp::mean_absolute_error(x, t); }},
      {"huber_loss", [](auto& x, auto& t) { return esp::huber_loss(x, t); }},
      {"binary_cross_entropy_with_logits",
       [](auto& x, auto& t) { return esp::binary_cross_entropy_with_logits(x, t); }},
      {"kl_div", [](auto& x, auto& t) { return esp::kl_div(x, t); }},
      {"softmax_cross_entropy",
       [](auto& x, auto& t) { return esp::softmax_cross_entropy(x, esp::softmax(t)); }},
      {"triplet_margin_loss", [](auto& x, auto& t) { return esp::triplet_margin_loss(x, t, x * 2); }},
      {"triplet_margin_loss", [](auto& x, auto& t) { return esp::triplet_margin_loss(x, x * 2, t); }},
      {"margin_ranking_loss", [](auto& x, auto& t) { return esp::margin_ranking_loss(x, x * 2, t); }},
      {"cosine_embedding_loss", [](auto& x, auto& t) { return esp::cosine_embedding_loss(x, t, 1.0); }},
  };
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(checked_targets)

BOOST_AUTO_TEST_CASE(operands_that_a_batch_gives_other_sizes) {
  const esp::Tensor x = esp::randn({4, 3}), t = esp::rand({4, 3});
  for (const Loss& loss : pairs())
    for (const esp::Shape& shape : {esp::Shape{-1, -1}, {-1, 3}, {4, 3}}) {
      const Variable a = esp::placeholder("x", shape), b = esp::placeholder("t", shape);
      const Variable root = loss.of(a, b);
      for (const esp::Mode mode : {esp::Mode::inference, esp::Mode::training}) {
        const Variable w = esp::parameter(esp::tensor(1.0f));
        const Variable trained = loss.of(a * w, b);
        const esp::Executor executor =
            mode == esp::Mode::inference
                ? root.get_executor({.mode = mode})
                : trained.get_executor({.mode = mode, .optimizer = esp::optim::Sgd(0.0)});
        BOOST_TEST(std::abs(executor.run({{"x", x}, {"t", t}}).item() - loss.of(x, t).item()) < 1e-5,
                   loss.name);
        BOOST_CHECK_EXCEPTION(executor.run({{"x", x}, {"t", t.slice(0, 0, 1)}}), esp::ShapeError,
                              says({loss.name + ":", "[4, 3]", "[1, 3]", "checked_target_test.cpp"}));
        BOOST_CHECK_EXCEPTION(executor.run({{"x", x.slice(0, 0, 1)}, {"t", t}}), esp::ShapeError,
                              says({loss.name + ":", "[4, 3]", "[1, 3]"}));
      }
    }
}

BOOST_AUTO_TEST_CASE(labels_of_other_rows) {
  const Variable x = esp::placeholder("x", {-1, 5}), y = esp::placeholder("y", {-1}, esp::int64);
  const auto refuses = [&](const Variable& root, const std::string& function) {
    const esp::Executor executor = root.get_executor({.mode = esp::Mode::inference});
    const esp::Tensor logits = esp::randn({4, 5});
    (void)executor.run({{"x", logits}, {"y", esp::zeros({4}, esp::int64)}});
    for (const int64_t rows : {1, 3})
      BOOST_CHECK_EXCEPTION(executor.run({{"x", logits}, {"y", esp::zeros({rows}, esp::int64)}}),
                            esp::ShapeError,
                            says({function + ":", "labels of shape [" + std::to_string(rows) + "]", "[4, 5]",
                                  "checked_target_test.cpp"}));
  };
  refuses(esp::softmax_cross_entropy(x, y), "softmax_cross_entropy");
  refuses(esp::nll_loss(esp::log_softmax(x), y), "nll_loss");
  refuses(esp::accuracy(x, y), "accuracy");
  refuses(esp::top_k_accuracy(x, y, 2), "top_k_accuracy");
}

/// The check is no kernel of a plan.
BOOST_AUTO_TEST_CASE(checks_cost_nothing_in_a_plan) {
  const Variable x = esp::placeholder("x", {-1, 3}), t = esp::placeholder("t", {-1, 3});
  const esp::Executor executor = esp::mean_squared_error(x, t).get_executor({.mode = esp::Mode::inference});
  (void)executor.run({{"x", esp::ones({2, 3})}, {"t", esp::zeros({2, 3})}});
  BOOST_TEST(executor.plan().str().find(" checked_target(") == std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
