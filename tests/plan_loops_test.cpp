// Plan files of trees with scans.
#include <boost/test/unit_test.hpp>

#include "checkpoint_program.h"
#include "espalier/executor/training/plan_file/container.h"
#include "espalier/nn/crf.h"
#include "espalier/nn/recurrent.h"
#include "espalier/ops/functions/loop.h"
#include "espalier/optim/adam.h"
#include "malformed_files.h"
#include "mutated_text.h"
#include "plan_programs.h"

namespace esp = espalier;
using namespace espalier::testing;
using Json = nlohmann::json;
using esp::Executor;
using esp::Tensor;
using esp::Variable;

namespace {

constexpr int64_t steps = 5, rows = 4, width = 3;

/// A recurrent layer whose step uses parameters that the rest of the tree uses, too, and a constant.
struct Looped {
  Variable u = esp::parameter(reals_of({width, width}, 3), "u"),
           w = esp::parameter(reals_of({width, width}, 4), "w");
  Variable scale = Variable(reals_of({width}, 5));
  esp::ScanOptions options = {};
  double dropout = 0;

  Variable operator()(const Variable& x) const {  // [rows, steps, width]
    const esp::ScanResult run = esp::scan(
        [this](const Variables& h, const Variables& in) -> esp::ScanResult {
          const Variable next = tanh(matmul(in[0], u) + matmul(h[0], w) * scale);
          return {{next}, {esp::dropout(next, dropout) * 0.5}};
        },
        {esp::zeros_like(esp::squeeze(esp::slice(x, 1, 0, 1), 1))}, {permute(x, {1, 0, 2})}, options);
    return run.state[0] + esp::sum(run.outputs[0], 0) + matmul(sum(x, 1), w) * scale;
  }
};

const std::vector<esp::ScanOptions> all_options{{}, {.reverse = true}, {.segment = 2}};
constexpr double rates[] = {0, 0.4};

Tensor sequences_of(int64_t count) { return reals_of({count, steps, width}, 7); }

/// All that a training has to do: its data, and an executor over them.
struct Training {
  esp::data::Distributor feed;
  Executor executor;

  static esp::data::Distributor data() {
    return esp::data::Distributor({sequences_of(10), reals_of({10, width}, 8)},
                                  {.batch_size = 4, .shuffle = true, .seed = 5});
  }
  static Training of(const esp::ScanOptions& options, double dropout,
                     const esp::optim::Optimizer& optimizer) {
    const esp::data::Distributor feed = data();
    const auto [x, y] = feed.get_output_graphs<2>();
    Looped net;
    net.options = options;
    net.dropout = dropout;
    const Variable loss = esp::mean(esp::square(net(x) - y));
    return {feed, loss.get_executor({.optimizer = optimizer})};
  }
};

std::string bits_of_leaves(const Executor& executor) {
  std::string text;
  for (const esp::LeafInfo& leaf : executor.leaves())
    text += leaf.name + " " + bits(leaf.leaf.value()) + "\n";
  return text;
}

void run_zeros(const std::filesystem::path& file) {
  const Executor executor = esp::load_executor(file, {.tune = false});
  esp::Feeds feeds;
  for (const esp::ValueInfo& input : executor.inputs())
    feeds.emplace_back(input.name, esp::zeros(input.shape, input.dtype));
  (void)executor.run(feeds);
}

esp::PlanContainer file_of_training(const TemporaryFolder& folder, const esp::ScanOptions& options,
                                    double dropout = 0) {
  const Variable x = esp::placeholder("x", {rows, steps, width});
  Looped net;
  net.options = options;
  net.dropout = dropout;
  esp::mean(esp::square(net(x))).get_executor({.optimizer = esp::optim::Adam(0.1)}).save(folder / "a.plan");
  esp::PlanContainer container = esp::read_plan_container(folder / "a.plan");
  container.text.erase("tensors");
  return container;
}

/// The first node with a loop, in the list of a loop or in that of the tree.
Json& loop_node(Json& nodes) {
  for (Json& node : nodes)
    if (node.contains("loop")) return node;
  throw std::runtime_error("no loop");
}

}  // namespace

BOOST_AUTO_TEST_SUITE(plan_loops)

