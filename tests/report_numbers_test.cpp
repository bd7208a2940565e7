// The numbers in reports and traces: bytes, times and lifetimes of buffers, compared with values computed by
// hand.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "espalier/core/autograd.h"
#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/executor/compile.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/report/profiler.h"
#include "espalier/executor/report/report.h"
#include "espalier/executor/report/report_parts.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using Json = nlohmann::json;
using Milliseconds = std::vector<int>;

namespace {

std::shared_ptr<const esp::PlanData> plan_of(const esp::Variable& value,
                                             const std::vector<std::string>& without = {"fuse_pointwise"}) {
  return esp::compile({.value = value}, {}, {.inference = true, .without = without});
}
/// Two kernels: one of [5, 8], and its sum to the shape of another parameter, [1, 8].
std::shared_ptr<const esp::PlanData> two_kernels() {
  const esp::Variable p = esp::parameter(esp::ones({5, 8})), q = esp::parameter(esp::ones({1, 8}));
  return plan_of(esp::sum_to_like(esp::tanh(p), q));
}
std::vector<uint32_t> running(const esp::PlanData& plan) {
  std::vector<uint32_t> nodes;
  for (uint32_t i = 0; i < plan.graph.nodes.size(); ++i)
    if (plan.memory.runs[i]) nodes.push_back(i);
  return nodes;
}

/// Records a step with these kernel times in a profiler.
void take_step(esp::Profiler& profiler, const std::shared_ptr<const esp::PlanData>& plan,
               const Milliseconds& kernels) {
  using std::chrono::milliseconds;
  profiler.begin_step();
  profiler.timed("wait for data", [] { std::this_thread::sleep_for(milliseconds(4)); });
  profiler.timed("load", [] { std::this_thread::sleep_for(milliseconds(1)); });
  if (esp::Profiler::KernelTimestamps* timestamps = profiler.timestamps()) {
    timestamps->push_back(esp::Profiler::Clock::now());
    for (const int ms : kernels) timestamps->push_back(timestamps->back() + milliseconds(ms));
  }
  profiler.end_step(plan);
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
double attribute(const std::string& element, const std::string& name) {
  const std::string begin = " " + name + "=\"";
  const size_t at = element.find(begin);
  BOOST_REQUIRE(at != std::string::npos);
  return std::stod(element.substr(at + begin.size()));
}
/// All substrings with this beginning and end.
std::vector<std::string> all(const std::string& text, const std::string& begin, const std::string& end) {
  std::vector<std::string> found;
  for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1))
    found.push_back(text.substr(at, text.find(end, at + begin.size()) - at));
  return found;
}
std::string section(const std::string& html, const std::string& id) {
  const size_t begin = html.find("id=\"" + id + "\"");
  BOOST_REQUIRE(begin != std::string::npos);
  return html.substr(begin, html.find("</svg>", begin) - begin);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(report_numbers)

BOOST_AUTO_TEST_CASE(times_are_summed_for_each_plan) {
  const auto often = two_kernels(), once = plan_of(esp::tanh(esp::parameter(esp::ones({3}))));
  const std::vector<uint32_t> nodes = running(*often);
  BOOST_REQUIRE(nodes.size() == 2u);
  esp::Profiler profiler;
  BOOST_TEST(!profiler.on());
  take_step(profiler, often, {1, 1});
  BOOST_TEST(profiler.times(*often) == nullptr);
  BOOST_TEST(profiler.busiest() == nullptr);
  for (int begin = 0; begin < 2; ++begin) {  // start() discards earlier steps
    profiler.start({}, {.steps = 3});
    take_step(profiler, once, {7});
    take_step(profiler, often, {10, 20});
    BOOST_TEST(profiler.on());
    take_step(profiler, often, {30, 45});
    BOOST_TEST(!profiler.on());
    take_step(profiler, often, {1000, 1000});
    const esp::PlanTimes& times = *profiler.times(*often);
    const auto close = boost::test_tools::tolerance(1e-9);
    BOOST_TEST(times.steps == 2);
    BOOST_TEST(times.kernels == 0.105, close);
    BOOST_TEST(times.nodes.at(nodes[0]) == 0.04, close);
    BOOST_TEST(times.nodes.at(nodes[1]) == 0.065, close);
    BOOST_TEST(times.wait >= 0.008);
    BOOST_TEST(times.load >= 0.002);
    BOOST_TEST(times.load < times.wait);
    BOOST_TEST(times.step >= times.load + times.wait);
    BOOST_TEST(profiler.times(*once)->steps == 1);
    BOOST_TEST(profiler.times(*once)->kernels == 0.007, close);
    BOOST_TEST(profiler.busiest() == often);
  }
}

BOOST_AUTO_TEST_CASE(a_trace_has_times_and_bytes) {
  const TemporaryFolder folder;
  const auto plan = two_kernels();
  {
    esp::Profiler profiler;
    profiler.start(folder / "trace.json", {.steps = 2});
    for (int step = 0; step < 2; ++step) take_step(profiler, plan, {10, 20});
    BOOST_TEST(folder.files() == 0u);
    profiler.write_if_done();
    BOOST_REQUIRE(folder.files() == 1u);
    std::filesystem::remove(folder / "trace.json");
    profiler.finish();
    BOOST_TEST(folder.files() == 0u);  // one report is enough
    profiler.start(folder / "trace.json", {.steps = 2});
    for (int step = 0; step < 2; ++step) take_step(profiler, plan, {10, 20});
    profiler.write_if_done();
  }
  std::vector<int64_t> bytes, steps;
  int64_t data = 0;
  const Json trace = Json::parse(esp::read_file(folder / "trace.json"));
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") continue;
    const Json& args = event.at("args");
    if (event.at("cat") == "step") steps.push_back(args.at("step").get<int64_t>());
    data += event.at("cat") == "data";
    if (event.at("cat") != "forward") continue;
    bytes.push_back(args.at("bytes").get<int64_t>());
    BOOST_TEST(event.at("dur").get<double>() == (bytes.size() % 2 ? 10'000.0 : 20'000.0));
  }
  BOOST_TEST(steps == (std::vector<int64_t>{0, 1}));
  BOOST_TEST(data == 4);
  // tanh reads and writes 5 · 8 floats. The sum reads these and writes 8; it reads only the shape of q.
  BOOST_TEST(bytes == (std::vector<int64_t>{320, 192, 320, 192}));
}

