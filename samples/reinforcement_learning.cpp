// Balances a pole on a cart by policy gradients: Williams, Simple statistical gradient-following algorithms
// for connectionist reinforcement learning, 1992, with the mean return of a time step as the baseline.
#include <espalier/espalier.h>

#include <cmath>
#include <iostream>
#include <vector>
namespace esp = espalier;

constexpr int kCarts = 32, kSteps = 200;

/// Many carts at once. Barto, Sutton and Anderson, Neuronlike adaptive elements, 1983: a force of 10 N to the
/// left or right, a time step of 0.02 s, a cart of 1 kg and a pole of 0.1 kg and 1 m.
struct Carts {
  std::vector<float> state = std::vector<float>(4 * kCarts);  // place, speed, angle, angular speed of each
  std::vector<bool> fallen = std::vector<bool>(kCarts);

  Carts() {
    const esp::Tensor start = (esp::rand({4 * kCarts}) * 0.1 - 0.05).value();
    state.assign(start.span<float>().begin(), start.span<float>().end());
  }
  void push(size_t cart, bool right) {
    float &x = state[4 * cart], &v = state[4 * cart + 1], &angle = state[4 * cart + 2],
          &w = state[4 * cart + 3];
    const float sine = std::sin(angle), cosine = std::cos(angle);
    const float force = ((right ? 10.0f : -10.0f) + 0.05f * w * w * sine) / 1.1f;
    const float turn = (9.8f * sine - cosine * force) / (0.5f * (4.0f / 3 - 0.1f * cosine * cosine / 1.1f));
    const float push = force - 0.05f * turn * cosine / 1.1f;
    x += 0.02f * v, v += 0.02f * push, angle += 0.02f * w, w += 0.02f * turn;
    if (std::abs(x) > 2.4f || std::abs(angle) > 0.2095f) fallen[cart] = true;
  }
};

int main() {
  esp::seed(1);
  esp::nn::Sequential policy{esp::nn::Dense(4, 32), esp::nn::Tanh(), esp::nn::Dense(32, 2)};
  const esp::optim::Adam optimizer({.lr = 1e-2});

  double mean_length = 0;
  for (int round = 1; round <= 60; ++round) {
    Carts carts;
    std::vector<float> states, advantages;
    std::vector<int64_t> actions;
    std::vector<size_t> cart_of, time_of;
    std::vector<int> length(kCarts);
    for (size_t time = 0; time < kSteps; ++time) {
      const esp::NoGrad no_grad;
      const esp::Tensor now = esp::tensor_from(carts.state, {kCarts, 4});
      const esp::Tensor chosen = esp::categorical(policy(now)).value();
      for (size_t cart = 0; cart < kCarts; ++cart) {
        if (carts.fallen[cart]) continue;
        states.insert(states.end(), &carts.state[4 * cart], &carts.state[4 * cart] + 4);
        actions.push_back(chosen.span<int64_t>()[cart]);
        cart_of.push_back(cart), time_of.push_back(time);
        carts.push(cart, actions.back() == 1);
        ++length[cart];
      }
    }
    // The return from a time step on is the number of steps that the pole stays up, discounted. What counts
    // is by how much it is longer than that of the other carts at that time.
    auto value = [&](size_t cart, size_t time) {
      const auto left = std::max(0, length[cart] - static_cast<int>(time));
      return static_cast<float>((1 - std::pow(0.98, left)) / (1 - 0.98));
    };
    for (size_t i = 0; i < actions.size(); ++i) {
      float baseline = 0;
      for (size_t cart = 0; cart < kCarts; ++cart) baseline += value(cart, time_of[i]) / kCarts;
      advantages.push_back((value(cart_of[i], time_of[i]) - baseline) / 10);
    }

    // Each round has another number of steps, so a tree is written anew: eagerly.
    const auto count = static_cast<int64_t>(actions.size());
    const esp::Variable log_probability = esp::pick(
        esp::log_softmax(policy(esp::tensor_from(states, {count, 4}))), esp::tensor_from(actions, {count}));
    const esp::Variable loss = -esp::mean(log_probability * esp::tensor_from(advantages, {count}));
    loss.backward().update(optimizer);

    mean_length = static_cast<double>(count) / kCarts;
    if (round % 10 == 0)
      std::cout << "round " << round << ": the pole stays up for " << mean_length << " of 200 steps\n";
  }
  return mean_length > 180 ? 0 : 1;
}
