#include "espalier/executor/runtime/nan_finder.h"

#include <fmt/format.h>

#include "espalier/core/error.h"

namespace espalier {

namespace {

const char* pass_of(const GraphNode& n) {
  return n.tag == Tag::forward    ? "in the forward pass"
         : n.tag == Tag::backward ? "in the backward pass"
                                  : "in the update";
}

}  // namespace

NanFinder::NanFinder(const PlanData& plan, const std::vector<SmallVector<Tensor, 1>>& values,
                     std::vector<Tensor> written)
    : plan_(plan), values_(values), written_(std::move(written)) {
  for (const auto& outputs : values_) contents_.emplace_back(outputs.size(), Content::finite);
}

const char* NanFinder::text_of(Content content) { return content == Content::nan ? "NaN" : "infinite"; }

ValueRef NanFinder::source_of(ValueRef value) const {
  for (;;) {
    const GraphNode& n = plan_.graph.nodes[value.node];
    if (n.inputs.empty()) return value;
    if (n.op->has_side_effects())
      value = n.inputs[1];
    else if (n.op->traits().aliases_inputs && n.op->effect() != Effect::communicates)
      value = n.inputs[value.output];
    else if (!plan_.memory.runs[value.node])
      value = n.inputs[0];
    else
      return value;
  }
}

void NanFinder::begin() {
  before_.clear();
  loops_.clear();
  for (const Tensor& leaf : written_) before_.push_back(leaf.clone());
  for (uint32_t i = 0; i < values_.size(); ++i)
    for (size_t k = 0; k < values_[i].size(); ++k)
      contents_[i][k] = plan_.graph.nodes[i].inputs.empty() ? content_of(values_[i][k]) : Content::finite;
}

void NanFinder::before(uint32_t node) const {
  const GraphNode& n = plan_.graph.nodes[node];
  if (plan_.find_nan != NanSearch::exchanged || n.op->effect() != Effect::communicates) return;
  for (const ValueRef& input : n.inputs)
    if (of(input) != Content::finite) fail("a gradient or another value to be exchanged", input);
}

void NanFinder::after(uint32_t node) {
  bool finite = true;
  for (size_t k = 0; k < values_[node].size(); ++k)
    finite &= (contents_[node][k] = content_of(values_[node][k])) == Content::finite;
  const GraphNode& n = plan_.graph.nodes[node];
  if (finite || !LoopTrail::can_follow(*n.op)) return;
  KernelCall call;
  call.where = &n.where;
  for (const ValueRef& input : n.inputs) call.inputs.push_back(&values_[input.node][input.output]);
  std::vector<Tensor> outputs = {values_[node].begin(), values_[node].end()};
  for (Tensor& output : outputs) call.outputs.push_back(&output);
  loops_.emplace(node, LoopTrail(*n.op, call));
}

void NanFinder::run(FunctionRef<void()> kernels) {
  begin();
  try {
    kernels();
    check_results();
  } catch (...) {
    for (size_t i = 0; i < written_.size(); ++i) copy_elements(before_[i], written_[i]);
    throw;
  }
}

void NanFinder::check_results() const {
  const Graph& graph = plan_.graph;
  for (const size_t result : {plan_.loss, plan_.value})
    if (const ValueRef value = graph.results[result]; of(value) != Content::finite)
      fail(graph.spec(value).shape.rank() == 0 ? "the loss" : "the value", value);
  for (const GraphNode& n : graph.nodes)
    if (n.op->has_side_effects() && of(n.inputs[1]) != Content::finite)
      fail(fmt::format("what a step writes to the {} '{}'",
                       is_parameter(graph.nodes[n.inputs[0].node].leaf.node()->op()) ? "parameter" : "state",
                       graph.nodes[n.inputs[0].node].leaf.node()->op().name()),
           n.inputs[1]);
}

ValueRef NanFinder::origin_of(ValueRef value) const {
  for (;;) {
    value = source_of(value);
    const GraphNode& n = plan_.graph.nodes[value.node];
    const Content wanted = of(value);
    const ValueRef* from = nullptr;
    if (const auto inside = origin_in_loop(value)) {
      if (!inside->input) return value;
      if (of(n.inputs[*inside->input]) != Content::finite) from = &n.inputs[*inside->input];
    }
    for (const ValueRef& input : n.inputs)
      if (of(input) >= wanted && !from) from = &input;
    if (!from) return value;
    value = *from;
  }
}

std::optional<LoopTrail::Origin> NanFinder::origin_in_loop(ValueRef value) const {
  const auto loop = loops_.find(value.node);
  if (loop == loops_.end()) return std::nullopt;
  return loop->second.origin_of(value.output, contents_[value.node][value.output]);
}

std::string NanFinder::describe(const LoopTrail::Origin& origin, const GraphNode& loop) const {
  if (!origin.made) return origin.text + " has it";
  return fmt::format("{} made it {}{}", origin.text, pass_of(loop),
                     origin.of_finite ? " out of finite operands" : "");
}

std::string NanFinder::describe(ValueRef origin) const {
  const GraphNode& n = plan_.graph.nodes[origin.node];
  if (const auto inside = origin_in_loop(origin); inside && !inside->input) return describe(*inside, n);
  const std::string line = line_of(n.where);
  if (const auto* feed = n.op->feed())
    return fmt::format("column {} of the batch of '{}' has it", n.op->feed_output(), (*feed)->name());
  if (n.leaf.defined())
    return fmt::format("the leaf '{}' ({}) has had it before the step", n.op->name(), line);
  if (n.inputs.empty()) return fmt::format("the constant '{}' ({}) has it", n.op->name(), line);
  if (n.op->effect() == Effect::communicates)
    return fmt::format("'{}' ({}) has received it from another replica", n.op->name(), line);
  bool finite = true;
  for (const ValueRef& input : n.inputs) finite = finite && of(input) == Content::finite;
  return fmt::format("'{}' ({}) made it {}{}", n.op->name(), line, pass_of(n),
                     finite ? " out of finite operands" : "");
}

std::string NanFinder::infinity_behind(ValueRef origin) const {
  const GraphNode& n = plan_.graph.nodes[origin.node];
  if (const auto inside = origin_in_loop(origin); inside && !inside->input) {
    if (!inside->infinity) return {};
    const std::optional<size_t> input = inside->infinity->input;
    return input ? describe(origin_of(n.inputs[*input])) : describe(*inside->infinity, n);
  }
  for (const ValueRef& input : n.inputs)
    if (of(input) == Content::infinite) return describe(origin_of(input));
  return {};
}

void NanFinder::fail(const std::string& what, ValueRef value) const {
  const ValueRef origin = origin_of(value);
  std::string message = fmt::format("{} is {}: {}", what, text_of(of(value)), describe(origin));
  if (const std::string infinity = infinity_behind(origin); !infinity.empty())
    message += " out of infinity: " + infinity;
  throw NumericError(message + ". Parameters and states are as before the step");
}

}  // namespace espalier
