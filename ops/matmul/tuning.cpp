#include "espalier/ops/matmul/tuning.h"

namespace espalier {

namespace {
thread_local bool tune_now = true;
}  // namespace

bool may_tune() { return tune_now; }
TuneScope::TuneScope(bool tune) : before_(tune_now) { tune_now = tune; }
TuneScope::~TuneScope() { tune_now = before_; }

}  // namespace espalier
