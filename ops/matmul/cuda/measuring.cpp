#include "espalier/ops/matmul/cuda/measuring.h"

#include "espalier/ops/matmul/tuning.h"

namespace espalier::cu {

namespace {
thread_local bool measuring = false;
}

MeasuringScope::MeasuringScope() : scope_(measuring, true) {}
bool MeasuringScope::lives() { return measuring; }
bool MeasuringScope::wanted() { return measuring && may_tune(); }

}  // namespace espalier::cu
