#include <algorithm>

#include "espalier/ops/reduce.h"

namespace espalier {

void reduce_sum(const Tensor& in, const Layout& seen, Tensor& out) {
  visit(in.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (Numbers::accepts<T>) {
      T* data = static_cast<T*>(out.address());
      if (out.elements() == 1 && in.contiguous() && in.elements() > 2 * detail::grain) {
        // The size of chunks does not depend on the number of threads, so the sum is the same on every
        // machine.
        const int64_t n = in.elements(), chunks = (n + detail::grain - 1) / detail::grain;
        const T* from = static_cast<const T*>(in.address());
        std::vector<T> parts(static_cast<size_t>(chunks));
        parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
          for (int64_t c = begin; c < end; ++c)
            parts[static_cast<size_t>(c)] =
                detail::sum_row(from + c * detail::grain, std::min(detail::grain, n - c * detail::grain), 1);
        });
        *data = detail::sum_row(parts.data(), chunks, 1);
        return;
      }
      std::fill_n(data, out.elements(), T{});
      detail::split_kept_axis(in, seen, [&](const Tensor& part, const Layout& to) {
        detail::accumulate<scalar::Add>(part, to, data + to.offset);
      });
    }
  });
}

}  // namespace espalier
