// The memory section of a report: all values over the steps, without an arena and in the planned one.
#include <algorithm>
#include <set>

#include "espalier/executor/report/report_parts.h"

namespace espalier::report {

namespace {

constexpr double width = 1120, left = 64, top = 14, bottom = 26;
constexpr double tall = 420;  // the height of the larger drawing's frame

/// The first node whose value each buffer holds, or whose workspace it is.
std::vector<uint32_t> owners(const Graph& graph, const MemoryPlan& memory) {
  std::vector<uint32_t> owner(memory.buffers.size(), UINT32_MAX);
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    for (const Place& place : memory.places[i])
      if (place.in == Place::In::arena) owner[place.index] = std::min(owner[place.index], i);
    if (memory.workspaces[i]) owner[*memory.workspaces[i]] = i;
  }
  return owner;
}

/// Steps as columns: those with a kernel, and those at which a buffer's lifetime begins or ends.
class Columns {
 public:
  Columns(const MemoryPlan& memory, const std::vector<ArenaBuffer>& others) {
    std::set<int64_t> steps;
    for (size_t i = 0; i < memory.runs.size(); ++i)
      if (memory.runs[i]) steps.insert(static_cast<int64_t>(i));
    for (const auto* buffers : {&memory.buffers, &others})
      for (const ArenaBuffer& buffer : *buffers) {
        steps.insert(buffer.first);
        steps.insert(buffer.last);
      }
    steps_.assign(steps.begin(), steps.end());
  }
  size_t of(int64_t step) const {
    return static_cast<size_t>(std::lower_bound(steps_.begin(), steps_.end(), step) - steps_.begin());
  }
  size_t size() const { return std::max<size_t>(1, steps_.size()); }
  const std::vector<int64_t>& steps() const { return steps_; }

