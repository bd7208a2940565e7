// The pass that computes convolutional networks with the channels last.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <functional>
#include <random>

#include "espalier/core/autograd.h"
#include "espalier/core/node.h"
#include "espalier/core/random.h"
#include "espalier/executor/graph/views.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/batch_norm.h"
#include "espalier/nn/channel_norm.h"
#include "espalier/nn/container.h"
#include "espalier/nn/convolution.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/dropout.h"
#include "espalier/nn/lambda.h"
#include "espalier/nn/pooling.h"
#include "espalier/nn/residual.h"
#include "espalier/ops/ops.h"
#include "replica_programs.h"

namespace esp = espalier;
using namespace espalier::nn;
using namespace espalier::testing;
using esp::Graph;
using esp::GraphNode;
using esp::Variable;

namespace {

using Make = std::function<Sequential()>;

/// Losses and leaves of two epochs in float32, the last batches of which are short.
Trace train(const Make& make, const esp::Shape& example, bool eagerly, std::vector<esp::Device> devices = {},
            std::vector<std::string> without = {}) {
  esp::seed(3);
  esp::Dims all{11};
  all.append(example.begin(), example.end());
  esp::data::Distributor feed({numbers(esp::Shape(all), -1, 1, 4).to(esp::float32)}, {.batch_size = 4});
  const Sequential net = make();
  const Variable loss = esp::mean(esp::square(net(feed.get_output_graphs()[0]) - 0.3));
  const esp::optim::Sgd sgd(0.05);
  Trace trace;
  const auto add = [&](double value) {
    trace.push_back(esp::tensor(value, esp::float64));
    for (const auto& list : {net.parameters(), net.buffers()})
      for (const auto& [path, leaf] : list) trace.push_back(leaf.value().clone());
  };
  if (eagerly) {
    for (int epoch = 0; epoch < 2; ++epoch, feed.reset())
      for (int step = 0; step < 3; ++step) {
        const double value = loss.forward().item();
        loss.update(sgd);
        add(value);
      }
    return trace;
  }
  const esp::Executor executor =
      loss.get_executor({.optimizer = sgd, .devices = std::move(devices), .without = std::move(without)});
  executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) { add(info.loss); });
  (void)executor.execute({.epochs = 2, .progress = false});
  return trace;
}

struct Row {
  std::string name;
  esp::Shape example;
  Make make;
};

Conv2d same(int64_t channels, int64_t kernel = 3) {
  return Conv2d(channels, {.kernel = kernel, .padding = kernel / 2});
}
Lambda function(std::function<Variable(const Variable&)> f) { return Lambda(std::move(f)); }

