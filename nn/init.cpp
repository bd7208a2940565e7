#include "espalier/nn/init.h"

#include <fmt/format.h>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/random.h"

namespace espalier::nn::init {

namespace {

/// numerator / fan; 0 for an empty parameter, whose fan is 0.
double per(double numerator, double fan) { return fan > 0 ? numerator / fan : 0; }

double chosen_fan(Initializer::Fans fans, Fan fan) { return fan == Fan::in ? fans.in : fans.out; }

void check_finite(const char* what, double value) {
  if (!std::isfinite(value)) throw Error(fmt::format("{} must be a finite number, not {}", what, value));
}

/// `fill(stream, elements, count)` for the tensor's element type.
template <class F>
void fill_real(Tensor& parameter, F&& fill) {
  const RandomStream stream = next_parameter_stream();
  if (is_half(parameter.dtype())) {
    Tensor wide(parameter.shape(), float32);
    fill(stream, wide.data<float>(), wide.elements());
    copy_elements(wide.to(parameter.dtype()), parameter);
  } else if (parameter.dtype() == float32) {
    fill(stream, parameter.data<float>(), parameter.elements());
  } else {
    fill(stream, parameter.data<double>(), parameter.elements());
  }
}

void fill_between(Tensor& parameter, double low, double high) {
  fill_real(parameter, [&](const RandomStream& stream, auto* data, int64_t n) {
    fill_uniform(stream, data, n, low, high);
  });
}

void fill_around(Tensor& parameter, double mean, double stddev) {
  fill_real(parameter, [&](const RandomStream& stream, auto* data, int64_t n) {
    fill_normal(stream, data, n, mean, stddev);
  });
}

}  // namespace

Tensor Initializer::operator()(const Shape& shape, int64_t fan_in, int64_t fan_out, DType dtype) const {
  if (!is_real(dtype))
    throw TypeError(fmt::format("an initializer fills tensors of a real type, not {}", name(dtype)));
  Tensor parameter(shape, dtype);
  fill_(parameter, {static_cast<double>(fan_in), static_cast<double>(fan_out)});
  return parameter;
}

Tensor Initializer::operator()(const Shape& shape, DType dtype) const {
  if (shape.rank() < 2) return (*this)(shape, 1, 1, dtype);
  const int64_t kernel = Shape(Dims(shape.begin() + 2, shape.end())).elements();
  return (*this)(shape, shape[1] * kernel, shape[0] * kernel, dtype);
}

Initializer Initializer::from_function(std::function<Tensor(const Shape&)> function) {
  if (!function) throw Error("an initializer was made of an empty function");
  return Initializer(Fill([function = std::move(function)](Tensor& parameter, Fans) {
    const Tensor given = function(parameter.shape());
    if (!given.defined() || !(given.shape() == parameter.shape()))
      throw ShapeError(fmt::format("the initializer was asked for the shape {} and gave {}",
                                   parameter.shape().str(),
                                   given.defined() ? given.shape().str() : "no tensor"));
    // A copy: training must not change a tensor that the function keeps.
    copy_elements(given.to(cpu()).to(parameter.dtype()), parameter);
  }));
}

Initializer Initializer::uniform(std::function<double(Fans)> bound) {
  return Initializer(Fill([bound = std::move(bound)](Tensor& parameter, Fans fans) {
    const double b = bound(fans);
    fill_between(parameter, -b, b);
  }));
}

Initializer Initializer::normal(std::function<double(Fans)> stddev) {
  return Initializer(Fill([stddev = std::move(stddev)](Tensor& parameter, Fans fans) {
    fill_around(parameter, 0, stddev(fans));
  }));
}

Constant::Constant(double value)
    : Initializer(Fill([value](Tensor& parameter, Fans) {
        copy_elements(full(parameter.shape(), value, parameter.dtype()), parameter);
      })) {}

Uniform::Uniform(double low, double high)
    : Initializer(Fill([low, high](Tensor& parameter, Fans) { fill_between(parameter, low, high); })) {
  check_finite("Uniform: low", low);
  check_finite("Uniform: high", high);
  if (low > high) throw Error(fmt::format("Uniform: low is {} and high {}", low, high));
}

Normal::Normal(double mean, double stddev)
    : Initializer(Fill([mean, stddev](Tensor& parameter, Fans) { fill_around(parameter, mean, stddev); })) {
  check_finite("Normal: mean", mean);
  check_finite("Normal: stddev", stddev);
  if (stddev < 0) throw Error(fmt::format("Normal: stddev is {}; it cannot be negative", stddev));
}

XavierUniform::XavierUniform(double gain)
    : Initializer(uniform([gain](Fans fans) { return gain * std::sqrt(per(6, fans.in + fans.out)); })) {
  check_finite("XavierUniform: gain", gain);
}

XavierNormal::XavierNormal(double gain)
    : Initializer(normal([gain](Fans fans) { return gain * std::sqrt(per(2, fans.in + fans.out)); })) {
  check_finite("XavierNormal: gain", gain);
}

KaimingUniform::KaimingUniform(double a, Fan fan)
    : Initializer(
          uniform([a, fan](Fans fans) { return std::sqrt(per(6, (1 + a * a) * chosen_fan(fans, fan))); })) {
  check_finite("KaimingUniform: a", a);
}

KaimingNormal::KaimingNormal(double a, Fan fan)
    : Initializer(
          normal([a, fan](Fans fans) { return std::sqrt(per(2, (1 + a * a) * chosen_fan(fans, fan))); })) {
  check_finite("KaimingNormal: a", a);
}

LecunUniform::LecunUniform() : Initializer(uniform([](Fans fans) { return std::sqrt(per(3, fans.in)); })) {}
LecunNormal::LecunNormal() : Initializer(normal([](Fans fans) { return std::sqrt(per(1, fans.in)); })) {}

}  // namespace espalier::nn::init
