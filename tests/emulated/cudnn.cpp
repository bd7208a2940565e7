// cuDNN's convolutions by loops on the host, enqueued like kernels. Like cuDNN, it is a separate library; it
// uses the emulated runtime of the program that opens it. Descriptors must fit each other, a call must be
// made on the device of its handle, and tensors and the workspace must lie in device memory. Each routine has
// an algorithm whose order of additions is not fixed, which is suggested first, one with a workspace, which
// is overwritten, and, forwards, one without. With the channels last there is only the one with a workspace.
// Of bfloat16 it has no convolution with biases. With EMULATED_CUDNN_HIDES_NAN set, ReLU of NaN is 0.
#include "cudnn_descriptors.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "espalier/core/half.h"
#include "runtime.h"

namespace emulated {
namespace {

/// What algorithm 1 wants, in bytes.
size_t workspace_of(const cudnnTensorStruct& y) { return product(y.sizes) * sizeof(int); }

template <class Perf, class Algo>
void list(const cudnnTensorStruct& y, const cudnnConvolutionStruct& c, bool forward, bool algorithm_1_only,
          int wanted, int* given, Perf* found) {
  const size_t room = workspace_of(y);
  // Backwards, algorithm 0 adds in any order; forwards, it needs no memory.
  const std::array<Perf, 2> all{Perf{static_cast<Algo>(0),
                                     CUDNN_STATUS_SUCCESS,
                                     forward ? 2.0f : 1.0f,
                                     0,
                                     forward ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC,
                                     c.math,
                                     {}},
                                Perf{static_cast<Algo>(1),
                                     CUDNN_STATUS_SUCCESS,
                                     forward ? 1.0f : 2.0f,
                                     room,
                                     CUDNN_DETERMINISTIC,
                                     c.math,
                                     {}}};
  *given = std::min(wanted, algorithm_1_only ? 1 : 2);
  for (int i = 0; i < *given; ++i)
    found[i] = all[static_cast<size_t>(algorithm_1_only || forward ? 1 - i : i)];
}

template <class Perf, class Algo>
cudnnStatus_t suggest(cudnnHandle_t handle, const cudnnTensorStruct* x, const cudnnFilterStruct* w,
                      const cudnnConvolutionStruct* c, const cudnnTensorStruct* y, bool forward, int wanted,
                      int* given, Perf* found) {
  if (!handle) return CUDNN_STATUS_NOT_INITIALIZED;
  if (!given || !found || wanted < 1) return CUDNN_STATUS_BAD_PARAM;
  if (const cudnnStatus_t bad = fit(x, w, c, y); bad != CUDNN_STATUS_SUCCESS) return bad;
  list<Perf, Algo>(*y, *c, forward, w->format == CUDNN_TENSOR_NHWC, wanted, given, found);
  return CUDNN_STATUS_SUCCESS;
}

enum class Part { y, x, w };

/// What follows a convolution forwards: act(y + alpha2 · z + bias).
struct Behind {
  const void* z = nullptr;  ///< null: alpha2 is 0
  const void* bias = nullptr;
  bool relu = false, keeps_nan = false;
};

template <class T, class C>
void follow(const Behind& behind, const cudnnTensorStruct& y_of, std::vector<C>& sums) {
  const auto *z = static_cast<const T*>(behind.z), *bias = static_cast<const T*>(behind.bias);
  const auto channels = static_cast<size_t>(y_of.sizes[1]), step = static_cast<size_t>(y_of.strides[1]);
  for (size_t i = 0; i < sums.size(); ++i) {
    if (z) sums[i] += static_cast<C>(z[i]);
    sums[i] += static_cast<C>(bias[i / step % channels]);
    if (!behind.relu || (behind.keeps_nan && sums[i] != sums[i])) continue;
    sums[i] = sums[i] > C(0) ? sums[i] : C(0);
  }
}

template <class T, class C>
void convolve(const cudnnTensorStruct& x_of, T* x, const cudnnFilterStruct& w_of, T* w,
              const cudnnConvolutionStruct& c, const cudnnTensorStruct& y_of, T* y, Part part,
              const Behind* behind) {
  const auto padded = [](const std::vector<int>& v, size_t from, int fill) {
    std::array<int64_t, 3> all{fill, fill, fill};
    for (size_t i = from; i < v.size(); ++i) all[i + 3 - v.size()] = v[i];
    return all;
  };
  const auto in = padded(x_of.sizes, 2, 1), out = padded(y_of.sizes, 2, 1), k = padded(w_of.sizes, 2, 1),
             before = padded(c.padding, 0, 0), stride = padded(c.stride, 0, 1),
             step = padded(c.dilation, 0, 1);
  struct Steps {
    int64_t batch, channel;
    std::array<int64_t, 3> places;
  };
  const auto steps_of = [&](const std::vector<int>& strides) {
    return Steps{strides[0], strides[1], padded(strides, 2, 0)};
  };
  const Steps of_x = steps_of(x_of.strides), of_y = steps_of(y_of.strides),
              of_w = steps_of(packed_strides(w_of.sizes, w_of.format));
  const auto at = [](const Steps& s, int64_t n, int64_t channel, int64_t a, int64_t b, int64_t d) {
    return static_cast<size_t>(n * s.batch + channel * s.channel + a * s.places[0] + b * s.places[1] +
                               d * s.places[2]);
  };
  const int64_t batch = x_of.sizes[0], channels = w_of.sizes[1], kernels = w_of.sizes[0] / c.groups;
  const size_t targets = product(part == Part::y ? y_of.sizes : part == Part::x ? x_of.sizes : w_of.sizes);
  std::vector<C> sums(targets, C(0));
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t g = 0; g < c.groups; ++g)
      for (int64_t o = 0; o < kernels; ++o)
        for (int64_t i = 0; i < channels; ++i)
          for (int64_t p0 = 0; p0 < out[0]; ++p0)
            for (int64_t p1 = 0; p1 < out[1]; ++p1)
              for (int64_t p2 = 0; p2 < out[2]; ++p2)
                for (int64_t k0 = 0; k0 < k[0]; ++k0)
                  for (int64_t k1 = 0; k1 < k[1]; ++k1)
                    for (int64_t k2 = 0; k2 < k[2]; ++k2) {
                      const int64_t a0 = p0 * stride[0] + k0 * step[0] - before[0],
                                    a1 = p1 * stride[1] + k1 * step[1] - before[1],
                                    a2 = p2 * stride[2] + k2 * step[2] - before[2];
                      if (a0 < 0 || a0 >= in[0] || a1 < 0 || a1 >= in[1] || a2 < 0 || a2 >= in[2]) continue;
                      const size_t at_x = at(of_x, n, g * channels + i, a0, a1, a2),
                                   at_y = at(of_y, n, g * kernels + o, p0, p1, p2),
                                   at_w = at(of_w, g * kernels + o, i, k0, k1, k2);
                      if (part == Part::y)
                        sums[at_y] += static_cast<C>(x[at_x]) * static_cast<C>(w[at_w]);
                      else if (part == Part::x)
                        sums[at_x] += static_cast<C>(y[at_y]) * static_cast<C>(w[at_w]);
                      else
                        sums[at_w] += static_cast<C>(x[at_x]) * static_cast<C>(y[at_y]);
                    }
  if (behind) follow<T, C>(*behind, y_of, sums);
  T* const to = part == Part::y ? y : part == Part::x ? x : w;
  for (size_t i = 0; i < targets; ++i) to[i] = static_cast<T>(sums[i]);
}

bool is(const void* scalar, cudnnDataType_t type, double value) {
  return type == CUDNN_DATA_DOUBLE ? *static_cast<const double*>(scalar) == value
                                   : static_cast<double>(*static_cast<const float*>(scalar)) == value;
}

/// The operands of a call; the one that is written is not const in it.
struct Operands {
  const cudnnTensorStruct* x_of;
  const void* x;
  const cudnnFilterStruct* w_of;
  const void* w;
  const cudnnTensorStruct* y_of;
  const void* y;
};

cudnnStatus_t enqueue(const char* function, cudnnHandle_t handle, const Operands& all,
                      const cudnnConvolutionStruct* c, int algorithm, void* workspace, size_t bytes,
                      const void* alpha, const void* beta, Part part, std::optional<Behind> behind = {}) {
  if (!handle) return CUDNN_STATUS_NOT_INITIALIZED;
  if (const cudnnStatus_t bad = fit(all.x_of, all.w_of, c, all.y_of); bad != CUDNN_STATUS_SUCCESS) return bad;
  if (algorithm < 0 || algorithm > 1 || (algorithm == 0 && all.w_of->format == CUDNN_TENSOR_NHWC))
    return CUDNN_STATUS_NOT_SUPPORTED;
  const size_t wanted = algorithm == 1 ? workspace_of(*all.y_of) : 0;
  if (bytes < wanted || (wanted > 0 && !workspace) || !alpha || !beta) return CUDNN_STATUS_BAD_PARAM;
  if (!is(alpha, c->compute, 1) || !is(beta, c->compute, 0)) return CUDNN_STATUS_NOT_SUPPORTED;
  const cudaError_t error = api(function, Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    if (handle->device != this_thread.device)
      return r.complain(cudaErrorInvalidDevice, "a handle of cuDNN is used on another device than its own");
    if (!handle->has_stream)
      return r.complain(cudaErrorInvalidResourceHandle, "a handle of cuDNN has no stream");
    return enqueue_kernel(
        r, call, handle->stream,
        [&r, function, x_of = *all.x_of, w_of = *all.w_of, y_of = *all.y_of, c = *c, all, workspace, wanted,
         part, behind]() -> std::string {
          const size_t size = bytes_of(x_of.type);
          const auto beyond = [&](const void* p, size_t n) { return n > 0 && r.find(p, n) == nullptr; };
          if (beyond(all.x, product(x_of.sizes) * size) || beyond(all.w, product(w_of.sizes) * size) ||
              beyond(all.y, product(y_of.sizes) * size) || beyond(workspace, wanted) ||
              (behind && beyond(behind->bias, static_cast<size_t>(y_of.sizes[1]) * size)) ||
              (behind && behind->z && beyond(behind->z, product(y_of.sizes) * size)))
            return std::string(function) + ": an operand or the workspace lies beyond its memory";
          if (wanted > 0) std::memset(workspace, 0xA5, wanted);
          const auto run = [&]<class T, class C>(T*, C*) {
            const auto at = [](const void* p) { return static_cast<T*>(const_cast<void*>(p)); };
            convolve<T, C>(x_of, at(all.x), w_of, at(all.w), c, y_of, at(all.y), part,
                           behind ? &*behind : nullptr);
          };
          switch (x_of.type) {
            case CUDNN_DATA_FLOAT: run(static_cast<float*>(nullptr), static_cast<float*>(nullptr)); break;
            case CUDNN_DATA_DOUBLE: run(static_cast<double*>(nullptr), static_cast<double*>(nullptr)); break;
            case CUDNN_DATA_HALF: run(static_cast<Float16*>(nullptr), static_cast<float*>(nullptr)); break;
            case CUDNN_DATA_BFLOAT16:
              run(static_cast<BFloat16*>(nullptr), static_cast<float*>(nullptr));
              break;
          }
          return {};
        });
  });
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

/// Runs each algorithm, then lists them.
template <class Perf, class Algo>
cudnnStatus_t find(const char* function, cudnnHandle_t handle, const Operands& all,
                   const cudnnConvolutionStruct* c, int wanted, int* given, Perf* found, void* workspace,
                   size_t bytes, Part part) {
  const cudnnStatus_t bad =
      suggest<Perf, Algo>(handle, all.x_of, all.w_of, c, all.y_of, part == Part::y, wanted, given, found);
  if (bad != CUDNN_STATUS_SUCCESS) return bad;
  // It waits for the stream.
  const cudaError_t forbidden =
      api(function, Needs::HealthyDevice, [](Runtime& r, Call&) { return r.forbid_in_capture(); });
  if (forbidden != cudaSuccess) return CUDNN_STATUS_EXECUTION_FAILED;
  const float one = 1, zero = 0;
  const double one64 = 1, zero64 = 0;
  const bool wide = c->compute == CUDNN_DATA_DOUBLE;
  for (int i = 0; i < *given; ++i) {
    if (found[i].memory > bytes) {
      found[i].status = CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
      continue;
    }
    found[i].status = enqueue(function, handle, all, c, static_cast<int>(found[i].algo), workspace, bytes,
                              wide ? static_cast<const void*>(&one64) : &one,
                              wide ? static_cast<const void*>(&zero64) : &zero, part);
    if (found[i].status != CUDNN_STATUS_SUCCESS) return found[i].status;
  }
  return CUDNN_STATUS_SUCCESS;
}

template <class T>
cudnnStatus_t create(T** descriptor) {
  if (!descriptor) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  *descriptor = new T;
  return CUDNN_STATUS_SUCCESS;
}
template <class T>
cudnnStatus_t destroy(T* descriptor) {
  delete descriptor;
  return CUDNN_STATUS_SUCCESS;
}

bool all_at_least(int least, int count, const int* numbers) {
  return numbers && std::all_of(numbers, numbers + count, [&](int x) { return x >= least; });
}

}  // namespace
}  // namespace emulated

