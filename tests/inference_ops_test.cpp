// Ops of a tree that is run for inference: what only gradients read is left out, unless the result is made of
// gradients.
#include <boost/test/unit_test.hpp>

#include "espalier/espalier.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

esp::Executor inference(const Variable& y) { return y.get_executor({.mode = esp::Mode::inference}); }

/// Memory of the values between the steps, of a tree for gradients and of one without.
template <class Net>
void check_memory(const Net& net, const Tensor& at) {
  const Variable x = esp::placeholder("x", at.shape(), at.dtype());
  const esp::Executor whole = inference(net(x));
  const esp::NoGrad no_grad;
  const esp::Executor without = inference(net(x));
  BOOST_TEST(without.plan().arena_bytes() > 0);
  BOOST_TEST(whole.plan().arena_bytes() == without.plan().arena_bytes());
  BOOST_TEST(difference(whole.run({{"x", at}}), net(Variable(at)).value()) < 1e-12);
}

/// Whether an inference of d sum(f(x)²) / dx has the value that the tree has.
template <class F>
void check_gradient_as_result(F&& f, const Tensor& at) {
  const Variable x = esp::variable(at);
  const Variable gradient = esp::sum(esp::square(f(x))).gradient(x);
  BOOST_TEST(difference(inference(gradient).run({}), gradient.value()) < 1e-9);
  BOOST_TEST(esp::max(esp::abs(gradient)).item() > 1e-6);
}

Tensor sequence() { return numbers({5, 4, 3}, -1, 1, 3); }

}  // namespace

BOOST_AUTO_TEST_SUITE(inference_ops)

BOOST_AUTO_TEST_CASE(recurrent_layers_keep_no_gates) {
  const Tensor x = numbers({40, 8, 3}, -1, 1, 3);
  const esp::nn::Lstm lstm(3, 16, {.dtype = esp::float64});
  const esp::nn::Gru gru(3, 16, {.dtype = esp::float64});
  check_memory([&](const Variable& v) { return lstm(v).outputs; }, x);
  check_memory([&](const Variable& v) { return gru(v).outputs; }, x);
  const esp::nn::LSTMCell cell(3, 16, {.dtype = esp::float64});
  check_memory([&](const Variable& v) { return cell(esp::squeeze(esp::slice(v, 0, 0, 1), 0)).h; }, x);
}

BOOST_AUTO_TEST_CASE(gradients_are_results_of_an_inference) {
  const esp::nn::Lstm lstm(3, 4, {.dtype = esp::float64});
  const esp::nn::Gru gru(3, 4, {.dtype = esp::float64});
  check_gradient_as_result([&](const Variable& x) { return lstm(x).outputs; }, sequence());
  check_gradient_as_result([&](const Variable& x) { return gru(x).outputs; }, sequence());
  const auto step = [](const std::vector<Variable>& h, const std::vector<Variable>& x) -> esp::ScanResult {
    const Variable next = esp::tanh(h[0] * 0.5 + x[0]);
    return {{next}, {next}};
  };
  check_gradient_as_result(
      [&](const Variable& x) {
        return esp::scan(step, {Variable(esp::zeros({4, 3}, esp::float64))}, {x}).outputs[0];
      },
      sequence());
}

BOOST_AUTO_TEST_SUITE_END()
