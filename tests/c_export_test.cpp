// Executor::export_c: networks as C code compute what their executors compute, forward and after 100 steps.
#include <boost/test/unit_test.hpp>

#include "c_module.h"
#include "espalier/espalier.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

constexpr double tolerance = 1e-5;
constexpr int steps = 100;

Tensor values(const esp::Shape& shape, uint64_t which) {
  return numbers(shape, -1, 1, which).to(esp::float32);
}
Tensor classes(const esp::Shape& shape, int64_t count, uint64_t which) {
  Tensor result(shape, esp::int64);
  uint64_t state = 88172645463325252u + 977 * which;
  for (int64_t& x : result.span<int64_t>()) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    x = static_cast<int64_t>(state % static_cast<uint64_t>(count));
  }
  return result;
}

/// A network with placeholders, and values for them by the number of a step.
struct Network {
  Variable output, loss;
  esp::optim::Optimizer optimizer;
  std::function<esp::Feeds(int step)> inference, training;
};

const void* address(const Tensor& tensor) { return tensor.address(); }

/// Calls an exported function with the addresses of inputs and of `results`, in this order.
int call(void* function, const esp::Feeds& feeds, std::vector<void*> results) {
  std::vector<void*> all;
  for (const auto& [name, value] : feeds) all.push_back(const_cast<void*>(address(value)));
  all.insert(all.end(), results.begin(), results.end());
  using P = void*;
  switch (all.size()) {
    case 2: return reinterpret_cast<int (*)(P, P)>(function)(all[0], all[1]);
    case 3: return reinterpret_cast<int (*)(P, P, P)>(function)(all[0], all[1], all[2]);
    case 4: return reinterpret_cast<int (*)(P, P, P, P)>(function)(all[0], all[1], all[2], all[3]);
    default: BOOST_FAIL("no such call"); return -1;
  }
}
void* entry(const CModule& module, const std::string& name) {
  return reinterpret_cast<void*>(module.function<void()>(name));
}

void check_network(const Network& network) {
  const TemporaryFolder folder;
  const auto trainer =
      network.loss.get_executor({.mode = esp::Mode::training, .optimizer = network.optimizer});
  // The random numbers of the first step are those that come next when the code is written.
  (void)trainer.export_c(folder / "net.c", {.predict = network.output});
  const CModule code(folder / "net.c");
  code.function<void()>("net_init")();
  const auto check_forward = [&](double most) {
    const auto feeds = network.inference(1000);
    const Tensor expected = network.output.get_executor({.mode = esp::Mode::inference}).run(feeds);
    Tensor result(expected.shape());
    BOOST_TEST(call(entry(code, "net_run"), feeds, {result.address()}) == 0);
    BOOST_TEST(difference(result, expected) < most);
  };
  check_forward(tolerance);
  double largest = 0;
  for (int step = 0; step < steps; ++step) {
    const auto feeds = network.training(step);
    const double expected = trainer.run(feeds).item();
    float loss = 0;
    BOOST_REQUIRE(call(entry(code, "net_step"), feeds, {&loss}) == 0);
    largest = std::max(largest, std::abs(loss - expected) / (1 + std::abs(expected)));
  }
  BOOST_TEST(largest < tolerance);
  check_forward(tolerance);
}

Network mlp() {
  const Variable x = esp::placeholder("x", {4, 16}), y = esp::placeholder("y", {4}, esp::int64);
  const esp::nn::Sequential net{esp::nn::Dense(24), esp::nn::Relu(), esp::nn::Dropout(0.25),
                                esp::nn::Dense(10)};
  const Variable output = net(x);
  return {output, esp::nn::SoftmaxCrossEntropy()(output, y), esp::optim::Adam({.lr = 1e-3}),
          [](int i) {
            return esp::Feeds{{"x", values({4, 16}, i)}};
          },
          [](int i) {
            return esp::Feeds{{"x", values({4, 16}, i)}, {"y", classes({4}, 10, i)}};
          }};
}

