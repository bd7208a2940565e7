#include "espalier/executor/sharding/state_owners.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "espalier/core/tree.h"

namespace espalier {

namespace {

int64_t arena_bytes(const Node* leaf) { return aligned_bytes(leaf->outputs[0].spec.bytes()); }

/// The nodes from which `update` is computed, as far as updates alone reach.
std::vector<Node*> below_update(Node* update) {
  std::vector<Node*> nodes;
  TreeWalk walk(update);
  while (Node* node = walk.next()) {
    nodes.push_back(node);
    if (node->tag == Tag::update) walk.enter_inputs(*node);
  }
  return nodes;
}

/// Which parameter each state goes with.
class Finder {
 public:
  Finder(const std::vector<Variable>& updates, const std::vector<Variable>& roots) {
    TreeWalk all;
    for (const Variable& update : updates) {
      const Node* leaf = update.node()->inputs[0].node();
      assigned_.push_back(leaf);
      all.enter(update.node());
      for (const Node* node : below_update(update.node()->inputs[1].node()))
        if (node->is_leaf()) readers_[node].insert(leaf), read_[leaf].insert(node);
    }
    // What the loss reads, or its gradients, all need.
    for (const Variable& root : roots) {
      all.enter(root.node());
      if (root.node()->is_leaf()) needed_.insert(root.node());
    }
    for (const Node* node : nodes_below(std::move(all)))
      if (node->tag != Tag::update)
        for (const Edge& input : node->inputs)
          if (input.node()->is_leaf()) needed_.insert(input.node());
  }

  /// For each state that goes with one: the parameter.
  std::map<const Node*, const Node*> run() {
    std::map<const Node*, const Node*> whose;
    for (const Node* leaf : assigned_)
      if (!is_parameter(leaf->op()) && !needed_.contains(leaf))
        if (const Node* parameter = candidate(leaf)) whose[leaf] = parameter;
    // What others read that stay, or go with another parameter, stays too.
    for (bool changed = true; changed;) {
      changed = false;
      for (auto state = whose.begin(); state != whose.end();) {
        const bool goes = std::ranges::all_of(readers_[state->first], [&](const Node* reader) {
          if (reader == state->second) return true;
          const auto other = whose.find(reader);
          return other != whose.end() && other->second == state->second;
        });
        changed |= !goes;
        state = goes ? std::next(state) : whose.erase(state);
      }
    }
    return whose;
  }

 private:
  static const Node* only_parameter(const std::set<const Node*>& leaves) {
    const Node* found = nullptr;
    for (const Node* leaf : leaves) {
      if (!is_parameter(leaf->op())) continue;
      if (found) return nullptr;
      found = leaf;
    }
    return found;
  }
  const Node* candidate(const Node* state) {
    const auto& readers = readers_[state];
    const bool read = std::ranges::any_of(readers, [](const Node* n) { return is_parameter(n->op()); });
    const Node* parameter = only_parameter(read ? readers : read_[state]);
    const bool updated = std::ranges::find(assigned_, parameter) != assigned_.end();
    return updated ? parameter : nullptr;
  }

  std::vector<const Node*> assigned_;
  std::map<const Node*, std::set<const Node*>>
      readers_;                                        // of each leaf: the leaves whose next value reads it
  std::map<const Node*, std::set<const Node*>> read_;  // and the other way round
  std::set<const Node*> needed_;
};

/// Cuts these, in their order, into so many parts that the largest is as small as it can be.
std::vector<size_t> cut(const std::vector<int64_t>& bytes, int parts) {
  const auto cut_at = [&](int64_t most) {
    std::vector<size_t> begin{0};
    int64_t filled = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (filled > 0 && filled + bytes[i] > most) {
        begin.push_back(i);
        filled = 0;
      }
      filled += bytes[i];
    }
    return begin;
  };
  int64_t low = bytes.empty() ? 0 : *std::ranges::max_element(bytes),
          high = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    cut_at(middle).size() <= static_cast<size_t>(parts) ? high = middle : low = middle + 1;
  }
  std::vector<size_t> begin = cut_at(low);
  begin.resize(static_cast<size_t>(parts) + 1, bytes.size());
  return begin;
}

}  // namespace

StateOwners share_out_states(const std::vector<Variable>& updates, const std::vector<Variable>& roots,
                             const std::vector<Variable>& leaves, int replicas) {
  StateOwners owners;
  owners.replicas = replicas;
  const std::map<const Node*, const Node*> whose = Finder(updates, roots).run();
  std::set<const Node*> assigned;
  for (const Variable& update : updates) assigned.insert(update.node()->inputs[0].node());
  std::map<const Node*, int64_t> bytes;  // of a parameter and what goes with it
  for (const Variable& leaf : leaves) {
    if (!assigned.contains(leaf.node())) continue;
    const auto parameter = whose.find(leaf.node());
    if (is_parameter(leaf.node()->op())) {
      owners.parameters.push_back(leaf);
      bytes[leaf.node()] += arena_bytes(leaf.node());
    } else if (parameter != whose.end()) {
      bytes[parameter->second] += arena_bytes(leaf.node());
    } else {
      owners.shared_bytes += arena_bytes(leaf.node());
    }
  }
  std::vector<int64_t> sizes;
  for (const Variable& parameter : owners.parameters) sizes.push_back(bytes[parameter.node()]);
  owners.begin = cut(sizes, replicas);
  owners.parameter_bytes.assign(static_cast<size_t>(replicas), 0);
  owners.state_bytes.assign(static_cast<size_t>(replicas), 0);
  for (int r = 0; r < replicas; ++r)
    for (size_t i = owners.begin[static_cast<size_t>(r)]; i < owners.begin[static_cast<size_t>(r) + 1]; ++i) {
      owners.owner[owners.parameters[i].node()] = r;
      owners.parameter_bytes[static_cast<size_t>(r)] += arena_bytes(owners.parameters[i].node());
    }
  for (const auto& [state, parameter] : whose) {
    const int r = owners.owner.at(parameter);
    owners.owner[state] = r;
    owners.state_bytes[static_cast<size_t>(r)] += arena_bytes(state);
  }
  return owners;
}

}  // namespace espalier
