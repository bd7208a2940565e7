// Programs whose losses contain gradients: the penalty of a critic, and steps of learning.
#include <boost/test/unit_test.hpp>

#include "espalier/espalier.h"
#include "training_task.h"

namespace esp = espalier;
namespace nn = espalier::nn;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

constexpr int64_t rows = 20, noise = 2;

nn::Sequential perceptron(int64_t in, int64_t out) {
  const nn::DenseOptions real{.dtype = esp::float64};
  return nn::Sequential{nn::Dense(in, 8, real), nn::Tanh(), nn::Dense(8, out, real)};
}

/// Wasserstein's distance of generated points from given ones, with the gradient penalty of Gulrajani and
/// others, Improved training of Wasserstein GANs, 2017.
struct Gan : nn::Module {
  Variable generated(const Variable& real) { return generator(esp::randn_like(real)); }
  Variable penalty(const Variable& real, const Variable& fake) {
    const Variable share = esp::rand_like(esp::slice(real, 1, 0, 1));
    const Variable between = real * share + fake * (1.0 - share);
    const Variable slope = critic(between).gradient(between);
    return esp::mean(esp::square(esp::sqrt(esp::sum(esp::square(slope), 1) + 1e-12) - 1.0)) * 10.0;
  }
  Variable critic_loss(const Variable& real) {
    const Variable fake = esp::stop_gradient(generated(real));
    return esp::mean(critic(fake)) - esp::mean(critic(real)) + penalty(real, fake);
  }
  Variable generator_loss(const Variable& real) { return -esp::mean(critic(generated(real))); }
  /// Both losses in one: the gradient of the critic's is reversed on its way to the generator.
  Variable operator()(const Variables& columns) {
    const Variable fake = generated(columns[0]), reversed = esp::stop_gradient(fake * 2.0) - fake;
    return esp::mean(critic(reversed)) - esp::mean(critic(columns[0])) +
           penalty(columns[0], esp::stop_gradient(fake));
  }
  Trace values() const {
    Trace trace;
    for (const auto& [name, p] : parameters()) trace.push_back(p.value().clone());
    return trace;
  }
  /// How far the mean of what is generated is from that of the data.
  double distance(const Tensor& real) {
    const Variable fake = generator(numbers({100, noise}, -1, 1, 3));
    return esp::sum(esp::abs(esp::mean(fake, 0) - esp::mean(real, 0))).item();
  }
  nn::Sequential generator = add("generator", perceptron(noise, 2)), critic = add("critic", perceptron(2, 1));
};

Tensor points() { return numbers({rows, 2}, 1, 2, 5); }

optim::Adam adam(double lr) { return optim::Adam({.lr = lr, .beta1 = 0.5, .epsilon = 1e-6}); }

struct Alternated {
  Trace trace;  ///< the losses of both in turn, and the parameters
  double before, after;
};

/// Two steps of the critic, one of the generator. No devices: eagerly.
Alternated alternate(const std::vector<esp::Device>& devices) {
  esp::seed(12);
  Gan gan;
  Alternated run{{}, gan.distance(points()), 0};
  esp::data::Distributor critics({points()}, {.batch_size = 8, .drop_remainder = true, .seed = 1}),
      generators({points()}, {.batch_size = 8, .seed = 2});
  const Variable critic_loss = gan.critic_loss(critics.get_output_graphs()[0]),
                 generator_loss = gan.generator_loss(generators.get_output_graphs()[0]);
  const optim::Optimizer critic_rule = adam(0.02), generator_rule = adam(0.01);
  if (devices.empty()) {
    for (int epoch = 0; epoch < 60; ++epoch, critics.reset(), generators.reset())
      for (int step = 0; step < 3; ++step) {
        const Variable& loss = step < 2 ? critic_loss : generator_loss;
        run.trace.push_back(loss.forward().value().clone());
        if (step < 2)
          loss.update(critic_rule, gan.critic.parameters());
        else
          loss.update(generator_rule, gan.generator.parameters());
      }
  } else {
    const esp::Executor critic = critic_loss.get_executor(
                            {.optimizer = optim::Groups({{gan.critic.parameters(), critic_rule}}),
                             .devices = devices}),
                        generator = generator_loss.get_executor(
                            {.optimizer = optim::Groups({{gan.generator.parameters(), generator_rule}}),
                             .devices = devices});
    for (int epoch = 0; epoch < 60; ++epoch, critics.reset(), generators.reset())
      for (int step = 0; step < 3; ++step)
        run.trace.push_back(esp::tensor((step < 2 ? critic : generator).step().loss, esp::float64));
  }
  for (const Tensor& value : gan.values()) run.trace.push_back(value);
  run.after = gan.distance(points());
  return run;
}

