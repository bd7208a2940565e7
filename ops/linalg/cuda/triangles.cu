// Triangular systems, determinants, and what reads or writes triangles.
#include <algorithm>

#include "espalier/core/cuda/launch.h"
#include "espalier/ops/cuda/contiguous_input.h"
#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/linalg/cuda/kernels.h"
#include "espalier/ops/linalg/cuda/matrix_steps.h"

namespace espalier::cu {

namespace {

using BoundTriangle = std::unique_ptr<BoundKernel>;

template <class T>
__global__ void __launch_bounds__(threads_in_block)
    band_kernel(T* out, int64_t rows, int64_t columns, int64_t below, int64_t above, double diagonal) {
  for (int64_t i = grid_thread(); i < rows * columns; i += grid_threads()) {
    const int64_t row = divide(i, columns), distance = i - row * columns - row;
    const int64_t limit = distance > 0 ? above : below;
    const double inside = limit < 0 || (distance < 0 ? -distance : distance) <= limit ? 1 : 0;
    out[i] = static_cast<T>(static_cast<Computed<T>>(distance == 0 ? diagonal : inside));
  }
}

template <class T>
__global__ void __launch_bounds__(threads_in_block)
    zero_triangle_kernel(T* matrices, int64_t n, int64_t rows, int64_t columns, bool above) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const int64_t in_rows = divide(i, columns), column = i - in_rows * columns;
    const int64_t row = in_rows - divide(in_rows, rows) * rows;
    if (above ? column > row : column < row) matrices[i] = T(0);
  }
}

/// A thread for each column of a right side, which it solves in place.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    triangular_kernel(const T* __restrict__ a, T* x, int64_t count, int64_t n, int64_t k, MatrixSteps steps,
                      bool upper, bool transposed, bool unit) {
  const bool downwards = upper == transposed;  // the first row is known first
  for (int64_t i = grid_thread(); i < count * k; i += grid_threads()) {
    const int64_t matrix = divide(i, k);
    const T* factor = a + steps.of(matrix) * n * n;
    T* column = x + matrix * n * k + (i - matrix * k);
    for (int64_t step = 0; step < n; ++step) {
      const int64_t row = downwards ? step : n - 1 - step;
      T sum = column[row * k];
      for (int64_t known = 0; known < step; ++known) {
        const int64_t other = downwards ? known : n - 1 - known;
        sum -= factor[transposed ? other * n + row : row * n + other] * column[other * k];
      }
      column[row * k] = unit ? sum : sum / factor[row * (n + 1)];
    }
  }
}

/// A thread for each matrix. `form`: DeterminantForm.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    determinant_kernel(T* out, const T* __restrict__ lu, const int32_t* __restrict__ pivots, int64_t count,
                       int64_t n, int64_t form) {
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) {
    T product = 1, log_abs = 0, sign = 1;
    for (int64_t d = 0; d < n; ++d) {
      const T factor = lu[i * n * n + d * (n + 1)];
      if (pivots[i * n + d] != d + 1) sign = -sign;
      product *= factor < 0 ? -factor : factor;
      log_abs += scalar::detail::log(factor < 0 ? -factor : factor);
      sign *= factor > 0 ? T(1) : factor < 0 ? T(-1) : factor;
    }
    out[i] = form == 2 ? log_abs : form == 1 ? sign : sign < 0 ? -product : product;
  }
}

/// Calls `f(TypeTag<T>{})` with float or double, which the output has; throws for other types.
template <class F>
BoundTriangle for_single_or_double(const Op& op, const KernelCall& call, F&& f) {
  switch (call.outputs[0]->dtype()) {
    case DType::float32: return f(TypeTag<float>{});
    case DType::float64: return f(TypeTag<double>{});
    default: op.unsupported(call, "cuda");
  }
}

BoundTriangle bind_band(const Op& op, const KernelCall& call) {
  const int64_t below = attribute<int64_t>(op, "below"), above = attribute<int64_t>(op, "above");
  const double diagonal = attribute<double>(op, "diagonal");
  const Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  const auto bind = [&]<class T>(TypeTag<T>) -> BoundTriangle {
    return bound([call, below, above, diagonal](RandomStream) {
      const Tensor& to = *call.outputs[0];
      launch(band_kernel<T>, grid_for(to.elements()), static_cast<T*>(to.address()), to.shape()[0],
             to.shape()[1], below, above, diagonal);
    });
  };
  switch (out.dtype()) {
    case DType::float16: return bind(TypeTag<Float16>{});
    case DType::bfloat16: return bind(TypeTag<BFloat16>{});
    default: return for_single_or_double(op, call, bind);
  }
}

BoundTriangle bind_triangular(const Op& op, const KernelCall& call) {
  const bool upper = attribute<bool>(op, "upper"), transposed = attribute<bool>(op, "transposed"),
             unit = attribute<bool>(op, "unit");
  return for_single_or_double(op, call, [&]<class T>(TypeTag<T>) -> BoundTriangle {
    return bound_on_host([call, upper, transposed, unit, a = ContiguousInput(*call.inputs[0])]() mutable {
      const Tensor& factors = *call.inputs[0];
      if (!unit) check_diagonal(factors, "triangular_solve");
      Tensor& out = *call.outputs[0];
      if (out.elements() == 0) return;
      a.refresh();
      copy_elements(broadcast_layout_of(*call.inputs[1], out.shape()), out);
      const int64_t n = out.shape()[-2], k = out.shape()[-1], count = out.elements() / (n * k);
      launch(triangular_kernel<T>, grid_for(count * k), static_cast<const T*>(a.address()),
             static_cast<T*>(out.address()), count, n, k, MatrixSteps(factors.shape(), out.shape()), upper,
             transposed, unit);
    });
  });
}

BoundTriangle bind_determinant(const Op& op, const KernelCall& call) {
  const int64_t form = attribute<int64_t>(op, "form");
  if (call.outputs[0]->elements() == 0) return bound([](RandomStream) {});
  return for_single_or_double(op, call, [&]<class T>(TypeTag<T>) -> BoundTriangle {
    return bound([call, form, lu = ContiguousInput(*call.inputs[1]),
                  pivots = ContiguousInput(*call.inputs[2])](RandomStream) mutable {
      const bool some = call.inputs[1]->elements() > 0;
      if (some) lu.refresh(), pivots.refresh();
      const int64_t count = call.outputs[0]->elements();
      launch(determinant_kernel<T>, grid_for(count), static_cast<T*>(call.outputs[0]->address()),
             some ? static_cast<const T*>(lu.address()) : nullptr,
             some ? static_cast<const int32_t*>(pivots.address()) : nullptr, count,
             call.inputs[1]->shape()[-1], form);
    });
  });
}

}  // namespace

void zero_triangle(const Tensor& matrices, bool above) {
  const int64_t n = matrices.elements(), rows = matrices.shape()[-2], columns = matrices.shape()[-1];
  if (n == 0) return;
  if (matrices.dtype() == DType::float64)
    launch(zero_triangle_kernel<double>, grid_for(n), static_cast<double*>(matrices.address()), n, rows,
           columns, above);
  else
    launch(zero_triangle_kernel<float>, grid_for(n), static_cast<float*>(matrices.address()), n, rows,
           columns, above);
}

void add_triangle_kernels(KernelRegistry& kernels) {
  kernels.add("band_like", bind_band);
  kernels.add("triangular_solve", bind_triangular);
  kernels.add("lu_determinant", bind_determinant);
}

}  // namespace espalier::cu