BOOST_AUTO_TEST_CASE(measured_times_are_shown_as_means_and_shares) {
  const auto plan = two_kernels();
  const std::vector<uint32_t> nodes = running(*plan);
  esp::PlanTimes times{.steps = 2, .step = 0.4, .wait = 0.1, .load = 0.02, .kernels = 0.2, .nodes = {}};
  times.nodes.resize(plan->graph.nodes.size());
  times.nodes[nodes[0]] = 0.15, times.nodes[nodes[1]] = 0.05;
  const std::string html = esp::report_html(*plan, &times);
  for (const char* part :
       {"<b>200 ms</b><span>a step", "<b>100 ms</b><span>its kernels", "<b>50.0 ms</b><span>waiting for data",
        "means over 2 profiled steps", "forward 100 ms (50.0 %)", "waiting for data 50.0 ms (25.0 %)",
        "copying the batch 10.0 ms (5.0 %)", "the rest 40.0 ms (20.0 %)", "75.0 ms</td>", "25.0 ms</td>",
        "75.0 %</td>", "25.0 %</td>"})
    BOOST_TEST(has(html, part), part);
}

BOOST_AUTO_TEST_CASE(buffers_are_drawn_as_long_as_they_live) {
  // Values of several sizes, some with late readers.
  const esp::Variable p = esp::parameter(numbers({64, 16})), q = esp::parameter(numbers({64, 1}));
  esp::Variable h = esp::tanh(p * q), sums = esp::sum(h, 1);
  for (int i = 0; i < 3; ++i) h = esp::softmax(h) + esp::matmul(h, esp::transpose(h)).gradient(h) * 0.1;
  const auto plan = plan_of(esp::sum(h) + esp::sum(sums), {});
  const esp::MemoryPlan& memory = plan->memory;
  BOOST_REQUIRE(memory.buffers.size() >= 4u);
  const std::string html = esp::report_html(*plan, nullptr), drawn = section(html, "memory-after");
  const auto live_at = [&](int64_t step) {
    int64_t bytes = 0;
    for (const esp::ArenaBuffer& b : memory.buffers)
      if (step >= b.first && step <= b.last) bytes += b.bytes;
    return bytes;
  };

  // One column for each step, and a frame around the one with the most bytes in use.
  const std::vector<std::string> groups = all(drawn, "<g class=\"buffer", "</g>");
  BOOST_REQUIRE(groups.size() == memory.buffers.size());
  const std::vector<std::string> frames = all(drawn, "<rect class=\"fullest\"", ">");
  BOOST_REQUIRE(frames.size() == 1u);
  const double pitch = attribute(frames[0], "width"), x_of_frame = attribute(frames[0], "x");
  int64_t counted = 0;
  std::set<int64_t> fullest;  // steps that may be framed
  for (const esp::ArenaBuffer& b : memory.buffers)
    if (live_at(b.first) == memory.largest_live_bytes) fullest.insert(b.first);
  std::map<double, int64_t> step_at;  // by the column's left end
  for (size_t b = 0; b < groups.size(); ++b) {
    const esp::ArenaBuffer& buffer = memory.buffers[b];
    BOOST_TEST(attribute(groups[b], "data-first") == static_cast<double>(buffer.first));
    BOOST_TEST(attribute(groups[b], "data-last") == static_cast<double>(buffer.last));
    BOOST_TEST(attribute(groups[b], "data-bytes") == static_cast<double>(buffer.bytes));
    BOOST_TEST(attribute(groups[b], "data-offset") == static_cast<double>(buffer.offset));
    const std::string rect = groups[b].substr(groups[b].find("<rect"));
    const double x = attribute(rect, "x"), width = attribute(rect, "width");
    BOOST_TEST(width > pitch - 0.01);
    for (const auto& [step, left] : {std::pair(buffer.first, x), {buffer.last, x + width - pitch}}) {
      const auto near = step_at.lower_bound(left - 0.02);
      if (near != step_at.end() && near->first < left + 0.02)
        BOOST_TEST(near->second == step);
      else
        step_at.emplace(left, step);
    }
    if (has(groups[b].substr(0, groups[b].find('>')), " counts")) counted += buffer.bytes;
    if (std::abs(x - x_of_frame) < 0.02) BOOST_TEST(fullest.count(buffer.first) == 1u);
    // A buffer has the name of the node that writes it first.
    const auto node = static_cast<size_t>(attribute(groups[b], "data-node"));
    BOOST_TEST(static_cast<int64_t>(node) == buffer.first);
  }
  BOOST_TEST(counted == memory.largest_live_bytes);
  int64_t before = -1;
  for (const auto& [left, step] : step_at) {  // from left to right
    BOOST_TEST(step > before);
    before = step;
  }
  BOOST_TEST(
      has(html, "the largest live set is in use, " + esp::report::bytes_text(memory.largest_live_bytes)));

  // Before planning, values do not overlap.
  double end = 0;
  const std::vector<std::string> apart = all(section(html, "memory-before"), "<g class=\"buffer", "</g>");
  BOOST_TEST(apart.size() > memory.buffers.size());
  for (const std::string& group : apart) {
    BOOST_TEST(attribute(group, "data-offset") == end);
    end += attribute(group, "data-bytes");
  }
  BOOST_TEST(has(html, "all values need " + esp::report::bytes_text(static_cast<int64_t>(end))));
}

