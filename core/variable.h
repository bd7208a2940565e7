// Variable: a handle on a node of the tree. Writing expressions over Variables grows it.
#pragma once
#include <atomic>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <source_location>
#include <utility>

#include "espalier/core/count.h"
#include "espalier/core/number.h"
#include "espalier/core/tensor.h"

namespace espalier {

class Executor;
class Index;
class Node;
class Plan;
struct ExecutorOptions;
struct PlanOptions;
namespace optim {
class Optimizer;
class ParameterList;
}  // namespace optim

/// The part of a Node that its handles need. Edges between nodes keep the node; handles also keep its value
/// and its record.
class NodeCounts {
 public:
  void retain() { count_up(references_); }
  void retain_handle() {
    if (count_up(handles_) == 0) retain();
  }
  void release_handle() noexcept {
    if (count_down(handles_) == 1) last_handle_gone();
  }
  bool has_handles() const { return handles_.load(std::memory_order_relaxed) > 0; }

 protected:
  void last_handle_gone() noexcept;
  std::atomic<uint32_t> references_{0};
  std::atomic<uint32_t> handles_{0};
};

struct BackwardOptions {
  /// Cut the tree behind the gradients once they are computed: their memory is free, and second derivatives
  /// are gone.
  bool clear_buffers = false;
};

class Variable {
 public:
  using Where = std::source_location;

  /// No variable at all: `defined()` is false.
  Variable() = default;
  /// A constant.
  Variable(const Tensor& value, Where where = Where::current());
  /// A constant of the number's default dtype. Beside an operand of another dtype it takes that one, as the
  /// number itself would: `Variable total = 0; total += loss`. TypeError if it does not fit.
  template <class T>
  requires std::is_arithmetic_v<T> Variable(T value, Where where = Where::current())
      : Variable(detail::Number(value), where) {}
  Variable(detail::Number number, Where where);

  Variable(const Variable& other) noexcept : node_(other.node_), output_(other.output_) { retain(); }
  Variable(Variable&& other) noexcept : node_(std::exchange(other.node_, nullptr)), output_(other.output_) {}
  Variable& operator=(Variable other) & noexcept {
    std::swap(node_, other.node_);
    std::swap(output_, other.output_);
    return *this;
  }
  /// `x[0] = y` would change nothing but what x[0] has just returned: see slice_scatter() and where().
  Variable& operator=(Variable other) && = delete;
  ~Variable() {
    if (node_) node_->release_handle();
  }
  /// A handle on an output of a node. For writers of ops.
  explicit Variable(Node* node, uint32_t output = 0) noexcept;

  bool defined() const { return node_ != nullptr; }
  /// Downstream of a feed the first size is that of a full batch.
  const Shape& shape() const;
  DType dtype() const;
  size_t rank() const { return shape().rank(); }
  /// Where the value is, or will be once it is computed.
  Device device() const;
  /// Operations between this and the leaves; 0 for a leaf.
  int64_t depth() const;

  /// The value. Downstream of a feed: the last one; computed, without taking a step, only if there is none.
  /// A leaf of an executor gives a copy; `set_value` writes it.
  Tensor value(Where where = Where::current()) const;
  /// The only element of the value.
  double item(Where where = Where::current()) const { return value(where).item(where); }
  template <class T>
  T item(Where where = Where::current()) const {
    return value(where).template item<T>(where);
  }
  /// Computes the value and returns this Variable. Downstream of a feed it takes the next step and throws
  /// EndOfData after the last one.
  const Variable& forward(Where where = Where::current()) const;

  /// Adds the gradients of every parameter and every `variable` this is made of (of its sum, if it is not a
  /// scalar), and returns this Variable.
  Variable backward(BackwardOptions options = {}, Where where = Where::current()) const;
  /// The gradient of this (of its sum) with respect to any Variable it is made of. Throws Error if `x` is
  /// none, TypeError unless it is of reals.
  Variable gradient(const Variable& x, Where where = Where::current()) const;
  /// Adds an update of every parameter this is made of, adding gradients where missing, and runs it.
  /// If it throws, parameters and optimizer are as they were. Throws Error if there is nothing to train.
  const Variable& update(const optim::Optimizer& optimizer, Where where = Where::current()) const;
  /// The same for some parameters only, such as `net.head.parameters()`; those that this is not made of are
  /// ignored.
  const Variable& update(const optim::Optimizer& optimizer, const optim::ParameterList& parameters,
                         Where where = Where::current()) const;

