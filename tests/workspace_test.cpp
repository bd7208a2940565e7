// Scratch memory of kernels in the arena of a plan.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/error.h"
#include "espalier/core/gradient_rule.h"
#include "espalier/core/node.h"
#include "espalier/core/random.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/plan/plan_data.h"
#include "espalier/executor/report/report.h"
#include "espalier/ops/matmul/gemm_choice.h"
#include "espalier/ops/matmul/matmul_call.h"
#include "espalier/ops/matmul/onednn_gemm.h"
#include "espalier/ops/ops.h"
#include "memory_plan_checks.h"
#include "plan_steps.h"
#include "training_runs.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Variable;

namespace {

bool in_one_buffer(const esp::Tensor& a, const esp::Tensor& b) {
  return a.storage().get() == b.storage().get();
}

/// a + b for float64, computed in a workspace all of which is written before and after.
class ScribblingSum : public esp::Op {
 public:
  explicit ScribblingSum(int64_t extra)
      : Op({.kind = esp::OpKind::pointwise, .gradient_reads = esp::InputSet::none()}), extra_(extra) {}
  std::string_view name() const override { return "scribbling_sum"; }
  esp::Attributes attributes() const override { return {{"extra", extra_}}; }
  esp::Specs infer(const esp::InputSpecs& in) const override { return {*in[0]}; }
  int64_t workspace_bytes(const esp::PlannedCall& call) const override {
    return esp::Workspace::bytes_for(call.outputs[0]) + esp::Workspace::bytes_for(extra());
  }
  void run_cpu(const esp::KernelCall& call) const override { bind_cpu(call, {})->run(call.random); }
  std::unique_ptr<esp::BoundKernel> bind_cpu(const esp::KernelCall& call,
                                             const esp::BindContext& context) const override {
    esp::Workspace workspace = esp::Workspace::of(context);
    const auto take = [&](const esp::Spec& spec) {
      return workspace.take(spec.shape, spec.dtype, esp::cpu());
    };
    esp::Tensor sum = take(call.outputs[0]->spec()), rest = take(extra());
    const esp::Tensor& out = *call.outputs[0];
    ++(in_one_buffer(sum, out) && in_one_buffer(rest, out) ? in_arena : elsewhere);
    return esp::bound([call, sum, rest](esp::RandomStream) mutable {
      const esp::Tensor a = call.inputs[0]->contiguous_copy(), b = call.inputs[1]->contiguous_copy();
      fill(sum), fill(rest);
      const std::span<double> in = sum.span<double>(), to = call.outputs[0]->span<double>();
      for (size_t i = 0; i < in.size(); ++i) in[i] = a.span<double>()[i] + b.span<double>()[i];
      std::copy(in.begin(), in.end(), to.begin());
      fill(sum);
    });
  }
  esp::Gradients gradient(const esp::GradientRule& rule) const override {
    return {rule.output_gradient(), rule.output_gradient()};
  }

  static inline int in_arena = 0, elsewhere = 0;  // kernels bound with all of their memory there

