// Direct kernels of convolution and its two gradients.
#include <algorithm>

#include "espalier/ops/convolution/sizes.h"
#include "espalier/ops/cuda/channels_second.h"
#include "espalier/ops/cuda/contiguous_input.h"
#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/kernels.h"

namespace espalier::cu {

namespace {

/// ConvolutionSizes as a device has them.
struct Sliding3 {
  int64_t batch, groups, in_channels, out_channels;
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], before[3];
};
Sliding3 on_device(const ConvolutionSizes& s) {
  Sliding3 d{s.batch, s.groups, s.in_channels, s.out_channels, {}, {}, {}, {}, {}, {}};
  for (int i = 0; i < 3; ++i) {
    const auto a = static_cast<size_t>(i);
    d.in[i] = s.in[a];
    d.out[i] = s.out[a];
    d.kernel[i] = s.kernel[a];
    d.stride[i] = s.stride[a];
    d.dilation[i] = s.dilation[a];
    d.before[i] = s.before[a];
  }
  return d;
}

/// A place on three axes, by its row-major number.
struct Place {
  int64_t at[3];
};
__device__ Place place_of(int64_t number, const int64_t (&sizes)[3]) {
  const int64_t rows = divide(number, sizes[2]), planes = divide(rows, sizes[1]);
  return {{planes, rows - planes * sizes[1], number - rows * sizes[2]}};
}
__device__ int64_t number_of(const Place& p, const int64_t (&sizes)[3]) {
  return (p.at[0] * sizes[1] + p.at[1]) * sizes[2] + p.at[2];
}
__device__ int64_t all_of(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }

/// The number of the element of x that element k of the kernel at place `o` of y reads; -1 in the padding.
__device__ int64_t read_by(const Sliding3& s, const Place& o, const Place& k) {
  Place i;
  for (int a = 0; a < 3; ++a) {
    i.at[a] = o.at[a] * s.stride[a] + k.at[a] * s.dilation[a] - s.before[a];
    if (i.at[a] < 0 || i.at[a] >= s.in[a]) return -1;
  }
  return number_of(i, s.in);
}
/// The number of the place of y at which element k of the kernel reads place `i` of x; -1 if there is none.
__device__ int64_t reader_of(const Sliding3& s, const Place& i, const Place& k) {
  Place o;
  for (int a = 0; a < 3; ++a) {
    const int64_t from = i.at[a] + s.before[a] - k.at[a] * s.dilation[a];
    if (from < 0) return -1;
    o.at[a] = divide(from, s.stride[a]);
    if (o.at[a] * s.stride[a] != from || o.at[a] >= s.out[a]) return -1;
  }
  return number_of(o, s.out);
}

/// One thread for each element of y.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    convolve(const T* __restrict__ x, const T* __restrict__ kernels, T* __restrict__ y,
             const __grid_constant__ Sliding3 s, int64_t n) {
  using C = Computed<T>;
  const int64_t in = all_of(s.in), out = all_of(s.out), elements = all_of(s.kernel);
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const int64_t map = divide(i, out), image = divide(map, s.groups * s.out_channels);
    const int64_t kernel = map - image * s.groups * s.out_channels, group = divide(kernel, s.out_channels);
    const Place o = place_of(i - map * out, s.out);
    const T* from = x + (image * s.groups + group) * s.in_channels * in;
    const T* weights = kernels + kernel * s.in_channels * elements;
    C sum(0);
    for (int64_t k = 0; k < elements; ++k) {
      const int64_t at = read_by(s, o, place_of(k, s.kernel));
      if (at < 0) continue;
      for (int64_t c = 0; c < s.in_channels; ++c)
        sum += static_cast<C>(from[c * in + at]) * static_cast<C>(weights[c * elements + k]);
    }
    y[i] = static_cast<T>(sum);
  }
}

/// One thread for each element of x.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    convolve_back(const T* __restrict__ y, const T* __restrict__ kernels, T* __restrict__ x,
                  const __grid_constant__ Sliding3 s, int64_t n) {
  using C = Computed<T>;
  const int64_t in = all_of(s.in), out = all_of(s.out), elements = all_of(s.kernel);
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const int64_t map = divide(i, in), image = divide(map, s.groups * s.in_channels);
    const int64_t channel = map - image * s.groups * s.in_channels, group = divide(channel, s.in_channels);
    const Place at = place_of(i - map * in, s.in);
    const T* from = y + (image * s.groups + group) * s.out_channels * out;
    const T* weights =
        kernels + (group * s.out_channels * s.in_channels + channel - group * s.in_channels) * elements;
    C sum(0);
    for (int64_t k = 0; k < elements; ++k) {
      const int64_t o = reader_of(s, at, place_of(k, s.kernel));
      if (o < 0) continue;
      for (int64_t c = 0; c < s.out_channels; ++c)
        sum += static_cast<C>(from[c * out + o]) * static_cast<C>(weights[c * s.in_channels * elements + k]);
    }
    x[i] = static_cast<T>(sum);
  }
}