BOOST_AUTO_TEST_CASE(inference_gives_the_same_bits) {
  const TemporaryFolder folder;
  for (const esp::ScanOptions& options : all_options)
    for (const double rate : rates) {
      const Variable x = esp::placeholder("x", {-1, steps, width});
      Looped net;
      net.options = options;
      net.dropout = rate;
      const Executor saved = net(x).get_executor({.mode = esp::Mode::inference});
      saved.save(folder / "a.plan");
      const Executor loaded = esp::load_executor(folder / "a.plan");
      BOOST_TEST(loaded.leaves().size() == saved.leaves().size());
      for (const int64_t count : {4, 1, 9}) {
        const esp::Feeds feeds{{"x", sequences_of(count)}};
        BOOST_TEST(bits(loaded.run(feeds)) == bits(saved.run(feeds)));
      }
      loaded.save(folder / "b.plan");
      const esp::Feeds feeds{{"x", sequences_of(rows)}};
      BOOST_TEST(bits(esp::load_executor(folder / "b.plan").run(feeds)) == bits(saved.run(feeds)));
    }
}

BOOST_AUTO_TEST_CASE(layers_over_an_open_number_of_steps) {
  const TemporaryFolder folder;
  const esp::nn::Lstm lstm(4, {.peepholes = true});
  const esp::nn::Crf crf(3);
  const Variable x = esp::placeholder("x", {-1, 2, 3}), y = esp::placeholder("y", {2, -1, 3});
  const std::pair<Variable, std::function<Tensor(int64_t)>> all[] = {{lstm(x).outputs,
                                                                      [](int64_t n) {
                                                                        return reals_of({n, 2, 3}, 1);
                                                                      }},
                                                                     {crf(y), [](int64_t n) {
                                                                        return reals_of({2, n, 3}, 2);
                                                                      }}};
  for (const auto& [layer, input] : all) {
    const Executor saved = layer.get_executor({.mode = esp::Mode::inference});
    saved.save(folder / "a.plan");
    BOOST_TEST(esp::plan_file_info(folder / "a.plan").operations.count("scan") == 1u);
    const Executor loaded = esp::load_executor(folder / "a.plan");
    const std::string name = loaded.inputs()[0].name;
    for (const int64_t n : {2, 6})
      BOOST_TEST(bits(loaded.run({{name, input(n)}})) == bits(saved.run({{name, input(n)}})));
  }
}

BOOST_AUTO_TEST_CASE(training_goes_on_bit_by_bit) {
  const TemporaryFolder folder;
  for (const esp::ScanOptions& options : all_options)
    for (const double rate : rates) {
      esp::seed(4);
      const Training training = Training::of(options, rate, esp::optim::Adam(0.05));
      training.executor.execute({.epochs = 1, .progress = false});
      training.executor.save(folder / "a.plan");
      const std::string expected = bits(training.executor.execute({.epochs = 2, .progress = false}));
      const Executor loaded = esp::load_executor(folder / "a.plan", {.data = {Training::data()}});
      BOOST_TEST(bits(loaded.execute({.epochs = 2, .progress = false})) == expected);
      BOOST_TEST(bits_of_leaves(loaded) == bits_of_leaves(training.executor));
    }
}

BOOST_AUTO_TEST_CASE(an_optimizer_finds_the_gradients_of_a_loaded_loop) {
  const TemporaryFolder folder;
  for (const esp::ScanOptions& options : all_options)
    for (const double rate : rates) {
      const auto loss = [&] {
        Looped net;
        net.options = options;
        net.dropout = rate;
        return esp::mean(esp::square(net(esp::placeholder("x", {rows, steps, width}))));
      };
      esp::seed(4);
      const Executor built = loss().get_executor({.optimizer = esp::optim::Adam(0.1)});
      loss().get_executor({.mode = esp::Mode::inference}).save(folder / "a.plan");
      const Executor loaded = esp::load_executor(folder / "a.plan", {.optimizer = esp::optim::Adam(0.1)});
      for (const Executor* executor : {&built, &loaded}) {
        esp::seed(6);
        for (int i = 0; i < 3; ++i) (void)executor->run({{"x", sequences_of(rows)}});
      }
      BOOST_TEST(bits_of_leaves(loaded) == bits_of_leaves(built));
    }
}

BOOST_AUTO_TEST_CASE(constants_are_written_once_and_operations_of_steps_are_counted) {
  const TemporaryFolder folder;
  (void)file_of_training(folder, {.segment = 2});
  const esp::PlanFileInfo info = esp::plan_file_info(folder / "a.plan");
  const auto count = [&](const char* kind, const esp::Shape& shape) {
    return std::ranges::count_if(info.leaves, [&](const esp::PlanLeafInfo& leaf) {
      return leaf.kind == kind && leaf.value.shape == shape;
    });
  };
  BOOST_TEST(count("constant", {width}) == 1);
  BOOST_TEST(count("parameter", {width, width}) == 2);
  BOOST_TEST(info.operations.at("scan") > 2);
  BOOST_TEST(info.operations.at("tanh") >= 1);
}