  // Operations as methods: x.sum(1) is sum(x, 1), and so on; ops/functions/ has what they do.
  /// x[2], x[range(1, 4)], x[{0, ellipsis, range(1, end)}], x[indices], x[mask]: core/subscript.h. A position
  /// removes its axis. Views, but for backward steps, indices and masks. Throws IndexError.
  Variable operator[](const Index& entry) const;
  Variable operator[](std::initializer_list<Index> entries) const;
  Variable sum(const Axes& axes = {}, bool keep_dims = false, Where where = Where::current()) const;
  Variable mean(const Axes& axes = {}, bool keep_dims = false, Where where = Where::current()) const;
  Variable max(const Axes& axes = {}, bool keep_dims = false, Where where = Where::current()) const;
  Variable min(const Axes& axes = {}, bool keep_dims = false, Where where = Where::current()) const;
  Variable argmax(int64_t axis = -1, Where where = Where::current()) const;
  Variable reshape(const Shape& shape, Where where = Where::current()) const;
  Variable flatten(int64_t first = 0, Where where = Where::current()) const;
  /// Swaps the last two axes.
  Variable transpose(Where where = Where::current()) const;
  Variable permute(const Axes& order, Where where = Where::current()) const;
  Variable squeeze(const Axes& axes = {}, Where where = Where::current()) const;
  Variable unsqueeze(int64_t axis, Where where = Where::current()) const;
  Variable cast(DType dtype, Where where = Where::current()) const;
  Variable to(DType dtype, Where where = Where::current()) const { return cast(dtype, where); }
  /// stop_gradient(x): the value of each step, through which no gradient passes.
  Variable detach(Where where = Where::current()) const;
  Variable abs(Where where = Where::current()) const;
  Variable exp(Where where = Where::current()) const;
  Variable log(Where where = Where::current()) const;
  Variable sqrt(Where where = Where::current()) const;
  Variable square(Where where = Where::current()) const;
  Variable relu(Where where = Where::current()) const;
  Variable sigmoid(Where where = Where::current()) const;
  Variable tanh(Where where = Where::current()) const;

  /// Every node this is made of, with its gradients and updates, each once.
  void print_tree(std::ostream& out) const;
  void print_tree() const;
  /// Makes this Variable a leaf with its present value. Throws Error downstream of a feed, where that would
  /// be the value of one step: see `stop_gradient`.
  void disconnect(Where where = Where::current());
  /// The same on another device, as part of the tree.
  Variable to(Device device, Where where = Where::current()) const;

  /// Freezes forward, backward and update of this Variable into one plan. The tree lets go of the
  /// values that only eager gradients would read; they are computed again when asked, as long as no
  /// leaf has changed.
  Executor get_executor() const;
  Executor get_executor(const ExecutorOptions& options, Where where = Where::current()) const;
  /// Only the plan, for devices that need not be present: to read it, or to predict what a step costs there.
  Plan plan_for(const PlanOptions& options, Where where = Where::current()) const;

  /// For writers of ops. A Node begins with its counts, so this needs no more of it than its name.
  Node* node() const { return reinterpret_cast<Node*>(node_); }
  uint32_t output() const { return output_; }

 private:
  void retain() noexcept {
    if (node_) node_->retain_handle();
  }
  Node& need() const;

  NodeCounts* node_ = nullptr;
  uint32_t output_ = 0;
};

/// Prints the value. Downstream of a feed it takes the next step.
std::ostream& operator<<(std::ostream& out, const Variable& variable);

/// What a leaf starts with: a Tensor, a number, or numbers in braces: `{1.0f, 2.0f}` has shape [2], and
/// `{{1.0f}, {2.0f}}` shape [2, 1]; up to three levels, which may mix types: `{1, 2.5}`.
class LeafValue {
 public:
  using Where = std::source_location;

  LeafValue(const Tensor& value) : tensor_(value) {}
  template <class T>
  requires std::is_arithmetic_v<T> LeafValue(T value, Where where = Where::current())
      : tensor_(tensor(value, default_dtype<T>(), where)) {}
  template <class T>
  requires std::is_arithmetic_v<T> LeafValue(std::initializer_list<T> values, Where where = Where::current())
      : tensor_(tensor(values, default_dtype<T>(), where)) {}
  template <class T>
  requires std::is_arithmetic_v<T> LeafValue(std::initializer_list<std::initializer_list<T>> rows,
                                             Where where = Where::current())
      : tensor_(tensor(rows, default_dtype<T>(), where)) {}
  template <class T>
  requires std::is_arithmetic_v<T> LeafValue(
      std::initializer_list<std::initializer_list<std::initializer_list<T>>> planes,
      Where where = Where::current())
      : tensor_(tensor(planes, default_dtype<T>(), where)) {}
  /// Lists of several types, as `tensor` takes them.
  template <class N = detail::ListedNumber>
  LeafValue(std::initializer_list<std::type_identity_t<N>> values, Where where = Where::current())
      : tensor_(tensor<N>(values, where)) {}
  LeafValue(std::initializer_list<std::initializer_list<detail::ListedNumber>> rows,
            Where where = Where::current())
      : tensor_(tensor(rows, where)) {}
  LeafValue(std::initializer_list<std::initializer_list<std::initializer_list<detail::ListedNumber>>> planes,
            Where where = Where::current())
      : tensor_(tensor(planes, where)) {}

  operator const Tensor&() const { return tensor_; }

