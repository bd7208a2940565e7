#include "espalier/executor/report/report_layout.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace espalier::report {

namespace {

constexpr double bend_width = 10;         // of a point on a long edge
constexpr size_t most_bends = 50'000;     // above, long edges are straight
constexpr size_t few_vertices = 4'000;    // below, more sweeps are affordable
constexpr int64_t longest_straight = 16;  // layers that an edge with bends may span in a large graph

class Layout {
 public:
  explicit Layout(const LayoutInput& input) : input_(input), nodes_(input.widths.size()) {}

  Drawing run() {
    choose_layers();
    add_bends();
    order_layers();
    settle();
    return draw();
  }

 private:
  using List = std::vector<uint32_t>;
  struct Vertex {
    int64_t layer = 0;
    double width = bend_width, x = 0;
    List above, below;
  };

  /// Each node goes as high as its inputs allow, then down towards its readers if that shortens at least as
  /// many edges as it stretches. Nodes without readers stay directly below their inputs.
  void choose_layers() {
    vertices_.resize(nodes_);
    std::vector<List> from(nodes_), to(nodes_);
    for (size_t v = 0; v < nodes_; ++v) vertices_[v].width = input_.widths[v];
    for (const auto& [a, b] : input_.edges) {
      from[b].push_back(a);
      to[a].push_back(b);
    }
    const auto below_inputs = [&](size_t v) {
      int64_t layer = 0;
      for (const uint32_t a : from[v]) layer = std::max(layer, vertices_[a].layer + 1);
      return layer;
    };
    for (size_t v = 0; v < nodes_; ++v) vertices_[v].layer = below_inputs(v);
    for (size_t v = nodes_; v-- > 0;) {
      int64_t lowest = INT64_MAX, readers = 0;
      for (const uint32_t b : to[v]) {
        if (to[b].empty()) continue;
        lowest = std::min(lowest, vertices_[b].layer - 1);
        ++readers;
      }
      const auto held =
          std::count_if(from[v].begin(), from[v].end(), [&](uint32_t a) { return !from[a].empty(); });
      if (readers > 0 && held <= readers) vertices_[v].layer = std::max(vertices_[v].layer, lowest);
    }
    for (size_t v = 0; v < nodes_; ++v)
      if (to[v].empty()) {
        for (const uint32_t a : from[v])  // a leaf with this reader only moves along
          if (from[a].empty() && to[a].size() == 1)
            vertices_[a].layer = std::max(vertices_[a].layer, below_inputs(v) - 1);
        vertices_[v].layer = below_inputs(v);
      }
  }

  void add_bends() {
    size_t bends = 0;
    for (const auto& [a, b] : input_.edges) bends += static_cast<size_t>(span(a, b) - 1);
    const bool many = bends > most_bends;
    chains_.resize(input_.edges.size());
    for (size_t e = 0; e < chains_.size(); ++e) {
      const auto [a, b] = input_.edges[e];
      List& chain = chains_[e];
      chain.push_back(a);
      if (!(many && span(a, b) > longest_straight))
        for (int64_t layer = vertices_[a].layer + 1; layer < vertices_[b].layer; ++layer) {
          chain.push_back(static_cast<uint32_t>(vertices_.size()));
          vertices_.emplace_back().layer = layer;
        }
      chain.push_back(b);
      for (size_t i = 1; i < chain.size(); ++i) {
        if (vertices_[chain[i]].layer != vertices_[chain[i - 1]].layer + 1) continue;
        vertices_[chain[i]].above.push_back(chain[i - 1]);
        vertices_[chain[i - 1]].below.push_back(chain[i]);
      }
    }
  }
  int64_t span(uint32_t a, uint32_t b) const { return vertices_[b].layer - vertices_[a].layer; }

  void order_layers() {
    for (uint32_t v = 0; v < vertices_.size(); ++v) {
      const auto layer = static_cast<size_t>(vertices_[v].layer);
      if (layers_.size() <= layer) layers_.resize(layer + 1);
      layers_[layer].push_back(v);
    }
    rank_.resize(vertices_.size());
    for (const List& layer : layers_) number(layer);
    std::vector<List> best = layers_;
    crossings_ = crossings();
    const int sweeps = vertices_.size() > few_vertices ? 6 : 24;
    for (int sweep = 0; sweep < sweeps && crossings_ > 0; ++sweep) {
      const bool down = sweep % 2 == 0;
      for (size_t k = 0; k < layers_.size(); ++k)
        sort_layer(layers_[down ? k : layers_.size() - 1 - k], down);
      if (const int64_t now = crossings(); now < crossings_) {
        crossings_ = now;
        best = layers_;
      }
    }
    layers_ = std::move(best);
    for (const List& layer : layers_) number(layer);
  }

  void number(const List& layer) {
    for (size_t i = 0; i < layer.size(); ++i) rank_[layer[i]] = static_cast<double>(i);
  }

  void sort_layer(List& layer, bool down) {
    std::vector<std::pair<double, uint32_t>> keys;
    for (const uint32_t v : layer) {
      const List& neighbours = down ? vertices_[v].above : vertices_[v].below;
      double sum = 0;
      for (const uint32_t n : neighbours) sum += rank_[n];
      keys.emplace_back(neighbours.empty() ? rank_[v] : sum / static_cast<double>(neighbours.size()), v);
    }
    std::stable_sort(keys.begin(), keys.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t i = 0; i < layer.size(); ++i) layer[i] = keys[i].second;
    number(layer);
  }

