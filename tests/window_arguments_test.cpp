// Wrong numbers and shapes given to what slides windows and resizes: each mistake is an error of its type
// that names the function that was called, and its line.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>
#include <typeinfo>

#include "espalier/core/error.h"
#include "espalier/nn/channel_norm.h"
#include "espalier/nn/convolution.h"
#include "espalier/nn/pooling.h"
#include "espalier/nn/vision_pooling.h"
#include "espalier/nn/windows.h"
#include "espalier/ops/functions/global_pooling.h"
#include "espalier/ops/functions/suppression.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
namespace nn = espalier::nn;
using namespace espalier::testing;
using esp::PerAxis;
using esp::Variable;

namespace {

enum class Kind { shape, type, number, index };
struct Mistake {
  std::string function;
  Kind kind;
  std::function<void()> call;
  std::string says = {};  ///< further words of the message
};

template <class Same>
bool is_exactly(const esp::Error& e) {
  return typeid(e) == typeid(Same);
}
bool has_kind(const esp::Error& e, Kind kind) {
  switch (kind) {
    case Kind::shape: return is_exactly<esp::ShapeError>(e);
    case Kind::type: return is_exactly<esp::TypeError>(e);
    case Kind::number: return is_exactly<esp::Error>(e);
    case Kind::index: return is_exactly<esp::IndexError>(e);
  }
  return false;
}

const Variable image = numbers({1, 4, 5, 6}), row = numbers({2, 4, 6}), empty = numbers({1, 4, 0, 6}),
               none = numbers({0, 4, 5, 6}), flat = numbers({5, 6}), kernels = numbers({6, 4, 3, 3}),
               whole = esp::ones({1, 4, 5, 6}, esp::int64), boxes = numbers({3, 5}, 0, 0.5);
const esp::Tensor places = esp::zeros({2, 4, 6}, esp::int64);

/// Numbers that no window has, for what takes a kernel, a stride, a padding and a dilation.
template <class Options>
std::vector<Mistake> window_mistakes(const std::string& function,
                                     const std::function<void(const Variable&, const Options&)>& f) {
  std::vector<Mistake> all;
  const auto add = [&](Kind kind, const Variable& x, const Options& o, const std::string& says) {
    all.push_back({function, kind, [=] { f(x, o); }, says});
  };
  add(Kind::number, image, {.kernel = 0}, "kernel of 0");
  add(Kind::number, image, {.kernel = PerAxis{2, -1}}, "kernel of -1");
  add(Kind::number, image, {.kernel = 2, .stride = 0}, "stride of 0");
  add(Kind::number, image, {.kernel = 2, .stride = -3}, "stride of -3");
  add(Kind::number, image, {.kernel = 2, .padding = -1}, "padding of -1");
  add(Kind::shape, image, {.kernel = PerAxis{1, 2, 3}}, "3 kernel numbers for 2 axes");
  add(Kind::shape, image, {.kernel = 2, .stride = PerAxis{1, 2, 3}}, "3 stride numbers for 2 axes");
  add(Kind::shape, image, {.kernel = 7}, "[1, 4, 5, 6]");
  add(Kind::shape, empty, {.kernel = 1}, "[1, 4, 0, 6]");
  add(Kind::shape, flat, {.kernel = 1}, "[5, 6]");
  if constexpr (requires(Options o) { o.dilation; }) {
    add(Kind::number, image, {.kernel = 2, .dilation = 0}, "dilation of 0");
    add(Kind::number, image, {.kernel = 2, .dilation = -1}, "dilation of -1");
    add(Kind::shape, image, {.kernel = 2, .dilation = PerAxis{6, 1}}, "[1, 4, 5, 6]");
  }
  return all;
}

void check(const std::vector<Mistake>& mistakes) {
  for (const Mistake& m : mistakes) BOOST_TEST_CONTEXT(m.function << " " << m.says) {
      try {
        m.call();
        BOOST_ERROR("nothing was thrown");
      } catch (const esp::Error& e) {
        const std::string text = e.what();
        BOOST_TEST(has_kind(e, m.kind), text);
        BOOST_TEST(text.rfind(m.function + ": ", 0) == 0U, text);
        BOOST_TEST(text.find(m.says) != std::string::npos, text);
        BOOST_TEST(text.find("window_arguments_test.cpp:") != std::string::npos, text);
      }
    }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(window_arguments)

BOOST_AUTO_TEST_CASE(pooling) {
  check(window_mistakes<esp::MaxPoolOptions>("max_pool", [](auto& x, auto& o) { esp::max_pool(x, o); }));
  check(window_mistakes<esp::MaxPoolOptions>("max_pool_with_indices",
                                             [](auto& x, auto& o) { esp::max_pool_with_indices(x, o); }));
  check(window_mistakes<esp::AveragePoolOptions>("avg_pool", [](auto& x, auto& o) { esp::avg_pool(x, o); }));
  check(window_mistakes<esp::LpPoolOptions>("lp_pool", [](auto& x, auto& o) { esp::lp_pool(x, o); }));
  check({
      {"max_pool", Kind::number, [] { esp::max_pool(image, {.kernel = 2, .padding = 2}); }, "half"},
      {"avg_pool", Kind::type, [] { esp::avg_pool(whole, {.kernel = 2}); }, "int64"},
      {"max_pool", Kind::type, [] { esp::max_pool(esp::cast(image, esp::uint8), {.kernel = 2}); }, "uint8"},
      {"lp_pool", Kind::type, [] { esp::lp_pool(whole, {.kernel = 2}); }, "int64"},
      {"lp_pool", Kind::number, [] { esp::lp_pool(image, {.kernel = 2, .p = 0}); }, "p is 0"},
      {"lp_pool", Kind::number, [] { esp::lp_pool(image, {.kernel = 2, .p = INFINITY}); }, "p is inf"},
      {"adaptive_max_pool", Kind::number, [] { esp::adaptive_max_pool(image, 0); }, "cannot have 0 parts"},
      {"adaptive_max_pool_with_indices", Kind::shape,
       [] {
         esp::adaptive_max_pool_with_indices(image, {2, 2, 2});
       },
       "3 numbers of parts for 2 axes"},
      {"adaptive_avg_pool", Kind::number, [] { esp::adaptive_avg_pool(image, -2); }, "cannot have -2 parts"},
      {"adaptive_avg_pool", Kind::shape,
       [] {
         esp::adaptive_avg_pool(image, {1, 2, 3});
       },
       "3"},
      {"adaptive_avg_pool", Kind::shape, [] { esp::adaptive_avg_pool(flat, 1); }, "[5, 6]"},
      {"adaptive_max_pool", Kind::shape, [] { esp::adaptive_max_pool(empty, 1); }, "empty"},
      {"adaptive_avg_pool", Kind::type, [] { esp::adaptive_avg_pool(whole, 1); }, "int64"},
      {"global_max_pool", Kind::shape, [] { esp::global_max_pool(flat); }, "[5, 6]"},
      {"global_avg_pool", Kind::shape, [] { esp::global_avg_pool(empty); }, "empty"},
      {"global_avg_pool", Kind::type, [] { esp::global_avg_pool(whole); }, "int64"},
      {"global_lp_pool", Kind::number, [] { esp::global_lp_pool(image, -1); }, "p is -1"},
      {"fractional_max_pool", Kind::number, [] { esp::fractional_max_pool(image, {.kernel = 2}); }, "ratio"},
      {"fractional_max_pool", Kind::number,
       [] { esp::fractional_max_pool(image, {.kernel = 0, .parts = 2}); }, "kernel of 0"},
      {"fractional_max_pool", Kind::number,
       [] { esp::fractional_max_pool(image, {.kernel = 2, .parts = 0}); }, "cannot have 0 parts"},
      {"fractional_max_pool", Kind::number,
       [] { esp::fractional_max_pool(image, {.kernel = 2, .ratio = {1.5}}); }, "1.5"},
      {"fractional_max_pool", Kind::shape,
       [] { esp::fractional_max_pool(image, {.kernel = 2, .ratio = {0.1}}); }, "no window"},
      {"fractional_max_pool", Kind::shape, [] { esp::fractional_max_pool(image, {.kernel = 4, .parts = 3}); },
       "do not fit"},
      {"fractional_max_pool", Kind::shape,
       [] {
         esp::fractional_max_pool(image, {.kernel = 2, .parts = 2}, numbers({1, 4, 3}));
       },
       "[1, 4, 3]"},
      {"fractional_max_pool", Kind::shape, [] { esp::fractional_max_pool(empty, {.kernel = 1, .parts = 1}); },
       "[1, 4, 0, 6]"},
      {"fractional_max_pool", Kind::shape,
       [] { esp::fractional_max_pool(empty, {.kernel = 1, .ratio = {0.5}}); }, "[1, 4, 0, 6]"},
      {"fractional_max_pool_with_indices", Kind::shape,
       [] { esp::fractional_max_pool_with_indices(empty, {.kernel = 1, .parts = 1}); }, "[1, 4, 0, 6]"},
      {"fractional_max_pool", Kind::type, [] { esp::fractional_max_pool(whole, {.kernel = 2, .parts = 2}); },
       "int64"},
      {"max_unpool", Kind::number, [] { esp::max_unpool(row, places, {.kernel = 0}); }, "kernel of 0"},
      {"max_unpool", Kind::number, [] { esp::max_unpool(row, places, {.kernel = 2, .stride = -1}); },
       "stride of -1"},
      {"max_unpool", Kind::shape, [] { esp::max_unpool(row, places, {.kernel = 2, .size = 16}); }, "16"},
      {"max_unpool", Kind::shape, [] { esp::max_unpool(image, places, {.kernel = 2}); }, "[2, 4, 6]"},
      {"max_unpool", Kind::shape,
       [] {
         esp::max_unpool(empty, esp::zeros({1, 4, 0, 6}, esp::int64), {.kernel = 2});
       },
       "[1, 4, 0, 6]"},
      {"max_unpool", Kind::type, [] { esp::max_unpool(row, row, {.kernel = 2}); }, "float64"},
      {"max_unpool", Kind::index, [] { esp::max_unpool(row, places + int64_t{99}, {.kernel = 2}); }, "99"},
  });
}

BOOST_AUTO_TEST_CASE(convolution) {
  const Variable back = numbers({4, 6, 3, 3});
  const auto conv = [](const esp::ConvolutionOptions& o) { return [o] { esp::conv(image, kernels, o); }; };
  const auto transposed = [back](const esp::TransposedConvolutionOptions& o) {
    return [o, back] { esp::conv_transpose(image, back, o); };
  };
  check({
      {"conv", Kind::number, conv({.stride = 0}), "stride of 0"},
      {"conv", Kind::number, conv({.stride = PerAxis{1, -1}}), "stride of -1"},
      {"conv", Kind::number, conv({.padding = -1}), "padding of -1"},
      {"conv", Kind::number, conv({.dilation = 0}), "dilation of 0"},
      {"conv", Kind::number, conv({.groups = 0}), "groups of 0"},
      {"conv", Kind::number, conv({.groups = -2}), "groups of -2"},
      {"conv", Kind::shape, conv({.groups = 2}), "[1, 4, 5, 6]"},
      {"conv", Kind::shape, conv({.dilation = 3}), "dilation 3"},
      {"conv", Kind::shape, conv({.stride = PerAxis{1, 2, 3}}), "3 stride numbers"},
      {"conv", Kind::shape,
       [] {
         esp::conv(image, numbers({6, 4, 7, 7}));
       },
       "[1, 4, 5, 6]"},
      {"conv", Kind::shape,
       [] {
         esp::conv(image, numbers({5, 2, 3, 3}), {.groups = 2});
       },
       "2 groups"},
      {"conv", Kind::shape,
       [] {
         esp::conv(image, numbers({6, 4, 0, 3}));
       },
       "[6, 4, 0, 3]"},
      {"conv", Kind::shape, [] { esp::conv(empty, kernels); }, "[1, 4, 0, 6]"},
      {"conv", Kind::shape, [] { esp::conv(empty, kernels, {.padding = 2}); }, "[1, 4, 0, 6]"},
      {"conv", Kind::shape, [] { esp::conv(flat, kernels); }, "[5, 6]"},
      {"conv", Kind::shape, [] { esp::conv(image, kernels, numbers({5})); }, "[5]"},
      {"conv", Kind::type,
       [] {
         esp::conv(whole, esp::ones({6, 4, 3, 3}, esp::int64));
       },
       "int64"},
      {"conv", Kind::type, [] { esp::conv(image, esp::cast(kernels, esp::float32)); }, "float32"},
      {"conv_transpose", Kind::number, transposed({.stride = 0}), "stride of 0"},
      {"conv_transpose", Kind::number, transposed({.padding = -1}), "padding of -1"},
      {"conv_transpose", Kind::number, transposed({.stride = 2, .output_padding = 2}), "output padding of 2"},
      {"conv_transpose", Kind::number, transposed({.output_padding = -1}), "output padding of -1"},
      {"conv_transpose", Kind::number, transposed({.dilation = 0}), "dilation of 0"},
      {"conv_transpose", Kind::number, transposed({.groups = 0}), "groups of 0"},
      {"conv_transpose", Kind::shape, transposed({.groups = 3}), "3 groups"},
      {"conv_transpose", Kind::shape, transposed({.padding = 9}), "[1, 4, 5, 6]"},
      {"conv_transpose", Kind::shape,
       [] {
         esp::conv_transpose(image, numbers({5, 6, 3, 3}));
       },
       "[5, 6, 3, 3]"},
      {"conv_transpose", Kind::shape, [back] { esp::conv_transpose(empty, back); }, "[1, 4, 0, 6]"},
      {"conv_transpose", Kind::shape, [back] { esp::conv_transpose(flat, back); }, "[5, 6]"},
      {"conv_transpose", Kind::type,
       [] {
         esp::conv_transpose(whole, esp::ones({4, 6, 3, 3}, esp::int64));
       },
       "int64"},
  });
}

BOOST_AUTO_TEST_CASE(windows) {
  check(window_mistakes<esp::WindowOptions>("unfold", [](auto& x, auto& o) { esp::unfold(x, o); }));
  const Variable columns = numbers({1, 4, 4});
  const auto fold = [columns](const esp::WindowOptions& o) {
    return [o, columns] { esp::fold(columns, {4, 4}, o); };
  };
  check({
      {"fold", Kind::number, fold({.kernel = 0}), "kernel of 0"},
      {"fold", Kind::number, fold({.kernel = 2, .stride = 0}), "stride of 0"},
      {"fold", Kind::number, fold({.kernel = 2, .padding = -1}), "padding of -1"},
      {"fold", Kind::number, fold({.kernel = 2, .dilation = 0}), "dilation of 0"},
      {"fold", Kind::shape, fold({.kernel = 2}), "[1, 4, 4]"},
      {"fold", Kind::shape, fold({.kernel = 9, .stride = 2}), "[1, 4, 4]"},
      {"fold", Kind::shape, fold({.kernel = 3, .stride = 2}), "[1, 4, 4]"},
      {"fold", Kind::shape,
       [] {
         esp::fold(flat, {4, 4}, {.kernel = 2});
       },
       "[5, 6]"},
      {"sliding_windows", Kind::shape, [] { esp::sliding_windows(row, 2, 7); }, "[2, 4, 6]"},
      {"sliding_windows", Kind::number, [] { esp::sliding_windows(row, 2, 0); }, "0"},
      {"sliding_windows", Kind::number, [] { esp::sliding_windows(row, 2, 2, 0); }, "0"},
      {"sliding_windows", Kind::number, [] { esp::sliding_windows(row, 2, 2, 1, 0); }, "0"},
      {"sliding_windows", Kind::shape, [] { esp::sliding_windows(row, 3, 2); }, "3"},
      {"pixel_shuffle", Kind::number, [] { esp::pixel_shuffle(image, 0); }, "0"},
      {"pixel_shuffle", Kind::number, [] { esp::pixel_shuffle(image, -2); }, "-2"},
      {"pixel_shuffle", Kind::shape, [] { esp::pixel_shuffle(image, 3); }, "9"},
      {"pixel_shuffle", Kind::shape, [] { esp::pixel_shuffle(flat, 1); }, "[5, 6]"},
      {"pixel_unshuffle", Kind::number, [] { esp::pixel_unshuffle(image, 0); }, "0"},
      {"pixel_unshuffle", Kind::shape, [] { esp::pixel_unshuffle(image, 2); }, "2"},
      {"channel_shuffle", Kind::number, [] { esp::channel_shuffle(image, 0); }, "0"},
      {"channel_shuffle", Kind::number, [] { esp::channel_shuffle(image, -1); }, "-1"},
      {"channel_shuffle", Kind::shape, [] { esp::channel_shuffle(image, 3); }, "3"},
  });
}

BOOST_AUTO_TEST_CASE(resizing) {
  const Variable grid = numbers({1, 2, 2, 2});
  const auto resized = [](const esp::InterpolateOptions& o) { return [o] { esp::interpolate(image, o); }; };
  check({
      {"interpolate", Kind::number, resized({}), "sizes"},
      {"interpolate", Kind::number, resized({.size = {0}}), "0"},
      {"interpolate", Kind::number, resized({.size = {3, -1}}), "-1"},
      {"interpolate", Kind::number, resized({.scale = {0}}), "0"},
      {"interpolate", Kind::number, resized({.scale = {-2}}), "-2"},
      {"interpolate", Kind::number, resized({.scale = {NAN}}), "nan"},
      {"interpolate", Kind::shape, resized({.scale = {0.01}}), "[1, 4, 5, 6]"},
      {"interpolate", Kind::shape, resized({.size = {1, 2, 3}}), "3 numbers"},
      {"interpolate", Kind::number, resized({.size = {2}, .align_corners = true}), "aligned"},
      {"interpolate", Kind::shape, [] { esp::interpolate(flat, {.size = {2}}); }, "[5, 6]"},
      {"interpolate", Kind::shape, [] { esp::interpolate(empty, {.size = {2}}); }, "[1, 4, 0, 6]"},
      {"interpolate", Kind::type, [] { esp::interpolate(whole, {.size = {2}}); }, "int64"},
      {"grid_sample", Kind::shape, [] { esp::grid_sample(image, flat); }, "[5, 6]"},
      {"grid_sample", Kind::shape, [grid] { esp::grid_sample(empty, grid); }, "[1, 4, 0, 6]"},
      {"grid_sample", Kind::shape, [grid] { esp::grid_sample(none, grid); }, "[0, 4, 5, 6]"},
      {"grid_sample", Kind::type, [grid] { esp::grid_sample(whole, grid); }, "int64"},
      {"grid_sample", Kind::type, [grid] { esp::grid_sample(image, esp::cast(grid, esp::float32)); },
       "float32"},
      {"affine_grid", Kind::shape,
       [] {
         esp::affine_grid(flat, {2, 2});
       },
       "[5, 6]"},
      {"affine_grid", Kind::shape,
       [] {
         esp::affine_grid(numbers({1, 2, 3}), {2, -2});
       },
       "-2"},
      {"affine_grid", Kind::type,
       [] {
         esp::affine_grid(esp::ones({1, 2, 3}, esp::int64), {2, 2});
       },
       "int64"},
  });
}

BOOST_AUTO_TEST_CASE(regions) {
  const Variable scores = numbers({3}), corners = numbers({3, 4});
  check({
      {"roi_align", Kind::number, [] { esp::roi_align(image, boxes, {.size = 0}); }, "size of 0"},
      {"roi_align", Kind::number, [] { esp::roi_align(image, boxes, {.size = 2, .scale = 0}); },
       "scale of 0"},
      {"roi_align", Kind::number, [] { esp::roi_align(image, boxes, {.size = 2, .samples = -1}); },
       "-1 samples"},
      {"roi_align", Kind::shape,
       [] {
         esp::roi_align(image, boxes, {.size = {1, 2, 3}});
       },
       "3 size numbers"},
      {"roi_align", Kind::shape, [] { esp::roi_align(image, flat, {.size = 2}); }, "[5, 6]"},
      {"roi_align", Kind::shape, [] { esp::roi_align(row, boxes, {.size = 2}); }, "[2, 4, 6]"},
      {"roi_align", Kind::shape, [] { esp::roi_align(empty, boxes, {.size = 2}); }, "[1, 4, 0, 6]"},
      {"roi_align", Kind::type, [] { esp::roi_align(whole, boxes, {.size = 2}); }, "int64"},
      {"roi_align", Kind::index, [] { esp::roi_align(image, boxes + 7.0, {.size = 2}); }, "index 7"},
      {"roi_pool", Kind::number, [] { esp::roi_pool(image, boxes, {.size = -1}); }, "size of -1"},
      {"roi_pool", Kind::number, [] { esp::roi_pool(image, boxes, {.size = 2, .scale = NAN}); },
       "scale of nan"},
      {"roi_pool", Kind::shape, [] { esp::roi_pool(image, flat, {.size = 2}); }, "[5, 6]"},
      {"roi_pool", Kind::type, [] { esp::roi_pool(image, esp::cast(boxes, esp::float32), {.size = 2}); },
       "float32"},
      {"roi_pool", Kind::index, [] { esp::roi_pool(image, boxes + 7.0, {.size = 2}); }, "index 7"},
      {"nms", Kind::shape, [scores] { esp::nms(flat, scores, 0.5); }, "[5, 6]"},
      {"nms", Kind::number, [=] { esp::nms(corners, scores, NAN); }, "NaN"},
      {"nms", Kind::type,
       [=] {
         esp::nms(esp::ones({3, 4}, esp::int64), scores, 0.5);
       },
       "int64"},
      {"batched_nms", Kind::shape,
       [=] { esp::batched_nms(corners, scores, esp::zeros({2}, esp::int64), 0.5); }, "[2]"},
      {"batched_nms", Kind::type, [=] { esp::batched_nms(corners, scores, scores, 0.5); }, "float64"},
      {"non_max_suppression", Kind::shape, [=] { esp::non_max_suppression(corners, scores); }, "[3, 4]"},
      {"non_max_suppression", Kind::number,
       [=] {
         esp::non_max_suppression(esp::unsqueeze(corners, 0), numbers({1, 1, 3}), {.most = -1});
       },
       "-1"},
  });
}

BOOST_AUTO_TEST_CASE(layers) {
  check({
      {"MaxPool2d", Kind::shape, [] { nn::MaxPool2d({.kernel = 2})(row); }, "[2, 4, 6]"},
      {"AvgPool1d", Kind::shape, [] { nn::AvgPool1d({.kernel = 2})(image); }, "[1, 4, 5, 6]"},
      {"AdaptiveAvgPool2d", Kind::shape, [] { nn::AdaptiveAvgPool2d(2)(row); }, "[2, 4, 6]"},
      {"LPPool2d", Kind::shape, [] { nn::LPPool2d({.kernel = 2})(row); }, "[2, 4, 6]"},
      {"FractionalMaxPool2d", Kind::shape, [] { nn::FractionalMaxPool2d({.kernel = 2, .parts = 2})(row); },
       "[2, 4, 6]"},
      {"MaxUnpool2d", Kind::shape, [] { nn::MaxUnpool2d({.kernel = 2})(row, places); }, "[2, 4, 6]"},
      {"MaxUnpool1d", Kind::number,
       [] { static_cast<const nn::Layer&>(nn::MaxUnpool1d({.kernel = 2}))(row); }, "two inputs"},
      {"RoiAlign", Kind::number, [] { static_cast<const nn::Layer&>(nn::RoiAlign({.size = 2}))(image); },
       "two inputs"},
      {"Conv2d", Kind::number, [] { nn::Conv2d(0, {.kernel = 3}); }, "0 channels"},
      {"Conv2d", Kind::number, [] { nn::Conv2d(4, {.kernel = 0}); }, "kernel of 0"},
      {"Conv2d", Kind::shape,
       [] {
         nn::Conv2d(4, {.kernel = {1, 2, 3}});
       },
       "3 kernel numbers for 2 axes"},
      {"Conv2d", Kind::number, [] { nn::Conv2d(4, {.kernel = 3, .groups = 0}); }, "groups of 0"},
      {"Conv2d", Kind::shape, [] { nn::Conv2d(4, {.kernel = 3, .groups = 3}); }, "3 groups"},
      {"Conv2d", Kind::shape, [] { nn::Conv2d(5, 4, {.kernel = 3, .groups = 2}); }, "5 channels"},
      {"Conv2d", Kind::number, [] { nn::Conv2d(0, 4, {.kernel = 3, .groups = 2}); }, "0 channels"},
      {"ConvTranspose2d", Kind::shape, [] { nn::ConvTranspose2d(5, {.kernel = 3, .groups = 2}); },
       "5 channels"},
      {"ConvTranspose2d", Kind::shape, [] { nn::ConvTranspose2d(3, 4, {.kernel = 3, .groups = 2}); },
       "3 channels"},
      {"GroupNorm", Kind::number, [] { nn::GroupNorm(0); }, "0 groups"},
      {"GroupNorm", Kind::shape, [] { nn::GroupNorm(2, {.channels = 5}); }, "5 channels"},
      {"GroupNorm", Kind::shape,
       [] {
         nn::GroupNorm(3)(esp::ones({1, 4, 2}));
       },
       "4 channels"},
      {"Conv2d", Kind::number, [] { nn::Conv2d(4, {.kernel = 3, .stride = 0})(image); }, "stride of 0"},
      {"Conv2d", Kind::number, [] { nn::Conv2d(4, {.kernel = 3, .dilation = -1})(image); }, "dilation of -1"},
      {"Conv2d", Kind::number, [] { nn::Conv2d(4, {.kernel = 3, .padding = -1})(image); }, "padding of -1"},
      {"conv", Kind::shape, [] { nn::Conv2d(4, {.kernel = 9})(image); }, "[1, 4, 5, 6]"},
      {"Conv2d", Kind::shape, [] { nn::Conv2d(6, {.kernel = 3, .groups = 3})(image); }, "3 groups"},
      {"Conv2d", Kind::shape, [] { nn::Conv2d(4, {.kernel = 3})(row); }, "[2, 4, 6]"},
      {"conv", Kind::shape, [] { nn::Conv2d(4, {.kernel = 3})(empty); }, "[1, 4, 0, 6]"},
      {"ConvTranspose1d", Kind::number, [] { nn::ConvTranspose1d(4, {.kernel = 0}); }, "kernel of 0"},
      {"ConvTranspose1d", Kind::number, [] { nn::ConvTranspose1d(4, {.kernel = 2, .stride = 0})(row); },
       "stride of 0"},
      {"conv_transpose", Kind::number,
       [] { nn::ConvTranspose1d(4, {.kernel = 2, .output_padding = 1})(row); }, "output padding of 1"},
  });
}

BOOST_AUTO_TEST_SUITE_END()
