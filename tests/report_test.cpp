// The report of a plan as text, the layout of its graph, and the trace. tests/report/run.sh checks the report
// in a browser.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>

#include "espalier/core/custom_op.h"
#include "espalier/core/deferred/deferred.h"
#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/core/random.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/report/report.h"
#include "espalier/executor/report/report_layout.h"
#include "espalier/executor/report/report_parts.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/losses.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "testing.h"

namespace esp = espalier;
namespace nn = espalier::nn;
using namespace espalier::testing;
using Json = nlohmann::json;

namespace {

constexpr int64_t rows = 22, batch_size = 5;  // four whole batches and a short one

esp::Executor trainer(bool dump = false, const std::vector<std::string>& without = {}) {
  esp::seed(3);
  const esp::data::Distributor feed({esp::randn({rows, 4}), esp::randn({rows, 2})},
                                    {.batch_size = batch_size});
  const auto [x, y] = feed.get_output_graphs<2>();
  const nn::Sequential network{nn::Dense(8), nn::Tanh(), nn::Dense(2)};
  const esp::Variable loss = nn::MeanSquared()(network(x), y);  // a line for the report
  return loss.get_executor({.mode = esp::Mode::training,
                            .optimizer = esp::optim::Adam({.lr = 1e-2}),
                            .without = without,
                            .dump = dump});
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string report_of(const esp::Executor& executor) {
  const TemporaryFolder folder;
  executor.report(folder / "plan.html");
  BOOST_TEST(folder.files() == 1u);
  return esp::read_file(folder / "plan.html");
}

/// The events of a trace with a duration; checks their invariants.
std::vector<Json> events_of(const std::filesystem::path& file) {
  const Json trace = Json::parse(esp::read_file(file));
  std::vector<Json> events;
  double last = 0;
  for (const Json& event : trace.at("traceEvents")) {
    BOOST_TEST(event.at("pid").is_number_integer());
    BOOST_TEST(event.at("tid").is_number_integer());
    if (event.at("ph") == "M") continue;
    BOOST_TEST(event.at("ph").get<std::string>() == "X");
    BOOST_TEST(event.at("ts").get<double>() >= last);
    BOOST_TEST(event.at("dur").get<double>() >= 0);
    last = event.at("ts").get<double>();
    events.push_back(event);
  }
  return events;
}

size_t of_category(const std::vector<Json>& events, const std::string& category) {
  return static_cast<size_t>(
      std::count_if(events.begin(), events.end(), [&](const Json& e) { return e.at("cat") == category; }));
}
size_t kernels(const std::vector<Json>& events) {
  return of_category(events, "forward") + of_category(events, "backward") + of_category(events, "update");
}

}  // namespace

BOOST_AUTO_TEST_SUITE(report)

BOOST_AUTO_TEST_CASE(it_shows_the_plan) {
  const esp::Executor executor = trainer();
  const std::string html = report_of(executor);
  const esp::Plan plan = executor.plan();
  const auto steps = static_cast<size_t>(plan.steps());
  BOOST_TEST(count(html, " runs\" id=\"g") == steps);       // drawn
  BOOST_TEST(count(html, "class=\"runs\"><td>") == steps);  // in the table
  BOOST_TEST(has(html, "Plan of report_test.cpp:"));
  BOOST_TEST(has(html, esp::report::bytes_text(plan.arena_bytes())));
  BOOST_TEST(has(html, esp::report::bytes_text(plan.leaf_bytes())));
  BOOST_TEST(has(html, "nn::MeanSquared()(network(x), y);  // a line for the report"));
  for (const esp::PassReport& pass : plan.passes()) BOOST_TEST(has(html, "<td>" + pass.name + "</td>"));
  for (const char* id : {"memory-before", "memory-after", "memory-live"})
    BOOST_TEST(has(html, std::string("id=\"") + id + "\""));
  BOOST_TEST(has(html, "Not profiled."));
  BOOST_TEST(!has(html, "<th>share</th>"));
  BOOST_TEST(!has(html, "<details>"));
  for (const char* outside : {"src=", "@import", "url(", "<link"}) BOOST_TEST(!has(html, outside));
}

BOOST_AUTO_TEST_CASE(it_shows_measured_times) {
  const esp::Executor executor = trainer();
  executor.profile({.steps = 8});
  executor.execute({.epochs = 2, .progress = false});
  const std::string html = report_of(executor);
  BOOST_TEST(!has(html, "Not profiled."));
  BOOST_TEST(has(html, "means over 7 profiled steps"));  // the fifth step is of another plan
  BOOST_TEST(has(html, "<th>share</th>"));
  executor.profile();  // starts again
  BOOST_TEST(has(report_of(executor), "Not profiled."));
}

BOOST_AUTO_TEST_CASE(it_shows_what_passes_changed) {
  const esp::Executor executor = trainer(true);
  const std::string html = report_of(executor);
  const esp::Plan plan = executor.plan();
  size_t changed = 0;
  for (const esp::PassReport& pass : plan.passes()) changed += pass.changed;
  BOOST_TEST(changed > 0u);
  BOOST_TEST(count(html, "<details>") == changed);
  BOOST_TEST(has(html, "<span class=\"gone\">%"));
  BOOST_TEST(has(html, "<span class=\"other\">%"));
}

BOOST_AUTO_TEST_CASE(nodes_are_not_taken_as_html) {
  const auto op =
      esp::custom_op({.name = "<script>\"&\xff\x01",
                      .forward = [](const std::vector<esp::Tensor>& in) { return in[0].clone(); }});
  const esp::Executor executor = op({esp::parameter(esp::ones({2}))}).get_executor();
  const std::string html = report_of(executor);
  BOOST_TEST(!has(html, "<script>\""));
  BOOST_TEST(has(html, "&lt;script&gt;&quot;&amp;\xef\xbf\xbd\xef\xbf\xbd"));
  for (const unsigned char c : html) BOOST_REQUIRE(c != 0xff);
}

BOOST_AUTO_TEST_CASE(text_is_escaped) {
  using esp::report::escape;
  const std::string bad = "\xef\xbf\xbd";
  const std::pair<std::string, std::string> cases[] = {
      {"a<b>\"c\"&'d'", "a&lt;b&gt;&quot;c&quot;&amp;&#39;d&#39;"},
      {"é € 😀", "é € 😀"},
      {"line\n\ttab", "line\n\ttab"},
      {std::string("\0\x1b", 2), bad + bad},
      {"\xc3", bad},                                // truncated
      {"\xc0\xaf", bad + bad},                      // overlong
      {"\xed\xa0\x80", bad + bad + bad},            // a surrogate
      {"\xf4\x90\x80\x80", bad + bad + bad + bad},  // beyond the last code point
  };
  for (const auto& [text, expected] : cases) BOOST_TEST(escape(text) == expected);
  BOOST_TEST(esp::report::grouped(1234567) == "1,234,567");
  BOOST_TEST(esp::report::grouped(999) == "999");
  BOOST_TEST(esp::report::bytes_text(999) == "999 B");
  BOOST_TEST(esp::report::bytes_text(12'345) == "12.3 kB");
  BOOST_TEST(esp::report::bytes_text(999'600) == "1.00 MB");
  BOOST_TEST(esp::report::time_text(1.5e-6) == "1.50 µs");
  BOOST_TEST(esp::report::time_text(0.25) == "250 ms");
}

BOOST_AUTO_TEST_CASE(files_that_cannot_be_written) {
  const esp::Executor executor = trainer();
  const TemporaryFolder folder;
  BOOST_CHECK_EXCEPTION(executor.report(folder / "no" / "plan.html"), esp::FileError,
                        says({"no/plan.html", here()}));
  BOOST_CHECK_EXCEPTION(executor.profile(folder / "no" / "t.json"), esp::FileError,
                        says({"no/t.json", here()}));
  BOOST_CHECK_EXCEPTION(executor.profile(std::filesystem::path()), esp::FileError, says({"profile", here()}));
  BOOST_CHECK_EXCEPTION(executor.profile({.steps = 0}), esp::Error, says({"0", here()}));
  BOOST_CHECK_EXCEPTION(executor.profile(folder / "t.json", {.steps = -1}), esp::Error, says({"-1", here()}));
  BOOST_TEST(folder.files() == 0u);
}

// Layout

BOOST_AUTO_TEST_CASE(nodes_are_drawn_apart_and_below_what_they_read) {
  std::mt19937 random(5);
  for (const uint32_t n : {0u, 1u, 2u, 60u, 400u}) {
    esp::report::LayoutInput graph;
    for (uint32_t v = 0; v < n; ++v) {
      graph.widths.push_back(20.0 + random() % 100);
      for (uint32_t k = random() % 3; v > 0 && k > 0; --k) graph.edges.emplace_back(random() % v, v);
    }
    const esp::report::Drawing drawing = lay_out(graph);
    BOOST_REQUIRE(drawing.nodes.size() == n);
    BOOST_REQUIRE(drawing.routes.size() == graph.edges.size());
    for (uint32_t v = 0; v < n; ++v) {
      const auto& at = drawing.nodes[v];
      BOOST_TEST(at.x - graph.widths[v] / 2 >= 0);
      BOOST_TEST(at.x + graph.widths[v] / 2 <= drawing.width);
      BOOST_TEST(at.y - esp::report::node_height / 2 >= 0);
      BOOST_TEST(at.y + esp::report::node_height / 2 <= drawing.height);
      for (uint32_t w = 0; w < v; ++w) {
        const bool apart = std::abs(at.x - drawing.nodes[w].x) >= (graph.widths[v] + graph.widths[w]) / 2 ||
                           std::abs(at.y - drawing.nodes[w].y) >= esp::report::node_height;
        if (!apart) BOOST_ERROR("nodes " << v << " and " << w << " of " << n << " overlap");
      }
    }
    for (size_t e = 0; e < graph.edges.size(); ++e) {
      const auto [a, b] = graph.edges[e];
      BOOST_TEST(drawing.nodes[a].y < drawing.nodes[b].y);
      BOOST_TEST(drawing.routes[e].front().x == drawing.nodes[a].x);
      BOOST_TEST(drawing.routes[e].back().x == drawing.nodes[b].x);
      BOOST_TEST(drawing.routes[e].front().y == drawing.nodes[a].y + esp::report::node_height / 2);
      BOOST_TEST(drawing.routes[e].back().y == drawing.nodes[b].y - esp::report::node_height / 2);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_drawing_is_narrow_and_its_edges_are_short) {
  std::mt19937 random(7);
  esp::report::LayoutInput graph;
  for (uint32_t v = 0; v < 80; ++v) {
    graph.widths.push_back(20.0 + random() % 100);
    for (uint32_t k = 1 + random() % 2; v > 0 && k > 0; --k)
      graph.edges.emplace_back(v - 1 - random() % std::min(v, 12u), v);
  }
  const esp::report::Drawing drawing = lay_out(graph);
  // Pieces of edges between neighbouring layers, whose ends lie at places of nodes or of bends.
  std::map<double, std::vector<std::pair<double, double>>> pieces;
  double sideways = 0;
  for (const auto& route : drawing.routes)
    for (size_t i = 1; i < route.size(); ++i) {
      sideways += std::abs(route[i].x - route[i - 1].x);
      const double layer = i == 1 ? route[0].y - esp::report::node_height / 2 : route[i - 1].y;
      pieces[std::round(layer)].emplace_back(route[i - 1].x, route[i].x);
    }
  int64_t crossings = 0;
  for (const auto& [layer, all] : pieces)
    for (size_t i = 0; i < all.size(); ++i)
      for (size_t k = 0; k < i; ++k)
        crossings += (all[i].first - all[k].first) * (all[i].second - all[k].second) < 0;
  BOOST_TEST(drawing.crossings == crossings);
  // Little more than what they are.
  BOOST_TEST(crossings <= 90);
  BOOST_TEST(drawing.width < 840);
  BOOST_TEST(drawing.height < 1020);
  BOOST_TEST(sideways < 14'300);
}

BOOST_AUTO_TEST_CASE(crossings_are_avoided) {
  // Two chains with interleaved nodes.
  const esp::report::LayoutInput graph{{50, 50, 50, 50, 50, 50}, {{0, 3}, {1, 2}, {2, 5}, {3, 4}}};
  BOOST_TEST(lay_out(graph).crossings == 0);
  // A complete bipartite graph of three and three nodes: nine crossings in any order.
  esp::report::LayoutInput complete{std::vector<double>(6, 50), {}};
  for (uint32_t a = 0; a < 3; ++a)
    for (uint32_t b = 3; b < 6; ++b) complete.edges.emplace_back(a, b);
  BOOST_TEST(lay_out(complete).crossings == 9);
}

// Traces

BOOST_AUTO_TEST_CASE(a_trace_of_execute) {
  const TemporaryFolder folder;
  const esp::Executor executor = trainer(false, {"fuse_pointwise"});
  executor.profile(folder / "trace.json", {.steps = 7});
  executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
    if (info.epoch == 0) BOOST_TEST(folder.files() == 0u);
  });
  executor.execute({.epochs = 3, .progress = false});
  BOOST_REQUIRE(folder.files() == 1u);
  const std::vector<Json> events = events_of(folder / "trace.json");
  BOOST_TEST(of_category(events, "step") == 7u);
  BOOST_TEST(of_category(events, "data") == 14u);  // wait and load
  BOOST_TEST(kernels(events) == static_cast<size_t>(7 * executor.plan().steps()));
  for (const char* category : {"forward", "backward", "update"})
    BOOST_TEST(of_category(events, category) > 0u);

  double end = 0, inside = 0, whole = 0;
  std::set<std::string> shapes;
  for (const Json& event : events) {
    const double begin = event.at("ts"), length = event.at("dur");
    if (event.at("cat") == "step") {
      BOOST_TEST(begin >= end - 0.002);  // one after the other, to rounding
      end = begin + length;
      whole += length;
      continue;
    }
    BOOST_TEST(begin + length <= end + 0.002);  // inside their step
    inside += length;
    if (event.at("cat") == "data") continue;
    const Json& args = event.at("args");
    BOOST_TEST(has(args.at("source"), "report_test.cpp:"));
    BOOST_TEST(args.at("bytes").get<int64_t>() > 0);
    if (event.at("name") == "tanh") {
      shapes.insert(args.at("shape").get<std::string>());
      BOOST_TEST(args.at("bytes").get<int64_t>() % (2 * 4 * 8) == 0);  // reads and writes rows of 8 floats
    }
  }
  BOOST_TEST(inside > 0);
  BOOST_TEST(inside <= whole);
  BOOST_TEST(shapes == (std::set<std::string>{"float32 [5, 8]", "float32 [2, 8]"}));  // the short batch too
}

BOOST_AUTO_TEST_CASE(a_trace_of_steps_and_its_end) {
  const TemporaryFolder folder;
  {
    const esp::Executor executor = trainer();
    executor.step();
    executor.profile(folder / "a.json", {.steps = 2});
    executor.step();
    BOOST_TEST(folder.files() == 0u);
    executor.step();
    BOOST_TEST(of_category(events_of(folder / "a.json"), "step") == 2u);
    executor.step();  // not recorded
    executor.profile(folder / "b.json", {.steps = 100});
    executor.step();
    executor.profile(folder / "c.json", {.steps = 100});  // ends b
    BOOST_TEST(of_category(events_of(folder / "b.json"), "step") == 1u);
    BOOST_CHECK_THROW(executor.step(), esp::EndOfData);
    executor.step();
    BOOST_TEST(folder.files() == 2u);
  }
  BOOST_TEST(of_category(events_of(folder / "c.json"), "step") == 1u);  // written by the destructor

  const esp::Executor executor = trainer();
  executor.profile(folder / "d.json", {.steps = 100});
  executor.execute({.epochs = 1, .progress = false});
  BOOST_TEST(of_category(events_of(folder / "d.json"), "step") == 5u);
  executor.profile(folder / "e.json", {.steps = 100});  // without a step there is no file
  executor.execute({.epochs = 0, .progress = false});
  BOOST_TEST(folder.files() == 4u);
}

BOOST_AUTO_TEST_CASE(a_trace_of_run) {
  const TemporaryFolder folder;
  const esp::Variable x = esp::placeholder("x", {1, 3});
  const esp::Executor executor = esp::sum(x * 2).get_executor();
  executor.profile(folder / "trace.json", {.steps = 1});
  executor.run({{"x", esp::ones({4, 3})}});
  const std::vector<Json> events = events_of(folder / "trace.json");
  BOOST_TEST(of_category(events, "data") == 1u);
  BOOST_TEST(of_category(events, "forward") == static_cast<size_t>(executor.plan().steps()));
  BOOST_TEST(has(report_of(executor), "[4, 3]"));  // the plan that ran, not that for one row
}

BOOST_AUTO_TEST_CASE(a_step_that_throws_is_not_recorded) {
  const TemporaryFolder folder;
  bool fail = false;
  const auto op = esp::custom_op({.name = "moody", .forward = [&](const std::vector<esp::Tensor>& in) {
                                    if (fail) throw std::runtime_error("not now");
                                    return in[0].clone();
                                  }});
  const esp::Variable x = esp::placeholder("x", {2});
  const esp::Executor executor = (op({x * 2}) + 1).get_executor();
  executor.profile(folder / "trace.json", {.steps = 1});
  fail = true;
  BOOST_CHECK_THROW(executor.run({{"x", esp::ones({2})}}), std::runtime_error);
  fail = false;
  executor.run({{"x", esp::ones({2})}});
  const std::vector<Json> events = events_of(folder / "trace.json");
  BOOST_TEST(of_category(events, "step") == 1u);
  BOOST_TEST(kernels(events) == static_cast<size_t>(executor.plan().steps()));
}

BOOST_AUTO_TEST_CASE(a_trace_that_fails_costs_no_step) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "sub");
  const esp::Executor executor = trainer();
  executor.profile(folder / "sub" / "trace.json", {.steps = 1});
  std::filesystem::remove(folder / "sub");
  BOOST_CHECK_EXCEPTION(executor.step(), esp::FileError, says({"sub/trace.json", here()}));
  BOOST_TEST(executor.step().step == 1);  // the step counted, and the trace is not tried again
}

BOOST_AUTO_TEST_CASE(profiling_changes_no_number) {
  const TemporaryFolder folder;
  std::vector<double> losses[2];
  for (const int profiled : {0, 1}) {
    const esp::Executor executor = trainer();
    if (profiled) executor.profile(folder / "trace.json", {.steps = 3});
    for (const auto& epoch : executor.execute({.epochs = 2, .progress = false}).epochs)
      losses[profiled].push_back(epoch.loss_sum);
  }
  BOOST_TEST(losses[0] == losses[1]);
}

BOOST_AUTO_TEST_CASE(batches_of_an_evaluation_are_drawn) {
  const esp::Variable w = esp::parameter(esp::ones({3, 3}), "w");
  const TemporaryFolder folder;
  const esp::Deferred waits;
  std::vector<esp::Variable> sums;
  for (int i = 0; i < 1200; ++i) {
    const esp::Variable h = esp::tanh(esp::matmul(esp::ones({1, 3}), w));  // a line <of> the report
    sums.push_back(esp::sum(esp::transpose(h)));
  }
  (void)esp::sum(esp::stack(sums)).item();
  const esp::EvaluationReport report = esp::last_evaluation();
  BOOST_TEST(report.nodes_computed == 4802);
  const auto batch_of = [&](std::string_view op) {
    return std::ranges::find(report.batches, op, &esp::EvaluationReport::Batch::op);
  };
  const auto product = batch_of("matmul"), activation = batch_of("tanh");
  BOOST_TEST(product->level == 0);
  BOOST_TEST(activation->level == 1);
  BOOST_REQUIRE(activation->reads.size() == 1u);
  BOOST_TEST(activation->reads[0] == static_cast<size_t>(product - report.batches.begin()));
  BOOST_TEST(activation->bytes == 1200 * 3 * 4);
  BOOST_TEST(activation->of_one.shape == esp::Shape({1, 3}));
  BOOST_TEST(report.batches.back().level == 5);

  report.report(folder / "batches.html");
  const std::string html = esp::read_file(folder / "batches.html");
  BOOST_TEST(has(html, "<b>4,802</b><span>nodes</span>"));
  BOOST_TEST(has(html, "<b>6</b><span>levels</span>"));
  BOOST_TEST(report.kernels_run < 100);
  BOOST_TEST(has(html, "<b>" + std::to_string(report.kernels_run) + "</b><span>kernels</span>"));
  BOOST_TEST(has(html, "1,200 × matmul"));
  BOOST_TEST(has(html, "1,200 × tanh"));
  BOOST_TEST(has(html, "float32 [1, 3]"));
  BOOST_TEST(has(html, "report_test.cpp:"));
  BOOST_TEST(has(html, "// a line &lt;of&gt; the report"));
  BOOST_TEST(count(html, "<rect ") == report.batches.size());
  BOOST_TEST(count(html, "<tr id=\"s") == report.batches.size());
  size_t reads = 0;
  for (const auto& batch : report.batches) reads += batch.reads.size();
  BOOST_TEST(count(html, "class=\"edge\"") == reads);
  BOOST_CHECK_THROW(report.report(folder / "none" / "batches.html"), esp::FileError);
}

BOOST_AUTO_TEST_SUITE_END()