BOOST_AUTO_TEST_CASE(the_curve_shows_the_bytes_in_use) {
  const esp::Variable p = esp::parameter(numbers({64, 16}));
  esp::Variable h = esp::tanh(p), kept = h;
  for (int i = 0; i < 3; ++i) h = esp::matmul(h, esp::matmul(esp::transpose(h), h));
  const auto plan = plan_of(esp::sum(h) + esp::sum(kept), {});
  const esp::MemoryPlan& memory = plan->memory;
  const std::string curve = section(esp::report_html(*plan, nullptr), "memory-live");
  const std::vector<std::string> levels = all(all(curve, " d=\"", "\"").at(0), "V", "H");
  // From the top at 14 (the whole arena) to the bottom at 94 (nothing). One level for each column: the steps
  // at which a kernel runs or a lifetime begins or ends.
  std::set<int64_t> steps;
  const esp::MemoryPlan unplanned = esp::plan_memory(plan->graph, false);
  for (const uint32_t i : running(*plan)) steps.insert(i);
  for (const auto* buffers : {&memory.buffers, &unplanned.buffers})
    for (const esp::ArenaBuffer& b : *buffers) steps.insert({b.first, b.last});
  BOOST_REQUIRE(levels.size() == steps.size() + 1);  // and the end of the line
  size_t column = 0;
  for (const int64_t step : steps) {
    int64_t live = 0;
    for (const esp::ArenaBuffer& b : memory.buffers) live += b.first <= step && b.last >= step ? b.bytes : 0;
    const double shown = (94 - std::stod(levels[column++].substr(1))) / 80;
    BOOST_TEST(std::abs(shown - static_cast<double>(live) / static_cast<double>(memory.arena_bytes)) < 0.001);
  }
}

BOOST_AUTO_TEST_SUITE_END()