BOOST_AUTO_TEST_CASE(hostile_loops_are_refused_with_the_reason) {
  const TemporaryFolder folder;
  const esp::PlanContainer whole = file_of_training(folder, {.segment = 2});
  const auto load = [&](const std::function<void(Json&)>& change) {
    esp::PlanContainer file = whole;
    change(file.text);
    esp::write_plan_container(folder / "b.plan", file);
    run_zeros(folder / "b.plan");
  };
  BOOST_CHECK_NO_THROW(load([](Json&) {}));
  const auto loop = [](const char* field, Json value) {
    return [=](Json& t) { t["loops"][0][field] = value; };
  };
  const auto node = [](const char* field, Json value) {
    return [=](Json& t) { loop_node(t["nodes"])[field] = value; };
  };
  const Json scalar{"float32", Json::array()};
  struct Hostile {
    std::function<void(Json&)> change;
    std::string said;
  };
  const std::vector<Hostile> all{
      {[](Json& t) { t.erase("loops"); }, "for a loop before"},
      {[](Json& t) { t["loops"] = 3; }, "3 for the list of loops"},
      {[](Json& t) { t["loops"][0] = 3; }, "3 for an object"},
      {node("loop", 1000), "1000 for a loop before"},
      {node("loop", -1), "-1 for a loop before"},
      {node("reverse", 3), "3 for reverse"},
      {[](Json& t) { loop_node(t["nodes"]).erase("keeps_states"); }, "lacks 'keeps_states'"},
      {[](Json& t) {
         Json& inputs = loop_node(t["nodes"])["inputs"];
         inputs.erase(0);
         inputs.erase(0);
       },
       "operands, not"},
      {[](Json& t) {
         loop_node(t["nodes"])["inputs"].push_back(0), loop_node(t["nodes"])["inputs"].push_back(0);
       },
       "operands, not"},
      {[](Json& t) { loop_node(t["nodes"])["inputs"] = Json::array(); }, "0 operands, not"},
      // A loop that runs itself, and one that runs a later one.
      {[](Json& t) {
         for (size_t i = 0; i < t["loops"].size(); ++i)
           for (Json& n : t["loops"][i]["nodes"])
             if (n.contains("loop")) {
               n["loop"] = i;
               return;
             }
       },
       "for a loop before"},
      {loop("states", 100), "100 for states"},
      {loop("states", -1), "-1 for states"},
      {loop("sequences", 0), "0 for sequences"},
      {loop("sequences", 100), "100 for sequences"},
      {loop("operands", Json::array()), "a node before"},
      {loop("operands", 3), "3 for the operands"},
      {[](Json& t) {
         t["loops"][0]["operands"].push_back({"float99", {1}});
       },
       "float99"},
      {[](Json& t) {
         t["loops"][0]["operands"].push_back({"float32", {-1}});
       },
       "the spec of an operand"},
      {[=](Json& t) { t["loops"][0]["operands"].push_back(scalar); }, "that cannot be made"},
      {loop("outputs", Json::array()), "for states"},
      {[](Json& t) {
         t["loops"][0]["outputs"][0] = {1000, 0};
       },
       "1000 for a node before"},
      {[](Json& t) {
         t["loops"][0]["outputs"][0] = {0, 1};
       },
       "1 for an output"},
      {loop("nodes", 3), "3 for the list of nodes"},
      {[](Json& t) {
         t["loops"][0]["nodes"].push_back({{"feed", 0}, {"output", 0}});
       },
       "whose step has a feed"},
      {[](Json& t) {
         t["loops"][0]["nodes"].push_back({{"leaf", "parameter"}, {"name", "p"}, {"tensor", 0}});
       },
       "whose step has a leaf of the kind 'parameter'"},
      {[](Json& t) {
         t["loops"][0]["nodes"].push_back({{"op", "sqrt"}, {"inputs", {1000, 0}}});
       },
       "1000 for a node before"},
      {[](Json& t) {
         t["loops"][0]["nodes"].push_back({{"op", "sqrt"}, {"inputs", {0, 0, 0, 0}}});
       },
       "'sqrt' with 2 inputs"},
      {[](Json& t) {
         t["loops"][0]["nodes"].push_back({{"op", "fused"}, {"inputs", {0, 0}}});
       },
       "'fused'"},
      {[](Json& t) {
         t["loops"][0]["nodes"].push_back({{"op", "scan"}, {"inputs", {0, 0}}});
       },
       "'scan'"},
      // A state that changes its shape or type from step to step.
      {[](Json& t) {
         Json& body = t["loops"][0];
         body["nodes"].push_back(
             {{"op", "cast"}, {"inputs", {0, 0}}, {"attributes", {{"dtype", "text", "float64"}}}});
         body["outputs"][0] = {body["operands"].size() + body["nodes"].size() - 1, 0};
       },
       "becomes float64"},
      {[](Json& t) {
         Json& body = t["loops"][0];
         body["outputs"][0] = {1, 0};
         body["operands"][1][1].push_back(7);
       },
       "cannot be made"},
  };
  for (size_t i = 0; i < all.size(); ++i) BOOST_TEST_CONTEXT("file " << i)
  BOOST_CHECK_EXCEPTION(load(all[i].change), esp::FileError, says({all[i].said}));
}