/// Lines of random slope and height, of which some points are given: Finn, Abbeel and Levine, Model-agnostic
/// meta-learning, 2017.
std::vector<Tensor> lines() {
  constexpr int64_t given = 5;
  const Tensor slope = numbers({rows, 1, 1}, 0.5, 2, 7), height = numbers({rows, 1, 1}, -1, 1, 8);
  std::vector<Tensor> columns;
  for (const uint64_t which : {9, 10}) {
    const Tensor x = numbers({rows, given, 1}, -1, 1, which);
    columns.push_back(x);
    columns.push_back((Variable(x) * slope + height).value());
  }
  return columns;
}

struct Maml : nn::Module {
  static Variable predict(const Variable& x, const Variables& p) {
    return esp::matmul(esp::tanh(esp::matmul(x, p[0]) + p[1]), p[2]) + p[3];
  }
  /// The parameters after two steps for the given points; the sum over tasks has each one's own gradient.
  static Variables adapted(Variables p, const Variable& x, const Variable& y) {
    for (int step = 0; step < 2; ++step) {
      const Variable loss = esp::sum(esp::mean(esp::square(predict(x, p) - y), {-2, -1}));
      Variables next;
      for (const Variable& each : p) next.push_back(each - 0.1 * loss.gradient(each));
      p = next;
    }
    return p;
  }
  Variable operator()(const Variables& columns) {
    const Variable zeros = esp::zeros_like(esp::slice(columns[0], 1, 0, 1));  // [rows, 1, 1]
    Variables own;
    for (const Variable& p : shared) own.push_back(p + zeros);
    return esp::mean_squared_error(predict(columns[2], adapted(own, columns[0], columns[1])), columns[3]);
  }
  Variable task_by_task(const std::vector<Tensor>& columns) {
    Variable loss;
    for (int64_t row = 0; row < rows; ++row) {
      Variables task;
      for (const Tensor& column : columns) task.push_back(column.slice(0, row, row + 1).reshape({-1, 1}));
      const Variable one =
          esp::mean_squared_error(predict(task[2], adapted(shared, task[0], task[1])), task[3]);
      loss = loss.defined() ? loss + one : one;
    }
    return loss / double(rows);
  }
  Variables shared{
      add_parameter("w", numbers({1, 6}, -1, 1, 1)), add_parameter("b", numbers({1, 6}, -1, 1, 2)),
      add_parameter("v", numbers({6, 1}, -1, 1, 3)), add_parameter("c", esp::zeros({1, 1}, esp::float64))};
};

}  // namespace

BOOST_AUTO_TEST_SUITE(second_order_programs)

BOOST_AUTO_TEST_CASE(gan_with_gradient_penalty_in_turns) {
  const Alternated eager = alternate({});
  BOOST_TEST(eager.after < 0.5 * eager.before);
  BOOST_TEST(difference_of(alternate(cpus(1)).trace, eager.trace) < 1e-9);
  BOOST_TEST(difference_of(alternate(cpus(2)).trace, eager.trace) < 1e-9);
}

BOOST_AUTO_TEST_CASE(gan_with_gradient_penalty_in_groups) {
  const TrainingTask<Gan> task{{points()},
                               [](const Gan& gan) -> optim::Optimizer {
                                 return optim::Groups({{gan.critic.parameters(), adam(0.02)},
                                                       {gan.generator.parameters(), adam(0.01)}});
                               },
                               8,
                               10};
  check_training(task, 0.9, 1e-9);
}

BOOST_AUTO_TEST_CASE(maml) {
  check_training<Maml>({lines(), [](const Maml&) { return optim::Adam({.lr = 0.02}); }}, 0.5);
}

BOOST_AUTO_TEST_CASE(maml_over_a_batch_is_maml_task_by_task) {
  Maml model;
  const std::vector<Tensor> columns = lines();
  const Variable batch = model({columns.begin(), columns.end()}), tasks = model.task_by_task(lines());
  BOOST_TEST(difference(batch.value(), tasks.value()) < 1e-12);
  for (const Variable& p : model.shared)
    BOOST_TEST(difference(batch.gradient(p).value(), tasks.gradient(p).value()) < 1e-12);
}

BOOST_AUTO_TEST_SUITE_END()
