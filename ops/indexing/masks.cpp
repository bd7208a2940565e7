// Elements chosen by a condition: how many there are depends on values.
#include "espalier/ops/indexing/masks.h"

#include <algorithm>
#include <array>
#include <memory>
#include <unordered_set>

#include "espalier/core/autograd.h"
#include "espalier/core/node.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/workspace.h"
#include "espalier/ops/functions/arrange.h"
#include "espalier/ops/functions/masks.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

constexpr std::string_view instead =
    "the shape of its result depends on values, which a tree downstream of a feed and a plan do not have "
    "when "
    "shapes are inferred; where(), masked_fill() and sums of x * cast(mask, x.dtype()) keep the shape";

Tensor plain_on_cpu(const Tensor& x) { return x.to(cpu()).contiguous_copy(); }

/// Calls f(i) for each element that is not zero, by its row-major number. These are listed first, without
/// branches, which random elements mispredict.
template <class F>
void each_nonzero(const Tensor& x, F&& f) {
  const auto look = [&]<class T>(TypeTag<T>) {
    constexpr int64_t block = 256;
    std::array<int64_t, block> listed;
    const T* from = static_cast<const T*>(x.address());
    const int64_t n = x.elements();
    for (int64_t begin = 0; begin < n; begin += block) {
      size_t count = 0;
      for (int64_t i = begin; i < std::min(n, begin + block); ++i) {
        listed[count] = i;
        count += from[i] != T(0);
      }
      for (size_t k = 0; k < count; ++k) f(listed[k]);
    }
  };
  if (is_small_integer(x.dtype()))
    visit_size(x.dtype(), look);
  else
    visit_all(x.dtype(), look);
}

int64_t number_of_nonzero(const Tensor& x) {
  int64_t count = 0;
  const auto look = [&]<class T>(TypeTag<T>) {
    const T* from = static_cast<const T*>(x.address());
    for (int64_t i = 0, n = x.elements(); i < n; ++i) count += from[i] != T(0);
  };
  if (is_small_integer(x.dtype()))
    visit_size(x.dtype(), look);
  else
    visit_all(x.dtype(), look);
  return count;
}

Shape positions_shape(const Shape& x, int64_t count, bool flat) {
  return flat ? Shape{count} : Shape{count, static_cast<int64_t>(x.rank())};
}

/// Writes the positions of the elements of `x` that are not zero, as many as there is room for. Returns how
/// many there are.
int64_t list_nonzero(const Tensor& x, bool flat, Tensor& found) {
  auto* to = static_cast<int64_t*>(found.address());
  const size_t rank = x.rank();
  const int64_t room = found.shape()[0];
  int64_t count = 0;
  each_nonzero(x, [&](int64_t i) {
    if (count++ >= room) return;
    if (flat || rank == 1) {
      *to++ = i;
      return;
    }
    for (size_t axis = rank; axis-- > 0;) {
      to[axis] = i % x.shape().dims()[axis];
      i /= x.shape().dims()[axis];
    }
    to += rank;
  });
  return count;
}

/// The positions of the elements that are not zero, `count` of them: as indices [count, rank], or, if `flat`,
/// as row-major numbers [count]. A later evaluation that finds another number is an error.
class NonzeroPositions : public Op {
 public:
  NonzeroPositions(int64_t count, bool flat, std::string function)
      : Op({.runs_on_host = true, .gradient_reads = InputSet::none(), .passes_no_gradient = true}),
        count_(count),
        flat_(flat),
        function_(std::move(function)) {}
  std::string_view name() const override { return "nonzero_positions"; }
  Attributes attributes() const override {
    return {{"count", count_}, {"flat", flat_}, {"function", function_}};
  }
  bool mixes(size_t, size_t, const InputSpecs&) const override { return true; }
  Specs infer(const InputSpecs& in) const override {
    return {{DType::int64, positions_shape(in[0]->shape, count_, flat_)}};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor found(call.outputs[0]->shape(), DType::int64);
    const int64_t count = list_nonzero(plain_on_cpu(*call.inputs[0]), flat_, found);
    if (count != count_)
      throw UnsupportedError(fmt::format("{}: chooses {} elements now, where it chose {} when it was written",
                                         function_, count, count_));
    copy_elements(found, *call.outputs[0]);
  }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall&, const BindContext& context) const override {
    if (context.find<Workspace>()) throw UnsupportedError(fmt::format("{}: {}", function_, instead));
    return nullptr;
  }
  Gradients gradient(const GradientRule&) const override { return {Variable()}; }

 private:
  int64_t count_;
  bool flat_;
  std::string function_;  // that the user called, for errors
};

void check_eager(const Variable& v, std::string_view function) {
  if (v.node()->lazy) throw UnsupportedError(fmt::format("{}: {}", function, instead));
}

/// Whether a value is made of constants alone: no step changes it.
bool is_known(const Variable& x) {
  std::vector<const Node*> next{x.node()};
  std::unordered_set<const Node*> seen(next.begin(), next.end());
  while (!next.empty()) {
    const Node& node = *next.back();
    next.pop_back();
    if (node.is_leaf() ? !is_constant(node.op()) : node.op().effect() != Effect::none) return false;
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (const Node* input = node.inputs[k].node(); node.op().reads_elements(k) && seen.insert(input).second)
        next.push_back(input);
  }
  return true;
}

