// Helpers of tests of ops: plain references, and check_op, which checks an op for all guarantees of the
// library.
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

/// Reference implementations of broadcasting and of the shape of a reduction.
Shape both(const Shape& a, const Shape& b);
/// Calls `f` with every index of a shape, in row-major order.
void each_index(const Shape& shape, const std::function<void(const Index&)>& f);

using Reference = std::function<Array(const std::vector<Array>&)>;
/// References of elementwise ops.
Reference elementwise(double (*f)(double));
Reference elementwise(double (*f)(double, double));

/// Reproducible float64 numbers between `low` and `high`; `which` selects the sequence.
Tensor numbers(const Shape& shape, double low = -2, double high = 2, uint64_t which = 0);
/// The same elements with other strides: with reversed axes, or as a slice of a larger tensor.
Tensor laid_out_in_reverse(const Tensor& x);
Tensor sliced_from_larger(const Tensor& x);

/// The largest difference of two elements, relative to 1 + the larger of them. Infinite if shapes differ, or
/// only one of two elements is NaN.
double difference(const Tensor& a, const Tensor& b);
inline double difference(const Variable& a, const Variable& b) { return difference(a.value(), b.value()); }
double difference(const Array& a, const Tensor& b);

/// "pointwise_test.cpp:12", for messages that must contain the line of a call.
std::string here(std::source_location where = std::source_location::current());

/// The GPUs on which ops are tested, if any.
std::vector<Device> gpus_to_test();

/// Set by the program of the emulated device, whose library is that of the other tests: check_op then checks
/// GPUs alone.
inline bool another_program_tests_cpu = false;

/// One row of the op table.
struct OpCase {
  std::string name;
  std::function<Variable(const Variables&)> op;
  /// Reals are float64; check_op derives the float32 variants.
  std::vector<Tensor> inputs;
  Reference reference;
  /// The order of derivatives to check; 0 for ops without a gradient.
  int order = 2;
  /// The real inputs with a derivative; empty for all.
  std::vector<size_t> differentiable = {};
  double tolerance = 1e-12;   ///< of the float64 result
  double tolerance32 = 2e-6;  ///< of the float32 result
  /// The number of roundings of a 16-bit result; 0 if the range or precision of these types is too small for
  /// the case.
  int roundings = 1;
};

/// Checks the values in float32 and float64, at each vector level and from strided inputs; in float16 and
/// bfloat16 up to rounding; first and second derivatives; that the gradient rule reads no undeclared value;
/// that plans agree, with and without gradients, and so do copies under a Deferred and operands without
/// elements; and that every op in its tree can be made again from its name and attributes.
void check_op(const OpCase& c);

}  // namespace espalier::testing
