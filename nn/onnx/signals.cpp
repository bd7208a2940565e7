// Windows and spectra of signals.
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "espalier/nn/onnx/tensors.h"
#include "espalier/nn/onnx/translate.h"

namespace espalier::onnx {

namespace {

template <class Make>
Outputs window(FileNode& node, Make&& make) {
  const bool periodic = node.integer("periodic", 1) != 0;
  const DType dtype = need_dtype(static_cast<int32_t>(node.integer("output_datatype", 1)), node.label());
  const int64_t size = node.integer(0);
  if (size < 0) node.fail(fmt::format("it makes a window of {} elements", size));
  node.check_constant({size}, float64);
  const SignalWindowOptions options{.periodic = periodic, .dtype = float64};
  return {Variable(make(size, options).to(dtype))};
}

/// cos and sin of 2π i k / n for i < rows and k < columns.
struct Circle {
  Variable cosine, sine;
};
Circle circle(int64_t rows, int64_t columns, int64_t n, DType dtype) {
  Tensor cosine = zeros({rows, columns}, float64), sine = zeros({rows, columns}, float64);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t k = 0; k < columns; ++k) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(i * k % n) / static_cast<double>(n);
      cosine.at<double>({i, k}) = std::cos(angle);
      sine.at<double>({i, k}) = std::sin(angle);
    }
  return {Variable(cosine.to(dtype)), Variable(sine.to(dtype))};
}

struct Complex {
  Variable real, imaginary;  ///< an undefined imaginary part is 0
};
Complex parts_of(const FileNode& node, const Variable& x) {
  const int64_t parts = x.shape()[-1];
  if (parts != 1 && parts != 2) node.fail(fmt::format("{} is neither real nor complex", x.shape().str()));
  const Variable real = squeeze(slice(x, -1, 0, 1), -1);
  return {real, parts == 2 ? squeeze(slice(x, -1, 1, 2), -1) : Variable()};
}

/// The discrete transform along the last axis, of which the first `count` elements of the result are kept.
/// Elements behind the end are zeros, or are left out.
Complex transformed(const Complex& x, int64_t length, int64_t count, bool inverse) {
  const auto fitted = [&](const Variable& part) {
    const int64_t more = length - part.shape()[-1];
    return more ? pad(part, {{0, more}}) : part;
  };
  const Circle w = circle(length, count, length, x.real.dtype());
  const Variable a = fitted(x.real);
  const double sign = inverse ? 1 : -1, scale = inverse ? 1.0 / static_cast<double>(length) : 1;
  Variable real = matmul(a, w.cosine), imaginary = matmul(a, w.sine) * sign;
  if (x.imaginary.defined()) {
    const Variable b = fitted(x.imaginary);
    real = real - matmul(b, w.sine) * sign;
    imaginary = imaginary + matmul(b, w.cosine);
  }
  return {real * scale, imaginary * scale};
}

/// [..., length, parts] along an axis; one-sided transforms give the first half of the result, and take it
/// back.
Outputs transform(FileNode& node) {
  const Variable& x = node[0];
  const bool inverse = node.integer("inverse", 0) != 0, one_sided = node.integer("onesided", 0) != 0;
  const int64_t axis =
      axis_of(node, x, node.has(2) ? node.integer(2) : node.integer("axis", node.opset() >= 20 ? -2 : 1));
  if (axis == rank_of(x) - 1) node.fail("it transforms the axis of the parts of numbers");
  if (is_open_axis(x, axis)) node.refuse("its axis is open");
  if (x.rank() > 1 && x.shape()[axis] > 1 << 14)
    node.refuse("an axis of more than 16,384 elements is not supported");
  const Complex parts = parts_of(node, movedim(x, {axis}, {-2}));
  const int64_t own = x.shape()[axis];
  int64_t length = node.has(1) ? node.integer(1) : inverse && one_sided ? 2 * (own - 1) : own;
  if (length < 1 || length > 1 << 14) node.refuse(fmt::format("a length of {} is not supported", length));
  node.check_constant({std::max(own, length), length}, float64);
  if (inverse && one_sided) {
    // The other half is the conjugate of the first: of real signals only the real parts come back.
    Circle w = circle(own, length, length, parts.real.dtype());
    Tensor weights = full({own, 1}, 2.0, float64);
    weights.at<double>({0, 0}) = 1;
    if (length % 2 == 0 && own == length / 2 + 1) weights.at<double>({own - 1, 0}) = 1;
    const Variable each = Variable(weights.to(parts.real.dtype())) / static_cast<double>(length);
    Variable y = matmul(parts.real, w.cosine * each);
    if (parts.imaginary.defined()) y = y - matmul(parts.imaginary, w.sine * each);
    return {movedim(unsqueeze(y, -1), {-2}, {axis})};
  }
  const Complex wide{cast(parts.real, float64),
                     parts.imaginary.defined() ? cast(parts.imaginary, float64) : Variable()};
  const Complex y = transformed(wide, length, one_sided ? length / 2 + 1 : length, inverse);
  return {cast(movedim(stack({y.real, y.imaginary}, -1), {-2}, {axis}), x.dtype())};
}

