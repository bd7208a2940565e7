#include "espalier/ops/reductions/reduce.h"

namespace espalier {

void reduce_sum(const Tensor& in, const Layout& seen, Tensor& out) {
  visit(in.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (Numbers::accepts<T>) reduce_sum_of<T>(in, seen, out);
  });
}

}  // namespace espalier
