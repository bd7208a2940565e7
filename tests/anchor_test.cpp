// Epilogues behind any op that anchors one.
#include <boost/test/unit_test.hpp>

#include <algorithm>

#include "espalier/core/node.h"
#include "espalier/core/row_kernel.h"
#include "espalier/core/workspace.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

enum class How : uint8_t { plain, whole, in_ranges };

/// Sums of `width` neighbours along the last axis, for float64. A kernel that computes in ranges counts them,
/// and keeps what it adds up in a workspace.
class StridedSum : public esp::Op {
 public:
  StridedSum(int64_t width, How how, esp::Effect effect)
      : Op({.effect = effect, .anchors_epilogue = how != How::plain}), width_(width), how_(how) {}
  std::string_view name() const override { return "strided_sum"; }
  esp::Attributes attributes() const override { return {{"width", width_}}; }
  esp::Specs infer(const esp::InputSpecs& in) const override {
    esp::Shape shape = in[0]->shape;
    shape.dims()[shape.rank() - 1] /= width_;
    return {{in[0]->dtype, shape}};
  }
  esp::NodeFlops cost(const esp::NodeWork& work) const override {
    return {.elementwise = static_cast<double>(work.inputs[0]->shape.elements())};
  }
  void run_cpu(const esp::KernelCall& call) const override {
    Kernel(call, width_, {}).run_rows(0, rows_of(*call.inputs[0]));
  }
  std::unique_ptr<esp::BoundKernel> bind_cpu(const esp::KernelCall& call,
                                             const esp::BindContext& context) const override {
    if (how_ != How::in_ranges) return nullptr;
    return std::make_unique<Kernel>(call, width_, esp::Workspace::of(context));
  }
  int64_t workspace_bytes(const esp::PlannedCall& call) const override {
    return how_ == How::in_ranges ? esp::Workspace::bytes_for(call.outputs[0]) : 0;
  }

  static inline std::atomic<int> ranges = 0;

 private:
  static int64_t rows_of(const esp::Tensor& x) { return x.elements() / x.shape()[-1]; }

  class Kernel : public esp::RowKernel {
   public:
    Kernel(const esp::KernelCall& call, int64_t width, esp::Workspace workspace)
        : in_(call.inputs[0]),
          out_(call.outputs[0]),
          width_(width),
          sums_(workspace.take(out_->shape(), out_->dtype(), esp::cpu())) {}
    void run(esp::RandomStream) override { run_rows(0, rows_of(*in_)); }
    int64_t rows_at_once(int64_t rows, int64_t) const override {
      return rows == rows_of(*in_) && rows > 8 ? 8 : 0;
    }
    void begin_rows() override { ranges = 0; }
    void run_rows(int64_t begin, int64_t end) override {
      ++ranges;
      const int64_t columns = out_->shape()[-1];
      const esp::Tensor x = in_->contiguous_copy();
      const std::span<double> sums = sums_.span<double>();
      for (int64_t i = begin * columns; i < end * columns; ++i) {
        double& sum = sums[static_cast<size_t>(i)] = 0;
        for (int64_t k = 0; k < width_; ++k) sum += x.span<double>()[static_cast<size_t>(i * width_ + k)];
        out_->span<double>()[static_cast<size_t>(i)] = sum;
      }
    }

   private:
    const esp::Tensor* in_;
    esp::Tensor* out_;
    int64_t width_;
    esp::Tensor sums_;
  };

  int64_t width_;
  How how_;
};

Variable strided_sum(const Variable& x, int64_t width, How how, esp::Effect effect = esp::Effect::none) {
  return esp::apply(std::make_shared<StridedSum>(width, how, effect), {&x}, std::source_location::current());
}
/// The same elements, copied by any device.
struct CopyAnchor : esp::Op {
  CopyAnchor() : Op({.only_copies = true, .anchors_epilogue = true}) {}
  std::string_view name() const override { return "copy_anchor"; }
  esp::Specs infer(const esp::InputSpecs& in) const override { return {*in[0]}; }
  void run_cpu(const esp::KernelCall& call) const override {
    esp::copy_elements(*call.inputs[0], *call.outputs[0]);
  }
};

Variable leaf(const esp::Shape& shape, uint64_t which) {
  return esp::parameter(numbers(shape, -1, 1, which), "p");
}

