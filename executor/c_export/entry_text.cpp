#include "espalier/executor/c_export/entry_text.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "espalier/core/error.h"
#include "espalier/core/op_names.h"
#include "espalier/executor/c_export/c_words.h"
#include "espalier/executor/c_export/emitters.h"
#include "espalier/ops/loop/scan_op.h"

namespace espalier::c_export {

std::string parameter_name(std::string_view name, std::string_view prefix, std::set<std::string>& taken) {
  std::string text;
  for (const char c : name) text += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) || text[0] == '_') text = "x" + text;
  if (is_taken_in_c(text) || text.starts_with(fmt::format("{}_", prefix)) || text.starts_with("copy_"))
    text += '_';
  std::string unique = text;
  for (int n = 2; !taken.insert(unique).second; ++n) unique = fmt::format("{}_{}", text, n);
  return unique;
}

namespace {

/// Copies n elements. Returns the name of the function.
std::string copy_function(Helpers& helpers, DType dtype) {
  std::string name = fmt::format("copy_{}", espalier::name(dtype));
  helpers.add(name, fmt::format("static void {0}(long n, {1} *restrict to, const {1} *restrict from) {{\n"
                                "  for (long i = 0; i < n; ++i) to[i] = from[i];\n"
                                "}}\n",
                                name, c_type(dtype)));
  return name;
}

class EntryWriter {
 public:
  EntryWriter(const EntryPoint& entry, const MemoryPlan& memory, FileParts& parts)
      : entry_(entry), graph_(entry.plan->graph), memory_(memory), parts_(parts) {}

  EntryText run() {
    find_constant_ends();
    add_inputs();
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i)
      if (memory_.runs[i]) located(graph_.nodes[i].where, [&] { call(i); });
    for (const auto& [name, position] : entry_.results) add_result(name, graph_.results[position]);
    if (graph_.streams > 0) line(fmt::format("random_stream += {};", graph_.streams));
    parts_.random |= graph_.streams > 0;
    line("return 0;");
    text_.prototype =
        fmt::format("int {}_{}({})", parts_.options.name, entry_.name,
                    parameters_.empty() ? "void" : fmt::format("{}", fmt::join(parameters_, ", ")));
    text_.body = "{\n" + body_ + "}\n";
    return std::move(text_);
  }

 private:
  void line(std::string_view text) { body_ += fmt::format("  {}\n", text); }
  const Place& place(ValueRef v) const { return memory_.places[v.node][v.output]; }

  /// Elements of each constant that are read, counted from its start.
  void find_constant_ends() {
    for (const auto& node : memory_.places)
      for (const Place& p : node) {
        if (p.in != Place::In::constant) continue;
        int64_t last = p.layout.offset;
        for (size_t i = 0; i < p.layout.shape.rank(); ++i)
          last += std::max<int64_t>(p.layout.shape.dims()[i] - 1, 0) * p.layout.strides[i];
        constant_ends_[p.index] = std::max(constant_ends_[p.index], last + 1);
      }
  }
  /// The table of a constant's buffer.
  std::string constant(uint32_t node) {
    const Tensor& value = *graph_.nodes[node].constant;
    (void)c_type(value.dtype());
    const Shape all{static_cast<int64_t>(value.storage()->bytes / size_of(value.dtype()))};
    const Tensor whole = Tensor(value.storage(), Layout(all), value.dtype()).to(cpu());
    const Tensor read = whole.slice(0, 0, std::min(constant_ends_.at(node), all[0]));
    const std::string text = table_text("static ", "", read);
    const auto [known, fresh] = parts_.constants.emplace(
        text, fmt::format("{}_constant_{}", parts_.options.name, parts_.constants.size()));
    if (fresh) {
      parts_.tables += table_text("static ", known->second, read);
      parts_.constant_bytes += static_cast<int64_t>(read.bytes());
    }
    return known->second;
  }
  /// The expression for the first element of a value; empty for a shape alone.
  std::string address(const Place& p, DType dtype, bool written) {
    std::string base;
    switch (p.in) {
      case Place::In::nowhere: return "";
      case Place::In::arena: {
        const int64_t bytes =
            memory_.buffers[p.index].offset + p.layout.offset * static_cast<int64_t>(size_of(dtype));
        return fmt::format("AT({}{}, {})", written ? "" : "const ", c_type(dtype), bytes);
      }
      case Place::In::leaf: base = parts_.leaves.address(graph_.nodes[p.index].leaf); break;
      case Place::In::constant: base = constant(p.index); break;
    }
    return p.layout.offset ? fmt::format("{} + {}", base, p.layout.offset) : base;
  }
  Operand operand(ValueRef v, bool written) {
    const Spec& spec = graph_.spec(v);
    Operand operand{address(place(v), spec.dtype, written), spec, place(v).layout, place(v)};
    operand.layout.offset = 0;
    return operand;
  }

