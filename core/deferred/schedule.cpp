#include "espalier/core/deferred/schedule.h"

#include <algorithm>
#include <unordered_map>

#include "espalier/core/deferred/number_table.h"
#include "espalier/core/deferred/order.h"
#include "espalier/core/deferred/stacked.h"

namespace espalier {

namespace {

/// Where an output is: a row of a value, or several rows from that one on, or all of it. Values are numbered:
/// the outputs of one batch after the other, and external ones with external_bit. Sorted, rows that lie side
/// by side are neighbours.
struct Place {
  uint64_t code = 0;
  Place(uint32_t value, int32_t row) : code(uint64_t{value} << 32 | static_cast<uint32_t>(row + 1)) {}
  uint32_t value() const { return static_cast<uint32_t>(code >> 32); }
  bool is_row() const { return static_cast<uint32_t>(code) != 0; }
  int64_t row() const { return int64_t{static_cast<uint32_t>(code)} - 1; }
  friend auto operator<=>(const Place&, const Place&) = default;
};

class Scheduler {
 public:
  Scheduler(const WaitingGraph& graph, NodeKinds& kinds)
      : graph_(graph), kinds_(kinds), value_of_(graph.size()), row_of_(graph.size()) {}

  Schedule run(BatchPolicy policy) {
    for (std::vector<uint32_t>& nodes : batches_of(graph_, kinds_, policy)) add_group(std::move(nodes));
    return {graph_.structure(), std::move(batches_), std::move(apart_)};
  }

 private:
  Place place_of(const WaitingUse& use) const {
    if (use.external()) return {use.from, use.row()};
    return {value_of_[use.from] + use.output(), row_of_[use.from]};
  }
  Place place_of(uint32_t node, size_t input) const { return place_of(graph_.uses(node)[input]); }
  ScheduledSource source_of(const Place& place) const {
    if (place.value() & WaitingUse::external_bit) return {true, place.value() & ~WaitingUse::external_bit, 0};
    return values_[place.value()].source;
  }
  const Shape& shape_of(uint32_t node, size_t input) const {
    return graph_.node(node).inputs[input].spec().shape;
  }
  /// Whether an output is several rows of a value.
  bool is_several_rows(const Place& place) const {
    return !(place.value() & WaitingUse::external_bit) && values_[place.value()].form == BatchForm::rows;
  }

  bool same(const std::vector<uint32_t>& nodes, size_t input) const {
    const Place first = place_of(nodes[0], input);
    return std::ranges::all_of(nodes, [&](uint32_t node) { return place_of(node, input) == first; });
  }

  /// Nodes that differ in their numbers of rows alone are one batch if all but the rows is theirs together.
  void add_group(std::vector<uint32_t> nodes) {
    const auto kind_of = [&](uint32_t node) { return graph_.kind(node); };
    const uint32_t first = kind_of(nodes[0]);
    if (std::ranges::all_of(nodes, [&](uint32_t node) { return kind_of(node) == first; }))
      return add(std::move(nodes));
    const InputSet rows = kinds_[first].row_inputs;
    bool together = true;
    for (size_t i = 0; i < graph_.uses(nodes[0]).size() && together; ++i)
      together = rows.contains(i) || same(nodes, i);
    if (together) return add_rows(std::move(nodes), rows);
    std::ranges::stable_sort(nodes, {}, kind_of);
    for (auto at = nodes.begin(); at != nodes.end();) {
      const auto end =
          std::find_if(at, nodes.end(), [&](uint32_t node) { return kind_of(node) != kind_of(*at); });
      add({at, end});
      at = end;
    }
  }

  void add(std::vector<uint32_t> nodes) {
    const NodeKind& kind = kinds_[graph_.kind(nodes[0])];
    const size_t inputs = graph_.uses(nodes[0]).size();
    if (nodes.size() == 1) return add_batch(std::move(nodes), BatchForm::whole);
    if (kind.op->effect() == Effect::none && inputs) {
      bool all_same = true;
      for (size_t i = 0; i < inputs && all_same; ++i) all_same = same(nodes, i);
      if (all_same) return add_once(std::move(nodes));
    }
    if (kind.one_by_one) {
      for (const uint32_t node : nodes) add_batch({node}, BatchForm::whole);
      return;
    }
    if (kind.op->kind() == OpKind::matmul) {
      merge_equal(nodes);
      if (split(nodes)) return;
    }
    sort_by_operand(nodes);
    add_batch(std::move(nodes), BatchForm::row);
  }

  bool is_held(uint32_t node) const { return graph_.node(node).has_handles(); }

  /// Nodes of the same operands are computed once, and those that are held each for themselves.
  void add_once(std::vector<uint32_t> nodes) {
    const auto held = std::ranges::stable_partition(nodes, [&](uint32_t node) { return !is_held(node); });
    for (const uint32_t node : held) {
      apart_.push_back(node);
      add_batch({node}, BatchForm::whole);
    }
    nodes.erase(held.begin(), held.end());
    if (!nodes.empty()) add_batch(std::move(nodes), BatchForm::whole);
  }

