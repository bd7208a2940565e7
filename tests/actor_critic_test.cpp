// An agent that learns from its own steps: Mnih and others, Asynchronous methods for deep reinforcement
// learning, 2016.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <functional>
#include <random>

#include "espalier/espalier.h"
#include "replica_programs.h"

namespace esp = espalier;
namespace nn = espalier::nn;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

constexpr int64_t cells = 5;

/// A corridor with a reward at its right end, which walking costs.
struct Agent : nn::Module {
  Variable logits(const Variable& states) { return policy(esp::tanh(body(states))); }
  /// Rows are the steps of some episodes.
  Variable loss(const Variable& states, const Variable& actions, const Variable& returns) {
    const Variable h = esp::tanh(body(states)), choices = esp::log_softmax(policy(h));
    const Variable value = esp::squeeze(critic(h), 1);
    const Variable advantage = esp::stop_gradient(returns - value),
                   centred = advantage - esp::mean(advantage);
    const Variable entropy = -esp::mean(esp::sum(esp::exp(choices) * choices, 1));
    return -esp::mean(esp::pick(choices, actions) * centred) + esp::mean(esp::square(returns - value)) * 0.5 -
           entropy * 0.01;
  }
  nn::Dense body = add("body", nn::Dense(cells, 8, {.dtype = esp::float64})),
            policy = add("policy", nn::Dense(8, 2, {.dtype = esp::float64})),
            critic = add("critic", nn::Dense(8, 1, {.dtype = esp::float64}));
};

struct Episodes {
  std::vector<int64_t> cells, actions;
  std::vector<double> returns;  ///< from each step on
  double total = 0;             ///< the mean reward of an episode
};

Episodes play(const std::function<Tensor(const Tensor&)>& probabilities, std::mt19937& random) {
  Episodes result;
  for (int episode = 0; episode < 4; ++episode) {
    std::vector<double> rewards;
    int64_t cell = cells / 2;
    while (rewards.size() < 12 && cell + 1 < cells) {
      const Tensor chances = probabilities(esp::one_hot(esp::tensor({cell}), cells, esp::float64).value());
      const bool right = random() * 0x1p-32 < chances.at<double>({0, 1});
      result.cells.push_back(cell);
      result.actions.push_back(right);
      cell = std::max(cell + (right ? 1 : -1), int64_t{0});
      rewards.push_back(cell + 1 == cells ? 1 : -0.1);
    }
    double sum = 0;
    for (size_t t = rewards.size(); t-- > 0; rewards[t] = sum) sum = rewards[t] + sum * 0.9;
    result.returns.insert(result.returns.end(), rewards.begin(), rewards.end());
    result.total += rewards[0] / 4;
  }
  return result;
}

/// The returns, losses and parameters of 25 rounds of episodes. No devices: eagerly.
Trace act(const std::vector<esp::Device>& devices) {
  esp::seed(12);
  std::mt19937 random(4);
  Agent agent;
  const optim::Adam adam({.lr = 0.03, .epsilon = 1e-6});
  const Variable cell = esp::placeholder("cell", {1, cells}, esp::float64);
  const esp::Executor chances = esp::softmax(agent.logits(cell)).get_executor({.mode = esp::Mode::inference});
  const esp::Executor learner =
      agent
          .loss(esp::placeholder("states", {1, cells}, esp::float64),
                esp::placeholder("actions", {1}, esp::int64), esp::placeholder("returns", {1}, esp::float64))
          .get_executor({.optimizer = adam, .devices = devices});
  Trace trace;
  for (int round = 0; round < 25; ++round) {
    const Episodes episodes = play(
        [&](const Tensor& state) {
          if (!devices.empty()) return chances.run({{"cell", state}});
          const esp::NoGrad no_gradients;
          return esp::softmax(agent.logits(state)).value();
        },
        random);
    const auto steps = static_cast<int64_t>(episodes.cells.size());
    const Tensor states =
                     esp::one_hot(esp::tensor_from(episodes.cells, {steps}), cells, esp::float64).value(),
                 actions = esp::tensor_from(episodes.actions, {steps}),
                 returns = esp::tensor_from(episodes.returns, {steps});
    trace.push_back(esp::tensor(episodes.total, esp::float64));
    if (devices.empty()) {
      const Variable loss = agent.loss(states, actions, returns);
      loss.update(adam);
      trace.push_back(loss.value());
    } else {
      trace.push_back(learner.run({{"states", states}, {"actions", actions}, {"returns", returns}}));
    }
  }
  for (const auto& [name, p] : agent.parameters()) trace.push_back(p.value().clone());
  return trace;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(actor_critic)

BOOST_AUTO_TEST_CASE(it_learns_alike_eagerly_in_a_plan_and_on_replicas) {
  const Trace eager = act({});
  double first = 0, last = 0;
  for (size_t round = 0; round < 5; ++round) {
    first += eager[2 * round].item();
    last += eager[2 * (24 - round)].item();
  }
  BOOST_TEST(last > first + 1);
  BOOST_TEST(difference_of(act(cpus(1)), eager) < 1e-9);
  BOOST_TEST(difference_of(act(cpus(2)), eager) < 1e-9);
}

BOOST_AUTO_TEST_SUITE_END()
