#include "espalier/executor/graph/contraction.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace espalier {

Contraction::Contraction(Adjacency users) : users_(std::move(users)), inputs_(users_.reversed()) {
  const auto n = static_cast<uint32_t>(users_.nodes());
  unit_.resize(n);
  std::iota(unit_.begin(), unit_.end(), 0);
  first_member_ = last_member_ = unit_;
  next_member_.assign(n, none);
  first_ = n;
  last_ = n + 1;
  mark_.assign(n, 0);
  before_.resize(n + 2);
  after_.resize(n + 2);
  position_.resize(n + 2);
  uint32_t previous = first_;
  for (uint32_t i = 0; i < n; ++i) {
    before_[i] = previous;
    after_[previous] = i;
    previous = i;
  }
  before_[last_] = previous;
  after_[previous] = last_;
  number_anew();
}

void Contraction::number_anew() {
  const int64_t step = (int64_t{1} << 62) / static_cast<int64_t>(position_.size());
  int64_t position = 0;
  for (uint32_t unit = first_; unit != last_; unit = after_[unit]) position_[unit] = position += step;
  position_[last_] = position + step;
}

void Contraction::begin(Search& search, uint32_t unit) {
  search.heap.clear();
  search.seen.clear();
  search.unit = unit;
  search.member = first_member_[unit];
  search.edge = 0;
}

/// Looks at one edge, or goes on to the next unit.
Contraction::Found Contraction::step(Search& search, bool forward, uint32_t from, uint32_t goal) {
  ++edges_searched_;
  if (search.member == none) {
    if (search.heap.empty()) return Found::end;
    std::pop_heap(search.heap.begin(), search.heap.end());
    search.unit = search.heap.back().second;
    search.heap.pop_back();
    search.member = first_member_[search.unit];
    search.edge = 0;
    return Found::nothing;
  }
  const std::span<const uint32_t> edges = (forward ? users_ : inputs_).of(search.member);
  if (search.edge == edges.size()) {
    search.member = next_member_[search.member];
    search.edge = 0;
    return Found::nothing;
  }
  const uint32_t unit = unit_[edges[search.edge++]];
  if (unit == search.unit) return Found::nothing;
  if (unit == goal) return search.unit == from ? Found::nothing : Found::path;
  const int64_t position = position_[unit];
  if (forward ? position > position_[goal] : position < position_[goal]) return Found::nothing;
  const uint64_t own = searches_ * 2 + forward, other = searches_ * 2 + !forward;
  if (mark_[unit] == other) return Found::path;
  if (mark_[unit] == own) return Found::nothing;
  mark_[unit] = own;
  search.seen.push_back(unit);
  search.heap.emplace_back(forward ? position : -position, unit);
  std::push_heap(search.heap.begin(), search.heap.end());
  return Found::nothing;
}

bool Contraction::join(uint32_t first, uint32_t second) {
  uint32_t a = unit_[first], b = unit_[second];
  if (a == b) return true;
  if (position_[a] > position_[b]) std::swap(a, b);
  ++searches_;
  begin(forward_, a);
  begin(backward_, b);
  for (;;) {
    if (const Found found = step(forward_, true, a, b); found != Found::nothing) {
      if (found == Found::path) return false;
      move_next_to(b, Side::behind, forward_.seen);  // what depends on the first must come after the second
      unlink(a);
      merge(b, a);
      return true;
    }
    if (const Found found = step(backward_, false, b, a); found != Found::nothing) {
      if (found == Found::path) return false;
      move_next_to(a, Side::before, backward_.seen);  // what the second depends on must come before the first
      unlink(b);
      merge(a, b);
      return true;
    }
  }
}

void Contraction::unlink(uint32_t unit) {
  after_[before_[unit]] = after_[unit];
  before_[after_[unit]] = before_[unit];
}

void Contraction::sort_by_position(std::vector<uint32_t>& units) const {
  std::sort(units.begin(), units.end(), [&](uint32_t a, uint32_t b) { return position_[a] < position_[b]; });
}

void Contraction::move_next_to(uint32_t place, Side side, std::vector<uint32_t>& units) {
  sort_by_position(units);
  for (const uint32_t unit : units) unlink(unit);
  side == Side::behind ? spread(units, place, after_[place]) : spread(units, before_[place], place);
}

/// Links units between two neighbours, at even distances.
void Contraction::spread(const std::vector<uint32_t>& units, uint32_t before, uint32_t after) {
  if (units.empty()) return;
  const int64_t step = (position_[after] - position_[before]) / (static_cast<int64_t>(units.size()) + 1);
  int64_t position = position_[before];
  for (const uint32_t unit : units) {
    after_[before] = unit;
    before_[unit] = before;
    position_[unit] = position += step;
    before = unit;
  }
  after_[before] = after;
  before_[after] = before;
  if (step == 0) number_anew();
}

void Contraction::merge(uint32_t into, uint32_t from) {
  for (uint32_t node = first_member_[from]; node != none; node = next_member_[node]) unit_[node] = into;
  next_member_[last_member_[into]] = first_member_[from];
  last_member_[into] = last_member_[from];
}

}  // namespace espalier
