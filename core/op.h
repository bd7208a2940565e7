// Op: what a node does. Shape inference, kernels and the gradient rule of one operation stand together in one
// class.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "espalier/core/random.h"
#include "espalier/core/small_vector.h"
#include "espalier/core/tensor.h"

namespace espalier {

class Feed;
class Node;
class Variable;

/// What passes may know of an op without knowing the op.
enum class OpKind : uint8_t {
  leaf,       ///< parameter, variable, constant, state: has a value of its own
  source,     ///< an output of a Feed
  pointwise,  ///< one output element from the elements at the same place, by broadcasting
  view,       ///< the same elements under another layout, where strides can express it
  reduction,  ///< fewer elements along some axes
  matmul,
  random,  ///< draws one stream of random numbers each time it is evaluated
  update,  ///< writes the value of its second input into the leaf that is its first
  other,
};

/// The op's own settings, complete: two nodes with equal ops, attributes and inputs compute the same.
using AttributeValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>>;
using Attributes = std::vector<std::pair<std::string_view, AttributeValue>>;
/// "axes=[0, 1] keep_dims=true"
std::string to_string(const Attributes& attributes);

using Specs = SmallVector<Spec, 1>;
using InputSpecs = SmallVector<const Spec*, 4>;

/// One call of a kernel: what it reads and what it writes. Outputs are contiguous; inputs have any strides.
/// An input whose value the op does not need has a shape and no buffer.
struct KernelCall {
  SmallVector<const Tensor*, 4> inputs;
  SmallVector<Tensor*, 2> outputs;
  RandomStream random{};
  /// Plans on a GPU: where device memory has the seed and the step's first stream, from which the streams
  /// that `run` is given are counted.
  const uint64_t* random_base = nullptr;
  /// The user's line, for errors that are found later.
  const std::source_location* where = nullptr;
};

// The inner loops of pointwise ops: n elements, a row of the output. Steps count elements; 0 repeats one.
using UnaryRow = void (*)(int64_t n, void* out, const void* a, int64_t sa);
using BinaryRow = void (*)(int64_t n, void* out, const void* a, int64_t sa, const void* b, int64_t sb);
using TernaryRow = void (*)(int64_t n, void* out, const void* a, int64_t sa, const void* b, int64_t sb,
                            const void* c, int64_t sc);
/// One of them, or none. A binary one with more than two inputs folds them from the first on.
struct RowFunction {
  UnaryRow unary = nullptr;
  BinaryRow binary = nullptr;
  TernaryRow ternary = nullptr;
  RowFunction() = default;
  RowFunction(UnaryRow f) : unary(f) {}
  RowFunction(BinaryRow f) : binary(f) {}
  RowFunction(TernaryRow f) : ternary(f) {}
  explicit operator bool() const { return unary || binary || ternary; }
};

/// What a reduction makes of the elements that meet in one, and along which axes of its first input they do.
enum class Fold : uint8_t { sum, mean, max, min };
struct Folding {
  Fold fold;
  Dims axes;
};

/// Which operands of a matrix product are seen transposed.
struct MatmulForm {
  bool transpose_a, transpose_b;
};

/// A call whose tensors stay where they are: all that can be settled before the first run is.
class BoundKernel {
 public:
  virtual ~BoundKernel() = default;
  virtual void run(RandomStream random) = 0;
  /// On a GPU: whether `run` only launches, so that it can be captured in a graph. What runs on the host
  /// cannot.
  virtual bool can_be_captured() const { return true; }
};

/// A function of a RandomStream as one.
template <class F>
std::unique_ptr<BoundKernel> bound(F function) {
  struct Call : BoundKernel {
    explicit Call(F f) : function(std::move(f)) {}
    void run(RandomStream random) override { function(random); }
    F function;
  };
  return std::make_unique<Call>(std::move(function));
}

/// In which of its inputs an op is linear, so that it can be applied to parts of a sum.
enum class Linearity : uint8_t {
  none,
  together,  ///< in all inputs together, as a + b is
  each,      ///< in each input while the others stay, as a · b is
  first,     ///< in the first input while the others stay, as a / b is
};

/// What an op does in a plan of mixed precision, whose products are computed in 16 bits.
enum class OpPrecision : uint8_t {
  full,     ///< float32: what adds up many numbers, or has large or small results
  follows,  ///< 16 bits if its operands come in 16 bits
  product,  ///< 16 bits, and worth a cast of its operands
};

/// What a pass knows of an op's inputs: their specs, and the number that fills one everywhere.
struct KnownInputs {
  InputSpecs specs;
  SmallVector<std::optional<double>, 4> fill;
};

using Gradients = SmallVector<Variable, 2>;
class GradientRule;

class Op {
 public:
  virtual ~Op() = default;

