// Loads the plug-in: host <plugin.so>. It uses Espalier itself, so there may be two copies in this process.
#include <dlfcn.h>
#include <espalier/espalier.h>

#include <iostream>

namespace esp = espalier;

template <class F>
static F* find(void* plugin, const char* name) {
  return reinterpret_cast<F*>(dlsym(plugin, name));
}

int main(int, char** arguments) {
  const esp::Variable a = esp::variable({2.0f});
  if ((a * a).gradient(a).item() != 4.0f) return 1;

  void* plugin = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
  if (!plugin) {
    std::cerr << dlerror() << "\n";
    return 2;
  }
  if (find<double(double)>(plugin, "slope_of_square")(3) != 6) return 3;
  if (!find<bool()>(plugin, "catches_wrong_shapes")()) return 4;
  try {
    find<void()>(plugin, "throws")();
    return 5;
  } catch (const esp::ShapeError& error) {
    std::cout << "from the plug-in: " << error.what() << "\n";
  }
  if ((a * a * a).gradient(a).item() != 12.0f) return 6;
}