std::vector<Row> networks() {
  return {
      {"conv1d, strides",
       {3, 20},
       [] {
         return Sequential(Conv1d(8, {.kernel = 3, .stride = 2}), Relu(),
                           Conv1d(5, {.kernel = 2, .dilation = 2}), Tanh(),
                           MaxPool1d(esp::MaxPoolOptions{.kernel = 2}));
       }},
      {"batch norm and max pooling, to a dense layer",
       {3, 8, 8},
       [] {
         return Sequential(Conv2d(16, {.kernel = 3, .padding = 1, .bias = false}), BatchNorm(), Relu(),
                           MaxPool2d(esp::MaxPoolOptions{.kernel = 3, .stride = 2, .padding = 1}), same(20),
                           BatchNorm(), Relu(), Flatten(), Dense(3));
       }},
      {"3d",
       {2, 5, 6, 4},
       [] {
         return Sequential(Conv3d(6, {.kernel = 3, .padding = {1, 0, 1}}), Relu(),
                           AvgPool3d(esp::AveragePoolOptions{.kernel = 2, .padding = 1}), BatchNorm(),
                           Conv3d(4, {.kernel = {1, 2, 1}}));
       }},
      {"groups, depthwise and dilation",
       {8, 7, 9},
       [] {
         return Sequential(Conv2d(12, {.kernel = 3, .groups = 4}), Relu(),
                           Conv2d(12, {.kernel = 3, .padding = 1, .groups = 12}), Gelu(),
                           Conv2d(8, {.kernel = 2, .dilation = {2, 3}}));
       }},
      {"residuals and average pooling",
       {4, 8, 8},
       [] {
         return Sequential(
             same(8), Residual(same(8), BatchNorm(), Relu(), same(8)), Relu(),
             AvgPool2d(esp::AveragePoolOptions{.kernel = 2, .padding = 1, .count_padding = false}),
             Residual(same(8, 1)), AdaptiveAvgPool2d(1), Flatten(), Dense(2));
       }},
      {"concatenation, padding and slices",
       {4, 6, 6},
       [] {
         const Conv2d a = same(5), b = same(3, 1);
         return Sequential(a, function([b](const Variable& x) {
                             const Variable y = esp::relu(b(x));
                             const Variable both = esp::concat({x, y}, 1);
                             const Variable wider = esp::pad(both, {{1, 0}, {0, 2}}, {.value = 0.5});
                             return esp::pad(wider, {{2, 1}}, {.mode = esp::PadMode::reflect}) *
                                    esp::slice(esp::slice(wider, 3, 0, 1), 1, 0, 1);
                           }),
                           function([](const Variable& x) {
                             return esp::concat({esp::slice(x, 1, 3, 7), esp::slice(x, -3, 0, 3)}, -3);
                           }),
                           same(4));
       }},
      {"transposed, as an autoencoder",
       {2, 8, 6},
       [] {
         return Sequential(Conv2d(6, {.kernel = 3, .stride = 2, .padding = 1}), Relu(),
                           ConvTranspose2d(5, {.kernel = 2, .stride = 2}), Sigmoid(), same(2));
       }},
      {"reductions of every kind",
       {4, 5, 6},
       [] {
         return Sequential(same(6), function([](const Variable& x) {
                             const Variable over_sizes = esp::mean(x, {2, 3}), rows = esp::sum(x, 3) * 0.1,
                                            kept = esp::max(x, {2}, true), channels = esp::min(x, 1, true),
                                            planes = esp::sum(x, 0, true);
                             return esp::square(x - kept) * channels +
                                    esp::unsqueeze(esp::sum(rows, 2, true), 3) * 0.01 +
                                    esp::unsqueeze(rows, 3) + esp::mean(over_sizes) + planes * 0.1 +
                                    esp::reshape(esp::mean(x, {0, 2}), {1, 6, 1, 6}) * 0.1;
                           }),
                           same(3));
       }},
      {"ops that need the channels as axis 1",
       {4, 6, 6},
       [] {
         return Sequential(same(8), GroupNorm(2), Relu(), function([](const Variable& x) {
                             const Variable shuffled = esp::flatten(
                                 esp::transpose(esp::reshape(x, {-1, 2, 4, 6, 6}), {0, 2, 1, 3, 4}), 1);
                             return esp::reshape(shuffled, {-1, 8, 6, 6}) + esp::softmax(x, 1);
                           }),
                           same(4), Dropout(0.3), same(2));
       }},
      {"one place and one channel",
       {1, 1, 1},
       [] { return Sequential(same(1), Relu(), same(1, 1), BatchNorm()); }},
      {"unsqueezed and flattened sizes",
       {3, 4, 4},
       [] {
         return Sequential(same(6), function([](const Variable& x) {
                             const Variable flat = esp::flatten(x, 2);
                             return esp::reshape(esp::tanh(flat) * 2, {-1, 6, 2, 8}) + esp::mean(flat);
                           }),
                           same(2));
       }},
  };
}

}  // namespace

BOOST_AUTO_TEST_SUITE(channels_last)

BOOST_AUTO_TEST_CASE(networks_train_alike_eagerly_in_plans_and_on_replicas) {
  for (const Row& row : networks()) {
    const Trace eager = train(row.make, row.example, true);
    BOOST_TEST(difference_of(train(row.make, row.example, false), eager) < 5e-5, row.name);
    BOOST_TEST(difference_of(train(row.make, row.example, false, {}, {"channels_last"}), eager) < 5e-5,
               row.name);
    BOOST_TEST(difference_of(train(row.make, row.example, false, cpus(2)), eager) < 5e-5, row.name);
  }
}

