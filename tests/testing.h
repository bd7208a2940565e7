// What tests of ops share: plain references, and check_op, which holds an op to everything the library
// promises of one.
#pragma once
#include <functional>
#include <source_location>
#include <string>
#include <vector>

#include "espalier/core/variable.h"
#include "temporary_folder.h"

namespace espalier::testing {

using Index = std::vector<int64_t>;
using Variables = std::vector<Variable>;

/// Doubles with a shape, for references written as plain loops.
struct Array {
  Shape shape;
  std::vector<double> values;

  explicit Array(const Tensor& tensor);
  Array(Shape shape, const std::function<double(const Index&)>& element);
  /// The element at an index of a shape to which this is broadcast.
  double operator()(const Index& index) const;
};

/// The shape of two operands together, and of a reduction, written once more.
Shape both(const Shape& a, const Shape& b);
/// Calls `f` with every index of a shape, in order.
void each_index(const Shape& shape, const std::function<void(const Index&)>& f);

using Reference = std::function<Array(const std::vector<Array>&)>;
/// References of ops which work element by element.
Reference elementwise(double (*f)(double));
Reference elementwise(double (*f)(double, double));

/// float64 numbers between `low` and `high`, the same ones each time.
Tensor numbers(const Shape& shape, double low = -2, double high = 2, uint64_t which = 0);
/// The same elements behind other strides: axes reversed, or a slice of a larger tensor.
Tensor laid_out_in_reverse(const Tensor& x);
Tensor sliced_from_larger(const Tensor& x);

/// The largest difference of two elements, relative to 1 + the larger of them. Infinite if shapes differ, or
/// one is NaN alone.
double difference(const Tensor& a, const Tensor& b);
double difference(const Array& a, const Tensor& b);

/// "pointwise_test.cpp:12", for messages which must name the line of a call.
std::string here(std::source_location where = std::source_location::current());

/// The GPU on which ops are tested, if there is one.
std::vector<Device> gpus_to_test();

/// One row of the op table.
struct OpCase {
  std::string name;
  std::function<Variable(const Variables&)> op;
  /// Reals are float64; check_op makes the float32 variant of them.
  std::vector<Tensor> inputs;
  Reference reference;
  /// How many derivatives there are to check; 0 for ops which pass no gradient.
  int order = 2;
  /// The real inputs with a derivative; without a list, all.
  std::vector<size_t> differentiable = {};
  double tolerance = 1e-12;   ///< of the float64 result
  double tolerance32 = 2e-6;  ///< of the float32 result
  /// How often a 16-bit result is rounded on its way; 0 for what the range or the few digits of those types
  /// make meaningless.
  int roundings = 1;
};

/// Forward in float32 and float64, at each vector level, and from strided inputs; in float16 and bfloat16,
/// which must be the same up to rounding; first and second derivatives; values which the gradient rule does
/// not declare are not read; the executor agrees, with gradients and without; and every op it is made of can
/// be made again from its name and attributes.
void check_op(const OpCase& c);

}  // namespace espalier::testing
