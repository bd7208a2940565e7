#include "espalier/core/defaults.h"

#include <fmt/format.h>

#include <mutex>

#include "espalier/core/error.h"

namespace espalier {

namespace {

struct Shared {
  std::mutex mutex;
  Defaults value;
};

/// Never destroyed, since threads may outlive main().
Shared& shared() {
  static auto* const instance = new Shared;
  return *instance;
}

}  // namespace

void set_defaults(const Defaults& defaults, std::source_location where) {
  located(where, [&] {
    if (defaults.cache && !defaults.cache->empty() && !defaults.cache->is_absolute())
      throw Error(fmt::format("set_defaults: the cache folder '{}' is not an absolute path",
                              defaults.cache->string()));
  });
  Defaults copy = defaults;
  const std::lock_guard lock(shared().mutex);
  std::swap(shared().value, copy);
}

Defaults defaults() {
  const std::lock_guard lock(shared().mutex);
  return shared().value;
}

}  // namespace espalier