/// The graph as passes leave it, after plans on one and two threads have computed what the tree does.
esp::Graph fused(const Variables& results) {
  esp::Graph graph = esp::freeze(results, {}, {}, false);
  for (const auto pass : {esp::simplify, esp::fuse_pointwise, esp::fuse_matmul}) {
    (void)pass(graph, {});
    esp::verify(graph, "a pass");
  }
  const int before = esp::num_threads();
  for (const int threads : {1, 2}) {
    esp::set_num_threads(threads);
    for (const Variable& y : results) {
      const esp::Executor executor = y.get_executor({.mode = esp::Mode::inference});
      for (int step = 0; step < 2; ++step) executor.execute({.progress = false});
      BOOST_TEST(difference(executor.value(), y.value()) < 1e-12, graph.str());
    }
  }
  esp::set_num_threads(before);
  return graph;
}
int64_t epilogues(const Variables& results) {
  const esp::Graph graph = fused(results);
  return std::ranges::count_if(graph.nodes, [](const auto& n) { return n.op->name() == "epilogue"; });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(epilogue_anchors)

BOOST_AUTO_TEST_CASE(an_anchor_takes_in_what_follows) {
  const Variable x = leaf({40, 18}, 1), bias = leaf({6}, 2), full = leaf({40, 6}, 3);
  for (const How how : {How::whole, How::in_ranges}) {
    const Variable y = strided_sum(x, 3, how);
    BOOST_TEST(epilogues({y + bias}) == 1);
    BOOST_TEST(epilogues({esp::tanh(y * full + bias) * full}) == 1);
    BOOST_TEST(epilogues({esp::softmax(y * 0.5)}) == 1);
    BOOST_TEST(epilogues({esp::sum(esp::square(y - bias), 0)}) == 1);
    BOOST_TEST(epilogues({esp::tanh(esp::reshape(y, {20, 12})) * 2.0}) == 1);
    // The elements of another type do not fit into an output.
    BOOST_TEST(epilogues({esp::cast(esp::greater(y, bias), esp::float32) * 2.0}) == 1);
    // Read elsewhere, or in another order.
    BOOST_TEST(epilogues({y + bias, y}) == 0);
    BOOST_TEST(epilogues({esp::tanh(esp::transpose(y)) * esp::transpose(full)}) == 0);
  }
}

BOOST_AUTO_TEST_CASE(others_do_not) {
  const Variable x = leaf({40, 18}, 1), bias = leaf({6}, 2);
  BOOST_TEST(epilogues({esp::tanh(strided_sum(x, 3, How::plain) + bias)}) == 0);
  BOOST_TEST(epilogues({esp::tanh(strided_sum(leaf({0, 18}, 3), 3, How::whole) + bias)}) == 0);
  // What does more than compute keeps its place.
  const Variable draws = strided_sum(x, 3, How::whole, esp::Effect::random);
  BOOST_TEST(epilogues({esp::tanh(draws + bias)}) == 0);
}

BOOST_AUTO_TEST_CASE(operands_do_not_live_longer_than_that_is_worth) {
  const Variable x = leaf({40, 18}, 1), bias = leaf({6}, 2);
  BOOST_TEST(epilogues({strided_sum(esp::exp(x), 1, How::whole) + leaf({18}, 3)}) == 1);
  BOOST_TEST(epilogues({strided_sum(esp::exp(x), 3, How::whole) + bias}) == 0);
}

BOOST_AUTO_TEST_CASE(ranges_of_rows_are_followed_at_once) {
  const Variable x = leaf({2003, 18}, 1), bias = leaf({6}, 2);  // more rows than a tile
  (void)epilogues({esp::tanh(strided_sum(x, 3, How::in_ranges) + bias)});
  BOOST_TEST(StridedSum::ranges > 1);
  // Seen with other rows, it is computed as a whole.
  StridedSum::ranges = 0;
  const Variable seen = esp::reshape(strided_sum(leaf({40, 18}, 4), 3, How::in_ranges), {20, 12});
  const esp::Executor executor = (esp::tanh(seen) * 2.0).get_executor({.mode = esp::Mode::inference});
  StridedSum::ranges = 0;
  executor.execute({.progress = false});
  BOOST_TEST(StridedSum::ranges == 1);
}

BOOST_AUTO_TEST_CASE(gpus_run_anchor_and_program) {
  const Variable x = leaf({40, 6}, 1), bias = leaf({6}, 2), column = leaf({6, 1}, 3);
  const Variable y = esp::apply(esp::shared_op<CopyAnchor>(), {&x}, std::source_location::current());
  // The operand of the product is copied, and its program goes over it twice: both need a workspace.
  const Variable product = esp::matmul(x, esp::broadcast_to(column, {6, 6}));
  for (const Variable& result : {esp::tanh(y + bias), esp::softmax(y * 0.5), esp::softmax(product * bias)}) {
    const esp::Graph graph = fused({result});
    BOOST_TEST(std::ranges::count_if(graph.nodes,
                                     [](const auto& n) { return n.op->name().ends_with("epilogue"); }) == 1);
    for (const esp::Device& gpu : gpus_to_test()) {
      const esp::Executor executor = result.get_executor({.mode = esp::Mode::inference, .devices = {gpu}});
      for (int step = 0; step < 3; ++step) executor.execute({.progress = false});
      BOOST_TEST(difference(executor.value().to(esp::cpu()), result.value()) < 1e-12);
    }
  }
}

BOOST_AUTO_TEST_CASE(what_the_node_says_of_itself) {
  const Variable x = leaf({40, 18}, 1), bias = leaf({6}, 2);
  const esp::Graph graph = fused({esp::tanh(strided_sum(x, 3, How::in_ranges) + bias)});
  const auto node =
      std::ranges::find_if(graph.nodes, [](const auto& n) { return n.op->name() == "epilogue"; });
  BOOST_REQUIRE((node != graph.nodes.end()));
  BOOST_TEST(esp::attribute<std::string>(*node->op, "anchor") == "strided_sum");
  BOOST_TEST(esp::attribute<int64_t>(*node->op, "width") == 3);
  BOOST_TEST(node->inputs.size() == 2u);
  const esp::Spec a = x.value().spec(), b = bias.value().spec(), out{esp::float64, {40, 6}};
  const esp::NodeFlops flops = node->op->cost({{&a, &b}, {&out, 1}, 0});
  BOOST_TEST(flops.elementwise > 40 * 18);
  const esp::Layout in_a(a.shape), in_b(b.shape);
  const esp::PlannedCall call{esp::DeviceType::cpu, {&a, &b}, {&in_a, &in_b}, {&out, 1}};
  BOOST_TEST(node->op->workspace_bytes(call) == 40 * 6 * 8);  // the anchor's; its output lies in the node's
}

BOOST_AUTO_TEST_SUITE_END()
