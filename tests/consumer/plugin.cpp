// A shared object that uses Espalier internally and exports only these functions.
#include <espalier/espalier.h>

#include <string>

namespace esp = espalier;

namespace {

struct Net : esp::nn::Module {
  esp::Variable operator()(const esp::Variable& x) { return out(x); }
  esp::nn::Dense out = add("out", esp::nn::Dense(2));
};

}  // namespace

extern "C" {

[[gnu::visibility("default")]] double slope_of_square(double x) {
  const esp::Variable a = esp::variable({static_cast<float>(x)});
  return (a * a).gradient(a).item();
}

// Catches an exception of the library by its class.
[[gnu::visibility("default")]] bool catches_wrong_shapes() {
  try {
    Net net;
    net(esp::zeros({4, 5}));
    net(esp::zeros({4, 6}));
  } catch (const esp::ShapeError& error) {
    return std::string(error.what()).find("plugin.cpp") != std::string::npos;
  }
  return false;
}

[[gnu::visibility("default")]] void throws() { esp::zeros({4, 5}) + esp::zeros({4, 6}); }
}
