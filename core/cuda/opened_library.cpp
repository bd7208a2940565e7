#include "espalier/core/cuda/opened_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "espalier/core/error.h"

namespace espalier::cu {

OpenedLibrary::OpenedLibrary(std::string_view name, const char* variable,
                             std::initializer_list<const char*> paths)
    : name_(name) {
  std::vector<const char*> candidates(paths);
  if (const char* named = std::getenv(variable)) candidates = {named};
  std::string tried;
  for (const char* path : candidates) {
    library_ = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library_) {
      path_ = path;
      return;
    }
    tried += fmt::format("\n  {}", dlerror());
  }
  throw UnsupportedError(fmt::format("{} cannot be opened; {} names it where the loader does not find it:{}",
                                     name, variable, tried));
}

void* OpenedLibrary::address_of(const char* symbol) const {
  void* const address = dlsym(library_, symbol);
  if (!address)
    throw UnsupportedError(fmt::format("{} is no {} that can be used: it has no {}", path_, name_, symbol));
  return address;
}

}  // namespace espalier::cu
