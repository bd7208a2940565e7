// Dense layers: values, the gradient of an intermediate value, and an update.
#include <espalier/espalier.h>

#include <iostream>
namespace esp = espalier;

int main() {
  const esp::Tensor x = esp::arange(4).reshape({2, 2});

  // A layer takes the width of its input at the first call. All weights are 1, so that results are easy to
  // check.
  esp::nn::Dense first(3, {.initializer = esp::nn::init::Constant(1)});
  esp::nn::Dense second(5, {.initializer = esp::nn::init::Constant(1)});
  esp::Variable h = first(x);
  esp::Variable y = second(h);
  std::cout << "x\n" << x << "\nh = first(x)\n" << h << "\ny = second(h)\n" << y << "\n";

  // backward() starts from the sum of y. Every Variable has a gradient, not only parameters.
  y.backward();
  std::cout << "the gradient of h\n" << y.gradient(h) << "\n";

  // update() takes a step of gradient descent for every parameter that y depends on.
  y.update(esp::optim::Sgd(0.1));
  for (const auto& [name, parameter] : first.parameters())
    std::cout << "first." << name << " after an update\n" << parameter << "\n";
  std::cout << "first(x), computed with it\n" << first(x) << "\n";
}