 private:
  esp::Spec extra() const { return {esp::float64, {extra_}}; }
  static void fill(esp::Tensor& t) {
    std::ranges::fill(t.span<double>(), std::numeric_limits<double>::quiet_NaN());
  }
  int64_t extra_;
};

Variable scribbling_sum(const Variable& a, const Variable& b, int64_t extra = 100) {
  return esp::apply(std::make_shared<ScribblingSum>(extra), {&a, &b}, std::source_location::current());
}
Variable plain_sum(const Variable& a, const Variable& b) { return a + b; }

using Sum = std::function<Variable(const Variable&, const Variable&)>;
const Sum scribbling = [](const Variable& a, const Variable& b) { return scribbling_sum(a, b); };

/// Values that live around the sums, and sums of sums.
Variable entangled(std::vector<Variable> pool, const Sum& sum, unsigned seed) {
  std::mt19937 random(seed);
  const auto any = [&] { return pool[random() % pool.size()]; };
  for (int i = 0; i < 12; ++i) {
    const Variable a = any(), b = any();
    switch (random() % 4) {
      case 0: pool.push_back(esp::tanh(esp::matmul(a, b))); break;
      case 1: pool.push_back(esp::tanh(a) * b); break;
      default: pool.push_back(sum(a, b) * 0.5);
    }
  }
  Variable all = pool[0];
  for (size_t i = 1; i < pool.size(); ++i) all = all + pool[i] * 0.1;
  return all;
}

/// Losses, the value of every step and the parameters, trained over 29 rows in batches of 8.
Trace train(const Sum& sum, std::vector<esp::Device> devices, int64_t budget = 0, int accumulate = 1) {
  esp::seed(5);
  const esp::data::Distributor feed({numbers({29, 6}, -1, 1, 4)},
                                    {.batch_size = 8, .shuffle = true, .seed = 2});
  const Variable x = feed.get_output_graphs()[0];
  const Variable w = esp::parameter(numbers({6, 6}, -1, 1, 1), "w"),
                 v = esp::parameter(numbers({6, 6}, -1, 1, 2), "v");
  const Variable h = esp::tanh(esp::matmul(x, w)), g = sum(h, x), k = esp::tanh(esp::matmul(sum(g, h), v));
  const Variable loss = esp::mean(esp::square(sum(k, g) - h * x));
  const esp::Executor executor = loss.get_executor({.mode = esp::Mode::training,
                                                    .optimizer = optim::Adam(0.02),
                                                    .devices = std::move(devices),
                                                    .accumulate = accumulate,
                                                    .memory_budget = budget});
  Trace trace;
  executor.on(esp::Event::step_finish,
              [&](const esp::StepInfo& info) { trace.push_back(esp::tensor(info.loss, esp::float64)); });
  (void)executor.execute({.epochs = 3, .progress = false});
  trace.push_back(w.value().clone());
  trace.push_back(v.value().clone());
  return trace;
}

/// Lets products of that form be computed by a library, whatever was measured.
struct Chosen {
  Chosen(esp::Gemm gemm, esp::GemmLibrary library) {
    std::vector<esp::GemmChoice> choices;
    for (const int threads : {1, 2})
      for (const auto epilogue : {esp::GemmEpilogue::none, esp::GemmEpilogue::bias,
                                  esp::GemmEpilogue::bias_relu, esp::GemmEpilogue::accumulate}) {
        gemm.epilogue = epilogue;
        choices.push_back({gemm, threads, library});
      }
    esp::gemm_choices().set(choices);
  }
};

constexpr auto primitive = esp::GemmLibrary::onednn_matmul;
esp::Gemm square_product(int64_t n, bool ta = false, bool tb = false) {
  return {esp::DType::float32, ta, tb, n, n, n, n, n, n};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(workspaces)

BOOST_AUTO_TEST_CASE(parts_of_a_region) {
  esp::Tensor memory({256}, esp::DType::boolean);
  esp::Workspace workspace(memory), again = workspace;
  const esp::Tensor a = workspace.take({5}, esp::float32, esp::cpu()),
                    b = workspace.take({3}, esp::float64, esp::cpu());
  BOOST_TEST(a.address() == memory.address());
  BOOST_TEST(b.address() == static_cast<char*>(memory.address()) + 64);
  BOOST_TEST((b.spec() == esp::Spec{esp::float64, {3}}));
  BOOST_TEST(again.take({1}, esp::float32, esp::cpu()).address() == memory.address());
  const esp::Tensor large = workspace.take({17}, esp::float64, esp::cpu());  // 128 bytes are left
  BOOST_TEST(!in_one_buffer(large, memory));
  BOOST_TEST(in_one_buffer(workspace.take({16}, esp::float64, esp::cpu()), memory));
  BOOST_TEST((esp::Workspace().take({2}, esp::float32, esp::cpu()).shape() == esp::Shape{2}));
}

BOOST_AUTO_TEST_CASE(values_around_a_workspace_stay) {
  for (unsigned seed = 0; seed < 40; ++seed) BOOST_TEST_CONTEXT("seed " << seed) {
      std::vector<Variable> leaves;
      for (uint64_t i = 0; i < 3; ++i) leaves.push_back(esp::parameter(numbers({4, 4}, -1, 1, i), "p"));
      const Variable y = entangled(leaves, scribbling, seed);
      for (const std::vector<std::string>& without : {std::vector<std::string>{}, {"in_place"}}) {
        const auto plan = esp::compile(step_of({y}), {}, {.without = without});
        check_plan(plan->graph, plan->memory);
        check_buffers(plan->memory.buffers, plan->memory.arena_bytes);
        const esp::Executor executor = y.get_executor({.mode = esp::Mode::inference, .without = without});
        for (int step = 0; step < 2; ++step) {
          executor.execute({.progress = false});
          BOOST_TEST(difference(executor.value(), y.value()) < 1e-12);
        }
      }
    }
}

BOOST_AUTO_TEST_CASE(kernels_of_plans_take_nothing_beside_the_arena) {
  const Variable p = esp::parameter(numbers({4, 4}), "p"), y = scribbling_sum(esp::tanh(p), p);
  ScribblingSum::in_arena = ScribblingSum::elsewhere = 0;
  (void)y.value();
  BOOST_TEST(ScribblingSum::in_arena == 0);
  const esp::Executor executor = y.get_executor({.mode = esp::Mode::inference});
  executor.execute({.progress = false});
  BOOST_TEST(ScribblingSum::in_arena == 1);
}

BOOST_AUTO_TEST_CASE(a_workspace_lives_for_one_step) {
  const Variable p = esp::parameter(numbers({64, 64}), "p");
  Variable y = p;
  for (int i = 0; i < 4; ++i) y = scribbling_sum(esp::tanh(y), p, 1000);
  const auto plan = esp::compile(step_of({y}), {}, {});
  constexpr int64_t value = 64 * 64 * 8, workspace = value + 8000;
  int64_t count = 0;
  for (uint32_t i = 0; i < plan->graph.nodes.size(); ++i) {
    const bool sum = plan->graph.nodes[i].op->name() == "scribbling_sum";
    BOOST_REQUIRE(plan->memory.workspaces[i].has_value() == sum);
    if (!sum) continue;
    ++count;
    const esp::ArenaBuffer& buffer = plan->memory.buffers[*plan->memory.workspaces[i]];
    BOOST_TEST(buffer.bytes == workspace);
    BOOST_TEST((buffer.first == i && buffer.last == i));
  }
  BOOST_TEST(count == 4);
  BOOST_TEST(plan->memory.largest_live_bytes == 2 * value + workspace);
  BOOST_TEST(plan->memory.arena_bytes == 2 * value + workspace);
  const std::string text = esp::Plan(plan).str();
  BOOST_TEST(text.find("workspaces: 4 kernels, the largest 40768 bytes\n") != std::string::npos, text);
  BOOST_TEST(text.find("  workspace @") != std::string::npos, text);
  const std::string html = esp::report_html(*plan, nullptr);
  BOOST_TEST(html.find("largest workspace") != std::string::npos);
  BOOST_TEST(html.find("\nworkspace: 40,768 bytes at ") != std::string::npos);
  const auto none = esp::compile(step_of({esp::tanh(p)}), {}, {});
  BOOST_TEST(esp::Plan(none).str().find("workspaces: ") == std::string::npos);
  BOOST_TEST(esp::report_html(*none, nullptr).find("largest workspace") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(convolutions_in_float64_have_one) {
  const Variable x = esp::parameter(numbers({2, 3, 6, 5}), "x"),
                 k = esp::parameter(numbers({4, 3, 3, 2}), "k");
  const Variable y = esp::sin(esp::conv(x, k)), loss = esp::sum(y);
  const auto plan = esp::compile(step_of({y, loss.gradient(x), loss.gradient(k)}), {}, {});
  int64_t count = 0;
  for (uint32_t i = 0; i < plan->graph.nodes.size(); ++i) {
    if (!plan->graph.nodes[i].op->name().starts_with("conv")) continue;
    BOOST_REQUIRE(plan->memory.workspaces[i].has_value());
    BOOST_TEST(plan->memory.buffers[*plan->memory.workspaces[i]].bytes == 3 * 3 * 2 * 4 * 4 * 8);
    ++count;
  }
  BOOST_TEST(count == 3);
}

BOOST_AUTO_TEST_CASE(a_budget_counts_them) {
  const Variable p = esp::parameter(numbers({64, 64}), "p"), y = scribbling_sum(esp::tanh(p), p, 1000);
  const int64_t arena = esp::compile(step_of({y}), {}, {})->memory.arena_bytes;
  BOOST_TEST(esp::compile(step_of({y}), {}, {.memory_budget = arena})->memory.arena_bytes == arena);
  BOOST_CHECK_THROW((void)esp::compile(step_of({y}), {}, {.memory_budget = arena - 1}), esp::OutOfMemory);
  // Values that live across a workspace give way to it.
  Variable h = p;
  std::vector<Variable> kept;
  for (int i = 0; i < 6; ++i) kept.push_back(h = esp::tanh(esp::matmul(h, p)));
  Variable sum = scribbling_sum(h, p, 64 * 64 * 6);
  for (const Variable& k : kept) sum = sum * k;
  const int64_t all = esp::compile(step_of({sum}), {}, {})->memory.arena_bytes;
  const auto less = esp::compile(step_of({sum}), {}, {.memory_budget = all * 8 / 10});
  BOOST_TEST(less->memory.arena_bytes <= all * 8 / 10);
  check_plan(less->graph, less->memory);
  const esp::Executor executor =
      sum.get_executor({.mode = esp::Mode::inference, .memory_budget = all * 8 / 10});
  executor.execute({.progress = false});
  BOOST_TEST(difference(executor.value(), sum.value()) < 1e-12);
}

BOOST_AUTO_TEST_CASE(training_with_several_plans_and_replicas) {
  const Trace expected = train(plain_sum, {});  // a short last batch has a plan of its own
  BOOST_TEST(difference_of(train(scribbling, {}), expected) < 1e-12);
  BOOST_TEST(difference_of(train(scribbling, {esp::cpu(0), esp::cpu(1)}), expected) < 1e-11);
  BOOST_TEST(difference_of(train(scribbling, {}, 0, 2), expected) < 1e-11);
}

BOOST_AUTO_TEST_CASE(a_plan_whose_buffers_overlap_is_refused) {
  esp::MemoryPlan plan;
  plan.buffers = {{64, 0, 3, 0}, {64, 4, 4, 0}, {64, 2, 3, 64}};
  plan.arena_bytes = 128;
  BOOST_CHECK_NO_THROW(esp::verify(plan));
  plan.buffers[1].first = 3;  // a workspace over a value that is still read
  BOOST_CHECK_THROW(esp::verify(plan), esp::Error);
  plan.buffers[1] = {64, 4, 4, 128};
  BOOST_CHECK_THROW(esp::verify(plan), esp::Error);
}

BOOST_AUTO_TEST_CASE(products_take_what_was_said) {
  constexpr int64_t n = 160;
  const int before = esp::num_threads();
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) (void)Chosen(square_product(n, ta, tb), primitive);
  const esp::Tensor plain = numbers({n, n}, -1, 1, 1).to(esp::float32),
                    wide = numbers({n, 2 * n}, -1, 1, 2).to(esp::float32);
  // A GEMM cannot take every other column.
  const esp::Layout every_other{esp::Shape{n, n}};
  esp::Layout gaps = every_other;
  gaps.strides = {2 * n, 2};
  const esp::Tensor strided(wide.storage(), gaps, esp::float32);
  for (const esp::Tensor* a : {&plain, &strided})
    for (const esp::Tensor* b : {&plain, &strided})
      for (const auto epilogue : {esp::GemmEpilogue::none, esp::GemmEpilogue::accumulate})
        for (const bool transposed : {false, true})
          for (const int threads : {1, 2}) {
            const esp::MatmulForm form{transposed, !transposed};
            esp::set_num_threads(2);  // when it is planned
            esp::Tensor out = esp::zeros({n, n}), wanted = esp::zeros({n, n});
            const esp::Spec x = a->spec(), y = b->spec(), z = out.spec();
            esp::PlannedCall call{esp::DeviceType::cpu, {&x, &y}, {&a->layout(), &b->layout()}, {&z, 1}};
            const int64_t bytes = esp::product_workspace_bytes(call, form, out.shape(), epilogue);
            const bool adds = epilogue != esp::GemmEpilogue::none && esp::has_onednn();  // OpenBLAS adds to c
            const int64_t copies = (a == &strided) + (b == &strided) + adds;
            BOOST_TEST(bytes >= copies * n * n * 4);
            BOOST_TEST(bytes < (copies + 60) * n * n * 4);
            const esp::Workspace workspace(esp::Tensor({bytes}, esp::DType::boolean));
            esp::set_num_threads(threads);
            const int64_t allocated = esp::memory_stats().allocations;
            esp::MatmulCall product(*a, *b, out, form, epilogue, workspace);
            for (int run = 0; run < 2; ++run) product.run(1, epilogue == esp::GemmEpilogue::none ? 0 : 1);
            BOOST_TEST(esp::memory_stats().allocations == allocated);
            esp::gemm_choices().set(
                {{square_product(n, form.transpose_a, form.transpose_b), 1, esp::GemmLibrary::openblas},
                 {square_product(n, form.transpose_a, form.transpose_b), 2, esp::GemmLibrary::openblas}});
            esp::MatmulCall other(*a, *b, wanted, form);
            other.run();
            if (epilogue != esp::GemmEpilogue::none) esp::add_scaled(wanted.clone(), 1, wanted);
            BOOST_TEST(difference(out, wanted) < 1e-4);
            for (const bool ta : {false, true}) (void)Chosen(square_product(n, ta, !ta), primitive);
          }
  esp::set_num_threads(before);
}

BOOST_AUTO_TEST_CASE(a_choice_to_come_is_counted) {
  // No other test has products of this size: nothing is known of it.
  constexpr int64_t n = 131;
  const esp::Spec x{esp::float32, {n, n}};
  const esp::Layout layout(x.shape);
  const esp::PlannedCall call{esp::DeviceType::cpu, {&x, &x}, {&layout, &layout}, {&x, 1}};
  const esp::MatmulForm form{true, false};
  const auto bytes = [&] {
    return esp::product_workspace_bytes(call, form, x.shape, esp::GemmEpilogue::accumulate);
  };
  const esp::Gemm gemm = square_product(n, true, false);
  const int64_t may_be = bytes();
  BOOST_TEST(may_be >= (esp::has_onednn() ? n * n * 4 : 0));
  (void)Chosen(gemm, primitive);
  BOOST_TEST(bytes() == may_be);
  (void)Chosen(gemm, esp::GemmLibrary::openblas);
  if (esp::num_threads() <= 2) BOOST_TEST(bytes() == 0);
  // On a GPU the library has a workspace of its own.
  esp::PlannedCall on_gpu = call;
  on_gpu.device = esp::DeviceType::cuda;
  BOOST_TEST(esp::product_workspace_bytes(on_gpu, form, x.shape) == 0);
}

BOOST_AUTO_TEST_CASE(plans_with_primitives_compute_the_same) {
  const int64_t n = 144;
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) (void)Chosen(square_product(n, ta, tb), primitive);
  const auto leaf = [&](const esp::Shape& shape, uint64_t which) {
    return esp::parameter(numbers(shape, -0.1, 0.1, which).to(esp::float32), "p");
  };
  const Variable x = leaf({n, n}, 1), w = leaf({n, n}, 2), bias = leaf({n}, 3), column = leaf({n, 1}, 4);
  const Variable h = esp::relu(esp::matmul(x, w) + bias),
                 g = esp::tanh(esp::matmul(h, esp::broadcast_to(column, {n, n}))) * h,
                 y = esp::matmul(esp::transpose(g), h) - esp::transpose(esp::matmul(g, esp::transpose(w)));
  const esp::Tensor wanted = y.value().clone();
  // A run of any plan over these leaves asks for as many buffers.
  const Variable no_product = esp::tanh(x * w + bias) * column;
  const esp::Executor other = no_product.get_executor({.mode = esp::Mode::inference});
  other.execute({.progress = false});
  const auto buffers_of_a_run = [](const esp::Executor& executor) {
    const int64_t before = esp::memory_stats().allocations;
    executor.execute({.progress = false});
    return esp::memory_stats().allocations - before;
  };
  for (const std::vector<std::string>& without : {std::vector<std::string>{}, {"fuse_matmul"}}) {
    const auto plan = esp::compile(step_of({y}), {}, {.without = without});
    check_buffers(plan->memory.buffers, plan->memory.arena_bytes);
    // oneDNN's kernels for AVX-512 want a workspace for each of two products at least, its others for one.
    const int64_t products = esp::vector_level() == esp::VectorLevel::avx512 ? 2 : 1;
    BOOST_TEST(esp::workspace_sizes(plan->memory).count >= products);
    const esp::Executor executor = y.get_executor({.mode = esp::Mode::inference, .without = without});
    executor.execute({.progress = false});
    BOOST_TEST(difference(executor.value(), wanted) < 1e-4);
    BOOST_TEST(buffers_of_a_run(executor) == buffers_of_a_run(other));
    BOOST_TEST(difference(executor.value(), wanted) < 1e-4);
  }
}

BOOST_AUTO_TEST_SUITE_END()