  virtual std::string_view name() const = 0;
  virtual OpKind kind() const { return OpKind::other; }
  virtual Attributes attributes() const { return {}; }

  /// The specs of the outputs. Throws ShapeError or TypeError naming the op and the shapes or dtypes.
  virtual Specs infer(const InputSpecs& inputs) const = 0;

  /// The kernels. The defaults throw UnsupportedError naming op, dtype and device.
  virtual void run_cpu(const KernelCall& call) const;
  /// Called once for a call that a plan will repeat, by what does better with a call resolved beforehand:
  /// measured, built, with memory of its own. Empty: run_cpu each time.
  virtual std::unique_ptr<BoundKernel> bind_cpu(const KernelCall&) const { return nullptr; }
  /// The kernel on the GPU where the tensors are. Its `run` launches in the current stream, neither waits nor
  /// allocates, and so can be captured.
  virtual std::unique_ptr<BoundKernel> bind_cuda(const KernelCall& call) const;
  /// Whether run_cpu does nothing but copy elements from tensor to tensor, which every device can.
  virtual bool only_copies() const { return false; }
  /// Whether run_cpu takes 16-bit reals as they are, because it only moves elements or converts them. Else
  /// they are widened to float32 for it, and its results rounded.
  virtual bool takes_halves() const { return only_copies(); }

  /// Gradients with respect to each input, made by calling ops; an empty Variable where there is none or
  /// `wants` says no. Shapes may still be broadcast: autograd sums them down. Throws UnsupportedError by
  /// default.
  virtual Gradients gradient(const GradientRule& rule) const;
  /// What the rule reads: a value that no rule reads and no handle holds is released.
  virtual bool gradient_needs_input(size_t) const { return true; }
  virtual bool gradient_needs_output() const { return false; }

  /// Whether the kernel reads the elements of that input, or its shape alone.
  virtual bool needs_value(size_t) const { return true; }
  /// Whether it reads all of them, or picks as many as it writes.
  virtual bool reads_all(size_t) const { return true; }
  /// For views: the layout of the output over the buffer of input 0, or nothing if a copy must be made.
  virtual std::optional<Layout> view(const Layout&, const Spec&) const { return std::nullopt; }
  /// Whether each output is the input of its number, in the same buffer, which the kernel may change.
  virtual bool passes_through() const { return false; }
  /// Whether output 0 may be written over that input, when both have the same size.
  virtual bool can_run_in_place(size_t) const { return false; }
  /// The same for ops with several outputs.
  virtual bool can_write_over(size_t output, size_t input) const {
    return output == 0 && can_run_in_place(input);
  }
  /// Pointwise ops: the loop over one row, so that a plan can run it inside another kernel.
  virtual RowFunction row_function(const InputSpecs&) const { return {}; }
  /// The functor of core/scalar.h that is that loop's body: "scalar::Add".
  virtual std::string scalar_function(const InputSpecs&) const { return {}; }
  /// Ops that work along the last axis and keep the shape: the loop over one whole row.
  virtual UnaryRow whole_row_function(const InputSpecs&) const { return nullptr; }
  /// Reductions that can be run inside another kernel.
  virtual std::optional<Folding> folding(const InputSpecs&) const { return std::nullopt; }
  /// The input that the output equals, if these inputs make it so: x · 1 is x.
  virtual std::optional<size_t> identity(const KnownInputs&, const Spec&) const { return std::nullopt; }
  /// The number that fills the output everywhere, whatever the inputs are.
  virtual std::optional<double> fill() const { return std::nullopt; }
  virtual Linearity linearity() const { return Linearity::none; }
  /// Whether an element of the output is made of several elements along that axis of an input, although the
  /// axis is still there: what is true of softmax along its own axis. The rows of a batch cannot be shared
  /// out along such an axis.
  virtual bool mixes(size_t /*input*/, size_t /*axis*/, const InputSpecs&) const { return false; }
  /// Whether it transposes a matrix, or each of a batch: products read what is behind it instead.
  virtual bool transposes_matrix() const { return false; }
  /// Matrix products.
  virtual std::optional<MatmulForm> matmul_form() const { return std::nullopt; }
  virtual OpPrecision precision() const { return OpPrecision::full; }
  /// Whether both compute the same from the same inputs.
  virtual bool equals(const Op& other) const;
  /// Where the outputs are, if not where the inputs are.
  virtual std::optional<Device> output_device() const { return std::nullopt; }
  /// What stands in its place when nothing is trained: dropout keeps everything. Empty: the op itself.
  virtual std::shared_ptr<const Op> for_inference() const { return nullptr; }
  /// Sources only: the feed, and which of its outputs this is.
  virtual const std::shared_ptr<Feed>* feed() const { return nullptr; }
  virtual size_t feed_output() const { return 0; }