  void add_inputs() {
    std::map<const Feed*, std::map<size_t, uint32_t>> sources;
    std::vector<const Feed*> order;
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i)
      if (const auto* feed = graph_.nodes[i].op->feed()) {
        if (std::ranges::count(order, feed->get()) == 0) order.push_back(feed->get());
        sources[feed->get()].emplace(graph_.nodes[i].op->feed_output(), i);
      }
    for (const Feed* feed : order)
      for (const auto& [output, node] : sources[feed])
        add_input(feed->is_placeholder() ? feed->name() : fmt::format("column_{}", output), node);
  }
  void add_input(std::string_view given, uint32_t node) {
    const Spec& spec = graph_.nodes[node].outputs[0];
    const auto type = located(graph_.nodes[node].where, [&] { return c_type(spec.dtype); });
    const std::string name = parameter_name(given, parts_.options.name, taken_);
    const int64_t n = spec.shape.elements();
    parameters_.push_back(fmt::format("const {} {}[{}]", type, name, std::max<int64_t>(n, 1)));
    note(name, "in", spec, graph_.nodes[node].where);
    bool read = false;
    for (uint32_t i = node; i < graph_.nodes.size(); ++i) {  // sources of one column may be several nodes
      const GraphNode& source = graph_.nodes[i];
      const GraphNode& first = graph_.nodes[node];
      if (!source.op->feed() || *source.op->feed() != *first.op->feed() ||
          source.op->feed_output() != first.op->feed_output() || place({i, 0}).in == Place::In::nowhere)
        continue;
      line(fmt::format("{}({}, {}, {});", copy_function(parts_.helpers, spec.dtype), n,
                       address(place({i, 0}), spec.dtype, true), name));
      read = true;
    }
    if (!read) line(fmt::format("(void){};", name));
  }

  void add_result(std::string_view given, ValueRef result) {
    const Spec& spec = graph_.spec(result);
    const std::string name = parameter_name(given, parts_.options.name, taken_);
    const auto& where = graph_.nodes[result.node].where;
    const auto type = located(where, [&] { return c_type(spec.dtype); });
    parameters_.push_back(fmt::format("{} {}[{}]", type, name, std::max<int64_t>(spec.shape.elements(), 1)));
    note(name, "out", spec, where);
    const std::string from = address(place(result), spec.dtype, false);
    const Layout& layout = place(result).layout;
    if (layout.contiguous())
      return line(fmt::format("{}({}, {}, {});", copy_function(parts_.helpers, spec.dtype),
                              spec.shape.elements(), name, from));
    const Axes axes = join_axes(spec.shape, {layout.strides, Layout(spec.shape).strides});
    std::string loops;
    for (size_t i = 0; i < axes.sizes.size(); ++i)
      loops += fmt::format("for (long i{0} = 0; i{0} < {1}; ++i{0}) ", i, axes.sizes[i]);
    line(fmt::format("{}{}[{}] = ({})[{}];", loops, name, position(axes.strides[1], "i"), from,
                     position(axes.strides[0], "i")));
  }
  void note(std::string_view name, std::string_view direction, const Spec& spec,
            const std::source_location& where) {
    text_.comment += fmt::format(" *     {:<16} {:<4} {:<8} {:<16} {}\n", name, direction, c_type(spec.dtype),
                                 spec.shape.str(), in_comment(line_of(where)));
  }

  void call(uint32_t i) {
    const GraphNode& node = graph_.nodes[i];
    std::vector<Operand> inputs, outputs;
    const bool assigns = node.op->has_side_effects();
    for (size_t k = assigns ? 1 : 0; k < node.inputs.size(); ++k)
      inputs.push_back(operand(node.inputs[k], false));
    int64_t elements = 0;
    for (uint32_t k = 0; k < node.outputs.size(); ++k) {
      outputs.push_back(operand({i, k}, true));
      elements += node.outputs[k].shape.elements();
    }
    const std::vector<Operand> given = inputs;
    const auto leave_unread = [&](size_t k) {  // a table that perhaps nothing else reads
      if (given[k].place.in == Place::In::leaf || given[k].place.in == Place::In::constant)
        line(fmt::format("(void)({});", given[k].address));
    };
    if (elements == 0) {
      for (size_t k = 0; k < given.size(); ++k) leave_unread(k);
      return;
    }
    for (Operand& input : inputs)  // one buffer has one expression
      for (const Operand& output : outputs)
        if (input.place.in == output.place.in && input.place.index == output.place.index &&
            input.place.layout.offset == output.place.layout.offset && input.layout.contiguous() &&
            input.spec.dtype == output.spec.dtype)
          input.address = output.address;
    Function f(node, std::move(inputs), std::move(outputs), parts_.helpers);
    const Emitter emit = assigns                  ? write_copy
                         : is_custom_op(*node.op) ? nullptr
                                                  : emitter_of(node.op->name());
    if (!emit && is_loop(*node.op))
      f.refuse(
          "there is no C code for a scan whose steps draw random numbers; there is for steps that are "
          "written out one by one");
    if (!emit) f.refuse("there is no C code for this op");
    emit(f);
    for (size_t k = 0; k < given.size(); ++k)
      if (!f.reads(k)) leave_unread(k);
    add_call(node, f);
  }

  void add_call(const GraphNode& node, const Function& f) {
    std::string text =
        fmt::format("{}{} {{\n{}{}}}\n", f.parameters(), "", f.body(), f.may_fail() ? "  return 0;\n" : "");
    const std::string result = f.may_fail() ? "static int" : "static void";
    const std::string line_text = in_comment(line_of(node.where));
    auto known = parts_.functions.find(text);
    if (known == parts_.functions.end()) {
      std::string name =
          fmt::format("{}_{}_{}", parts_.options.name,
                      node.op->has_side_effects() ? "write" : node.op->name(), parts_.functions.size() + 1);
      parts_.text += fmt::format("/* {}: {} */\n{} {}{}\n", line_text, in_comment(description(node)), result,
                                 name, text);
      known = parts_.functions.emplace(std::move(text), std::move(name)).first;
    }
    ++text_.calls;
    const std::string call = fmt::format("{}({})", known->second, f.arguments(parts_.scratch_begin));
    line(f.may_fail() ? fmt::format("if ({}) return {}; /* {} */", call, text_.calls, line_text)
                      : fmt::format("{}; /* {} */", call, line_text));
    parts_.scratch_bytes = std::max(parts_.scratch_bytes, f.scratch_bytes());
  }
  std::string description(const GraphNode& node) const {
    std::string text(node.op->name());
    for (const ValueRef& input : node.inputs) text += " " + graph_.spec(input).shape.str();
    text += " ->";
    for (const Spec& output : node.outputs) text += " " + output.shape.str();
    if (is_op(*node.op, "fused")) text += "; " + to_string(node.op->attributes());
    return text;
  }

  const EntryPoint& entry_;
  const Graph& graph_;
  const MemoryPlan& memory_;
  FileParts& parts_;
  EntryText text_;
  std::string body_;
  std::vector<std::string> parameters_;
  std::set<std::string> taken_;
  std::map<uint32_t, int64_t> constant_ends_;
};

}  // namespace

EntryText write_entry(const EntryPoint& entry, const MemoryPlan& memory, FileParts& parts) {
  return EntryWriter(entry, memory, parts).run();
}

}  // namespace espalier::c_export