BOOST_AUTO_TEST_CASE(networks_infer_alike) {
  for (const Row& row : networks()) {
    esp::seed(5);
    Sequential net = row.make();
    esp::Dims all{3};
    all.append(row.example.begin(), row.example.end());
    const Variable x = numbers(esp::Shape(all), -1, 1, 7).to(esp::float32);
    (void)net(x);
    net.train(false);
    const Variable y = net(x);
    const esp::Executor executor = y.get_executor({.mode = esp::Mode::inference});
    executor.execute({.progress = false});
    BOOST_TEST(difference(executor.value(), y.value()) < 1e-5, row.name);
  }
}

/// The inputs of at least `elements` elements that a node reads in another order than memory has them.
int64_t reads_out_of_order(const Graph& graph, int64_t elements) {
  int64_t count = 0;
  for (const GraphNode& n : graph.nodes)
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      if (n.op->is_view() || !n.op->reads_elements(k)) continue;
      const esp::Layout layout = esp::resolve_views(graph, n.inputs[k]).layout;
      const bool repeats = std::ranges::count(layout.strides, 0) > 0;
      count += layout.shape.elements() >= elements && !repeats && !layout.contiguous();
    }
  return count;
}

BOOST_AUTO_TEST_CASE(between_convolutions_nothing_is_copied) {
  esp::seed(1);
  const Sequential net(Conv2d(16, {.kernel = 3, .padding = 1, .bias = false}), BatchNorm(), Relu(),
                       Residual(same(16), BatchNorm(), Relu(), same(16)),
                       MaxPool2d(esp::MaxPoolOptions{.kernel = 2}), same(8), Relu(),
                       AvgPool2d(esp::AveragePoolOptions{.kernel = 2}));
  const Variable x = esp::placeholder("x", {4, 3, 8, 8});
  const Variable loss = esp::mean(esp::square(net(x)));
  Variables results{loss};
  for (const auto& [parameter, gradient] : esp::new_parameter_gradients(loss)) results.push_back(gradient);
  Graph graph = esp::freeze(results, {}, {}, false);
  esp::simplify(graph);
  BOOST_TEST(esp::channels_last(graph));
  esp::verify(graph, "channels_last");
  // The first convolution and the gradient of its kernels read x, which has its channels as axis 1.
  BOOST_TEST(reads_out_of_order(graph, 4 * 8 * 2 * 2) == 2);
  for (const GraphNode& n : graph.nodes)
    if (n.op->name().starts_with("conv") || n.op->name().starts_with("pool_"))
      BOOST_TEST(esp::attribute<bool>(*n.op, "channels_last"), n.op->name());
}

BOOST_AUTO_TEST_CASE(nor_where_channels_are_joined_cut_or_padded) {
  const Variable x = esp::placeholder("x", {4, 3, 8, 8});
  const auto kernels = [](const esp::Shape& shape) { return esp::parameter(esp::ones(shape)); };
  const Variable a = esp::conv(x, kernels({8, 3, 3, 3}), {.padding = 1}), b = esp::tanh(a);
  const Variable all = esp::concat({a, b}, 1);
  const Variable bordered = esp::pad(all, {{1, 1}, {1, 1}}, {.value = 0.5});
  const Variable part = esp::slice(esp::conv(bordered, kernels({12, 16, 3, 3})), 1, 2, 10);
  Graph graph = esp::freeze({esp::conv(part, kernels({4, 8, 3, 3}), {.padding = 1})}, {}, {}, false);
  esp::simplify(graph);
  BOOST_TEST(esp::channels_last(graph));
  esp::verify(graph, "channels_last");
  BOOST_TEST(reads_out_of_order(graph, 4 * 4 * 8 * 8) == 1);  // the first convolution reads x
}

