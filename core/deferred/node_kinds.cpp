#include "espalier/core/deferred/node_kinds.h"

#include <algorithm>

#include "espalier/core/deferred/stacked.h"

namespace espalier {

namespace {

/// How a word of a kind's key tells an input: the same for all nodes, or of one shape.
enum : uint64_t { of_one_spec, one_leaf, of_common_kind };

bool is_shared(uint64_t word) { return (word & 3) != of_one_spec; }

uint64_t word_of_spec(uint32_t number) { return of_one_spec | uint64_t{number} << 2; }
/// Its address may be another's later.
uint64_t word_of_leaf(const Node& leaf) { return one_leaf | leaf.id << 2; }

/// The part of a key's first word that tells how a node was made.
constexpr uint64_t making_bits = 0xFF;
uint64_t making_of(const Node& node) {
  return static_cast<uint64_t>(node.tag) << 1 | static_cast<uint64_t>(node.stops_gradient);
}

}  // namespace

uint32_t NodeKinds::number_of_op(const OpPtr& op) {
  const uint64_t hash = mixed(0, reinterpret_cast<uintptr_t>(op.get()));
  const uint32_t at = by_address_.find(hash, [&](uint32_t i) { return known_ops_[i].op == op.get(); });
  if (at != NumberTable::none) return known_ops_[at].number;
  if (op.use_count() > 0) {  // else it lives as long as the program, and there is one of it
    auto& alike = made_ops_[op->name()];
    for (const auto& [known, number] : alike)
      if (known->equals(*op)) return number;
    alike.emplace_back(op, ops_);  // held from here on: nothing else comes to its address
  }
  known_ops_.push_back({op.get(), ops_});
  by_address_.insert(hash, static_cast<uint32_t>(known_ops_.size() - 1));
  return ops_++;
}

uint32_t NodeKinds::number_of_spec(const Spec& spec, Device device) {
  uint64_t hash = mixed(static_cast<uint64_t>(spec.dtype) << 8 | static_cast<uint64_t>(device.type),
                        static_cast<uint64_t>(device.index));
  for (const int64_t size : spec.shape) hash = mixed(hash, static_cast<uint64_t>(size));
  const uint32_t known =
      by_spec_.find(hash, [&](uint32_t i) { return specs_[i].spec == spec && specs_[i].device == device; });
  if (known != NumberTable::none) return known;
  specs_.push_back({spec, device});
  const auto number = static_cast<uint32_t>(specs_.size() - 1);
  by_spec_.insert(hash, number);
  return number;
}

uint64_t NodeKinds::word_of_waiting(const WaitingUse& use, std::span<const uint32_t> kinds_of_nodes) const {
  const uint32_t number = kinds_of_nodes[use.from];
  const NodeKind& kind = kinds_[number];
  if (kind.common) return of_common_kind | uint64_t{use.output()} << 2 | uint64_t{number} << 32;
  return word_of_spec(kind.output_specs[use.output()]);
}

bool NodeKinds::is_of_kind(uint32_t number, const Node& node, std::span<const WaitingUse> uses,
                           std::span<const uint32_t> kinds_of_nodes) const {
  const NodeKind& kind = kinds_[number];
  const uint64_t* word = words_.data() + kind.first_word;
  if (kind.op.get() != node.op_.get() || kind.words != uses.size() + 1 ||
      (*word & making_bits) != making_of(node))
    return false;
  for (size_t i = 0; i < uses.size(); ++i) {
    ++word;
    if (!uses[i].external()) {
      if (*word != word_of_waiting(uses[i], kinds_of_nodes)) return false;
      continue;
    }
    const Edge& input = node.inputs[i];
    if (is_parameter(input.node()->op())) {
      if (*word != word_of_leaf(*input.node())) return false;
      continue;
    }
    if (is_shared(*word)) return false;
    const PlacedSpec& known = specs_[*word >> 2];
    if (!(known.spec == input.spec()) || !(known.device == input.value().device())) return false;
  }
  return true;
}

uint32_t NodeKinds::kind_of(const Node& node, std::span<const WaitingUse> uses,
                            std::span<const uint32_t> kinds_of_nodes) {
  if (kinds_of_nodes.empty() || kinds_of_nodes.back() == NumberTable::none)
    return find_kind(node, uses, kinds_of_nodes);
  const uint32_t before = kinds_of_nodes.back(), guess = kinds_[before].follower;
  if (is_of_kind(guess, node, uses, kinds_of_nodes)) return guess;  // programs repeat themselves
  const uint32_t kind = find_kind(node, uses, kinds_of_nodes);
  kinds_[before].follower = kind;
  return kind;
}

uint32_t NodeKinds::find_kind(const Node& node, std::span<const WaitingUse> uses,
                              std::span<const uint32_t> kinds_of_nodes) {
  key_.clear();
  key_.push_back(uint64_t{number_of_op(node.op_)} << 8 | making_of(node));
  for (size_t i = 0; i < uses.size(); ++i) {
    const Edge& input = node.inputs[i];
    if (!uses[i].external())
      key_.push_back(word_of_waiting(uses[i], kinds_of_nodes));
    else if (is_parameter(input.node()->op()))
      key_.push_back(word_of_leaf(*input.node()));
    else
      key_.push_back(word_of_spec(number_of_spec(input.spec(), input.value().device())));
  }
  uint64_t hash = 0;
  for (const uint64_t word : key_) hash = mixed(hash, word);
  const uint32_t known =
      by_key_.find(hash, [&](uint32_t kind) { return std::ranges::equal(key_of(kind), key_); });
  return known != NumberTable::none ? known : add_kind(node, hash);
}

namespace {

/// Whether rows of a node are gathered one by one in less time than kernels of several nodes take.
bool are_few_rows(const Shape& shape) {
  const int64_t rows = shape.dims()[0];
  return rows <= 64 || (rows <= 4096 && shape.elements() / rows >= 16);
}

}  // namespace

void NodeKinds::add_to_group(NodeKind& kind, uint32_t number, const Node& node) {
  kind.group = number;
  const Shape& first = node.outputs[0].spec.shape;
  if (kind.common || kind.one_by_one || kind.op->is_random() || first.rank() == 0 || first.dims()[0] < 1 ||
      !are_few_rows(first))
    return;
  const auto has_rows = [&](const Shape& shape) {
    return shape.rank() > 0 && shape.dims()[0] == first.dims()[0];
  };
  InputSpecs specs;
  for (size_t i = 0; i + 1 < key_.size(); ++i) specs.push_back(&node.inputs[i].spec());
  const InputSet rows = row_inputs(*kind.op, specs);
  std::vector<uint64_t> key = key_;
  bool any = false;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!rows.contains(i)) continue;
    uint64_t& word = key[i + 1];
    if (is_shared(word) || !has_rows(specs[i]->shape)) return;
    const PlacedSpec placed = specs_[word >> 2];
    Spec row = placed.spec;
    row.shape.dims()[0] = 0;
    word = word_of_spec(number_of_spec(row, placed.device));
    any = true;
  }
  for (const Output& output : node.outputs)
    if (!has_rows(output.spec.shape)) return;
  if (!any) return;
  kind.row_inputs = rows;
  kind.group = groups_.try_emplace(std::move(key), number).first->second;
}

uint32_t NodeKinds::add_kind(const Node& node, uint64_t hash) {
  const Op& op = node.op();
  NodeKind kind{.op = node.op_, .first_word = words_.size(), .words = key_.size()};
  kind.common = key_.size() > 1 && op.effect() == Effect::none && !op.traits().runs_on_host &&
                std::all_of(key_.begin() + 1, key_.end(), is_shared);
  kind.one_by_one = op.effect() != Effect::none && !(op.is_random() && op.traits().passes_no_gradient);
  for (const Output& output : node.outputs)
    kind.output_specs.push_back(number_of_spec(output.spec, output.value.device()));
  const auto number = static_cast<uint32_t>(kinds_.size());
  words_.insert(words_.end(), key_.begin(), key_.end());
  kinds_.push_back(std::move(kind));
  add_to_group(kinds_.back(), number, node);
  by_key_.insert(hash, number);
  return number;
}

}  // namespace espalier