  bool is_pointwise() const { return kind() == OpKind::pointwise; }
  bool is_view() const { return kind() == OpKind::view; }
  bool is_leaf() const { return kind() == OpKind::leaf; }
  bool is_random() const { return kind() == OpKind::random; }
  bool has_side_effects() const { return kind() == OpKind::update; }

 protected:
  [[noreturn]] void unsupported(const KernelCall& call, std::string_view device) const;
};

using OpPtr = std::shared_ptr<const Op>;

/// The one object of an op without attributes; sharing it costs nothing.
template <class T>
OpPtr shared_op() {
  static const T op;
  return OpPtr(std::shared_ptr<void>(), &op);
}

/// What fills the source Variables: a Distributor, or a placeholder. Outputs advance together, a step at a
/// time.
class Feed {
 public:
  virtual ~Feed() = default;
  virtual std::string name() const = 0;
  /// dtype and shape of each output in a full batch.
  virtual std::vector<Spec> specs() const = 0;
  /// Batches in an epoch.
  virtual int64_t steps() const = 0;
  /// The size of the first axis in that step.
  virtual int64_t rows(int64_t step) const = 0;
  /// Writes the batch of that step into `outputs`, which have its shapes. May be called from several threads.
  virtual void read(int64_t epoch, int64_t step, std::span<Tensor> outputs) const = 0;
  /// The same for those rows of the batch which begin at `first`: as many as `outputs` have room for. The
  /// default reads the whole batch.
  virtual void read_part(int64_t epoch, int64_t step, int64_t first, std::span<Tensor> outputs) const;
  /// New buffers with the batch of that step.
  std::vector<Tensor> batch(int64_t epoch, int64_t step) const;

  /// Feeds whose batches are rows of tensors in memory: these, one for each output; else none.
  virtual std::vector<Tensor> columns() const { return {}; }
  /// For them: the numbers of the rows in the order in which the batches of an epoch show them.
  virtual void order(int64_t /*epoch*/, std::span<int64_t> /*rows*/) const {}

  /// Whether it has no data of its own, and is filled by Executor::run.
  virtual bool is_placeholder() const { return false; }

  /// The epoch that is being shown, and the start of the next.
  int64_t epoch() const { return epoch_.load(); }
  void next_epoch() { epoch_.fetch_add(1); }
  /// Shows that epoch, from its beginning.
  void set_epoch(int64_t epoch) { epoch_.store(epoch); }

 private:
  std::atomic<int64_t> epoch_{0};
};

}  // namespace espalier