  /// Leaves one of each set of nodes that have the same operands; the others share its row.
  void merge_equal(std::vector<uint32_t>& nodes) {
    const size_t inputs = graph_.uses(nodes[0]).size();
    NumberTable known;
    std::vector<uint32_t> different;
    for (const uint32_t node : nodes) {
      uint64_t hash = 0;
      for (size_t i = 0; i < inputs; ++i) hash = mixed(hash, place_of(node, i).code);
      const uint32_t at = known.find(hash, [&](uint32_t k) {
        for (size_t i = 0; i < inputs; ++i)
          if (!(place_of(different[k], i) == place_of(node, i))) return false;
        return true;
      });
      if (at == NumberTable::none) {
        known.insert(hash, static_cast<uint32_t>(different.size()));
      } else if (is_held(node) || is_held(different[at])) {
        apart_.push_back(is_held(node) ? node : different[at]);
      } else {
        copies_[different[at]].push_back(node);
        continue;
      }
      different.push_back(node);
    }
    nodes = std::move(different);
  }

  /// Products by a few matrices that do not depend on the node are a batch for each of these.
  bool split(const std::vector<uint32_t>& nodes) {
    for (size_t i = graph_.uses(nodes[0]).size(); i-- > 0;) {
      if (same(nodes, i)) continue;
      std::vector<std::pair<Place, uint32_t>> sorted;
      sorted.reserve(nodes.size());
      for (const uint32_t node : nodes) sorted.emplace_back(place_of(node, i), node);
      std::ranges::sort(sorted);
      const auto differs = [](const auto& a, const auto& b) { return a.first != b.first; };
      size_t parts = 1;
      for (size_t k = 1; k < sorted.size(); ++k) parts += differs(sorted[k - 1], sorted[k]);
      if (2 * parts > nodes.size()) continue;
      for (auto at = sorted.begin(); at != sorted.end();) {
        const auto end =
            std::find_if(at, sorted.end(), [&](const auto& other) { return differs(*at, other); });
        std::vector<uint32_t> part;
        for (; at != end; ++at) part.push_back(at->second);
        add(std::move(part));
      }
      return true;
    }
    return false;
  }

  /// Nodes in the order in which their first operand that differs lies in memory, so that it is read where it
  /// is. Operands that are apart are gathered in any order: then nodes below which more is left come first,
  /// as of sequences the longer ones. Those that go on are then the first rows of each batch.
  void sort_by_operand(std::vector<uint32_t>& nodes) {
    for (size_t i = 0; i < graph_.uses(nodes[0]).size(); ++i) {
      if (same(nodes, i)) continue;
      if (std::ranges::all_of(nodes, [&](uint32_t node) { return !place_of(node, i).is_row(); }))
        sort_by(nodes, [&](uint32_t node) { return ~height(node); });
      else
        sort_by(nodes, [&](uint32_t node) { return place_of(node, i); });
      return;
    }
  }

  template <class Key>
  static void sort_by(std::vector<uint32_t>& nodes, const Key& key) {
    std::vector<std::pair<decltype(key(0)), uint32_t>> keyed;  // with their numbers in the list before
    keyed.reserve(nodes.size());
    for (const uint32_t node : nodes) keyed.emplace_back(key(node), static_cast<uint32_t>(keyed.size()));
    if (std::ranges::is_sorted(keyed)) return;
    std::ranges::sort(keyed);
    const std::vector<uint32_t> before = nodes;
    std::ranges::transform(keyed, nodes.begin(), [&](const auto& one) { return before[one.second]; });
  }

  /// Operations between a node and what no other waiting node reads.
  uint32_t height(uint32_t node) {
    if (heights_.empty()) {
      heights_.assign(graph_.size(), 0);
      for (uint32_t i = static_cast<uint32_t>(graph_.size()); i-- > 0;)
        for (const WaitingUse& use : graph_.uses(i))
          if (!use.external()) heights_[use.from] = std::max(heights_[use.from], heights_[i] + 1);
    }
    return heights_[node];
  }

  /// The rows of all nodes as those of one.
  void add_rows(std::vector<uint32_t> nodes, InputSet rows) {
    sort_by_operand(nodes);
    ScheduledBatch batch{.nodes = std::move(nodes), .form = BatchForm::rows};
    uint32_t begin = 0;
    for (const uint32_t node : batch.nodes) {
      batch.starts.push_back(begin);
      begin += static_cast<uint32_t>(graph_.node(node).outputs[0].spec.shape.dims()[0]);
    }
    batch.starts.push_back(begin);
    for (size_t i = 0; i < graph_.uses(batch.nodes[0]).size(); ++i)
      batch.inputs.push_back(rows.contains(i) ? input_of(row_places(batch.nodes, i))
                                              : one_operand(batch.nodes[0], i));
    number_values(batch, [&](size_t k) { return static_cast<int32_t>(batch.starts[k]); });
    batches_.push_back(std::move(batch));
  }

