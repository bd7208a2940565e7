#include "espalier/executor/c_export/leaves.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "espalier/core/error.h"
#include "espalier/executor/c_export/function.h"

namespace espalier::c_export {

namespace {

template <class F>
void each_number(const Tensor& values, F&& f) {
  switch (values.dtype()) {
    case DType::float32:
      for (const float x : values.span<float>()) f(literal(x, DType::float32));
      return;
    case DType::float64:
      for (const double x : values.span<double>()) f(literal(x, DType::float64));
      return;
    case DType::int32:
      for (const int32_t x : values.span<int32_t>()) f(x == INT32_MIN ? "INT32_MIN" : fmt::format("{}", x));
      return;
    case DType::int64:
      for (const int64_t x : values.span<int64_t>())
        f(x == INT64_MIN ? "INT64_MIN" : fmt::format("INT64_C({})", x));
      return;
    case DType::boolean:
      for (const bool x : values.span<bool>()) f(x ? "1" : "0");
      return;
    default: (void)c_type(values.dtype());  // throws
  }
}

/// The literal of the number everywhere in a tensor, if there is one.
std::optional<std::string> fill_of(const Tensor& values) {
  std::optional<std::string> first;
  bool same = true;
  each_number(values, [&](const std::string& text) {
    if (!first) first = text;
    same &= *first == text;
  });
  return same ? first : std::nullopt;
}

uint32_t hashed(uint32_t hash, std::string_view bytes) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

std::string identifier(std::string_view text) {
  std::string name;
  for (const char c : text) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

}  // namespace

std::string table_text(std::string_view linkage, std::string_view name, const Tensor& values) {
  std::string text = fmt::format("{}const {} {}[{}] = {{", linkage, c_type(values.dtype()), name,
                                 std::max<int64_t>(values.elements(), 1));
  int64_t column = 0;
  each_number(values, [&](const std::string& number) {
    text += column++ % 8 == 0 ? "\n    " : " ";
    text += number;
    text += ',';
  });
  if (values.elements() == 0) text += "0";
  text += "\n};\n";
  return text;
}

Leaves::Leaves(const std::vector<EntryPoint>& entries, const CodeOptions& options) {
  for (const EntryPoint& entry : entries) {
    const Graph& graph = entry.plan->graph;
    for (const GraphNode& node : graph.nodes)
      if (node.leaf.defined()) add(node, entry.rates);
    for (const GraphNode& node : graph.nodes)
      if (node.op->has_side_effects())
        leaves_[places_.at(graph.nodes[node.inputs[0].node].leaf.node())].written = true;
  }
  place(options);
}

void Leaves::add(const GraphNode& node, const std::vector<Variable>& rates) {
  if (!places_.emplace(node.leaf.node(), leaves_.size()).second) return;
  located(node.where, [&] { (void)c_type(node.outputs[0].dtype); });
  Leaf leaf{.variable = node.leaf, .where = node.where};
  leaf.name = fmt::format("{}_{}", identifier(node.op->name()), leaves_.size());
  leaf.rate = leaf.written =
      std::ranges::any_of(rates, [&](const Variable& rate) { return rate.node() == node.leaf.node(); });
  leaf.value = node.leaf.value().to(cpu()).contiguous_copy();
  leaves_.push_back(std::move(leaf));
}

void Leaves::place(const CodeOptions& options) {
  for (const DType dtype : {DType::float32, DType::float64, DType::int64, DType::int32, DType::boolean}) {
    StateArray array{fmt::format("{}_state_{}", options.name, name(dtype)), dtype};
    for (Leaf& leaf : leaves_) {
      leaf.written |= options.loaded_weights;
      if (!leaf.written || leaf.value.dtype() != dtype) continue;
      leaf.array = arrays_.size();
      leaf.offset = array.elements;
      leaf.address = leaf.offset ? fmt::format("{} + {}", array.name, leaf.offset) : array.name;
      array.elements += leaf.value.elements();
      signature_ = hashed(signature_, fmt::format("{} {} {};", leaf.variable.node()->op().name(), name(dtype),
                                                  leaf.value.shape().str()));
    }
    if (array.elements == 0) continue;
    state_bytes_ += array.elements * static_cast<int64_t>(size_of(dtype));
    arrays_.push_back(std::move(array));
  }
  for (Leaf& leaf : leaves_) {
    const std::string table = fmt::format("{}_{}", options.name, leaf.name);
    if (!leaf.written) leaf.address = table;
    if (options.loaded_weights) continue;
    const int64_t n = leaf.value.elements();
    if (const auto fill = leaf.written ? fill_of(leaf.value) : std::nullopt) {
      initialization_ +=
          fmt::format("  for (long i = 0; i < {}; ++i) ({})[i] = {};\n", n, leaf.address, *fill);
      continue;
    }
    constant_bytes_ += static_cast<int64_t>(leaf.value.bytes());
    if (options.linked_weights) {
      const std::string declared = fmt::format("extern const {} {}[{}];\n", c_type(leaf.value.dtype()), table,
                                               std::max<int64_t>(n, 1));
      linked_ += declared + table_text("", table, leaf.value);
      tables_ += declared;
    } else {
      tables_ += table_text("static ", table, leaf.value);
    }
    if (leaf.written)
      initialization_ +=
          fmt::format("  for (long i = 0; i < {}; ++i) ({})[i] = {}[i];\n", n, leaf.address, table);
  }
}

std::string Leaves::definitions() const {
  std::string text = tables_;
  for (const StateArray& array : arrays_)
    text += fmt::format("static {} {}[{}];\n", c_type(array.dtype), array.name, array.elements);
  return text;
}

std::string Leaves::initialization() const { return initialization_; }

std::string Leaves::state_values() const {
  std::string bytes;
  for (size_t a = 0; a < arrays_.size(); ++a)
    for (const Leaf& leaf : leaves_)
      if (leaf.written && leaf.value.dtype() == arrays_[a].dtype)
        bytes.append(static_cast<const char*>(leaf.value.address()), leaf.value.bytes());
  return bytes;
}

std::string Leaves::listing() const {
  std::string text;
  for (const Leaf& leaf : leaves_)
    text += fmt::format(" *   {:<24} {:<10} {:<16} {:<9} {}\n", leaf.name, c_type(leaf.value.dtype()),
                        leaf.value.shape().str(), leaf.written ? "state" : "constant",
                        in_comment(line_of(leaf.where)));
  return text;
}

std::vector<std::string> Leaves::learning_rates() const {
  std::vector<std::string> rates;
  for (const Leaf& leaf : leaves_)
    if (leaf.rate) rates.push_back(leaf.address);
  return rates;
}

}  // namespace espalier::c_export
