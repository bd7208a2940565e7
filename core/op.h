// Op: what a node does. Shape inference, kernels and the gradient rule of one operation stand together in one
// class.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "espalier/core/call_site.h"
#include "espalier/core/random.h"
#include "espalier/core/small_vector.h"
#include "espalier/core/tensor.h"

namespace espalier {

class BindContext;
class Feed;
class Node;
class Variable;

/// What a node computes, as far as that decides what may be done with it.
enum class OpKind : uint8_t {
  leaf,       ///< parameter, variable, constant, state: has a value of its own
  source,     ///< an output of a Feed
  pointwise,  ///< one output element from the elements at the same place, by broadcasting
  view,       ///< the same elements under another layout, where strides can express it
  reduction,  ///< fewer elements along some axes
  matmul,
  other,
};

/// What a node does beside computing its outputs from its inputs.
enum class Effect : uint8_t {
  none,
  random,        ///< draws one stream of random numbers each time it is evaluated
  writes_leaf,   ///< writes the value of its second input into the leaf that is its first
  communicates,  ///< meets other ranks: each must run it once, and all in one order
};

/// The op's own settings, complete: two nodes with equal ops, attributes and inputs compute the same.
using AttributeValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>>;
using Attributes = std::vector<std::pair<std::string_view, AttributeValue>>;
/// "axes=[0, 1] keep_dims=true"
std::string to_string(const Attributes& attributes);
class Op;
/// The op's attribute of that name, which it must have.
template <class T>
T attribute(const Op& op, std::string_view name);

using Specs = SmallVector<Spec, 1>;
/// The inputs of a node as inference sees them. Reading one that is not there throws Error: an op may be made
/// from a file that gives it too few.
class InputSpecs : public SmallVector<const Spec*, 4> {
 public:
  using SmallVector::SmallVector;
  const Spec*& operator[](size_t i) { return data()[checked(i)]; }
  const Spec* operator[](size_t i) const { return data()[checked(i)]; }

 private:
  size_t checked(size_t i) const {
    if (i >= size()) refuse(i, size());
    return i;
  }
  [[noreturn]] static void refuse(size_t i, size_t inputs);
};

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
  const CallSite* where = nullptr;
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

/// How an op runs inside the kernel of another.
struct ElementLoops {
  RowFunction row = {};           ///< pointwise ops: the loop over one row
  UnaryRow whole_row = nullptr;   ///< ops along the last axis that keep the shape: the loop over a whole row
  std::string_view functor = {};  ///< of core/scalar.h, the body of `row`: "scalar::Add"
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
  friend bool operator==(const MatmulForm&, const MatmulForm&) = default;
};

/// Some of an op's inputs, by number. Those from the 64th on are in it or not together.
struct InputSet {
  uint64_t bits = ~uint64_t{0};

