#include "espalier/core/deferred/waiting_graph.h"

#include <fmt/format.h>

#include <cstring>
#include <typeinfo>

#include "espalier/core/deferred/batch.h"
#include "espalier/core/deferred/waiting.h"
#include "espalier/core/error.h"

namespace espalier {

namespace {

uint64_t mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

/// How a key of a kind tells inputs: the same for all nodes, or of one shape.
enum : uint64_t { of_one_spec, one_leaf, of_common_kind };

/// The bits of a scalar constant on the CPU: numbers in expressions, which are the same operand if they are
/// equal.
std::optional<uint64_t> bits_of_scalar(const Edge& edge) {
  const Node& node = *edge.node();
  const Tensor& value = edge.value();
  if (!is_constant(node.op()) && !number_of(node.op())) return std::nullopt;
  if (edge.spec().shape.rank() || !value.defined() || value.device().type != DeviceType::cpu)
    return std::nullopt;
  uint64_t bits = 0;
  std::memcpy(&bits, value.address(), size_of(value.dtype()));
  return bits;
}

[[noreturn]] void refuse_changed(const Node& reader, const Node& leaf) {
  located(reader.where, [&] {
    throw Error(fmt::format(
        "{}: this node waited (Deferred) while the {} it reads was updated; ask for its value before "
        "the update",
        reader.op().name(), leaf.op().name()));
  });
  throw;
}

}  // namespace

size_t NodeKinds::WordsHash::operator()(const std::vector<uint64_t>& words) const {
  uint64_t hash = words.size();
  for (const uint64_t word : words) hash = mixed(hash, word);
  return hash;
}

void NodeKinds::clear() { *this = NodeKinds(); }

uint64_t NodeKinds::number_of_op(const OpPtr& op) {
  if (const auto at = by_address_.find(op.get()); at != by_address_.end()) return at->second;
  if (op.use_count() > 0) {  // else it lives as long as the program, and there is one of it
    auto& alike = made_ops_[op->name()];
    for (const auto& [known, number] : alike)
      if (known->equals(*op)) return number;
    alike.emplace_back(op, ops_);  // held from here on: nothing else comes to its address
  }
  by_address_.emplace(op.get(), ops_);
  return ops_++;
}

uint32_t NodeKinds::number_of_spec(const Spec& spec, Device device) {
  spec_key_.assign({static_cast<uint64_t>(spec.dtype) << 40 | static_cast<uint64_t>(device.type) << 32 |
                    static_cast<uint32_t>(device.index)});
  for (const int64_t size : spec.shape) spec_key_.push_back(static_cast<uint64_t>(size));
  const auto at = specs_.find(spec_key_);
  if (at != specs_.end()) return at->second;
  const auto number = static_cast<uint32_t>(specs_.size());
  specs_.emplace(spec_key_, number);
  return number;
}

uint32_t NodeKinds::kind_of(const Node& node, std::span<const WaitingUse> uses,
                            std::span<const uint32_t> kinds_of_nodes) {
  key_.assign({number_of_op(node.op_), static_cast<uint64_t>(node.tag) << 1 | node.stops_gradient});
  uint64_t shared = 0;
  bool common = !uses.empty() && node.op().effect() == Effect::none && !node.op().traits().runs_on_host;
  for (size_t i = 0; i < uses.size(); ++i) {
    bool is_shared = false;
    const Edge& edge = node.inputs[i];
    const Node& from = *edge.node();
    if (!uses[i].external()) {
      const uint32_t kind = kinds_of_nodes[uses[i].from];
      is_shared = kinds_[kind].common;
      if (is_shared)
        key_.insert(key_.end(), {of_common_kind | uint64_t{kind} << 2, uses[i].output});
      else
        key_.push_back(of_one_spec | uint64_t{kinds_[kind].output_specs[uses[i].output]} << 2);
    } else if (is_parameter(from.op())) {
      is_shared = true;
      key_.insert(key_.end(), {one_leaf, from.id});  // its address may be another's later
    } else {
      key_.push_back(of_one_spec | uint64_t{number_of_spec(edge.spec(), edge.value().device())} << 2);
    }
    shared |= static_cast<uint64_t>(is_shared) << (i < 63 ? i : 63);
    common &= is_shared;
  }
  const auto at = by_key_.find(key_);
  if (at != by_key_.end()) return at->second;
  NodeKind kind{.op = node.op_, .shared = shared, .common = common};
  kind.one_by_one = node.op().effect() != Effect::none;
  for (const Output& output : node.outputs)
    kind.output_specs.push_back(number_of_spec(output.spec, output.value.device()));
  const auto number = static_cast<uint32_t>(kinds_.size());
  kinds_.push_back(std::move(kind));
  by_key_.emplace(key_, number);
  return number;
}

WaitingUse WaitingGraph::use_of(const Node& reader, const Edge& edge) {
  Node* node = edge.node();
  if (node->waits && node->place < nodes_.size() && nodes_[node->place] == node)
    return {node->place, edge.output(), -1};
  if (node->is_leaf() && node->version > reader.id) refuse_changed(reader, *node);
  const auto [from, row] = read_place(edge);
  if (const auto bits = bits_of_scalar(edge)) {
    const auto key = std::pair(edge.spec().dtype, *bits);
    const auto [at, fresh] = scalars_.try_emplace(key, static_cast<uint32_t>(externals_.size()));
    if (fresh) externals_.push_back(edge.variable());
    return {at->second | WaitingUse::external_bit, 0, -1};
  }
  if (from.output() >= external_numbers_.size()) external_numbers_.resize(from.output() + 1);
  NodeMap& numbers = external_numbers_[from.output()];
  uint32_t number = numbers.find(from.node());
  if (number == NodeMap::none) {
    number = static_cast<uint32_t>(externals_.size());
    numbers.insert(from.node(), number);
    externals_.push_back(from.variable());
    if (row >= 0) words_.push_back(static_cast<uint64_t>(from.spec().shape[0]));
  }
  return {number | WaitingUse::external_bit, edge.output(), row};
}

WaitingGraph::WaitingGraph(std::vector<Node*> nodes, NodeKinds& kinds) : nodes_(std::move(nodes)) {
  kinds_of_.reserve(nodes_.size());
  first_use_.reserve(nodes_.size() + 1);
  first_use_.push_back(0);
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (i + prefetch_distance < nodes_.size()) prefetch(*nodes_[i + prefetch_distance]);
    Node* const node = nodes_[i];
    node->place = i;  // those that it reads come before it
    for (const Edge& edge : node->inputs) uses_.push_back(use_of(*node, edge));
    const std::span<const WaitingUse> uses{uses_.data() + first_use_.back(), uses_.data() + uses_.size()};
    const uint32_t kind = kinds.kind_of(*node, uses, kinds_of_);
    first_use_.push_back(static_cast<uint32_t>(uses_.size()));
    kinds_of_.push_back(kind);
    words_.push_back(uint64_t{kind} << 32 | uses.size());
    for (const WaitingUse& use : uses)
      words_.push_back(uint64_t{use.from} << 32 |
                       (use.external() ? static_cast<uint32_t>(use.row) : use.output));
  }
}

}  // namespace espalier
