#include "espalier/executor/report/profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"

namespace espalier {

namespace {

double seconds(Profiler::Clock::time_point begin, Profiler::Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// Bytes that the kernel reads and writes.
int64_t bytes_moved(const Graph& graph, const GraphNode& n) {
  int64_t bytes = 0;
  for (size_t k = 0; k < n.inputs.size(); ++k)
    if (n.op->reads_elements(k)) bytes += graph.spec(n.inputs[k]).bytes();
  for (const Spec& spec : n.outputs) bytes += spec.bytes();
  return bytes;
}

/// Calls `f(node, begin, end)` for each kernel of a step.
template <class F>
void each_kernel(const PlanData& plan, const Profiler::KernelTimestamps& timestamps, F&& f) {
  size_t call = 0;
  for (uint32_t i = 0; i < plan.graph.nodes.size() && call + 1 < timestamps.size(); ++i)
    if (plan.memory.runs[i]) {
      f(i, timestamps[call], timestamps[call + 1]);
      ++call;
    }
}

}  // namespace

std::string_view category(Tag tag) {
  switch (tag) {
    case Tag::backward: return "backward";
    case Tag::update: return "update";
    default: return "forward";
  }
}

Profiler::~Profiler() {
  try {
    finish();
  } catch (...) {
  }
}

void Profiler::start(const std::filesystem::path& trace, const ProfileOptions& options) {
  if (options.steps < 1) throw Error(fmt::format("profile: {} is not a number of steps", options.steps));
  if (!trace.empty()) const AtomicFile possible(trace);  // fail now rather than after the steps
  finish();
  path_ = trace;
  left_ = options.steps;
  spans_.clear();
  steps_.clear();
  times_.clear();
}

void Profiler::begin_step() {
  if (!on()) return;
  spans_.clear();
  timestamps_.clear();
  step_begin_ = Clock::now();
}

void Profiler::end_step(const std::shared_ptr<const PlanData>& plan) {
  if (!on()) return;
  const auto end = Clock::now();
  PlanTimes& times = times_[plan];
  times.nodes.resize(plan->graph.nodes.size());
  ++times.steps;
  times.step += seconds(step_begin_, end);
  for (const Span& span : spans_)
    (std::string_view(span.name) == "load" ? times.load : times.wait) += seconds(span.begin, span.end);
  each_kernel(*plan, timestamps_, [&](uint32_t i, Clock::time_point from, Clock::time_point to) {
    times.nodes[i] += seconds(from, to);
    times.kernels += seconds(from, to);
  });
  if (!path_.empty()) steps_.push_back({plan, step_begin_, end, spans_, timestamps_});
  done_ = --left_ == 0;
}

void Profiler::finish() {
  left_ = 0;
  done_ = false;
  if (steps_.empty()) return;
  const std::string text = trace();
  steps_.clear();  // a failed file is not tried again
  AtomicFile file(path_);
  file.write(text);
  file.commit();
}

const PlanTimes* Profiler::times(const PlanData& plan) const {
  for (const auto& [known, times] : times_)
    if (known.get() == &plan) return &times;
  return nullptr;
}

std::shared_ptr<const PlanData> Profiler::busiest() const {
  const auto most = std::max_element(times_.begin(), times_.end(), [](const auto& a, const auto& b) {
    return a.second.steps < b.second.steps;
  });
  return most == times_.end() ? nullptr : most->first;
}

/// The Trace Event Format that chrome://tracing and ui.perfetto.dev read: complete events ("X"), in
/// microseconds, in the order they began.
std::string Profiler::trace() const {
  using Json = nlohmann::ordered_json;
  const Clock::time_point origin = steps_.front().begin;
  std::string text = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";
  const auto add = [&](const Json& event) {
    text += event.dump(-1, ' ', false, Json::error_handler_t::replace);
    text += ",\n";
  };
  const auto event = [&](std::string_view name, std::string_view category, Clock::time_point begin,
                         Clock::time_point end, Json args) {
    const auto microseconds = [](double s) { return std::round(1e9 * s) / 1e3; };
    add({{"name", name},
         {"cat", category},
         {"ph", "X"},
         {"ts", microseconds(seconds(origin, begin))},
         {"dur", microseconds(seconds(begin, end))},
         {"pid", 1},
         {"tid", 1},
         {"args", std::move(args)}});
  };
  add({{"name", "process_name"}, {"ph", "M"}, {"pid", 1}, {"tid", 1}, {"args", {{"name", "espalier"}}}});
  add({{"name", "thread_name"}, {"ph", "M"}, {"pid", 1}, {"tid", 1}, {"args", {{"name", "executor"}}}});
  for (size_t s = 0; s < steps_.size(); ++s) {
    const Step& step = steps_[s];
    const Graph& graph = step.plan->graph;
    event("step", "step", step.begin, step.end, {{"step", s}});
    for (const Span& span : step.spans) event(span.name, "data", span.begin, span.end, Json::object());
    each_kernel(*step.plan, step.timestamps, [&](uint32_t i, Clock::time_point begin, Clock::time_point end) {
      const GraphNode& n = graph.nodes[i];
      Json shapes = Json::array();
      for (const Spec& spec : n.outputs)
        shapes.push_back(fmt::format("{} {}", name(spec.dtype), spec.shape.str()));
      event(n.op->name(), category(n.tag), begin, end,
            {{"node", i},
             {"attributes", to_string(n.op->attributes())},
             {"shape", shapes.size() == 1 ? shapes[0] : shapes},
             {"bytes", bytes_moved(graph, n)},
             {"source", line_of(n.where)},
             {"file", n.where.file_name()}});
    });
  }
  text.erase(text.size() - 2, 1);  // the last comma
  return text + "]}\n";
}

}  // namespace espalier