Variable positions_of_nonzero(const Variable& x, bool flat, std::string_view function) {
  check_eager(x, function);
  const int64_t count = number_of_nonzero(plain_on_cpu(x.value()));
  if (is_known(x)) {
    Tensor found(positions_shape(x.shape(), count, flat), DType::int64);
    (void)list_nonzero(plain_on_cpu(x.value()), flat, found);
    return Variable(found.to(x.value().device()));
  }
  return apply(std::make_shared<NonzeroPositions>(count, flat, std::string(function)), {&x},
               std::source_location::current());
}

}  // namespace

Variable numbers_of_nonzero(const Variable& x, std::string_view function) {
  return positions_of_nonzero(x, true, function);
}

Variable masked_fill(const Operand& x, const Operand& mask, const Operand& value) {
  const CallScope scope(x.where());
  const Variable &to = x.defined("masked_fill"), &given = value.like(to),
                 &chosen = mask.defined("masked_fill");
  if (chosen.dtype() != boolean)
    located(x.where(), [&] {
      throw TypeError(fmt::format("masked_fill: the mask is {}, not bool", name(chosen.dtype())));
    });
  return where({chosen, x.where()}, {given, x.where()}, {to, x.where()});
}

Variable masked_scatter(const Operand& x, const Operand& mask, const Variable& source) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable &to = x.defined("masked_scatter"), &chosen = mask.defined("masked_scatter");
    if (!source.defined()) throw Error("masked_scatter: the source is undefined");
    if (chosen.dtype() != boolean)
      throw TypeError(fmt::format("masked_scatter: the mask is {}, not bool", name(chosen.dtype())));
    const Variable places = broadcast_like(chosen, to);
    // Numbers of places take half of the memory where 32 bits hold them.
    const bool small = !places.node()->lazy && places.shape().elements() <= INT32_MAX;
    const Variable number =
        cumsum(cast(flatten(places), small ? int32 : int64), 0) - 1;  // of the place so far
    const Variable values = gather(flatten(source), maximum(number, 0));
    return where(places, reshape_like(values, to), to);
  });
}

Variable masked_select(const Operand& x, const Operand& mask) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable &from = x.defined("masked_select"), &chosen = mask.defined("masked_select");
    if (chosen.dtype() != boolean)
      throw TypeError(fmt::format("masked_select: the mask is {}, not bool", name(chosen.dtype())));
    // The places of a known mask are known, if no axis of a feed decides how often it is repeated.
    if (!from.node()->lazy || !(chosen.shape() == from.shape()) || chosen.node()->lazy)
      check_eager(from, "masked_select");
    else if (is_known(chosen))
      return gather(reshape(from, {from.shape().elements()}), numbers_of_nonzero(chosen, "masked_select"));
    const std::vector<Variable> both = broadcast_tensors({from, chosen}, x.where());
    return gather(flatten(both[0]), numbers_of_nonzero(both[1], "masked_select"));
  });
}

Variable nonzero(const Operand& x) {
  const CallScope scope(x.where());
  return located(x.where(), [&] { return positions_of_nonzero(x.defined("nonzero"), false, "nonzero"); });
}

Variable repeat_interleave(const Operand& x, const Operand& counts, int64_t axis) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    constexpr std::string_view function = "repeat_interleave";
    const Variable &from = x.defined(function), &given = counts.defined(function);
    const int64_t size = from.shape().dims()[resolve_axis(axis, from.rank(), function)];
    if (given.dtype() != int32 && given.dtype() != int64)
      throw TypeError(fmt::format("{}: counts are integers, not {}", function, name(given.dtype())));
    if (given.rank() > 1 || (given.shape().elements() != 1 && given.shape().elements() != size))
      throw ShapeError(fmt::format("{}: counts of shape {} for an axis of size {}", function,
                                   given.shape().str(), size_text(size)));
    check_eager(given, function);
    const Tensor list = plain_on_cpu(given.value().to(int64));
    const auto times = [each = list.span<int64_t>().data(), one = list.elements() == 1](int64_t i) {
      return each[one ? 0 : i];
    };
    int64_t total = 0;
    for (int64_t i = 0; i < size; ++i) {
      if (times(i) < 0) throw Error(fmt::format("{}: a count of {}", function, times(i)));
      total += times(i);
    }
    Tensor chosen({total}, int64);
    auto* to = static_cast<int64_t*>(chosen.address());
    for (int64_t i = 0; i < size; ++i) to = std::fill_n(to, times(i), i);
    return gather(from, chosen.to(from.device()), axis);
  });
}

void add_mask_ops(OpRegistry& ops) {
  ops.add("nonzero_positions", 1, [](AttributeReader& a) {
    const int64_t count = a.integer("count", 0);
    const bool flat = a.flag("flat");
    return std::make_shared<NonzeroPositions>(count, flat, a.text("function"));
  });
}

}  // namespace espalier