  static constexpr InputSet all() { return {}; }
  static constexpr InputSet none() { return {0}; }
  static constexpr InputSet only(size_t i) { return {uint64_t{1} << i}; }
  static constexpr InputSet all_but(size_t i) { return {~(uint64_t{1} << i)}; }
  static constexpr InputSet first(size_t count) { return {(uint64_t{1} << count) - 1}; }
  constexpr bool contains(size_t i) const { return (bits >> (i < 63 ? i : 63)) & 1; }
};

/// A call whose tensors stay where they are: all that can be settled before the first run is.
class BoundKernel {
 public:
  virtual ~BoundKernel() = default;
  virtual void run(RandomStream random) = 0;
  /// Makes what the first `run` would make of `prepared_inputs()` and keep for later ones. These have their
  /// values.
  virtual void prepare() {}
  virtual InputSet prepared_inputs() const { return InputSet::none(); }
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

/// What evaluators and passes know of an op without knowing the op. An op gives them to the constructor of
/// Op; the defaults are safe for every op.
struct OpTraits {
  OpKind kind = OpKind::other;
  Effect effect = Effect::none;
  Linearity linearity = Linearity::none;
  OpPrecision precision = OpPrecision::full;
  /// run_cpu does nothing but copy elements from tensor to tensor, which every device can.
  bool only_copies = false;
  /// run_cpu, and what bind_cpu makes, take 16-bit reals as they are: they only move elements, convert them,
  /// or widen them on their own; what only copies does. Else they are widened to float32 for it, and its
  /// results rounded.
  bool takes_halves = false;
  /// Its kernels take int8, uint8 and int16 as they are. What only copies, runs on the host or takes halves
  /// does, too.
  bool takes_small_integers = false;
  /// Its kernel throws for no values of its operands.
  bool takes_any_values = false;
  /// Its output are indices of its input, which ops with the same attributes take.
  bool finds_indices = false;
  /// It adds back what an op with the same attributes chose by the same indices, input 1 of both, of a tensor
  /// with the shape of its output. Indices that the other has taken, it takes.
  bool adds_back = false;
  /// Output 0 is input 0 but for few elements. Written over a leaf, it leaves the others alone.
  bool edits_input = false;
  /// Its output is large beside its inputs and often not read: gradients of that op are computed when they
  /// are asked for.
  bool deferred = false;
  /// run_cpu, or what bind_cpu makes, is called on the host wherever the tensors are, 16-bit reals as well:
  /// it calls a user's function, or meets other ranks.
  bool runs_on_host = false;
  /// Each output is the input of its number, in the same buffer, which the kernel may change.
  bool aliases_inputs = false;
  /// It transposes a matrix, or each of a batch: products read what is behind it instead.
  bool transposes_matrix = false;
  /// Pointwise work on its output may become part of its node, as an epilogue: its one output is large beside
  /// what computing it otherwise moves, so that the work is best done while parts of it are in the caches.
  /// Kernels that are a RowKernel (row_kernel.h) compute such parts.
  bool anchors_epilogue = false;
  /// Inputs whose elements the kernel reads. Of others it reads the shape alone.
  InputSet reads = InputSet::all();
  /// Inputs of which it picks as many elements as it writes, and reads no others.
  InputSet picks_from = InputSet::none();
  /// Inputs that output 0 may be written over, when both have the same size.
  InputSet in_place = InputSet::none();
  /// What the gradient rule reads: a value that no rule reads and no handle holds is released.
  InputSet gradient_reads = InputSet::all();
  bool gradient_reads_output = false;
  /// No gradient passes through it, to any input: nothing is kept, or built, for the gradient of its output.
  bool passes_no_gradient = false;
  std::optional<MatmulForm> matmul_form = std::nullopt;  ///< matrix products
  /// The sum of the products of its inputs, two by two; if their number is odd, the first is added to it.
  bool sums_products = false;
  /// It may sum over the rows of a batch, where each row of its first input meets that of its second.
  bool sums_over_rows = false;
  /// Its kernel of the CPU is faster with the channels last (`with_channels_last`), even if its operands have
  /// to be moved.
  bool prefers_channels_last = false;
  std::optional<double> fill =
      std::nullopt;  ///< the number everywhere in the output, whatever the inputs are
  std::optional<Device> output_device = std::nullopt;  ///< where the outputs are, if not where the inputs are
};

/// A node of a plan, as `Op::cost` sees it.
struct NodeWork {
  InputSpecs inputs;
  std::span<const Spec> outputs;
  double elements = 0;  ///< that it reads from memory and writes there
};
/// A call of a plan that has no memory yet: what its operands are, and how they will lie in their buffers.
struct PlannedCall {
  DeviceType device;
  InputSpecs inputs;
  SmallVector<const Layout*, 4> layouts;  ///< of the inputs
  std::span<const Spec> outputs;          ///< contiguous
};
/// Floating-point operations of a node.
struct NodeFlops {
  double elementwise = 0;
  double product = 0;                   ///< of matrix products
  DType product_type = DType::float32;  ///< in which their operands come
};
/// A matrix product with that many results.
NodeFlops product_flops(MatmulForm form, const Spec& left, int64_t results);

/// What a pass knows of an op's inputs: their specs, and the number that fills one everywhere.
struct KnownInputs {
  InputSpecs specs;
  SmallVector<std::optional<double>, 4> fill;
};

/// An op over operands [batch, sizes…, channels] in place of [batch, channels, sizes…].
struct ChannelsLastOp {
  std::shared_ptr<const Op> op;      ///< empty: there is none
  InputSet moved = InputSet::all();  ///< inputs that have the channels last; others are as they were
  size_t inputs = SIZE_MAX;          ///< how many of the inputs it takes, from the first on
  bool moves_output = true;          ///< whether the output has the channels last
};

using Gradients = SmallVector<Variable, 2>;
class GradientRule;

class Op {
 public:
  explicit Op(const OpTraits& traits = {}) : traits_(traits) {}
  virtual ~Op() = default;

  virtual std::string_view name() const = 0;
  virtual Attributes attributes() const { return {}; }
  const OpTraits& traits() const { return traits_; }

  /// The specs of the outputs. Throws ShapeError or TypeError naming the op and the shapes or dtypes.
  virtual Specs infer(const InputSpecs& inputs) const = 0;