 private:
  Tensor tensor_;
};

/// A leaf whose gradient `backward` builds.
Variable variable(const LeafValue& value, std::source_location where = std::source_location::current());

/// A leaf which an optimizer updates. Layers make these.
Variable parameter(const LeafValue& value, std::string_view name = "parameter",
                   std::source_location where = std::source_location::current());
/// Freezes a parameter (`false`), or releases it again: while it is frozen, `backward` and executors that are
/// made build no gradient of it, and no optimizer changes it; trees need not be written again. Throws Error
/// if it is no parameter.
void set_trainable(const Variable& parameter, bool on,
                   std::source_location where = std::source_location::current());
/// A leaf that lives between steps and is written by updates, but not trained: an optimizer's state, a
/// running mean.
Variable state(const LeafValue& value, std::string_view name = "state",
               std::source_location where = std::source_location::current());
/// A source to be filled by `Executor::run`. The first size may differ from run to run, and so may sizes of
/// -1; until then these are `nominal_size` in the shapes of the tree.
Variable placeholder(std::string_view name, const Shape& shape, DType dtype = float32,
                     std::source_location where = std::source_location::current());

/// Gives a leaf another value of the same dtype and shape; it stays on its device. Throws ShapeError or
/// TypeError.
void set_value(const Variable& leaf, const Tensor& value,
               std::source_location where = std::source_location::current());

/// While one lives, no tree is kept in this thread: results are leaves.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

/// What an op's function takes: a Variable, a Tensor or a number, and the line on which it was written.
/// It is made for the length of one call and borrows the Variable.
class Operand {
 public:
  using Where = std::source_location;
  Operand(const Variable& variable, Where where = Where::current()) : variable_(&variable), where_(where) {}
  /// A Variable that ends with this call: if it is the last handle, its buffer may be overwritten.
  Operand(Variable&& variable, Where where = Where::current())
      : owned_(std::move(variable)), variable_(&owned_), where_(where), is_last_(true) {}
  Operand(const Tensor& tensor, Where where = Where::current())
      : owned_(tensor, where), variable_(&owned_), where_(where) {}
  template <class T>
  requires std::is_arithmetic_v<T> Operand(T number, Where where = Where::current())
      : where_(where), number_(number), is_number_(true) {}
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;

  bool is_number() const { return is_number_; }
  /// Whether the Variable ends with this call.
  bool is_last() const { return is_last_; }
  double number() const { return number_.real; }
  const Where& where() const { return where_; }
  /// The Variable; a number becomes a constant of its default dtype on that device.
  const Variable& variable(Device device = {}) const {
    return variable_ ? *variable_ : as(number_.dtype, device);
  }
  /// The same, for callers that need its shape or dtype. Throws Error naming `op` if it is undefined.
  const Variable& defined(std::string_view op) const {
    const Variable& v = variable();
    if (!v.defined()) throw_undefined(op);
    return v;
  }
  /// The Variable; a number becomes a constant of that dtype on that device. Throws TypeError when it has no
  /// such value.
  const Variable& as(DType dtype, Device device) const;
  /// The same for what meets `other`.
  const Variable& like(const Variable& other) const {
    return variable_ ? *variable_ : as(other.dtype(), other.device());
  }

 private:
  [[noreturn]] void throw_undefined(std::string_view op) const;

  mutable Variable owned_;
  mutable const Variable* variable_ = nullptr;
  Where where_;
  detail::Number number_{0.0f};
  bool is_number_ = false;
  bool is_last_ = false;
};

// Declared here so that expressions find them, defined in ops/elementwise/arithmetic.cpp and
// ops/elementwise/operators.cpp.
Variable operator+(const Operand& a, const Operand& b);
Variable operator-(const Operand& a, const Operand& b);
Variable operator*(const Operand& a, const Operand& b);
Variable operator/(const Operand& a, const Operand& b);
Variable operator-(const Operand& a);
/// remainder(a, b): it has the sign of b.
Variable operator%(const Operand& a, const Operand& b);
// Elementwise, and bool. `&&` and `||` compute both operands, as all functions do.
Variable operator<(const Operand& a, const Operand& b);
Variable operator<=(const Operand& a, const Operand& b);
Variable operator>(const Operand& a, const Operand& b);
Variable operator>=(const Operand& a, const Operand& b);
Variable operator&&(const Operand& a, const Operand& b);
Variable operator||(const Operand& a, const Operand& b);
Variable operator!(const Operand& a);

// `total += loss` makes `total` a handle on the sum; what it was before stays what it was.
inline Variable& operator+=(Variable& a, const Operand& b) { return a = Operand(a, b.where()) + b; }
inline Variable& operator-=(Variable& a, const Operand& b) { return a = Operand(a, b.where()) - b; }
inline Variable& operator*=(Variable& a, const Operand& b) { return a = Operand(a, b.where()) * b; }
inline Variable& operator/=(Variable& a, const Operand& b) { return a = Operand(a, b.where()) / b; }

}  // namespace espalier
