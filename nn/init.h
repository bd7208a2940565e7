// Initializers: the values of weights before training.
//
// `in` and `out` below are the fans: the number of inputs of one output, and of outputs of one input.
#pragma once
#include <cstdint>
#include <functional>
#include <type_traits>

#include "espalier/core/tensor.h"

namespace espalier::nn::init {

template <class F>
concept InitializerFunction = std::is_invocable_r_v<Tensor, F&, const Shape&>;

/// Fills a new parameter. Random initializers draw one stream for each parameter, from a counter of their
/// own: initial parameters depend only on the seed and on the order of the layers' first calls.
class Initializer {
 public:
  struct Fans {
    double in = 1;
    double out = 1;
  };
  using Fill = std::function<void(Tensor& parameter, Fans fans)>;

  /// A function of one's own, from Shape to Tensor. The result is cast to the dtype of the layer.
  template <InitializerFunction F>
  Initializer(F function) : Initializer(from_function(std::move(function))) {}

  /// A new tensor, of a real type (TypeError otherwise). Throws ShapeError if a function of one's own
  /// gives another shape.
  Tensor operator()(const Shape& shape, int64_t fan_in, int64_t fan_out, DType dtype = float32) const;
  /// The same with the fans of a weight of shape [out, in, ...], where further axes are those of a kernel.
  /// A vector acts on single elements: its fans are 1.
  Tensor operator()(const Shape& shape, DType dtype = float32) const;

 protected:
  explicit Initializer(Fill fill) : fill_(std::move(fill)) {}
  static Initializer uniform(std::function<double(Fans)> bound);
  static Initializer normal(std::function<double(Fans)> stddev);

 private:
  static Initializer from_function(std::function<Tensor(const Shape&)> function);
  Fill fill_;
};

// These only add constructors; slicing one to Initializer loses nothing.

struct Constant : Initializer {
  explicit Constant(double value);
};
struct Zeros : Constant {
  Zeros() : Constant(0) {}
};
struct Ones : Constant {
  Ones() : Constant(1) {}
};
/// Evenly distributed in [low, high). Throws Error unless low <= high, both finite.
struct Uniform : Initializer {
  explicit Uniform(double low = 0, double high = 1);
};
/// Throws Error unless mean and stddev are finite and stddev >= 0.
struct Normal : Initializer {
  explicit Normal(double mean = 0, double stddev = 1);
};

/// Uniform within ±gain·√(6 / (in + out)). Glorot and Bengio, Understanding the difficulty of training deep
/// feedforward neural networks, 2010.
struct XavierUniform : Initializer {
  explicit XavierUniform(double gain = 1);
};
/// Normal of deviation gain·√(2 / (in + out)).
struct XavierNormal : Initializer {
  explicit XavierNormal(double gain = 1);
};
using GlorotUniform = XavierUniform;
using GlorotNormal = XavierNormal;

/// Which fan a Kaiming initializer divides by: `in` keeps the size of activations, `out` that of gradients.
enum class Fan : uint8_t { in, out };

/// Uniform within ±√(6 / ((1 + a²)·in)). The default a = √5 gives ±1/√in, with which PyTorch's Linear starts.
/// He et al., Delving deep into rectifiers, 2015; a is the negative slope of a leaky ReLU, 0 for ReLU.
struct KaimingUniform : Initializer {
  explicit KaimingUniform(double a = 2.2360679774997896964, Fan fan = Fan::in);
};
/// Normal of deviation √(2 / ((1 + a²)·in)).
struct KaimingNormal : Initializer {
  explicit KaimingNormal(double a = 0, Fan fan = Fan::in);
};
/// For layers before a ReLU: uniform within ±√(6 / in).
struct HeUniform : KaimingUniform {
  explicit HeUniform(Fan fan = Fan::in) : KaimingUniform(0, fan) {}
};
using HeNormal = KaimingNormal;

/// Uniform within ±√(3 / in). LeCun et al., Efficient BackProp, 1998.
struct LecunUniform : Initializer {
  LecunUniform();
};
/// Normal of deviation √(1 / in).
struct LecunNormal : Initializer {
  LecunNormal();
};

}  // namespace espalier::nn::init

namespace espalier::nn {
using init::Initializer;
}
