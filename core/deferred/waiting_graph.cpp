#include "espalier/core/deferred/waiting_graph.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "espalier/core/deferred/batch.h"
#include "espalier/core/leaf_use.h"
#include "espalier/core/train_phase.h"

namespace espalier {

namespace {

/// The bits of a scalar constant on the CPU: numbers in expressions, which are the same operand if they are
/// equal.
std::optional<uint64_t> bits_of_scalar(const Edge& edge) {
  const Tensor& value = edge.value();
  if (!is_constant(edge.node()->op()) || edge.spec().shape.rank()) return std::nullopt;
  if (!value.defined() || value.device().type != DeviceType::cpu) return std::nullopt;
  uint64_t bits = 0;
  std::memcpy(&bits, value.address(), size_of(value.dtype()));
  return bits;
}

template <class T>
bool same_bytes(const std::vector<T>& a, const std::vector<T>& b) {
  static_assert(std::has_unique_object_representations_v<T>);
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace

bool operator==(const WaitingStructure& a, const WaitingStructure& b) {
  return same_bytes(a.kinds, b.kinds) && same_bytes(a.uses, b.uses) && same_bytes(a.row_counts, b.row_counts);
}

uint64_t WaitingStructure::hash() const {
  uint64_t hash = mixed(kinds.size(), uses.size());
  for (const uint32_t kind : kinds) hash = mixed(hash, kind);
  for (const WaitingUse& use : uses)
    hash = mixed(hash, uint64_t{use.from} << 32 | static_cast<uint32_t>(use.at));
  for (const int64_t rows : row_counts) hash = mixed(hash, static_cast<uint64_t>(rows));
  return hash;
}

std::span<const Edge> operands_of(const Node& node) {
  return {node.inputs.begin(), chooses_by_phase(node.op()) ? 1 : node.inputs.size()};
}

std::atomic<uint64_t>& computations_apart() {
  static std::atomic<uint64_t> count{0};
  return count;
}

uint32_t WaitingGraph::number_of_external(const Edge& edge) {
  const uint64_t hash = mixed(edge.output(), reinterpret_cast<uintptr_t>(edge.node()));
  const uint32_t known = by_edge_.find(hash, [&](uint32_t i) {
    return externals_[i].node() == edge.node() && externals_[i].output() == edge.output();
  });
  if (known != NumberTable::none) return known;
  externals_.push_back(edge.variable());
  by_edge_.insert(hash, static_cast<uint32_t>(externals_.size() - 1));
  return static_cast<uint32_t>(externals_.size() - 1);
}

uint32_t WaitingGraph::number_of_scalar(const Edge& edge, uint64_t bits) {
  // The Tensor of a number is not written.
  if (!number_of(edge.node()->op())) constants_.emplace_back(edge, bits);
  const DType dtype = edge.spec().dtype;
  const uint64_t hash = mixed(static_cast<uint64_t>(dtype), bits);
  const uint32_t known =
      by_bits_.find(hash, [&](uint32_t i) { return scalars_[i].dtype == dtype && scalars_[i].bits == bits; });
  if (known != NumberTable::none) return scalars_[known].external;
  scalars_.push_back({dtype, bits, static_cast<uint32_t>(externals_.size())});
  externals_.push_back(edge.variable());
  by_bits_.insert(hash, static_cast<uint32_t>(scalars_.size() - 1));
  return scalars_.back().external;
}

WaitingUse WaitingGraph::use_of(const Edge& edge) {
  const Node& node = *edge.node();
  if (node.waits) {
    if (lists(node)) return {node.place, static_cast<int32_t>(edge.output())};
    reads_elsewhere_ = true;
  }
  if (node.is_leaf())
    if (const auto bits = bits_of_scalar(edge))
      return {number_of_scalar(edge, *bits) | WaitingUse::external_bit, -1};
  if (!node.batch) return {number_of_external(edge) | WaitingUse::external_bit, -1};
  const auto [from, row] = read_place(edge);
  const size_t known = externals_.size();
  const uint32_t number = number_of_external(from);
  if (row >= 0 && number == known) structure_.row_counts.push_back(from.spec().shape[0]);
  return {number | WaitingUse::external_bit, row};
}

void WaitingGraph::make_room() {
  if (nodes_.size() < nodes_.capacity()) return;
  const size_t room = std::max<size_t>(256, 2 * nodes_.size());
  first_use_.reserve(room + 1);
  structure_.kinds.reserve(room);
  unread_.reserve(room);
  nodes_.reserve(room);
}

void WaitingGraph::add(Node& node, NodeKinds& kinds) {
  if (nodes_.empty()) {
    assignments_ = leaf_assignments().load(std::memory_order_acquire);
    computed_apart_ = computations_apart().load(std::memory_order_acquire);
  }
  make_room();
  structure_.uses.resize(first_use_.back());  // an earlier node may have been refused memory
  const std::span<const Edge> operands = operands_of(node);
  for (const Edge& edge : operands) structure_.uses.push_back(use_of(edge));
  const std::span<const WaitingUse> uses{structure_.uses.data() + first_use_.back(), operands.size()};
  structure_.kinds.push_back(kinds.kind_of(node, uses, structure_.kinds));
  first_use_.push_back(static_cast<uint32_t>(structure_.uses.size()));
  node.place = static_cast<uint32_t>(nodes_.size());
  nodes_.emplace_back(&node, 0);
}

void WaitingGraph::note_unread(const Node* node, uint32_t place) noexcept {
  if (lists(node, place) && unread_.size() < unread_.capacity()) unread_.push_back(place);
}

void WaitingGraph::drop_unread() {
  while (!unread_.empty()) {
    const uint32_t i = unread_.back();
    unread_.pop_back();
    if (!nodes_[i].node() || !nodes_[i].node()->held_once()) continue;
    structure_.kinds[i] = NumberTable::none;
    ++dropped_;
    nodes_[i] = Edge();  // notes what is held by nothing else now
  }
}

bool WaitingGraph::is_current() const {
  return !reads_elsewhere_ && assignments_ == leaf_assignments().load(std::memory_order_acquire) &&
         computed_apart_ == computations_apart().load(std::memory_order_acquire) &&
         std::ranges::all_of(constants_, [](const auto& c) { return bits_of_scalar(c.first) == c.second; });
}

Node* WaitingGraph::part_of(const Node& leaf, const Op& op) const {
  for (const uint32_t i : parts_)
    if (Node* const part = nodes_[i].node(); part && part->inputs[0].node() == &leaf && &part->op() == &op)
      return part;
  return nullptr;
}

void WaitingGraph::note_part(const Node& part) {
  std::erase_if(parts_, [&](uint32_t i) { return !nodes_[i].node(); });
  parts_.push_back(part.place);
}

std::vector<Edge> WaitingGraph::nodes() const {
  std::vector<Edge> list;
  list.reserve(nodes_.size() - dropped_);
  for (const Edge& edge : nodes_)
    if (edge.node()) list.push_back(edge);
  return list;
}

void WaitingGraph::clear() {
  nodes_.clear();
  first_use_.resize(1);
  structure_.kinds.clear();
  structure_.uses.clear();
  structure_.row_counts.clear();
  externals_.clear();
  by_edge_.clear();
  by_bits_.clear();
  scalars_.clear();
  constants_.clear();
  unread_.clear();
  parts_.clear();
  dropped_ = 0;
  reads_elsewhere_ = false;
}

}  // namespace espalier