  /// The rows along the first axis of an operand of these nodes.
  std::vector<Place> row_places(const std::vector<uint32_t>& nodes, size_t input) {
    std::vector<Place> places;
    for (const uint32_t node : nodes) {
      const Place place = place_of(node, input);
      const auto count = static_cast<int32_t>(shape_of(node, input).dims()[0]);
      uint32_t value = place.value();
      int32_t begin = 0;
      if (is_several_rows(place)) {
        begin = static_cast<int32_t>(place.row());
      } else if (place.is_row()) {
        value = flat_form(value);
        begin = static_cast<int32_t>(place.row()) * count;
      }
      for (int32_t k = 0; k < count; ++k) places.emplace_back(value, begin + k);
    }
    return places;
  }

  /// The number of a value with its first two axes as one.
  uint32_t flat_form(uint32_t value) {
    const auto [known, fresh] = flat_.try_emplace(value, static_cast<uint32_t>(values_.size()));
    if (fresh) {
      ScheduledSource source = source_of(Place(value, -1));
      source.flat = true;
      values_.push_back({source, BatchForm::whole});
    }
    return known->second;
  }

  /// Gives numbers to the outputs of a batch, and tells where those of its nodes are.
  template <class RowOf>
  void number_values(const ScheduledBatch& batch, const RowOf& row_of) {
    const auto first_value = static_cast<uint32_t>(values_.size());
    for (uint32_t k = 0; k < graph_.node(batch.nodes[0]).outputs.size(); ++k)
      values_.push_back({{false, static_cast<uint32_t>(batches_.size()), k}, batch.form});
    for (size_t k = 0; k < batch.nodes.size(); ++k) {
      value_of_[batch.nodes[k]] = first_value;
      row_of_[batch.nodes[k]] = row_of(k);
    }
  }

  void add_batch(std::vector<uint32_t> nodes, BatchForm form) {
    ScheduledBatch batch{.nodes = std::move(nodes), .form = form};
    const bool stacked = form == BatchForm::row;
    const auto uses = graph_.uses(batch.nodes[0]);
    if (can_join(batch.nodes[0])) {
      std::vector<Place> places;
      for (const uint32_t node : stacked ? std::span(batch.nodes) : std::span(batch.nodes).first(1))
        for (const WaitingUse& use : graph_.uses(node)) places.push_back(place_of(use));
      if (std::ranges::none_of(places, [&](const Place& place) { return is_several_rows(place); })) {
        batch.joined = true;
        batch.inputs.push_back(input_of(places));
      }
    }
    for (size_t i = 0; i < uses.size() && !batch.joined; ++i)
      batch.inputs.push_back(!stacked || same(batch.nodes, i) ? one_operand(batch.nodes[0], i)
                                                              : stacked_operand(batch.nodes, i));
    number_values(batch, [&](size_t row) { return stacked ? static_cast<int32_t>(row) : -1; });
    for (size_t row = 0; row < batch.nodes.size() && !copies_.empty(); ++row)
      if (const auto copies = copies_.find(batch.nodes[row]); copies != copies_.end())
        for (const uint32_t copy : copies->second) {
          value_of_[copy] = value_of_[batch.nodes[row]];
          row_of_[copy] = row_of_[batch.nodes[row]];
          batch.copies.emplace_back(copy, static_cast<uint32_t>(row));
        }
    batches_.push_back(std::move(batch));
  }

  ScheduledInput stacked_operand(const std::vector<uint32_t>& nodes, size_t input) {
    std::vector<Place> places;
    places.reserve(nodes.size());
    for (const uint32_t node : nodes) places.push_back(place_of(node, input));
    if (std::ranges::none_of(places, [&](const Place& place) { return is_several_rows(place); }))
      return input_of(places);
    ScheduledInput rows = input_of(row_places(nodes, input));
    rows.rows_of_one = shape_of(nodes[0], input).dims()[0];
    return rows;
  }

  /// Whether a node puts several inputs of one shape side by side, so that these are rows of one operand.
  bool can_join(uint32_t node) const {
    const Node& joins = graph_.node(node);
    const auto* op = dynamic_cast<const Batchable*>(&joins.op());
    const std::optional<int64_t> along = op ? op->joins_along() : std::nullopt;
    if (!along || joins.inputs.size() < 2) return false;
    const Shape& shape = joins.inputs[0].spec().shape;
    const size_t axis = resolve_axis(*along, joins.outputs[0].spec.shape.rank(), joins.op().name());
    for (size_t i = 0; i < axis; ++i)
      if (shape.dims()[i] != 1) return false;
    return std::ranges::all_of(joins.inputs, [&](const Edge& e) { return e.spec().shape == shape; });
  }

