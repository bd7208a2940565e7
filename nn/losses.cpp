#include "espalier/nn/losses.h"

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/losses/loss_terms.h"

namespace espalier::nn {

Variable ConstantLoss::operator()(const Variable& x, Where where) const {
  CallScope scope(where);
  return located(where, [&] {
    (void)x.shape();  // an undefined Variable throws here
    return detail::reduced(x, {}, reduction_);
  });
}

}  // namespace espalier::nn
