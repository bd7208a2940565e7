#include "espalier/ops/matmul/tuning.h"

#include <atomic>

namespace espalier {

namespace {
thread_local bool tune_now = true;
std::atomic<bool> once{false};
}  // namespace

bool may_tune() { return tune_now; }
TuneScope::TuneScope(bool tune) : scope_(tune_now, tune) {}

bool runs_once() { return once.load(std::memory_order_relaxed); }
void set_runs_once(bool now) { once.store(now, std::memory_order_relaxed); }

}  // namespace espalier
