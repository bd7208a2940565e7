// Buffers of modules: named, saved, moved, cloned, and written by forward passes.
#include <boost/test/unit_test.hpp>

#include <sstream>

#include "espalier/core/error.h"
#include "espalier/core/with_assignment.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/layer_state.h"
#include "espalier/nn/losses.h"
#include "espalier/nn/serialize.h"
#include "replica_programs.h"

namespace esp = espalier;
namespace nn = espalier::nn;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// Subtracts the mean of the batch, and keeps a running one for inference.
struct Center : nn::Module {
  explicit Center(int64_t width) : mean(add_buffer("mean", esp::zeros({width}))) {}
  Variable operator()(const Variable& x) {
    if (!training()) return x - mean;
    const Variable batch_mean = esp::mean(x, {0});
    return esp::with_assignment(x - batch_mean, mean, 0.9f * mean + 0.1f * batch_mean);
  }
  Variable mean;
};

struct Net : nn::Module {
  Variable operator()(const Variable& x) { return head(esp::relu(body(center(x)))); }
  Center center = add("center", Center(4));
  nn::Dense body = add("body", nn::Dense(8));
  nn::Dense head = add("head", nn::Dense(1));
};

/// A layer of the library's kind with a buffer.
class CounterState : public nn::LayerStateOf<CounterState> {
 public:
  CounterState() : LayerStateOf("Counter") {
    declare_buffer("calls", {}, nn::init::Zeros(), esp::float64);
    declare_buffer("last", {-1}, nn::init::Zeros());
  }
  Variable forward(const Variable& x) override {
    fit(x, {{-1, x.shape()[-1]}});
    const Variable y = esp::with_assignment(x, parameter("calls"), parameter("calls") + 1.0);
    return esp::with_assignment(y, parameter("last"), esp::max(x, 0));
  }
};
struct Counter : nn::LayerOf<Counter> {
  Counter() : LayerOf(std::make_shared<CounterState>()) {}
};

enum class How { eager, frozen, replicas };

/// What the parameters and buffers are after so many epochs of four steps.
Trace trained(How how, int64_t epochs = 2, const std::filesystem::path& folder = {}, bool resume = false) {
  esp::seed(6);
  Net net;
  esp::data::Distributor feed({numbers({16, 4}, 0, 3, 1).to(esp::float32), esp::zeros({16, 1})},
                              {.batch_size = 4, .shuffle = true, .seed = 3});
  const auto [x, y] = feed.get_output_graphs<2>();
  const Variable loss = nn::MeanSquared()(net(x), y);
  const optim::Adam rule(1e-2);
  if (how == How::eager) {
    for (int64_t epoch = 0; epoch < epochs; ++epoch, feed.reset())
      for (int step = 0; step < 4; ++step) loss.forward().backward().update(rule);
  } else {
    const esp::Executor executor =
        loss.get_executor({.optimizer = rule, .devices = cpus(how == How::replicas ? 2 : 1)});
    if (resume) executor.resume(folder);
    (void)executor.execute({.epochs = epochs, .progress = false, .checkpoint = folder});
  }
  Trace trace{net.center.mean.value().clone()};
  for (const auto& [path, parameter] : net.parameters()) trace.push_back(parameter.value().clone());
  return trace;
}

std::vector<std::string> names(const std::vector<std::pair<std::string, Variable>>& list) {
  std::vector<std::string> result;
  for (const auto& [name, leaf] : list) result.push_back(name);
  return result;
}
using Names = std::vector<std::string>;

}  // namespace

BOOST_AUTO_TEST_SUITE(buffers)

BOOST_AUTO_TEST_CASE(plans_replicas_and_checkpoints_write_what_an_eager_loop_writes) {
  const Trace eager = trained(How::eager);
  BOOST_TEST(esp::sum(eager[0]).item() > 0.5);
  BOOST_TEST(difference_of(trained(How::frozen), eager) < 1e-5);
  BOOST_TEST(difference_of(trained(How::replicas), eager) < 1e-5);
  for (const How after : {How::frozen, How::replicas}) {
    const TemporaryFolder folder;
    (void)trained(How::frozen, 1, folder.path());
    BOOST_TEST(difference_of(trained(after, 2, folder.path(), true), eager) < 1e-5);
  }
}