  ScheduledInput one_operand(uint32_t node, size_t i) const {
    const Place place = place_of(node, i);
    ScheduledInput input{.shared = true, .sources = {source_of(place)}};
    if (is_several_rows(place)) {
      input.form = ScheduledInput::Form::range;
      input.begin = place.row(), input.count = shape_of(node, i).dims()[0];
    } else if (place.is_row()) {
      input.form = ScheduledInput::Form::row;
      input.begin = place.row();
    }
    return input;
  }

  /// The rows of a source of which rows are read.
  int64_t rows_of(const ScheduledSource& source) const {
    const auto rows_in = [&](const Shape& shape) {
      return shape.dims()[0] * (source.flat ? shape.dims()[1] : 1);
    };
    if (source.external) return rows_in(graph_.external(source.index).shape());
    const ScheduledBatch& batch = batches_[source.index];
    if (batch.form == BatchForm::rows) return batch.starts.back();
    const Shape& one = graph_.node(batch.nodes[0]).outputs[source.output].spec.shape;
    if (batch.form == BatchForm::whole) return rows_in(one);
    return static_cast<int64_t>(batch.nodes.size()) * (source.flat ? one.dims()[0] : 1);
  }

  ScheduledInput input_of(const std::vector<Place>& places) const {
    ScheduledInput input;
    const Place first = places[0];
    const auto count = static_cast<int64_t>(places.size());
    const int64_t step = count > 1 ? places[1].row() - first.row() : 1;
    const auto is_next = [&, next = first.row()](const Place& place) mutable {
      return place.is_row() && place.value() == first.value() &&
             place.row() == std::exchange(next, next + step);
    };
    if (step > 0 && std::ranges::all_of(places, is_next)) {
      input.sources.push_back(source_of(first));
      if (first.row() == 0 && step == 1 && count == rows_of(input.sources[0])) return input;
      input.form = ScheduledInput::Form::range;
      input.begin = first.row(), input.step = step, input.count = count;
      return input;
    }
    input.form = ScheduledInput::Form::gathered;
    // A value of which rows are taken is not the same input as one that is a row.
    const auto input_key = [](const Place& place) { return uint64_t{place.value()} << 1 | place.is_row(); };
    std::vector<uint64_t> keys;  // of the sources
    NumberTable numbers;
    std::vector<RowPiece> pieces;
    pieces.reserve(places.size());
    for (const Place& place : places) {
      const uint64_t key = input_key(place);
      const auto row = static_cast<int32_t>(place.row());
      if (!pieces.empty() && keys[pieces.back().source] == key) {
        pieces.push_back({pieces.back().source, row});
        continue;
      }
      const uint64_t hash = mixed(0, key);
      uint32_t number = numbers.find(hash, [&](uint32_t known) { return keys[known] == key; });
      if (number == NumberTable::none) {
        number = static_cast<uint32_t>(keys.size());
        numbers.insert(hash, number);
        keys.push_back(key);
        input.sources.push_back(source_of(place));
      }
      pieces.push_back({number, row});
    }
    input.stack = stack_rows_op(std::move(pieces));
    return input;
  }

  const WaitingGraph& graph_;
  NodeKinds& kinds_;
  std::vector<uint32_t> value_of_, heights_;  // of each node: its first output's number, and its height
  std::vector<int32_t> row_of_;
  struct Value {
    ScheduledSource source;
    BatchForm form;  // of its batch
  };
  std::vector<Value> values_;                                   // of batches, and flat forms
  std::unordered_map<uint32_t, uint32_t> flat_;                 // values, and their flat forms
  std::unordered_map<uint32_t, std::vector<uint32_t>> copies_;  // of a node, others with its operands
  std::vector<ScheduledBatch> batches_;
  std::vector<uint32_t> apart_;
};

}  // namespace

Schedule make_schedule(const WaitingGraph& graph, NodeKinds& kinds, BatchPolicy policy) {
  return Scheduler(graph, kinds).run(policy);
}

bool fits_held_nodes(const Schedule& schedule, const WaitingGraph& graph) {
  const auto held = [&](uint32_t node) { return graph.node(node).has_handles(); };
  const auto shares = [&](const ScheduledBatch& batch) {
    if (batch.form == BatchForm::whole && batch.nodes.size() > 1)
      return std::ranges::any_of(batch.nodes, held);
    return std::ranges::any_of(
        batch.copies, [&](const auto& copy) { return held(copy.first) || held(batch.nodes[copy.second]); });
  };
  return std::ranges::all_of(schedule.apart, held) && std::ranges::none_of(schedule.batches, shares);
}

}  // namespace espalier
