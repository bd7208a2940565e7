// An external program: it computes, derives from the library's classes and catches its exceptions.
#include <espalier/espalier.h>
#include <iostream>
namespace esp = espalier;

struct Net : esp::nn::Module {
  esp::Variable operator()(const esp::Variable& x) { return out(x); }
  esp::nn::Dense out = add("out", esp::nn::Dense(2));
};

int main() {
  esp::Variable a = esp::variable({3.0f});
  if ((a * a).gradient(a).item() != 6.0f) return 1;
  Net net;
  if (net(esp::zeros({4, 5})).shape() != esp::Shape({4, 2})) return 2;
  try {
    net(esp::zeros({4, 6}));
    return 3;
  } catch (const esp::ShapeError& error) {
    std::cout << error.what() << "\n";
  }
}
