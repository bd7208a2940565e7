#include "espalier/ops/convolution/cudnn/cudnn_convolution.h"

#include <array>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "espalier/core/cuda/runtime.h"
#include "espalier/core/error.h"
#include "espalier/ops/convolution/cudnn/descriptors.h"
#include "espalier/ops/convolution/device_workspace.h"
#include "espalier/ops/matmul/cuda/measuring.h"
#include "espalier/ops/matmul/matmul_precision.h"

namespace espalier::cu {

namespace {

constexpr int most_algorithms = 16;

/// Axes of the library, which wants two or three: of the first ones, those of size 1 say nothing.
size_t first_axis(const ConvolutionSizes& s) {
  const bool flat = s.in[0] == 1 && s.out[0] == 1 && s.kernel[0] == 1 && s.before[0] == 0;
  return flat ? 1 : 0;
}

std::vector<int> integers(std::initializer_list<int64_t> first, const ConvolutionSizes::PerAxis3& rest,
                          size_t from) {
  std::vector<int> all;
  for (const int64_t x : first) all.push_back(static_cast<int>(x));
  for (size_t i = from; i < rest.size(); ++i) all.push_back(static_cast<int>(rest[i]));
  return all;
}

void check_sizes(const ConvolutionSizes& s) {
  constexpr int64_t most = std::numeric_limits<int>::max();
  if (s.batch * s.groups * s.in_channels * s.in_places() > most ||
      s.batch * s.groups * s.out_channels * s.out_places() > most ||
      s.groups * s.out_channels * s.in_channels * s.kernel_places() > most)
    throw UnsupportedError("cuDNN: tensors of more than 2^31 elements");
  for (size_t i = 0; i < most_convolution_axes; ++i) {
    const int64_t free = s.in[i] + 2 * s.before[i] - ((s.kernel[i] - 1) * s.dilation[i] + 1);
    if (free < 0 || free / s.stride[i] + 1 != s.out[i])
      throw UnsupportedError("cuDNN: padding that differs at the ends of an axis");
  }
}

/// The first of them, which are in the order of their times, that may be used.
template <class Perf>
CudnnAlgorithm first_of(std::span<const Perf> found, bool ieee, size_t limit) {
  for (const Perf& each : found) {
    const bool tensor_cores =
        each.mathType == CUDNN_TENSOR_OP_MATH || each.mathType == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION;
    if (each.status != CUDNN_STATUS_SUCCESS || each.determinism != CUDNN_DETERMINISTIC ||
        each.memory > limit || (ieee && tensor_cores))
      continue;
    return {static_cast<int>(each.algo), ieee ? CUDNN_FMA_MATH : each.mathType, each.memory};
  }
  throw UnsupportedError("cuDNN has no algorithm for these sizes");
}

/// Choices by device and case, for the process.
struct Known {
  std::mutex mutex;
  std::map<std::vector<int64_t>, CudnnAlgorithm> choices;
};
Known& known() {
  static auto* all = new Known;
  return *all;
}
constexpr size_t most_known = 4096;

}  // namespace

CudnnConvolution::CudnnConvolution(const ConvolutionSizes& sizes, ConvolutionResult result, DType dtype,
                                   Workspace workspace, cudnnTensorFormat_t format)
    : sizes_(sizes),
      result_(result),
      dtype_(dtype),
      format_(format),
      ieee_(dtype == DType::float64 ||
            (dtype == DType::float32 && matmul_precision() != MatmulPrecision::tf32)) {
  if (!cudnn()) throw UnsupportedError("cuDNN cannot be opened");
  check_sizes(sizes);
  const ConvolutionSizes& s = sizes_;
  const size_t first = first_axis(s);
  places_ = most_convolution_axes - first;
  x_ = tensor_descriptor(dtype, format, integers({s.batch, s.groups * s.in_channels}, s.in, first));
  y_ = tensor_descriptor(dtype, format, integers({s.batch, s.groups * s.out_channels}, s.out, first));
  kernels_ =
      filter_descriptor(dtype, format, integers({s.groups * s.out_channels, s.in_channels}, s.kernel, first));
  convolution_ = created(cudnn()->cudnnCreateConvolutionDescriptor, "cudnnCreateConvolutionDescriptor");
  const std::vector<int> before = integers({}, s.before, first), stride = integers({}, s.stride, first),
                         dilation = integers({}, s.dilation, first);
  check(
      cudnn()->cudnnSetConvolutionNdDescriptor(
          convolution_.get(), static_cast<int>(before.size()), before.data(), stride.data(), dilation.data(),
          CUDNN_CROSS_CORRELATION, dtype == DType::float64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT),
      "cudnnSetConvolutionNdDescriptor");
  check(cudnn()->cudnnSetConvolutionGroupCount(convolution_.get(), static_cast<int>(s.groups)),
        "cudnnSetConvolutionGroupCount");
  const int64_t limit = device_workspace_bytes(s, dtype);
  try {
    algorithm_ = choose(limit);
  } catch (const UnsupportedError&) {  // TF32 may be used, but need not
    if (ieee_ || dtype != DType::float32) throw;
    ieee_ = true;
    algorithm_ = choose(limit);
  }
  check(cudnn()->cudnnSetConvolutionMathType(convolution_.get(), algorithm_.math),
        "cudnnSetConvolutionMathType");
  if (algorithm_.workspace > 0)
    workspace_ =
        workspace.take({static_cast<int64_t>(algorithm_.workspace)}, DType::boolean, gpu(current_device()));
}

std::vector<int64_t> CudnnConvolution::key(bool measured) const {
  const ConvolutionSizes& s = sizes_;
  std::vector<int64_t> key{current_device(),
                           static_cast<int64_t>(result_),
                           static_cast<int64_t>(dtype_),
                           static_cast<int64_t>(format_),
                           ieee_,
                           measured,
                           s.batch,
                           s.groups,
                           s.in_channels,
                           s.out_channels};
  for (const auto* each : {&s.in, &s.out, &s.kernel, &s.stride, &s.dilation, &s.before})
    key.insert(key.end(), each->begin(), each->end());
  return key;
}

CudnnAlgorithm CudnnConvolution::choose(int64_t limit) const {
  const bool measuring = MeasuringScope::wanted();
  const auto own = key(measuring);
  {
    const std::lock_guard lock(known().mutex);
    for (const bool measured : {true, false}) {  // what was measured is taken where nothing may be measured
      if (measured ? !MeasuringScope::lives() : measuring) continue;
      const auto found = known().choices.find(key(measured));
      if (found != known().choices.end()) return found->second;
    }
  }
  check(cudnn()->cudnnSetConvolutionMathType(convolution_.get(), ieee_ ? CUDNN_FMA_MATH
                                                                 : dtype_ == DType::float32
                                                                     ? CUDNN_DEFAULT_MATH
                                                                     : CUDNN_TENSOR_OP_MATH),
        "cudnnSetConvolutionMathType");
  const auto room = static_cast<size_t>(limit);
  CudnnAlgorithm algorithm;
  try {
    algorithm = measuring ? measured(room) : suggested(room);
  } catch (const OutOfMemory&) {  // the operands of the trial do not fit beside the plan
    if (!measuring) throw;
    return suggested(room);
  }
  const std::lock_guard lock(known().mutex);
  if (known().choices.size() >= most_known) known().choices.clear();
  return known().choices[own] = algorithm;
}

CudnnAlgorithm CudnnConvolution::suggested(size_t limit) const {
  const CudnnCall call;
  const Cudnn& f = *cudnn();
  int count = 0;
  const auto pick = [&](auto& found, auto ask, auto a, auto b, auto c, const char* what) {
    check(ask(call.handle(), a, b, convolution_.get(), c, most_algorithms, &count, found.data()), what);
    return first_of(std::span(std::as_const(found)).first(static_cast<size_t>(count)), ieee_, limit);
  };
  if (result_ == ConvolutionResult::y) {
    std::array<cudnnConvolutionFwdAlgoPerf_t, most_algorithms> found{};
    return pick(found, f.cudnnGetConvolutionForwardAlgorithm_v7, x_.get(), kernels_.get(), y_.get(),
                "cudnnGetConvolutionForwardAlgorithm_v7");
  }
  if (result_ == ConvolutionResult::x) {
    std::array<cudnnConvolutionBwdDataAlgoPerf_t, most_algorithms> found{};
    return pick(found, f.cudnnGetConvolutionBackwardDataAlgorithm_v7, kernels_.get(), y_.get(), x_.get(),
                "cudnnGetConvolutionBackwardDataAlgorithm_v7");
  }
  std::array<cudnnConvolutionBwdFilterAlgoPerf_t, most_algorithms> found{};
  return pick(found, f.cudnnGetConvolutionBackwardFilterAlgorithm_v7, x_.get(), y_.get(), kernels_.get(),
              "cudnnGetConvolutionBackwardFilterAlgorithm_v7");
}

CudnnConvolution::TrialOperands CudnnConvolution::trial_operands() const {
  const auto zeros_of = [&](int64_t elements) {
    Tensor memory({elements}, dtype_, gpu(current_device()));
    zero_elements(memory);
    return memory;
  };
  const ConvolutionSizes& s = sizes_;
  return {zeros_of(s.batch * s.groups * s.in_channels * s.in_places()),
          zeros_of(s.groups * s.out_channels * s.in_channels * s.kernel_places()),
          zeros_of(s.batch * s.groups * s.out_channels * s.out_places())};
}

CudnnAlgorithm CudnnConvolution::measured(size_t limit) const {
  const auto [x, kernels, y] = trial_operands();
  const Tensor room({static_cast<int64_t>(limit)}, DType::boolean, gpu(current_device()));
  const NoCaptureScope
      alone;  // the library synchronizes the device; before the handle, which captures wait for
  const CudnnCall call;
  const Cudnn& f = *cudnn();
  int count = 0;
  const auto pick = [&](auto& found, cudnnStatus_t status, const char* what) {
    check(status, what);
    return first_of(std::span(std::as_const(found)).first(static_cast<size_t>(count)), ieee_, limit);
  };
  if (result_ == ConvolutionResult::y) {
    std::array<cudnnConvolutionFwdAlgoPerf_t, most_algorithms> found{};
    return pick(found,
                f.cudnnFindConvolutionForwardAlgorithmEx(call.handle(), x_.get(), x.address(), kernels_.get(),
                                                         kernels.address(), convolution_.get(), y_.get(),
                                                         y.address(), most_algorithms, &count, found.data(),
                                                         room.address(), limit),
                "cudnnFindConvolutionForwardAlgorithmEx");
  }
  if (result_ == ConvolutionResult::x) {
    std::array<cudnnConvolutionBwdDataAlgoPerf_t, most_algorithms> found{};
    return pick(
        found,
        f.cudnnFindConvolutionBackwardDataAlgorithmEx(
            call.handle(), kernels_.get(), kernels.address(), y_.get(), y.address(), convolution_.get(),
            x_.get(), x.address(), most_algorithms, &count, found.data(), room.address(), limit),
        "cudnnFindConvolutionBackwardDataAlgorithmEx");
  }
  std::array<cudnnConvolutionBwdFilterAlgoPerf_t, most_algorithms> found{};
  return pick(found,
              f.cudnnFindConvolutionBackwardFilterAlgorithmEx(call.handle(), x_.get(), x.address(), y_.get(),
                                                              y.address(), convolution_.get(), kernels_.get(),
                                                              kernels.address(), most_algorithms, &count,
                                                              found.data(), room.address(), limit),
              "cudnnFindConvolutionBackwardFilterAlgorithmEx");
}

void CudnnConvolution::run(void* x, void* kernels, void* y) const {
  const bool wide = dtype_ == DType::float64;
  const float one32 = 1, zero32 = 0;
  const double one64 = 1, zero64 = 0;
  const void* const one = wide ? static_cast<const void*>(&one64) : &one32;
  const void* const zero = wide ? static_cast<const void*>(&zero64) : &zero32;
  void* const room = workspace_.defined() ? workspace_.address() : nullptr;
  const CudnnCall call;
  const Cudnn& f = *cudnn();
  switch (result_) {
    case ConvolutionResult::y:
      return check(f.cudnnConvolutionForward(call.handle(), one, x_.get(), x, kernels_.get(), kernels,
                                             convolution_.get(),
                                             static_cast<cudnnConvolutionFwdAlgo_t>(algorithm_.number), room,
                                             algorithm_.workspace, zero, y_.get(), y),
                   "cudnnConvolutionForward");
    case ConvolutionResult::x:
      return check(f.cudnnConvolutionBackwardData(
                       call.handle(), one, kernels_.get(), kernels, y_.get(), y, convolution_.get(),
                       static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm_.number), room,
                       algorithm_.workspace, zero, x_.get(), x),
                   "cudnnConvolutionBackwardData");
    case ConvolutionResult::kernels:
      return check(
          f.cudnnConvolutionBackwardFilter(call.handle(), one, x_.get(), x, y_.get(), y, convolution_.get(),
                                           static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm_.number),
                                           room, algorithm_.workspace, zero, kernels_.get(), kernels),
          "cudnnConvolutionBackwardFilter");
  }
}

}  // namespace espalier::cu