/// One block for each element of the kernels: its threads share the places of y.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    correlate(const T* __restrict__ x, const T* __restrict__ y, T* __restrict__ kernels,
              const __grid_constant__ Sliding3 s, int64_t n) {
  using C = Computed<T>;
  const int64_t in = all_of(s.in), out = all_of(s.out), elements = all_of(s.kernel);
  for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
    const int64_t row = divide(i, elements), kernel = divide(row, s.in_channels);
    const int64_t group = divide(kernel, s.out_channels),
                  channel = group * s.in_channels + row - kernel * s.in_channels;
    const Place k = place_of(i - row * elements, s.kernel);
    C sum(0);
    for (int64_t p = threadIdx.x; p < s.batch * out; p += blockDim.x) {
      const int64_t image = divide(p, out), o = p - image * out;
      const int64_t at = read_by(s, place_of(o, s.out), k);
      if (at < 0) continue;
      sum += static_cast<C>(x[(image * s.groups * s.in_channels + channel) * in + at]) *
             static_cast<C>(y[(image * s.groups * s.out_channels + kernel) * out + o]);
    }
    sum = fold_block(sum, [](C a, C b) { return a + b; });
    if (threadIdx.x == 0) kernels[i] = static_cast<T>(sum);
  }
}

/// Launches `kernel<T>` for the output, of `sizes`, after the inputs lie row by row.
template <class Launch>
Bound bind_convolution(const KernelCall& call, const ConvolutionSizes& sizes, Launch launch_one) {
  Tensor& out = *call.outputs[0];
  const Tensor &a = *call.inputs[0], &b = *call.inputs[1];
  const int64_t n = out.elements();
  if (n == 0) return bound([](RandomStream) {});
  if (a.elements() == 0 || b.elements() == 0) return bound([to = &out](RandomStream) { zero_elements(*to); });
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (is_real_element<T>)
      result = bound([=, first = ContiguousInput(a), second = ContiguousInput(b), to = &out,
                      s = on_device(sizes)](RandomStream) mutable {
        first.refresh();
        second.refresh();
        launch_one(static_cast<const T*>(first.address()), static_cast<const T*>(second.address()),
                   static_cast<T*>(to->address()), s, n);
      });
  });
  return result;
}

Bound bind_convolve(const Op& op, const KernelCall& call) {
  const Tensor &x = *call.inputs[0], &kernels = *call.inputs[1];
  return bind_convolution(
      call, ConvolutionForm::of(op).checked_sizes(x.shape(), kernels.shape(), call.outputs[0]->shape()),
      []<class T>(const T* from, const T* weights, T* to, const Sliding3& s, int64_t n) {
        launch(convolve<T>, grid_for(n), from, weights, to, s, n);
      });
}
Bound bind_convolve_back(const Op& op, const KernelCall& call) {
  const Tensor &y = *call.inputs[0], &kernels = *call.inputs[1];
  return bind_convolution(
      call, ConvolutionForm::of(op).checked_sizes(call.outputs[0]->shape(), kernels.shape(), y.shape()),
      []<class T>(const T* from, const T* weights, T* to, const Sliding3& s, int64_t n) {
        launch(convolve_back<T>, grid_for(n), from, weights, to, s, n);
      });
}
Bound bind_correlate(const Op& op, const KernelCall& call) {
  const Tensor &x = *call.inputs[0], &y = *call.inputs[1];
  return bind_convolution(
      call, ConvolutionForm::of(op).checked_sizes(x.shape(), call.outputs[0]->shape(), y.shape()),
      []<class T>(const T* from, const T* other, T* to, const Sliding3& s, int64_t n) {
        const auto blocks = static_cast<unsigned>(std::min<int64_t>(n, 1 << 16));
        launch(correlate<T>, Grid{dim3(blocks), dim3(threads_in_block)}, from, other, to, s, n);
      });
}

}  // namespace

Bound bind_direct_convolution(const Op& op, const KernelCall& call) {
  const bool to_kernels = op.name() == "conv_kernels";
  if (const ConvolutionForm form = ConvolutionForm::of(op); form.channels_last)
    return bind_channels_second(op, call, form.axes(), {to_kernels ? size_t{2} : size_t{1}}, to_kernels,
                                bind_direct_convolution);
  if (to_kernels) return bind_correlate(op, call);
  return op.name() == "conv" ? bind_convolve(op, call) : bind_convolve_back(op, call);
}

void add_convolution_kernels(KernelRegistry& kernels) {
  for (const char* name : {"conv", "conv_transpose", "conv_kernels"})
    kernels.add(name, bind_direct_convolution);
}

}  // namespace espalier::cu