  /// The kernels. The defaults throw UnsupportedError naming op, dtype and device.
  virtual void run_cpu(const KernelCall& call) const;
  /// Called once for a call that a plan will repeat, by what does better with a call resolved beforehand:
  /// measured, built, with memory of its own. Empty: run_cpu each time. Kernels of other devices stand in
  /// their registries (kernel_registry.h), but for ops that run everywhere.
  virtual std::unique_ptr<BoundKernel> bind_cpu(const KernelCall&, const BindContext&) const {
    return nullptr;
  }

  /// The most bytes of scratch memory that the kernel of a call takes from its Workspace (workspace.h) when
  /// it is bound. A plan keeps them in its arena while the call runs.
  virtual int64_t workspace_bytes(const PlannedCall&) const { return 0; }

  /// Gradients with respect to each input, made by calling ops; an empty Variable where there is none or
  /// `wants` says no. Shapes may still be broadcast: autograd sums them down. Throws UnsupportedError by
  /// default.
  virtual Gradients gradient(const GradientRule& rule) const;

  /// For views: the layout of the output over the buffer of input 0, or nothing if a copy must be made.
  virtual std::optional<Layout> view(const Layout&, const Spec&) const { return std::nullopt; }
  /// Whether an output may be written over an input, when both have the same size.
  virtual bool can_write_over(size_t output, size_t input) const {
    return output == 0 && traits_.in_place.contains(input);
  }
  /// How it runs inside another kernel; empty if it cannot.
  virtual ElementLoops loops(const InputSpecs&) const { return {}; }
  /// Reductions that can be run inside another kernel.
  virtual std::optional<Folding> folding(const InputSpecs&) const { return std::nullopt; }
  /// The input that the output equals, if these inputs make it so: x · 1 is x.
  virtual std::optional<size_t> identity(const KnownInputs&, const Spec&) const { return std::nullopt; }
  /// Whether an element of the output is made of several elements along that axis of an input, although the
  /// axis is still there: what is true of softmax along its own axis. The rows of a batch cannot be shared
  /// out along such an axis.
  virtual bool mixes(size_t /*input*/, size_t /*axis*/, const InputSpecs&) const { return false; }
  /// What computes the same with the channels as the last axis. A result may keep axes of size 1 in front
  /// that this op leaves out. Pointwise ops stay as they are, and so need not answer.
  virtual ChannelsLastOp with_channels_last(const InputSpecs&, const Spec& /*output*/) const { return {}; }
  /// What it computes; by default an operation for each element that it reads or writes.
  virtual NodeFlops cost(const NodeWork& work) const { return {.elementwise = work.elements}; }
  /// Whether both compute the same from the same inputs.
  virtual bool equals(const Op& other) const;
  /// What stands in its place when nothing is trained: dropout keeps everything. Empty: the op itself.
  virtual std::shared_ptr<const Op> for_inference() const { return nullptr; }

  OpKind kind() const { return traits_.kind; }
  bool is_pointwise() const { return kind() == OpKind::pointwise; }
  bool is_view() const { return kind() == OpKind::view; }
  bool is_leaf() const { return kind() == OpKind::leaf; }
  Effect effect() const { return traits_.effect; }
  bool is_random() const { return effect() == Effect::random; }
  bool has_side_effects() const { return effect() == Effect::writes_leaf; }
  /// Whether the kernels of the CPU serve every device.
  bool runs_everywhere() const { return traits_.only_copies || traits_.runs_on_host; }
  bool reads_elements(size_t input) const { return traits_.reads.contains(input); }
  /// Throws TypeError, naming the op, if it would compute with int8, uint8 or int16: it reads or writes them,
  /// and its traits do not say that its kernels take them.
  void check_small_integers(const InputSpecs& inputs, const Specs& outputs) const;
  /// Sources only: the feed, and which of its outputs this is.
  const std::shared_ptr<Feed>* feed() const;
  size_t feed_output() const;

  [[noreturn]] void unsupported(const KernelCall& call, std::string_view device) const;

 private:
  OpTraits traits_;
};

using OpPtr = std::shared_ptr<const Op>;

namespace detail {
[[noreturn]] void no_attribute(const Op& op, std::string_view name);
/// The TypeError of an op that would compute with int8, uint8 or int16.
[[noreturn]] void throw_small_integers(std::string_view op, const Spec& spec);
}  // namespace detail
template <class T>
T attribute(const Op& op, std::string_view name) {
  for (const auto& [key, value] : op.attributes())
    if (key == name)
      if (const T* known = std::get_if<T>(&value)) return *known;
  detail::no_attribute(op, name);
}

/// The one object of an op without attributes; sharing it costs nothing.
template <class T>
OpPtr shared_op() {
  static const T op;
  return OpPtr(std::shared_ptr<void>(), &op);
}

}  // namespace espalier