  /// Inversions between neighbouring layers, counted with a Fenwick tree.
  int64_t crossings() const {
    int64_t total = 0;
    for (size_t k = 0; k + 1 < layers_.size(); ++k) {
      std::vector<int64_t> tree(layers_[k + 1].size() + 1, 0);
      int64_t seen = 0;
      for (const uint32_t v : layers_[k]) {
        for (const uint32_t b : vertices_[v].below) {
          int64_t left = 0;
          for (auto i = static_cast<size_t>(rank_[b]) + 1; i > 0; i -= i & -i) left += tree[i];
          total += seen - left;
        }
        for (const uint32_t b : vertices_[v].below) {
          for (auto i = static_cast<size_t>(rank_[b]) + 1; i < tree.size(); i += i & -i) ++tree[i];
          ++seen;
        }
      }
    }
    return total;
  }

  bool is_bend(uint32_t v) const { return v >= nodes_; }

  void settle() {
    for (const List& layer : layers_) {
      double x = 0;
      for (const uint32_t v : layer) {
        vertices_[v].x = x + vertices_[v].width / 2;
        x += vertices_[v].width + node_gap;
      }
    }
    const int sweeps = vertices_.size() > few_vertices ? 24 : 80;
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      const bool down = sweep % 2 == 0, both = sweep >= sweeps / 2;
      for (size_t k = 0; k < layers_.size(); ++k)
        place(layers_[down ? k : layers_.size() - 1 - k], down || both, !down || both);
    }
  }

  /// Moves the nodes of a layer towards their neighbours, in order and without overlaps, so that the squared
  /// distances are least: an isotonic regression, solved by pooling adjacent violators.
  void place(const List& layer, bool use_above, bool use_below) {
    struct Block {
      double sum, weight;
      size_t count;
    };
    std::vector<Block> blocks;
    std::vector<double> shift(layer.size(), 0);
    for (size_t i = 0; i < layer.size(); ++i) {
      const Vertex& v = vertices_[layer[i]];
      if (i > 0) shift[i] = shift[i - 1] + (vertices_[layer[i - 1]].width + v.width) / 2 + node_gap;
      double sum = 0, weight = 0;
      const auto pull = [&](const List& neighbours) {
        for (const uint32_t n : neighbours) {
          const double w = is_bend(layer[i]) && is_bend(n) ? 8 : is_bend(layer[i]) || is_bend(n) ? 1 : 4;
          sum += w * vertices_[n].x;
          weight += w;
        }
      };
      if (use_above) pull(v.above);
      if (use_below) pull(v.below);
      if (weight == 0) {
        weight = 0.1;
        sum = weight * v.x;
      }
      blocks.push_back({sum - weight * shift[i], weight, 1});
      while (blocks.size() > 1) {
        const Block last = blocks.back();
        Block& before = blocks[blocks.size() - 2];
        if (before.sum / before.weight <= last.sum / last.weight) break;
        before = {before.sum + last.sum, before.weight + last.weight, before.count + last.count};
        blocks.pop_back();
      }
    }
    size_t i = 0;
    for (const Block& block : blocks)
      for (size_t n = 0; n < block.count; ++n, ++i)
        vertices_[layer[i]].x = block.sum / block.weight + shift[i];
  }

  Drawing draw() const {
    Drawing drawing;
    constexpr double margin = 12, pitch = node_height + layer_gap;
    double left = vertices_.empty() ? 0 : INFINITY, right = -left;
    for (const Vertex& v : vertices_) {
      left = std::min(left, v.x - v.width / 2);
      right = std::max(right, v.x + v.width / 2);
    }
    const auto at = [&](const Vertex& v) {
      return Point{v.x - left + margin, margin + node_height / 2 + pitch * static_cast<double>(v.layer)};
    };
    drawing.width = right - left + 2 * margin;
    drawing.height =
        2 * margin + pitch * static_cast<double>(layers_.size()) - (layers_.empty() ? 0 : layer_gap);
    drawing.crossings = crossings_;
    for (size_t v = 0; v < nodes_; ++v) drawing.nodes.push_back(at(vertices_[v]));
    for (const List& chain : chains_) {
      std::vector<Point> route;
      for (size_t i = 0; i < chain.size(); ++i) {
        const Point p = at(vertices_[chain[i]]);
        const double end = i == 0 ? node_height / 2 : i + 1 == chain.size() ? -node_height / 2 : 0;
        route.push_back({p.x, p.y + end});
      }
      drawing.routes.push_back(std::move(route));
    }
    return drawing;
  }

  const LayoutInput& input_;
  size_t nodes_;
  std::vector<Vertex> vertices_;  // nodes, then bends
  std::vector<List> chains_;      // the vertices of each edge
  std::vector<List> layers_;
  std::vector<double> rank_;  // in the layer
  int64_t crossings_ = 0;
};

}  // namespace

Drawing lay_out(const LayoutInput& graph) { return Layout(graph).run(); }

}  // namespace espalier::report
