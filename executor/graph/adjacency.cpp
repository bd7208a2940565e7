#include "espalier/executor/graph/adjacency.h"

namespace espalier {

template <class F>
void Adjacency::fill(size_t nodes, size_t edges, const F& each_edge) {
  first_.assign(nodes + 2, 0);  // counts, then the next free places: each lies one too far until the end
  each_edge([&](uint32_t begin, uint32_t) { ++first_[begin + 2]; });
  for (size_t i = 2; i < first_.size(); ++i) first_[i] += first_[i - 1];
  ends_.resize(edges);
  each_edge([&](uint32_t begin, uint32_t end) { ends_[first_[begin + 1]++] = end; });
  first_.pop_back();
}

Adjacency::Adjacency(size_t nodes, const Edges& edges) {
  fill(nodes, edges.size(), [&](const auto& f) {
    for (const auto& [begin, end] : edges) f(begin, end);
  });
}

Adjacency Adjacency::reversed() const {
  Adjacency result;
  result.fill(nodes(), ends_.size(), [&](const auto& f) {
    for (uint32_t i = 0; i < nodes(); ++i)
      for (const uint32_t end : of(i)) f(end, i);
  });
  return result;
}

}  // namespace espalier