 private:
  std::vector<int64_t> steps_;
};

int64_t live_at(const std::vector<ArenaBuffer>& buffers, int64_t step) {
  int64_t live = 0;
  for (const ArenaBuffer& b : buffers)
    if (b.first <= step && step <= b.last) live += b.bytes;
  return live;
}

struct Frame {
  const char* id;
  const char* title;
  double height;
  int64_t bytes;
  int64_t fullest;  // the step with the largest live set
};

std::string axis_labels(const Page& page, const Columns& columns, const Frame& frame) {
  std::string svg;
  const double bytes = static_cast<double>(std::max<int64_t>(1, frame.bytes));
  for (const double part : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    const double y = top + frame.height * part;
    svg += fmt::format("<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", left,
                       width, y, y);
    svg += fmt::format("<text class=\"axis\" text-anchor=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                       left - 6, y + 4, bytes_text(static_cast<int64_t>(bytes * part)));
  }
  const double pitch = (width - left) / static_cast<double>(columns.size());
  const size_t every = std::max<size_t>(1, static_cast<size_t>(48 / pitch));
  for (size_t c = 0; c < columns.steps().size(); c += every) {
    const int64_t step = columns.steps()[c];
    if (left + pitch * static_cast<double>(c) > width - 36) break;
    svg += fmt::format("<text class=\"axis\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                       left + pitch * static_cast<double>(c), top + frame.height + 16,
                       step < static_cast<int64_t>(page.size()) ? fmt::format("%{}", step) : "end");
  }
  return svg;
}

std::string drawing(const Page& page, const MemoryPlan& memory, const Columns& columns, const Frame& frame) {
  const double pitch = (width - left) / static_cast<double>(columns.size());
  const double bytes = static_cast<double>(std::max<int64_t>(1, frame.bytes));
  const std::vector<uint32_t> owner = owners(page.graph(), memory);
  std::string svg = fmt::format(
      "<figure><figcaption>{}</figcaption><svg class=\"memory\" id=\"{}\" "
      "xmlns=\"http://www.w3.org/2000/svg\" "
      "viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n",
      frame.title, frame.id, width + 2, top + frame.height + bottom, frame.title);
  svg += axis_labels(page, columns, frame);
  svg +=
      fmt::format("<rect class=\"bounds\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\"/>\n",
                  left, top, width - left, frame.height);
  for (size_t b = 0; b < memory.buffers.size(); ++b) {
    const ArenaBuffer& buffer = memory.buffers[b];
    const size_t from = columns.of(buffer.first), to = columns.of(buffer.last) + 1;
    const double x = left + pitch * static_cast<double>(from), w = pitch * static_cast<double>(to - from);
    const double y = top + frame.height * static_cast<double>(buffer.offset) / bytes;
    const double h = frame.height * static_cast<double>(buffer.bytes) / bytes;
    const bool counts = buffer.first <= frame.fullest && frame.fullest <= buffer.last;
    const bool known = owner[b] < page.size();
    svg += fmt::format(
        "<g class=\"buffer {}{}\" data-node=\"{}\" data-first=\"{}\" data-last=\"{}\" data-offset=\"{}\" "
        "data-bytes=\"{}\"><title>{}\n{}{} bytes at {}, in use from %{} to {}</title>",
        known ? page.part(owner[b]) : "forward", counts ? " counts" : "",
        known ? fmt::format("{}", owner[b]) : "", buffer.first, buffer.last, buffer.offset, buffer.bytes,
        known ? escape(page.tooltips[owner[b]]) : "",
        known && memory.workspaces[owner[b]] == b ? "workspace: " : "", grouped(buffer.bytes),
        grouped(buffer.offset), buffer.first,
        buffer.last < static_cast<int64_t>(page.size()) ? fmt::format("%{}", buffer.last) : "the end");
    svg += fmt::format("<rect x=\"{:.3f}\" y=\"{:.3f}\" width=\"{:.3f}\" height=\"{:.3f}\"/>", x, y, w, h);
    if (known && h >= 13) {
      const std::string number = fmt::format("%{}", owner[b]);
      const std::string full = fmt::format("{} {}", number, page.node(owner[b]).op->name());
      const auto fits = [&](const std::string& text) {
        return w > 6.4 * static_cast<double>(text.size()) + 6;
      };
      if (fits(number))
        svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", x + 4, y + std::min(h, 22.0) / 2 + 4,
                           escape(fits(full) ? full : number));
    }
    svg += "</g>\n";
  }
  if (frame.fullest >= 0) {
    const double x = left + pitch * static_cast<double>(columns.of(frame.fullest));
    svg += fmt::format(
        "<rect class=\"fullest\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\"/>\n", x, top,
        pitch, frame.height);
  }
  return svg + "</svg></figure>\n";
}

/// Bytes in use at each step against the size of the arena; their maximum is the lower bound of any arena.
std::string live_curve(const Page& page, const Columns& columns, int64_t most) {
  constexpr double height = 80;
  const MemoryPlan& memory = page.plan.memory;
  const double pitch = (width - left) / static_cast<double>(columns.size());
  const auto level = [&](int64_t bytes) {
    return top + height * (1 - static_cast<double>(bytes) / static_cast<double>(memory.arena_bytes));
  };
  std::string svg = fmt::format(
      "<figure><figcaption>Bytes in use at each step</figcaption><svg class=\"memory\" id=\"memory-live\" "
      "xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" "
      "aria-label=\"Bytes in use at each step\">\n",
      width + 2, top + height + 8);
  std::string d = fmt::format("M{:.1f} {:.1f}", left, level(0));
  for (size_t c = 0; c < columns.steps().size(); ++c)
    d += fmt::format("V{:.1f}H{:.1f}", level(live_at(memory.buffers, columns.steps()[c])),
                     left + pitch * static_cast<double>(c + 1));
  svg += fmt::format("<path class=\"live\" d=\"{}V{:.1f}Z\"/>\n", d, level(0));
  for (const int64_t bytes : {int64_t{0}, most}) {
    svg += fmt::format("<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", left,
                       width, level(bytes), level(bytes));
    svg += fmt::format("<text class=\"axis\" text-anchor=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                       left - 6, level(bytes) + 4, bytes_text(bytes));
  }
  return svg + "</svg></figure>\n";
}

}  // namespace

std::string memory_drawing(const Page& page) {
  const MemoryPlan& memory = page.plan.memory;
  MemoryPlan before = plan_memory(page.graph(), false);
  before.all_bytes = 0;
  for (ArenaBuffer& buffer : before.buffers) {
    buffer.offset = before.all_bytes;
    before.all_bytes += buffer.bytes;
  }
  int64_t fullest = -1, most = 0;
  for (const ArenaBuffer& buffer : memory.buffers)
    if (const int64_t live = live_at(memory.buffers, buffer.first); live > most) {
      most = live;
      fullest = buffer.first;
    }
  const Columns columns(memory, before.buffers);

  std::string html = "<section id=\"memory\"><h2>The memory</h2>\n";
  if (memory.buffers.empty()) return html + "<p>No value needs a place in the arena.</p></section>\n";
  const double ratio =
      static_cast<double>(memory.arena_bytes) / static_cast<double>(std::max<int64_t>(1, before.all_bytes));
  const double after_height = std::max(150.0, tall * std::min(1.0, ratio));
  html += fmt::format(
      "<p>From left to right the kernels of a step, from top to bottom the bytes. Side by side all values "
      "need {}, "
      "in the arena {}: {:.0f} %. The framed column is {}, where the largest live set is in use, {}{}.</p>\n",
      bytes_text(before.all_bytes), bytes_text(memory.arena_bytes), 100 * ratio, fmt::format("%{}", fullest),
      bytes_text(most), most == memory.arena_bytes ? ": no arena can be smaller" : "");
  html +=
      drawing(page, before, columns,
              {"memory-before", "Before: every value has a buffer of its own", tall, before.all_bytes, -1});
  html += drawing(page, memory, columns,
                  {"memory-after",
                   after_height > tall * ratio + 1 ? "After planning: the arena (not to the scale above)"
                                                   : "After planning: the arena, to the same scale",
                   after_height, memory.arena_bytes, fullest});
  html += live_curve(page, columns, most);
  return html + "</section>\n";
}

}  // namespace espalier::report
