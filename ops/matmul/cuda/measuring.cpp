#include "espalier/ops/matmul/cuda/measuring.h"

#include "espalier/ops/matmul/tuning.h"

namespace espalier::cu {

namespace {
thread_local bool measuring = false;
}

MeasuringScope::MeasuringScope() : before_(measuring) { measuring = true; }
MeasuringScope::~MeasuringScope() { measuring = before_; }
bool MeasuringScope::lives() { return measuring; }
bool MeasuringScope::wanted() { return measuring && may_tune(); }

}  // namespace espalier::cu