/// Transforms of frames of a signal [batch, length, parts]: [batch, frames, bins, 2].
Outputs frames_transformed(FileNode& node) {
  const Variable& x = node[0];
  const bool one_sided = node.integer("onesided", 1) != 0;
  const int64_t step = node.integer(1);
  const int64_t length = node.has(3) ? node.integer(3) : node.has(2) ? node[2].shape()[0] : 0;
  if (x.rank() != 3 || step < 1 || length < 1 || length > 1 << 14)
    node.fail("its signal, step or length is out of range");
  node.check_constant({length, length}, float64);
  Complex parts = parts_of(node, x);
  const auto framed = [&](const Variable& part) {
    const Variable frames = sliding_windows(part, 1, length, step);
    return node.has(2) ? frames * node[2] : frames;
  };
  parts.real = framed(parts.real);
  if (parts.imaginary.defined()) parts.imaginary = framed(parts.imaginary);
  const Complex y = transformed(parts, length, one_sided ? length / 2 + 1 : length, false);
  return {stack({y.real, y.imaginary}, -1)};
}

/// Triangles over the bins of a spectrum that are evenly spaced in mel.
Outputs mel_weights(FileNode& node) {
  const DType dtype = need_dtype(static_cast<int32_t>(node.integer("output_datatype", 1)), node.label());
  const int64_t mels = node.integer(0), length = node.integer(1), rate = node.integer(2);
  const double low = node.number(3), high = node.number(4);
  const int64_t bins = length / 2 + 1;
  if (mels < 1 || length < 1 || rate < 1 || mels > 1 << 14 || bins > 1 << 20)
    node.fail("its sizes are out of range");
  node.check_constant({bins, mels}, float64);
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double first = mel(low), step = (mel(high) - first) / static_cast<double>(mels + 2);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < mels + 2; ++i) {
    const double hertz = 700 * (std::pow(10, (first + static_cast<double>(i) * step) / 2595) - 1);
    places.push_back(static_cast<int64_t>(
        std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate))));
  }
  Tensor weights = zeros({bins, mels}, float64);
  const auto set = [&](int64_t bin, int64_t i, double value) {
    if (bin >= 0 && bin < bins) weights.at<double>({bin, i}) = value;
  };
  for (int64_t i = 0; i < mels; ++i) {
    const auto k = static_cast<size_t>(i);
    const int64_t left = places[k], middle = places[k + 1], right = places[k + 2];
    if (left == middle)
      set(middle, i, 1);
    else
      for (int64_t bin = left; bin <= middle; ++bin)
        set(bin, i, static_cast<double>(bin - left) / static_cast<double>(middle - left));
    for (int64_t bin = middle; right > middle && bin < right; ++bin)
      set(bin, i, static_cast<double>(right - bin) / static_cast<double>(right - middle));
  }
  return {Variable(weights.to(dtype))};
}

}  // namespace

void add_signals(Registry& all) {
  all.add("HannWindow", 17, [](FileNode& n) {
    return window(n, [](int64_t size, const auto& o) { return hann_window(size, o); });
  });
  all.add("HammingWindow", 17, [](FileNode& n) {
    return window(n, [](int64_t size, const auto& o) { return hamming_window(size, o, 25.0 / 46); });
  });
  all.add("BlackmanWindow", 17, [](FileNode& n) {
    return window(n, [](int64_t size, const auto& o) { return blackman_window(size, o); });
  });
  all.add("DFT", 17, transform);
  all.add("STFT", 17, frames_transformed);
  all.add("MelWeightMatrix", 17, mel_weights);
}

}  // namespace espalier::onnx
