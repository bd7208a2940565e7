#include "espalier/ops/functions/winograd.h"

#include <atomic>

namespace espalier {

namespace {
std::atomic<bool> on{true};
}  // namespace

void set_winograd(bool use) { on.store(use, std::memory_order_relaxed); }
bool uses_winograd() { return on.load(std::memory_order_relaxed); }

}  // namespace espalier