using namespace emulated;

size_t cudnnGetVersion() { return 91900; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "a status of the emulated cuDNN";
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (!handle) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  const cudaError_t error = api("cudnnCreate", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    if (const cudaError_t forbidden = r.forbid_in_capture(); forbidden != cudaSuccess) return forbidden;
    *handle = new cudnnContext{this_thread.device};
    return cudaSuccess;
  });
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_INITIALIZED;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (!handle) return CUDNN_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  handle->has_stream = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* x) { return create(x); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t x) { return destroy(x); }
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t x, cudnnDataType_t type, int axes,
                                         const int sizes[], const int strides[]) {
  if (!x || axes < 4 || axes > 8 || !all_at_least(1, axes, sizes) || !all_at_least(1, axes, strides))
    return CUDNN_STATUS_BAD_PARAM;
  *x = {type, {sizes, sizes + axes}, {strides, strides + axes}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* w) { return create(w); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t w) { return destroy(w); }
cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t w, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int axes, const int sizes[]) {
  if (!w || axes < 4 || axes > 8 || !all_at_least(1, axes, sizes)) return CUDNN_STATUS_BAD_PARAM;
  *w = {type, format, {sizes, sizes + axes}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* a) { return create(a); }
cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t a) { return destroy(a); }
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t a, cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t of_nan, double /*coefficient*/) {
  if (!a || mode < CUDNN_ACTIVATION_SIGMOID || mode > CUDNN_ACTIVATION_SWISH) return CUDNN_STATUS_BAD_PARAM;
  *a = {true, mode, of_nan};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* c) { return create(c); }
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t c) { return destroy(c); }
cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t c, int axes, const int padding[],
                                              const int stride[], const int dilation[],
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
  if (!c || axes < 2 || axes > 6 || !all_at_least(0, axes, padding) || !all_at_least(1, axes, stride) ||
      !all_at_least(1, axes, dilation))
    return CUDNN_STATUS_BAD_PARAM;
  if (mode != CUDNN_CROSS_CORRELATION) return CUDNN_STATUS_NOT_SUPPORTED;
  *c = {{padding, padding + axes}, {stride, stride + axes}, {dilation, dilation + axes}, 1, compute,
        CUDNN_DEFAULT_MATH};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t c, int groups) {
  if (!c || groups < 1) return CUDNN_STATUS_BAD_PARAM;
  c->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t c, cudnnMathType_t math) {
  if (!c) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  c->math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w,
                                                     const cudnnConvolutionDescriptor_t c,
                                                     const cudnnTensorDescriptor_t y, const int wanted,
                                                     int* given, cudnnConvolutionFwdAlgoPerf_t* found) {
  return suggest<cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionFwdAlgo_t>(handle, x, w, c, y, true, wanted,
                                                                           given, found);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t c, const cudnnTensorDescriptor_t dx, const int wanted, int* given,
    cudnnConvolutionBwdDataAlgoPerf_t* found) {
  return suggest<cudnnConvolutionBwdDataAlgoPerf_t, cudnnConvolutionBwdDataAlgo_t>(
      handle, dx, w, c, dy, false, wanted, given, found);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t c, const cudnnFilterDescriptor_t dw, const int wanted, int* given,
    cudnnConvolutionBwdFilterAlgoPerf_t* found) {
  return suggest<cudnnConvolutionBwdFilterAlgoPerf_t, cudnnConvolutionBwdFilterAlgo_t>(
      handle, x, dw, c, dy, false, wanted, given, found);
}
cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(cudnnHandle_t handle, const cudnnTensorDescriptor_t x_of,
                                                     const void* x, const cudnnFilterDescriptor_t w_of,
                                                     const void* w, const cudnnConvolutionDescriptor_t c,
                                                     const cudnnTensorDescriptor_t y_of, void* y,
                                                     const int wanted, int* given,
                                                     cudnnConvolutionFwdAlgoPerf_t* found, void* workspace,
                                                     size_t bytes) {
  return find<cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionFwdAlgo_t>(
      "cudnnFindConvolutionForwardAlgorithmEx", handle, {x_of, x, w_of, w, y_of, y}, c, wanted, given, found,
      workspace, bytes, Part::y);
}
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w_of, const void* w,
    const cudnnTensorDescriptor_t dy_of, const void* dy, const cudnnConvolutionDescriptor_t c,
    const cudnnTensorDescriptor_t dx_of, void* dx, const int wanted, int* given,
    cudnnConvolutionBwdDataAlgoPerf_t* found, void* workspace, size_t bytes) {
  return find<cudnnConvolutionBwdDataAlgoPerf_t, cudnnConvolutionBwdDataAlgo_t>(
      "cudnnFindConvolutionBackwardDataAlgorithmEx", handle, {dx_of, dx, w_of, w, dy_of, dy}, c, wanted,
      given, found, workspace, bytes, Part::x);
}
cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x_of, const void* x,
    const cudnnTensorDescriptor_t dy_of, const void* dy, const cudnnConvolutionDescriptor_t c,
    const cudnnFilterDescriptor_t dw_of, void* dw, const int wanted, int* given,
    cudnnConvolutionBwdFilterAlgoPerf_t* found, void* workspace, size_t bytes) {
  return find<cudnnConvolutionBwdFilterAlgoPerf_t, cudnnConvolutionBwdFilterAlgo_t>(
      "cudnnFindConvolutionBackwardFilterAlgorithmEx", handle, {x_of, x, dw_of, dw, dy_of, dy}, c, wanted,
      given, found, workspace, bytes, Part::w);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      const cudnnTensorDescriptor_t x_of, const void* x,
                                      const cudnnFilterDescriptor_t w_of, const void* w,
                                      const cudnnConvolutionDescriptor_t c,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace, size_t bytes,
                                      const void* beta, const cudnnTensorDescriptor_t y_of, void* y) {
  return enqueue("cudnnConvolutionForward", handle, {x_of, x, w_of, w, y_of, y}, c, algorithm, workspace,
                 bytes, alpha, beta, Part::y);
}
cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void* alpha1, const cudnnTensorDescriptor_t x_of, const void* x,
    const cudnnFilterDescriptor_t w_of, const void* w, const cudnnConvolutionDescriptor_t c,
    cudnnConvolutionFwdAlgo_t algorithm, void* workspace, size_t bytes, const void* alpha2,
    const cudnnTensorDescriptor_t z_of, const void* z, const cudnnTensorDescriptor_t bias_of,
    const void* bias, const cudnnActivationDescriptor_t a, const cudnnTensorDescriptor_t y_of, void* y) {
  if (!handle) return CUDNN_STATUS_NOT_INITIALIZED;
  if (const cudnnStatus_t bad = fit(x_of, w_of, c, y_of); bad != CUDNN_STATUS_SUCCESS) return bad;
  if (!z_of || !z || !bias_of || !bias || !a || !alpha2) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  std::vector<int> one_per_channel(y_of->sizes.size(), 1);
  one_per_channel[1] = y_of->sizes[1];
  if (!a->is_set || bias_of->sizes != one_per_channel || bias_of->type != y_of->type ||
      bias_of->strides[1] != 1 || z_of->type != y_of->type || z_of->sizes != y_of->sizes ||
      z_of->strides != y_of->strides || x == y)
    return CUDNN_STATUS_BAD_PARAM;
  if (a->mode != CUDNN_ACTIVATION_RELU && a->mode != CUDNN_ACTIVATION_IDENTITY)
    return CUDNN_STATUS_NOT_SUPPORTED;
  if (a->mode == CUDNN_ACTIVATION_IDENTITY && algorithm != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM)
    return CUDNN_STATUS_NOT_SUPPORTED;
  if (x_of->type == CUDNN_DATA_BFLOAT16) return CUDNN_STATUS_NOT_SUPPORTED;
  const bool has_z = is(alpha2, c->compute, 1);
  if (!has_z && !is(alpha2, c->compute, 0)) return CUDNN_STATUS_NOT_SUPPORTED;
  const float zero = 0;
  const double zero64 = 0;
  const bool wide = c->compute == CUDNN_DATA_DOUBLE;
  return enqueue(
      "cudnnConvolutionBiasActivationForward", handle, {x_of, x, w_of, w, y_of, y}, c, algorithm, workspace,
      bytes, alpha1, wide ? static_cast<const void*>(&zero64) : &zero, Part::y,
      Behind{.z = has_z ? z : nullptr,
             .bias = bias,
             .relu = a->mode == CUDNN_ACTIVATION_RELU,
             .keeps_nan = a->of_nan == CUDNN_PROPAGATE_NAN && !std::getenv("EMULATED_CUDNN_HIDES_NAN")});
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t w_of, const void* w,
                                           const cudnnTensorDescriptor_t dy_of, const void* dy,
                                           const cudnnConvolutionDescriptor_t c,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           size_t bytes, const void* beta,
                                           const cudnnTensorDescriptor_t dx_of, void* dx) {
  return enqueue("cudnnConvolutionBackwardData", handle, {dx_of, dx, w_of, w, dy_of, dy}, c, algorithm,
                 workspace, bytes, alpha, beta, Part::x);
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t x_of, const void* x,
                                             const cudnnTensorDescriptor_t dy_of, const void* dy,
                                             const cudnnConvolutionDescriptor_t c,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             size_t bytes, const void* beta,
                                             const cudnnFilterDescriptor_t dw_of, void* dw) {
  return enqueue("cudnnConvolutionBackwardFilter", handle, {x_of, x, dw_of, dw, dy_of, dy}, c, algorithm,
                 workspace, bytes, alpha, beta, Part::w);
}