BOOST_AUTO_TEST_CASE(they_are_listed_apart_from_parameters) {
  Net net;
  net(esp::ones({2, 4}));
  BOOST_TEST(names(net.buffers()) == Names({"center.mean"}), boost::test_tools::per_element());
  BOOST_TEST(names(net.parameters()) == Names({"body.weight", "body.bias", "head.weight", "head.bias"}),
             boost::test_tools::per_element());
  BOOST_TEST(net.buffer("center.mean").node() == net.center.mean.node());
  BOOST_CHECK_EXCEPTION(net.parameter("center.mean"), esp::Error, says({"is a buffer", "buffers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(net.buffer("body.bias"), esp::Error, says({"is a parameter", "buffers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(net.buffer("body.mean"), esp::Error, says({"no buffer 'body.mean'"}));
  BOOST_CHECK_EXCEPTION(net.add_buffer("body", esp::ones({1})), esp::Error, says({"'body'"}));
  const Variable count = net.add_buffer("count", esp::tensor({int64_t{3}}));
  BOOST_TEST(count.dtype() == esp::int64);
  std::ostringstream text;
  text << net;
  for (const char* part : {"center: module", "mean", "[4]", "buffer", "body: Dense", "[8, 4]",
                           "49 numbers in parameters", "5 in buffers"})
    BOOST_TEST((text.str().find(part) != std::string::npos), text.str());
}

BOOST_AUTO_TEST_CASE(the_mode_of_a_module_decides_what_it_builds) {
  Net net;
  const Variable x(numbers({6, 4}, 0, 3, 1).to(esp::float32));
  net(x);
  const esp::Tensor mean = net.center.mean.value().clone();
  BOOST_TEST(esp::sum(mean).item() > 0);
  net.train(false);
  net(x);
  BOOST_TEST(difference(net.center(x).value(), (x - Variable(mean)).value()) == 0);
  BOOST_TEST(difference(net.center.mean.value(), mean) == 0);
}

BOOST_AUTO_TEST_CASE(they_are_saved_and_loaded) {
  const TemporaryFolder folder;
  Net net, other;
  const Variable x(numbers({6, 4}, 0, 3, 1).to(esp::float32));
  net(x);
  net.add_buffer("steps", esp::tensor({int64_t{3}}));
  other.add_buffer("steps", esp::tensor({int64_t{0}}));
  nn::save(net, folder / "f");
  nn::load(other, folder / "f");
  BOOST_TEST(difference(other.center.mean.value(), net.center.mean.value()) == 0);
  BOOST_TEST(other.buffer("steps").item() == 3);
  net.train(false), other.train(false);
  BOOST_TEST(difference(other(x).value(), net(x).value()) == 0);
  Net wide;
  wide.add_buffer("steps", esp::zeros({2}, esp::int64));
  BOOST_CHECK_EXCEPTION(nn::load(wide, folder / "f"), esp::FileError,
                        says({"the buffer steps", "[2]", "[1]"}));
}

BOOST_AUTO_TEST_CASE(layers_declare_them) {
  const nn::Sequential net{Counter()};
  net(esp::ones({2, 3}));
  const nn::Sequential copy = net.clone();
  net(esp::ones({2, 3}));
  BOOST_TEST(net.buffer("0.calls").item() == 2);
  BOOST_TEST(copy.buffer("0.calls").item() == 1);
  BOOST_TEST(copy.buffer("0.last").shape() == esp::Shape({3}));
  BOOST_TEST(net.parameters().empty());
  const TemporaryFolder folder;
  nn::save(net, folder / "f");
  const nn::Sequential fresh{Counter()};
  nn::load(fresh, folder / "f");
  BOOST_TEST(fresh.buffer("0.calls").item() == 2);
  fresh(esp::ones({2, 3}));
  BOOST_TEST(fresh.buffer("0.calls").item() == 3);
}

BOOST_AUTO_TEST_CASE(they_move_with_the_module) {
  Net net;
  net.to(esp::cpu(1));
  BOOST_TEST(net.center.mean.device() == esp::cpu(1));
  for (const esp::Device& gpu : gpus_to_test()) {
    net.to(gpu);
    BOOST_TEST(net.center.mean.device() == gpu);
  }
}

BOOST_AUTO_TEST_SUITE_END()
