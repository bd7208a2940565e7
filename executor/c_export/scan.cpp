// Scans: a loop over the functions of the step's operations.
#include "espalier/ops/loop/scan_op.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/executor/c_export/emitters.h"
#include "espalier/executor/c_export/leaves.h"
#include "espalier/executor/sharding/loop_graph.h"

namespace espalier::c_export {

namespace {

class ScanText {
 public:
  explicit ScanText(Function& f) : f_(f), body_(*loop_body_of(f.op())), form_(scan_form_of(f.op())) {
    if (std::ranges::any_of(body_.nodes, [](const Node* node) { return node->op().is_random(); }))
      f.refuse(
          "there is no C code for a scan whose steps draw random numbers; there is for steps that are "
          "written out one by one");
    InputSpecs operands;
    for (size_t k = 0; k < f.inputs(); ++k) operands.push_back(&f.input_spec(k));
    graph_ = graph_of_step(body_, operands, Tag::forward);
    steps_ = f.input_shape(body_.states)[0];
    element_ = form_.reverse ? fmt::format("({} - k)", steps_ - 1) : "k";
    int64_t bytes = 0;
    for (const GraphNode& n : graph_.nodes)
      for (const Spec& spec : n.outputs) bytes += bytes_of(spec);
    for (size_t i = 0; i < body_.states; ++i) bytes += bytes_of(graph_.spec(result(i)));
    values_ = f.scratch(bytes, DType::boolean);
  }

  void run() {
    for (size_t i = 0; i < body_.states; ++i) copy(f_.out(i), f_.in(i), f_.layout(i));
    f_.loop("k", steps_);
    keep_states();
    bind_inputs();
    size_t next = body_.inputs.size();
    for (const Node* node : body_.nodes)
      if (std::ranges::none_of(body_.inputs, [&](const Variable& v) { return v.node() == node; }))
        add(static_cast<uint32_t>(next++), *node);
    for (size_t k = body_.states; k < body_.outputs.size(); ++k)
      copy(fmt::format("{} + {} * {}", f_.out(k), element_, spec(result(k)).shape.elements()), result(k));
    take_states();
    f_.close();
    if (most_scratch_ > 0) (void)f_.scratch(most_scratch_, DType::boolean);
  }

 private:
  /// Where a value of the step lies.
  struct Place {
    std::string base;  ///< an expression: a pointer to its type
    Layout layout;
    bool is_state = false;
    std::optional<size_t> input = {};               ///< of the scan, which the expression is a part of
    std::shared_ptr<const std::string> table = {};  ///< the definition of a constant, which it is the name of
  };

  const Spec& spec(ValueRef v) const { return graph_.spec(v); }
  ValueRef result(size_t k) const { return graph_.results[k]; }
  Place& place(ValueRef v) { return places_[v]; }

  static int64_t bytes_of(const Spec& spec) {
    return (spec.shape.elements() * static_cast<int64_t>(size_of(spec.dtype)) + 15) / 16 * 16;
  }
  /// A part of the scratch memory.
  std::string memory(const Spec& spec) {
    const int64_t begin = std::exchange(values_end_, values_end_ + bytes_of(spec));
    return fmt::format("({} *)(void *)({} + {})", c_type(spec.dtype), values_, begin);
  }
  void copy(const std::string& to, const std::string& from, const Layout& layout) {
    const Axes axes = join_axes(layout.shape, {layout.strides, Layout(layout.shape).strides});
    f_.loops(axes, "c", axes.sizes.size());
    f_.line(fmt::format("({})[{}] = ({})[{}];", to, position(axes.strides[1], "c"), from,
                        position(axes.strides[0], "c")));
    f_.close(axes.sizes.size());
  }
  void copy(const std::string& to, ValueRef from) {
    note_read(from);
    copy(to, address(from), place(from).layout);
  }
  /// Only what is read is a parameter, or is defined.
  void note_read(ValueRef v) {
    const Place& p = place(v);
    if (p.input) (void)f_.in(*p.input);
    if (p.table) f_.helpers().add(p.base, *p.table);
  }
  std::string address(ValueRef v) {
    const Place& p = place(v);
    return p.layout.offset ? fmt::format("{} + {}", p.base, p.layout.offset) : p.base;
  }

