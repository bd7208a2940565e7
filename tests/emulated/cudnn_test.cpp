// Convolutions by cuDNN: an emulated one for the whole program, opened as the real one is.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "emulated_cuda.h"
#include "espalier/core/cuda/runtime.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/random.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/container.h"
#include "espalier/nn/convolution.h"
#include "espalier/nn/pooling.h"
#include "espalier/ops/convolution/cudnn/cudnn_convolution.h"
#include "espalier/ops/functions/convolution.h"
#include "espalier/ops/matmul/cuda/measuring.h"
#include "espalier/ops/matmul/matmul_precision.h"
#include "espalier/ops/matmul/tuning.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "gpu_testing.h"
#include "testing.h"

namespace {

/// For all suites.
struct Library {
  Library() { setenv("ESPALIER_CUDNN_LIBRARY", EMULATED_CUDNN, 1); }
};

}  // namespace
BOOST_TEST_GLOBAL_FIXTURE(Library);

using namespace espalier;
using namespace espalier::testing;

namespace {

constexpr ConvolutionResult all_results[] = {ConvolutionResult::y, ConvolutionResult::x,
                                             ConvolutionResult::kernels};

/// 2 images of 2 groups of 3 channels, 7 × 6; kernels of 3 × 2, two steps down.
ConvolutionSizes sizes_of_a_case() {
  ConvolutionSizes s;
  s.batch = 2, s.groups = 2, s.in_channels = 3, s.out_channels = 4;
  s.in = {1, 7, 6}, s.kernel = {1, 3, 2}, s.stride = {1, 2, 1}, s.before = {0, 1, 0}, s.out = {1, 4, 5};
  return s;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_cudnn, *boost::unit_test::precondition(has_gpu))

BOOST_AUTO_TEST_CASE(libraries_that_cannot_be_used) {
  setenv("ESPALIER_CUDNN_LIBRARY", "/nowhere/libcudnn.so.9", 1);
  BOOST_CHECK_EXCEPTION((void)cu::open_cudnn(), UnsupportedError,
                        says({"cuDNN cannot be opened", "/nowhere/libcudnn.so.9"}));
  setenv("ESPALIER_CUDNN_LIBRARY", "libm.so.6", 1);
  BOOST_CHECK_EXCEPTION((void)cu::open_cudnn(), UnsupportedError,
                        says({"libm.so.6 is no cuDNN", "it has no cudnnGetVersion"}));
  setenv("ESPALIER_CUDNN_LIBRARY", EMULATED_CUDNN, 1);
}

BOOST_AUTO_TEST_CASE(results_are_those_of_direct_kernels) {
  const ConvolutionOptions options{.stride = {2, 1}, .padding = {{1, 1}, {0, 0}}, .groups = 2};
  for (const DType dtype : {float32, float64, float16, bfloat16}) {
    const Tensor x = numbers({2, 6, 7, 6}, -1, 1).to(dtype),
                 kernels = numbers({8, 3, 3, 2}, -1, 1, 1).to(dtype);
    const auto run = [&](Device device) {
      const Variable a = x.to(device), b = kernels.to(device), y = conv(a, b, options), loss = sum(y * y);
      return std::vector<Tensor>{y.value().to(cpu()), loss.gradient(a).value().to(cpu()),
                                 loss.gradient(b).value().to(cpu())};
    };
    const auto expected = run(cpu()), given = run(gpu());
    const double most = dtype == float64 ? 1e-13 : dtype == float32 ? 1e-4 : dtype == float16 ? 0.2 : 1.5;
    for (size_t i = 0; i < expected.size(); ++i)
      BOOST_TEST(difference(given[i].to(float64), expected[i].to(float64)) < most);
  }
}

BOOST_AUTO_TEST_CASE(channels_may_be_last) {
  const ConvolutionSizes s = sizes_of_a_case();
  struct Operands {
    Tensor x, kernels, y;
  };
  const auto run = [&](ConvolutionResult result, cudnnTensorFormat_t format, Operands all) {
    const cu::CudnnConvolution convolution(s, result, float32, Workspace(), format);
    for (Tensor* each : {&all.x, &all.kernels, &all.y}) *each = each->to(gpu());
    convolution.run(all.x.address(), all.kernels.address(), all.y.address());
    const Tensor& to = result == ConvolutionResult::y   ? all.y
                       : result == ConvolutionResult::x ? all.x
                                                        : all.kernels;
    return to.to(cpu());
  };
  const auto last = [](const Tensor& t) {
    return transpose(Variable(t), {0, 2, 3, 1}).value().contiguous_copy();
  };
  const Operands second{numbers({2, 6, 7, 6}).to(float32), numbers({8, 3, 3, 2}, -2, 2, 1).to(float32),
                        numbers({2, 8, 4, 5}, -2, 2, 2).to(float32)};
  for (const ConvolutionResult result : all_results)
    BOOST_TEST(difference(last(run(result, CUDNN_TENSOR_NCHW, second)),
                          run(result, CUDNN_TENSOR_NHWC,
                              {last(second.x), last(second.kernels), last(second.y)})) < 1e-4);
  for (const ConvolutionResult result : all_results)  // of 64 bits the library has none
    BOOST_CHECK_THROW(cu::CudnnConvolution(s, result, float64, Workspace(), CUDNN_TENSOR_NHWC),
                      UnsupportedError);
  using List = std::vector<int64_t>;
  const OpPtr op = make_op("conv", {{"stride", List{1, 1}},
                                    {"dilation", List{1, 1}},
                                    {"before", List{1, 0}},
                                    {"after", List{1, 0}},
                                    {"groups", int64_t{1}},
                                    {"channels_last", true}});
  const auto by = [&](Device device) {
    const Variable x = numbers({2, 7, 6, 3}).to(device), kernels = numbers({4, 3, 3, 2}, -2, 2, 1).to(device);
    return apply(op, {&x, &kernels}, std::source_location::current()).value().to(cpu());
  };
  BOOST_TEST(difference(by(gpu()), by(cpu())) < 1e-13);
  emulated::fail_next("cudnnConvolutionForward");  // so copies have them second
  BOOST_CHECK_EXCEPTION(by(gpu()), DeviceError, says({"cudnnConvolutionForward"}));
  emulated::reset();
}

BOOST_AUTO_TEST_CASE(a_plan_of_16_bits_calls_it_with_the_channels_last) {
  nn::Sequential net{nn::Conv2d(4, {.kernel = 3, .padding = 1}), nn::MaxPool2d(MaxPoolOptions{.kernel = 2}),
                     nn::Conv2d(3, {.kernel = 2}), nn::AvgPool2d(AveragePoolOptions{.kernel = 2})};
  const Variable x = numbers({6, 2, 6, 6}).to(float32), loss = mean(square(net(x)));
  const Executor executor = loss.get_executor(
      {.optimizer = optim::Sgd(0.05), .devices = {gpu()}, .precision = Precision::bfloat16});
  const std::string plan = executor.plan().str();
  const auto count = [&](std::string_view text) {
    size_t found = 0;
    for (size_t at = plan.find(text); at != std::string::npos; at = plan.find(text, at + 1)) ++found;
    return found;
  };
  // Of two convolutions, of which one has no gradient of x, 5; of the maxima 3: their places, the values
  // there, and the gradient; of the averages 2.
  BOOST_TEST(count("channels_last=true") == 10);
  BOOST_TEST(count("channels_last=false") == 0);
  emulated::fail_next("cudnnConvolutionBackwardFilter");
  BOOST_CHECK_EXCEPTION(
      {
        executor.step();
        synchronize(gpu());
      },
      DeviceError, says({"cudnnConvolutionBackwardFilter"}));
  emulated::reset();
}

/// Unless the library refuses that, as the emulated one does with bfloat16, or loses NaN.
BOOST_AUTO_TEST_CASE(a_plan_adds_biases_in_the_call_of_a_convolution) {
  const auto calls_it = [](Precision precision) {
    const nn::Conv2d first(4, {.kernel = 3}), second(4, {.kernel = 3});
    const Tensor images = numbers({2, 3, 6, 5}).to(float32);
    const Variable y = second(relu(first(placeholder("x", images.shape()))));
    emulated::fail_next("cudnnConvolutionBiasActivationForward");
    bool fails = false;
    try {
      (void)y.get_executor({.mode = Mode::inference, .devices = {gpu()}, .precision = precision})
          .run({{"x", images}});
    } catch (const DeviceError&) {
      fails = true;
      emulated::reset();
    }
    emulated::cancel_failures();
    return fails;
  };
  BOOST_TEST(calls_it(Precision::float32));
  BOOST_TEST(calls_it(Precision::float16));
  BOOST_TEST(!calls_it(Precision::bfloat16));
}

BOOST_AUTO_TEST_CASE(a_relu_that_loses_nan_is_not_taken) {
  Tensor images = numbers({2, 3, 7, 5}).to(float32);
  images.at<float>({1, 2, 3, 4}) = std::numeric_limits<float>::quiet_NaN();
  const nn::Conv2d layer(4, {.kernel = 3});
  const Variable y = relu(layer(placeholder("x", images.shape())));
  setenv("EMULATED_CUDNN_HIDES_NAN", "1", 1);
  const Tensor result = y.get_executor({.mode = Mode::inference, .devices = {gpu()}}).run({{"x", images}});
  unsetenv("EMULATED_CUDNN_HIDES_NAN");
  BOOST_TEST(std::isnan(result.at<float>({1, 0, 2, 2})));
}

BOOST_AUTO_TEST_CASE(the_library_is_called_and_its_failures_are_told) {
  const Variable x = numbers({1, 2, 5, 5}).to(gpu()), kernels = numbers({3, 2, 3, 3}).to(gpu());
  emulated::fail_next("cudnnConvolutionForward");
  BOOST_CHECK_EXCEPTION(conv(x, kernels).value(), DeviceError, says({"cudnnConvolutionForward"}));
  emulated::reset();
}

BOOST_AUTO_TEST_CASE(padding_at_one_end_has_a_kernel_of_ours) {
  const Tensor x = numbers({1, 2, 6, 6}), kernels = numbers({3, 2, 3, 3}, -2, 2, 1);
  const ConvolutionOptions options{.padding = {{0, 1}, {2, 0}}};
  emulated::fail_next("cudnnConvolutionForward");
  const Tensor y = conv(Variable(x.to(gpu())), Variable(kernels.to(gpu())), options).value().to(cpu());
  emulated::cancel_failures();
  BOOST_TEST(difference(y, conv(Variable(x), Variable(kernels), options).value()) < 1e-5);
}

BOOST_AUTO_TEST_CASE(algorithms_repeat_their_results_and_fit_the_workspace) {
  const ConvolutionSizes s = sizes_of_a_case();
  for (const ConvolutionResult result : all_results) {
    Tensor x = numbers({2, 6, 7, 6}).to(gpu()), y = numbers({2, 8, 4, 5}).to(gpu()),
           kernels = numbers({8, 3, 3, 2}).to(gpu());
    for (const bool measured : {false, true}) {
      std::optional<cu::MeasuringScope> scope;
      if (measured) scope.emplace();
      const auto before = emulated::counters().launches;
      const cu::CudnnConvolution convolution(s, result, float32, Workspace());
      BOOST_TEST((emulated::counters().launches > before) == measured);
      convolution.run(x.address(), kernels.address(), y.address());
      synchronize(gpu());
    }
    // Where nothing may be measured, what was measured before is taken.
    const cu::MeasuringScope scope;
    const TuneScope no_tuning(false);
    const auto before = emulated::counters().launches;
    const cu::CudnnConvolution convolution(s, result, float32, Workspace());
    BOOST_TEST(emulated::counters().launches == before);
  }
}

BOOST_AUTO_TEST_CASE(without_tensor_cores_unless_tf32_is_allowed) {
  const ConvolutionSizes s = sizes_of_a_case();
  BOOST_CHECK_NO_THROW(cu::CudnnConvolution(s, ConvolutionResult::y, float32, Workspace()));
  const MatmulPrecisionScope scope(MatmulPrecision::tf32);
  BOOST_CHECK_NO_THROW(cu::CudnnConvolution(s, ConvolutionResult::y, float32, Workspace()));
}

BOOST_AUTO_TEST_CASE(a_plan_trains_by_it) {
  const auto train = [](Device device) {
    espalier::seed(1);
    nn::Conv2d layer(4, {.kernel = 3, .padding = 1});
    const Variable x = numbers({6, 2, 5, 5}).to(device), target = numbers({6, 4, 5, 5}, -1, 1, 1).to(device);
    const Variable loss = mean(square(layer(x) - target));
    const Executor executor =
        loss.get_executor({.mode = Mode::training, .optimizer = optim::Sgd(0.05), .devices = {device}});
    std::vector<double> losses;
    for (int i = 0; i < 4; ++i) losses.push_back(executor.step().loss);
    return losses;
  };
  const auto expected = train(cpu()), given = train(gpu());
  for (size_t i = 0; i < given.size(); ++i) BOOST_TEST(std::abs(given[i] - expected[i]) < 1e-4);
  BOOST_TEST(given.back() < given.front());
}

BOOST_AUTO_TEST_SUITE_END()