Network convolutional() {
  const Variable x = esp::placeholder("x", {3, 2, 8, 8}), y = esp::placeholder("y", {3}, esp::int64);
  const esp::nn::Sequential net{esp::nn::Conv2d(4, {.kernel = 3, .padding = 1}),
                                esp::nn::BatchNorm(),
                                esp::nn::Relu(),
                                esp::nn::MaxPool2d({.kernel = 2}),
                                esp::nn::Conv2d(6, {.kernel = 3, .stride = 2, .padding = 1, .groups = 2}),
                                esp::nn::Tanh(),
                                esp::nn::AvgPool2d({.kernel = 2}),
                                esp::nn::Lambda([](const Variable& v) { return esp::flatten(v, 1); }),
                                esp::nn::Dense(5)};
  const Variable output = net(x);
  return {output, esp::nn::SoftmaxCrossEntropy()(output, y), esp::optim::Sgd({.lr = 1e-2, .momentum = 0.9}),
          [](int i) {
            return esp::Feeds{{"x", values({3, 2, 8, 8}, i)}};
          },
          [](int i) {
            return esp::Feeds{{"x", values({3, 2, 8, 8}, i)}, {"y", classes({3}, 5, i)}};
          }};
}

Network lstm_step() {
  const Variable x = esp::placeholder("x", {2, 5}), h = esp::placeholder("h", {2, 6}),
                 c = esp::placeholder("c", {2, 6});
  const esp::nn::LSTMCell cell(5, 6);
  const auto [next_h, next_c] = cell(x, esp::nn::LSTMState{h, c});
  const Variable output = esp::concat(std::vector<Variable>{next_h, next_c}, 1);
  const auto feeds = [](int i) {
    return esp::Feeds{{"x", values({2, 5}, i)}, {"h", values({2, 6}, i + 1)}, {"c", values({2, 6}, i + 2)}};
  };
  return {output, esp::mean(esp::square(next_h - 0.5)) + esp::mean(esp::square(next_c)),
          esp::optim::RmsProp({.lr = 1e-3}), feeds, feeds};
}

Network transformer() {
  const Variable tokens = esp::placeholder("tokens", {2, 6}, esp::int64),
                 y = esp::placeholder("y", {2, 6}, esp::int64);
  const esp::nn::Embedding embedding(11, 8);
  const esp::nn::LayerNorm first, second;
  const esp::nn::Dense q(8), k(8), v(8), o(8), up(16), down(8), head(11);
  Variable x = embedding(tokens);
  const Variable z = first(x);
  const Variable weights = esp::softmax(esp::matmul(q(z), esp::transpose(k(z))) * 0.35, -1);
  x = x + o(esp::matmul(weights, v(z)));
  x = x + down(esp::gelu(up(second(x))));
  const Variable output = head(x);
  return {output, esp::nn::SoftmaxCrossEntropy()(output, y), esp::optim::AdamW({.lr = 1e-3}),
          [](int i) {
            return esp::Feeds{{"tokens", classes({2, 6}, 11, i)}};
          },
          [](int i) {
            return esp::Feeds{{"tokens", classes({2, 6}, 11, i)}, {"y", classes({2, 6}, 11, i + 7)}};
          }};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(c_export)

BOOST_AUTO_TEST_CASE(a_perceptron_with_dropout_and_adam_learns_in_c) {
  esp::seed(3);
  check_network(mlp());
}

BOOST_AUTO_TEST_CASE(a_convolutional_network_with_batch_statistics_and_pooling_learns_in_c) {
  esp::seed(4);
  check_network(convolutional());
}

BOOST_AUTO_TEST_CASE(a_step_of_an_lstm_learns_in_c) {
  esp::seed(5);
  check_network(lstm_step());
}

BOOST_AUTO_TEST_CASE(a_transformer_learns_in_c) {
  esp::seed(6);
  check_network(transformer());
}

BOOST_AUTO_TEST_SUITE_END()
