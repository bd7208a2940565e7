#include "espalier/nn/positions.h"

#include <fmt/format.h>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/open_sizes.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

void check_real(DType dtype, std::string_view function) {
  if (!is_real(dtype))
    throw TypeError(fmt::format("{}: positions are of a real type, not {}", function, name(dtype)));
}

void check_steps(const Variable& x, std::string_view function) {
  if (x.rank() < 2)
    throw ShapeError(fmt::format("{}: takes [..., time, width], not {}", function, x.shape().str()));
  check_real(x.dtype(), function);
}

/// Whether the number of steps is not known before a batch comes.
bool has_open_time(const Variable& x) { return is_open_axis(x, -2); }

/// base^(2i / width), by which positions are divided.
double wavelength(double base, int64_t i, int64_t width) {
  return std::pow(base, static_cast<double>(2 * i) / static_cast<double>(width));
}

/// The angles of as many steps as x has, [time, half the width], in float64.
Variable angles(const Variable& x, double base, int64_t offset) {
  const int64_t width = x.shape()[-1];
  Tensor wavelengths({(width + 1) / 2}, float64);
  for (int64_t i = 0; double& w : wavelengths.span<double>()) w = wavelength(base, i++, width);
  const Variable positions = arange_like(x, -2, float64) + static_cast<double>(offset);
  return unsqueeze(positions, -1) / Variable(wavelengths.to(x.device()));
}

/// Cosines and sines of the angles, [time, width / 2].
struct Turns {
  Variable cosines, sines;

  Turns(const Variable& x, const RotaryOptions& o) {
    if (has_open_time(x)) {
      const Variable turns = angles(x, o.base, o.offset);
      cosines = espalier::cast(cos(turns), x.dtype());
      sines = espalier::cast(sin(turns), x.dtype());
      return;
    }
    const int64_t time = x.shape()[-2], width = x.shape()[-1];
    Tensor of_cosines({time, width / 2}, float64), of_sines({time, width / 2}, float64);
    double *c = of_cosines.span<double>().data(), *s = of_sines.span<double>().data();
    for (int64_t p = 0; p < time; ++p)
      for (int64_t i = 0; i < width / 2; ++i) {
        const double angle = static_cast<double>(p + o.offset) / wavelength(o.base, i, width);
        *c++ = std::cos(angle);
        *s++ = std::sin(angle);
      }
    cosines = of_cosines.to(x.dtype()).to(x.device());
    sines = of_sines.to(x.dtype()).to(x.device());
  }
};

Variable turned(const Variable& x, const RotaryOptions& o) {
  check_steps(x, "rotary");
  const int64_t width = x.shape()[-1], half = width / 2;
  if (width % 2) throw ShapeError(fmt::format("rotary: the width of {} is odd", x.shape().str()));
  if (!(o.base > 0)) throw Error(fmt::format("rotary: the base is {}; it must be above 0", o.base));
  const auto [cosines, sines] = Turns(x, o);
  const Variable a = o.interleaved ? slice(x, -1, 0, open_end, 2) : slice(x, -1, 0, half),
                 b = o.interleaved ? slice(x, -1, 1, open_end, 2) : slice(x, -1, half, width);
  const Variable first = a * cosines - b * sines, second = b * cosines + a * sines;
  if (!o.interleaved) return concat({first, second}, -1);
  return flatten(stack({first, second}, -1), static_cast<int64_t>(x.rank()) - 1);
}

class SinusoidalState : public LayerStateOf<SinusoidalState> {
 public:
  explicit SinusoidalState(int64_t offset) : LayerStateOf("SinusoidalPositions"), offset_(offset) {
    if (offset < 0) throw Error(fmt::format("SinusoidalPositions: the offset is {}, below 0", offset));
  }
  Variable forward(const Variable& x) override {
    check_steps(x, kind());
    const int64_t time = x.shape()[-2], width = x.shape()[-1];
    if (has_open_time(x)) {
      const Variable turns = angles(x, 10000, offset_);
      const Variable pairs = flatten(stack({sin(turns), cos(turns)}, -1), 1);
      return x + espalier::cast(slice(pairs, -1, 0, width), x.dtype());
    }
    const Tensor all = sinusoidal_positions(offset_ + time, width, x.dtype());
    return x + Variable(all.slice(0, offset_, offset_ + time).to(x.device()));
  }

 private:
  int64_t offset_;
};

class RotaryState : public LayerStateOf<RotaryState> {
 public:
  explicit RotaryState(const RotaryOptions& options) : LayerStateOf("RotaryPositions"), options_(options) {
    if (!(options.base > 0))
      throw Error(fmt::format("RotaryPositions: the base is {}; it must be above 0", options.base));
  }
  Variable forward(const Variable& x) override { return turned(x, options_); }

 private:
  RotaryOptions options_;
};

std::vector<double> slopes_of(int64_t heads) {
  int64_t power = 1;
  while (power * 2 <= heads) power *= 2;
  std::vector<double> slopes;
  const auto add = [&](int64_t of, int64_t number) {
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(number) / static_cast<double>(of)));
  };
  for (int64_t i = 1; i <= power; ++i) add(power, i);
  for (int64_t i = 1; static_cast<int64_t>(slopes.size()) < heads; i += 2) add(2 * power, i);
  return slopes;
}

}  // namespace

Tensor sinusoidal_positions(int64_t length, int64_t width, DType dtype, std::source_location where) {
  return located(where, [&] {
    check_real(dtype, "sinusoidal_positions");
    if (length < 0 || width < 0)
      throw ShapeError(fmt::format("sinusoidal_positions: a shape of [{}, {}]", length, width));
    Tensor table({length, width}, float64);
    double* at = table.span<double>().data();
    for (int64_t p = 0; p < length; ++p)
      for (int64_t i = 0; i < width; ++i) {
        const double angle = static_cast<double>(p) / wavelength(10000, i / 2, width);
        *at++ = i % 2 ? std::cos(angle) : std::sin(angle);
      }
    return table.to(dtype);
  });
}

SinusoidalPositions::SinusoidalPositions(int64_t offset, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<SinusoidalState>(offset); })) {}

Variable rotary(const Operand& x, const RotaryOptions& options) {
  const CallScope scope(x.where());
  return located(x.where(), [&] { return turned(x.defined("rotary"), options); });
}

RotaryPositions::RotaryPositions(RotaryOptions options, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<RotaryState>(options); })) {}

Tensor alibi_slopes(int64_t heads, std::source_location where) {
  return located(where, [&] {
    if (heads <= 0) throw Error(fmt::format("alibi: {} heads; there must be at least one", heads));
    return tensor_from(slopes_of(heads), {heads});
  });
}

Tensor alibi(int64_t heads, int64_t queries, int64_t keys, int64_t past, DType dtype,
             std::source_location where) {
  return located(where, [&] {
    check_real(dtype, "alibi");
    if (heads <= 0) throw Error(fmt::format("alibi: {} heads; there must be at least one", heads));
    if (queries < 0 || keys < 0)
      throw ShapeError(fmt::format("alibi: a shape of [{}, {}, {}]", heads, queries, keys));
    Tensor bias({heads, queries, keys}, float64);
    double* at = bias.span<double>().data();
    for (const double slope : slopes_of(heads))
      for (int64_t i = 0; i < queries; ++i)
        for (int64_t j = 0; j < keys; ++j)
          *at++ = -slope * std::abs(static_cast<double>(i - j) + static_cast<double>(past));
    return bias.to(dtype);
  });
}

}  // namespace espalier::nn