/// A file whose loops each run the one before them, `each` times.
void load_nested(const TemporaryFolder& folder, size_t loops, size_t each) {
  const Variable x = esp::placeholder("x", {1});
  esp::scan(
      [](const Variables& s, const Variables& in) -> esp::ScanResult {
        return {{s[0] + in[0]}, {}};
      },
      {esp::tensor(0.0f)}, {x})
      .state[0]
      .get_executor({.mode = esp::Mode::inference})
      .save(folder / "a.plan");
  esp::PlanContainer file = esp::read_plan_container(folder / "a.plan");
  file.text.erase("tensors");
  const Json scalar{"float32", Json::array()};
  for (size_t i = 1; i < loops; ++i) {
    // The sequence of each loop is one element, which the loops in it take as a sequence of one again.
    Json body{{"states", 1},
              {"sequences", 1},
              {"operands", Json::array({scalar, scalar})},
              {"nodes", Json::array()}};
    body["nodes"].push_back({{"op", "reshape"},
                             {"inputs", {1, 0}},
                             {"attributes", Json::array({Json::array({"shape", "integers", {1}})})}});
    size_t last = 0;
    for (size_t k = 0; k < each; ++k) {
      body["nodes"].push_back({{"op", "scan"},
                               {"loop", i - 1},
                               {"reverse", false},
                               {"keeps_states", false},
                               {"inputs", {last, 0, 2, 0}}});
      last = 1 + body["nodes"].size();
    }
    body["outputs"] = Json::array({Json::array({last, 0})});
    file.text["loops"].push_back(body);
  }
  loop_node(file.text["nodes"])["loop"] = loops - 1;
  esp::write_plan_container(folder / "b.plan", file);
  run_zeros(folder / "b.plan");
}

BOOST_AUTO_TEST_CASE(loops_in_loops_have_a_limit) {
  const TemporaryFolder folder;
  BOOST_CHECK_NO_THROW(load_nested(folder, 3, 2));
  BOOST_CHECK_NO_THROW(load_nested(folder, 16, 1));
  BOOST_CHECK_EXCEPTION(load_nested(folder, 17, 1), esp::FileError, says({"scan", "more than 16 loops"}));
  BOOST_CHECK_EXCEPTION(load_nested(folder, 2000, 1), esp::FileError, says({"scan", "more than 16 loops"}));
  if (many_cases(8) == 8)  // a sanitizer would need minutes for that many nodes
    BOOST_CHECK_EXCEPTION(load_nested(folder, 16, 10), esp::FileError,
                          says({"scan", "more than 1048576 nodes"}));
}

BOOST_AUTO_TEST_CASE(random_nodes_without_draws_are_refused) {
  const TemporaryFolder folder;
  esp::PlanContainer file = file_of_training(folder, all_options[0], 0.4);
  bool changed = false;
  for (auto& loop : file.text["loops"]) {
    changed |= loop.erase("random_nodes") > 0;
    for (auto& node : loop["nodes"]) node.erase("draw");
  }
  BOOST_TEST_REQUIRE(changed);
  esp::write_plan_container(folder / "b.plan", file);
  BOOST_CHECK_EXCEPTION(run_zeros(folder / "b.plan"), esp::FileError, says({"random node that has no draw"}));
}

BOOST_AUTO_TEST_CASE(changed_loops_are_refused_or_harmless) {
  const TemporaryFolder folder;
  std::vector<esp::PlanContainer> files;
  for (const esp::ScanOptions& options : all_options)
    for (const double rate : rates) files.push_back(file_of_training(folder, options, rate));
  const MemoryLimit limit(uint64_t{1} << 32);
  std::mt19937 random(3);
  int loaded = 0;
  for (int64_t i = 0; i < many_cases(800); ++i) BOOST_TEST_CONTEXT("file " << i) {
      esp::PlanContainer file = files[random() % files.size()];
      for (unsigned k = 0; k <= random() % 3; ++k)
        mutate(random() % 4 ? file.text["loops"] : file.text, random);
      esp::write_plan_container(folder / "b.plan", file);
      try {
        run_zeros(folder / "b.plan");
        ++loaded;
      } catch (const esp::Error&) {
      }
    }
  BOOST_TEST(loaded > 0);
}

BOOST_AUTO_TEST_SUITE_END()