  /// The states in front of the step, if the gradient needs them.
  void keep_states() {
    if (form_.keeps == 0) return;
    if (form_.keeps > 1) f_.open(fmt::format("if (k % {} == 0)", form_.keeps));
    for (size_t i = 0; i < body_.states; ++i) {
      const Shape& shape = f_.input_shape(i);
      const std::string at = form_.keeps == 1 ? element_ : fmt::format("k / {}", form_.keeps);
      copy(fmt::format("{} + {} * {}", f_.out(body_.outputs.size() + i), at, shape.elements()), f_.out(i),
           Layout(shape));
    }
    if (form_.keeps > 1) f_.close();
  }
  /// States lie in the outputs, elements in their sequences.
  void bind_inputs() {
    for (uint32_t i = 0; i < body_.inputs.size(); ++i) {
      const Shape& shape = spec({i, 0}).shape;
      if (i < body_.states) {
        place({i, 0}) = {f_.out(i), Layout(shape), true};
        continue;
      }
      if (i >= body_.states + body_.sequences) {
        if (f_.has_value(i)) place({i, 0}) = {fmt::format("x{}", i), f_.layout(i), false, i};
        continue;
      }
      Layout element(shape);
      const Dims& strides = f_.layout(i).strides;
      element.strides = Dims(strides.begin() + 1, strides.end());
      std::string base = fmt::format("x{}", i);
      if (strides[0] != 0 && shape.elements() > 0) base += fmt::format(" + {} * {}", element_, strides[0]);
      place({i, 0}) = {std::move(base), element, false, i};
    }
  }

  void add(uint32_t i, const Node& node) {
    GraphNode& n = graph_.nodes[i];
    if (node.is_leaf()) {
      const Tensor& value = node.outputs[0].value;
      const bool is_number = std::ranges::all_of(value.strides(), [](int64_t stride) { return stride == 0; });
      Layout one{Shape()};
      one.offset = value.layout().offset;
      const Tensor table =
          (is_number ? Tensor(value.storage(), one, value.dtype()) : value).contiguous_copy().to(cpu());
      auto [name, text] = f_.helpers().name_for(
          "constant", [&](const std::string& own) { return table_text("static ", own, table); });
      Place& own = place({i, 0});
      own.base = std::move(name);
      own.layout = is_number ? broadcast_layout(Layout(Shape()), value.shape()) : Layout(value.shape());
      own.table = std::make_shared<const std::string>(std::move(text));
      return;
    }
    if (n.op->is_view()) {
      const Place& from = place(n.inputs[0]);
      if (auto layout = n.op->view(from.layout, n.outputs[0])) {
        Place seen = from;
        seen.layout = *layout;
        place({i, 0}) = std::move(seen);
        return;
      }
    }
    located(n.where, [&] { call(i); });
  }
  void call(uint32_t i) {
    GraphNode& n = graph_.nodes[i];
    std::vector<Operand> inputs, outputs;
    for (const ValueRef& v : n.inputs) {
      Operand operand{places_.contains(v) ? address(v) : "", spec(v),
                      places_.contains(v) ? place(v).layout : Layout(spec(v).shape)};
      operand.layout.offset = 0;
      inputs.push_back(std::move(operand));
    }
    int64_t elements = 0;
    for (uint32_t k = 0; k < n.outputs.size(); ++k) {
      place({i, k}) = {memory(n.outputs[k]), Layout(n.outputs[k].shape)};
      outputs.push_back({place({i, k}).base, n.outputs[k], place({i, k}).layout});
      elements += n.outputs[k].shape.elements();
    }
    if (elements == 0) return;
    Function step(n, std::move(inputs), std::move(outputs), f_.helpers());
    const Emitter emit = emitter_of(n.op->name());
    if (!emit) step.refuse("there is no C code for this op");
    emit(step);
    for (size_t k = 0; k < n.inputs.size(); ++k)
      if (step.reads(k) && spec(n.inputs[k]).shape.elements() > 0) note_read(n.inputs[k]);
    const auto [name, definition] = f_.helpers().name_for(n.op->name(), [&](const std::string& own) {
      return fmt::format("static {} {}{} {{\n{}{}}}\n", step.may_fail() ? "int" : "void", own,
                         step.parameters(), step.body(), step.may_fail() ? "  return 0;\n" : "");
    });
    f_.helpers().add(name, definition);
    most_scratch_ = std::max(most_scratch_, step.scratch_bytes());
    // All calls have the same scratch memory, whose size is known behind the last: the second of this
    // function.
    const std::string text = fmt::format("{}({})", name, step.arguments("t1"));
    step.may_fail() ? f_.fail_if(text) : f_.line(text + ";");
  }

  /// The states behind the step are those in front of the next. One may be a state of before, which another
  /// writes over.
  void take_states() {
    bool moved = false;
    for (size_t i = 0; i < body_.states; ++i) moved |= place(result(i)).is_state;
    std::vector<std::string> next;
    for (size_t i = 0; moved && i < body_.states; ++i) {
      next.push_back(memory(spec(result(i))));
      copy(next.back(), result(i));
    }
    for (size_t i = 0; i < body_.states; ++i)
      if (moved)
        copy(f_.out(i), next[i], Layout(spec(result(i)).shape));
      else
        copy(f_.out(i), result(i));
  }

  Function& f_;
  const LoopBody& body_;
  const ScanForm form_;
  Graph graph_;
  int64_t steps_ = 0, values_end_ = 0, most_scratch_ = 0;
  std::string element_;  ///< the number of the step's elements
  std::string values_;   ///< scratch memory for all values of a step
  std::map<ValueRef, Place> places_;
};

}  // namespace

void write_scan(Function& f) { ScanText(f).run(); }

}  // namespace espalier::c_export
