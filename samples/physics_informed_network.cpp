// Solves the heat equation u_t = u_xx / 10 by a network that is trained on the equation alone.
// Raissi, Perdikaris and Karniadakis, Physics-informed neural networks, 2019.
#include <espalier/espalier.h>

#include <cmath>
#include <iostream>
#include <numbers>
namespace esp = espalier;

constexpr double kDiffusivity = 0.1;

/// The solution for u(x, 0) = sin(πx) and ends that are held at 0.
esp::Tensor exact(const esp::Tensor& x, const esp::Tensor& t) {
  constexpr double pi = std::numbers::pi;
  return (esp::exp(t * (-kDiffusivity * pi * pi)) * esp::sin(x * pi)).value();
}

int main() {
  esp::seed(1);
  esp::nn::Sequential net{esp::nn::Dense(2, 32), esp::nn::Tanh(), esp::nn::Dense(32, 32), esp::nn::Tanh(),
                          esp::nn::Dense(32, 1)};
  // The factor x(1 − x) keeps both ends at 0, so the loss need not.
  auto u = [&](const esp::Variable& x, const esp::Variable& t) {
    return net(esp::concat({x, t}, 1)) * x * (1 - x);
  };

  // The points in which the equation shall hold, and those of the initial temperature.
  const esp::Variable x = esp::variable(esp::rand({512, 1})), t = esp::variable(esp::rand({512, 1}));
  const esp::Tensor start = esp::linspace(0, 1, 64).reshape({-1, 1}), zero = esp::zeros({64, 1});

  // A row of u depends on its own row of x and t alone, so the gradient of the sum has the derivative of
  // each row. Derivatives are part of the tree, and are differentiated once more for the training.
  auto loss = [&] {
    const esp::Variable temperature = u(x, t);
    const esp::Variable u_t = temperature.gradient(t);
    const esp::Variable u_xx = temperature.gradient(x).gradient(x);
    const esp::Variable equation = esp::mean(esp::square(u_t - kDiffusivity * u_xx));
    return equation + 10 * esp::mean_squared_error(u(start, zero), exact(start, zero));
  };

  // Adam comes near, by an executor; then L-BFGS, which needs the loss as a function, comes close.
  auto executor = loss().get_executor({.optimizer = esp::optim::Adam({.lr = 5e-3})});
  executor.execute({.epochs = 500, .progress = false});  // a tree without a feed: one step in an epoch
  std::cout << "loss " << loss().item() << " after Adam, ";
  esp::optim::Lbfgs lbfgs(net.parameters());
  for (int step = 0; step < 10; ++step) lbfgs.step(loss);
  std::cout << loss().item() << " after L-BFGS\n";

  double largest = 0;
  const esp::Tensor points = esp::linspace(0, 1, 21).reshape({-1, 1});
  for (const double time : {0.0, 0.25, 0.5, 1.0}) {
    const esp::Tensor now = esp::full({21, 1}, time);
    const double error = esp::max(esp::abs(u(points, now) - exact(points, now))).item();
    std::cout << "t = " << time << ": u(0.5) = " << u(esp::tensor({{0.5}}), esp::tensor({{time}})).item()
              << ", largest error " << error << "\n";
    largest = std::max(largest, error);
  }
  return largest < 0.01 ? 0 : 1;
}