BOOST_AUTO_TEST_CASE(other_graphs_are_left_alone) {
  const auto left = [](const Variable& y, esp::DeviceType device) {
    Graph graph = esp::freeze({y}, {}, {}, false);
    graph.device = device;
    const std::string text = graph.str();
    BOOST_TEST(!esp::channels_last(graph));
    BOOST_TEST(graph.str() == text);
  };
  const Variable x = esp::placeholder("x", {2, 3, 4, 4}), wide = esp::cast(x, esp::float64);
  const Variable kernels = esp::parameter(esp::ones({5, 3, 2, 2}), "kernels");
  left(esp::max_pool(x, {.kernel = 2}), esp::DeviceType::cpu);
  left(esp::conv(wide, esp::cast(kernels, esp::float64)), esp::DeviceType::cpu);
  left(esp::conv(x, kernels), esp::DeviceType::cuda);
  left(esp::conv(esp::cast(x, esp::float16), esp::cast(kernels, esp::float16)), esp::DeviceType::cpu);
}

/// For tensor cores.
BOOST_AUTO_TEST_CASE(convolutions_of_16_bits_are_moved_on_a_gpu) {
  const Variable x = esp::placeholder("x", {2, 3, 4, 4}), kernels = esp::parameter(esp::ones({5, 3, 2, 2}));
  for (const esp::DType dtype : {esp::float16, esp::bfloat16}) {
    const Variable y =
        esp::max_pool(esp::relu(esp::conv(esp::cast(x, dtype), esp::cast(kernels, dtype))), {.kernel = 2});
    Graph graph = esp::freeze({y}, {}, {}, false);
    graph.device = esp::DeviceType::cuda;
    BOOST_TEST(esp::channels_last(graph));
    esp::verify(graph, "channels_last");
    for (const GraphNode& n : graph.nodes)
      if (n.op->name() == "conv" || n.op->name() == "pool_max")
        BOOST_TEST(esp::attribute<bool>(*n.op, "channels_last"), n.op->name());
    BOOST_TEST(!esp::channels_last(graph));
  }
}

/// Prefers the channels last, but has no op that computes the same.
template <bool other_type>
struct Refuses : esp::Op {
  Refuses() : Op({.prefers_channels_last = !other_type}) {}
  std::string_view name() const override { return other_type ? "other" : "refuses"; }
  esp::Specs infer(const esp::InputSpecs& in) const override {
    return {{other_type ? esp::float64 : esp::float32, in[0]->shape}};
  }
  esp::ChannelsLastOp with_channels_last(const esp::InputSpecs&, const esp::Spec&) const override {
    return {.op = esp::shared_op<Refuses<true>>()};
  }
};

BOOST_AUTO_TEST_CASE(what_cannot_be_moved_is_left_alone) {
  const Variable x = esp::placeholder("x", {2, 3, 4, 4});
  Graph graph = esp::freeze(
      {esp::apply(esp::shared_op<Refuses<false>>(), {&x}, std::source_location::current())}, {}, {}, false);
  const std::string text = graph.str();
  BOOST_TEST(!esp::channels_last(graph));
  BOOST_TEST(graph.str() == text);
}

BOOST_AUTO_TEST_CASE(a_second_run_changes_nothing) {
  for (const Row& row : networks()) {
    esp::Dims all{2};
    all.append(row.example.begin(), row.example.end());
    const Variable loss = esp::mean(esp::square(row.make()(esp::placeholder("x", esp::Shape(all)))));
    Graph graph = esp::freeze({loss}, {}, {}, false);
    BOOST_TEST(esp::channels_last(graph), row.name);
    const std::string text = graph.str();
    BOOST_TEST(!esp::channels_last(graph), row.name);
    BOOST_TEST(graph.str() == text, row.name);
  }
}

/// The matrix lies over the channels and places of a row, and over the rows and columns of an image.
BOOST_AUTO_TEST_CASE(one_matrix_for_rows_and_images) {
  const auto values = [](const esp::Shape& shape, uint64_t which) {
    return esp::parameter(numbers(shape, -1, 1, which).to(esp::float32));  // no constant
  };
  const Variable mask = values({4, 4}, 1);
  const Variable row = esp::conv(values({2, 3, 4}, 2), values({4, 3, 3}, 3), {.padding = 1});
  const Variable image = esp::conv(values({2, 3, 4, 4}, 4), values({5, 3, 3, 3}, 5), {.padding = 1});
  for (const Variable& y : {esp::sum(esp::sin(row * mask)) + esp::sum(esp::cos(image * mask)),
                            esp::sum(esp::cos(image * mask)) + esp::sum(esp::sin(row * mask))}) {
    const esp::Executor executor = y.get_executor({.mode = esp::Mode::inference});
    executor.execute({.progress = false});
    BOOST_TEST(difference(executor.value(), y.value()) < 1e-4);
  }
}

BOOST_AUTO_TEST_CASE(derivatives_of_second_order_agree) {
  const auto kernels = [](const esp::Shape& shape, uint64_t which) {
    return esp::parameter(numbers(shape, -1, 1, which).to(esp::float32), "kernels");
  };
  const Variable a = kernels({6, 3, 3, 3}, 1), b = kernels({4, 6, 3, 3}, 2);
  const Variable x = numbers({4, 3, 8, 8}, -1, 1, 3).to(esp::float32);
  const Variable y = esp::conv(esp::avg_pool(esp::tanh(esp::conv(x, a, {.padding = 1})), {.kernel = 2}), b);
  const Variable inner = esp::mean(esp::square(y));
  const Variable penalty =
      esp::sum(esp::square(inner.gradient(a))) + esp::sum(esp::square(inner.gradient(b)));
  for (const Variable& v :
       {penalty, esp::sum(penalty.gradient(a) * 3), esp::sum(esp::sin(penalty.gradient(b)))}) {
    const esp::Executor executor = v.get_executor({.mode = esp::Mode::inference});
    executor.execute({.progress = false});
    BOOST_TEST(difference(executor.value(), v.value()) < 2e-5);
  }
}

/// A random chain of layers and functions over [channels, size, size].
Sequential random_network(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
  Sequential net(same(4 + below(8)));
  for (int64_t i = 0, n = 3 + below(5); i < n; ++i) {
    const int64_t channels = 4 * (1 + below(4));
    switch (below(12)) {
      case 0: net.append(BatchNorm()); break;
      case 1: net.append(Relu()); break;
      case 2: net.append(same(channels, 1 + 2 * below(2))); break;
      case 3: net.append(MaxPool2d(esp::MaxPoolOptions{.kernel = 2, .stride = 1})); break;
      case 4: net.append(AvgPool2d(esp::AveragePoolOptions{.kernel = 2, .stride = 1, .padding = 1})); break;
      case 5: net.append(Residual(BatchNorm(), Tanh())); break;
      case 6: net.append(ConvTranspose2d(channels, {.kernel = 2})); break;
      case 7:
        net.append(function([](const Variable& x) { return esp::concat({x, esp::relu(x)}, 1); }));
        break;
      case 8:
        net.append(function([](const Variable& x) { return x * esp::sigmoid(esp::mean(x, {2, 3}, true)); }));
        break;
      case 9: net.append(function([](const Variable& x) { return esp::pad(x, {{1, 1}, {0, 1}}); })); break;
      case 10:
        net.append(function([](const Variable& x) {
          return x - esp::unsqueeze(esp::max(esp::flatten(x, 2), -1, true), 3) * 0.1;
        }));
        break;
      default: net.append(function([](const Variable& x) { return esp::transpose(x, {0, 1, 3, 2}) * 0.5; }));
    }
  }
  net.append(same(2));
  return net;
}

BOOST_AUTO_TEST_CASE(random_networks_train_alike) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    const Make make = [seed] { return random_network(seed); };
    const Trace eager = train(make, {3, 6, 5}, true), planned = train(make, {3, 6, 5}, false);
    // Rounding errors grow from step to step where a maximum is taken of nearly equal values.
    const auto first = static_cast<std::ptrdiff_t>(eager.size() / 6);
    BOOST_TEST(difference_of({planned.begin(), planned.begin() + first},
                             {eager.begin(), eager.begin() + first}) < 1e-4,
               seed);
    BOOST_TEST(difference_of(planned, eager) < 5e-3, seed);
  }
}

BOOST_AUTO_TEST_SUITE_END()
