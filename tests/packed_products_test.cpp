// Products of inference whose right operand is packed once.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <array>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "espalier/core/custom_op.h"
#include "espalier/core/random.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/batch_norm.h"
#include "espalier/nn/container.h"
#include "espalier/nn/convolution.h"
#include "espalier/nn/dense.h"
#include "espalier/ops/matmul/gemm_choice.h"
#include "espalier/ops/matmul/gemm_primitive.h"
#include "espalier/ops/matmul/tuning.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "kept_values.h"
#include "plan_steps.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Gemm, esp::GemmEpilogue, esp::GemmLibrary, esp::GemmPrimitive;
using esp::Variable;

namespace {

esp::Tensor floats(const esp::Shape& shape, uint64_t which) {
  return numbers(shape, -1, 1, which).to(esp::float32);
}

/// Has products with kept operands computed by a library while it lives, in plans made then.
class KeptBy {
 public:
  explicit KeptBy(std::vector<Gemm> gemms, GemmLibrary library = GemmLibrary::onednn_packed)
      : before_(esp::gemm_choices().all()) {
    std::vector<esp::GemmChoice> choices;
    for (Gemm gemm : gemms)
      for (const int threads : {1, 2})
        for (const auto epilogue : {GemmEpilogue::none, GemmEpilogue::bias, GemmEpilogue::bias_relu}) {
          gemm.epilogue = epilogue;
          gemm.keeps_b = true;
          choices.push_back({gemm, threads, library});
        }
    esp::gemm_choices().set(choices);
  }
  ~KeptBy() { esp::gemm_choices().set(before_); }
  KeptBy(const KeptBy&) = delete;

 private:
  std::vector<esp::GemmChoice> before_;
};

/// x, by a kernel that counts what is asked of it.
struct Counting : esp::Op {
  Counting() : Op({.kind = esp::OpKind::pointwise}) {}
  std::string_view name() const override { return "counting"; }
  esp::Specs infer(const esp::InputSpecs& in) const override { return {*in[0]}; }
  void run_cpu(const esp::KernelCall& call) const override {
    esp::copy_elements(*call.inputs[0], *call.outputs[0]);
  }
  std::unique_ptr<esp::BoundKernel> bind_cpu(const esp::KernelCall& call,
                                             const esp::BindContext&) const override {
    struct Kernel : esp::BoundKernel {
      Kernel(const Counting& op, esp::KernelCall call) : op(op), call(std::move(call)) {}
      void prepare() override { ++prepared; }
      void run(esp::RandomStream) override {
        ++ran;
        op.run_cpu(call);
      }
      const Counting& op;
      const esp::KernelCall call;
    };
    return std::make_unique<Kernel>(*this, call);
  }
  static inline std::atomic<int> prepared = 0, ran = 0;
};

constexpr int64_t rows = 16, in = 200, hidden = 240, out = 160;
Gemm product(int64_t m, int64_t n, int64_t k, bool transpose_b = false) {
  return {esp::float32, false, transpose_b, m, n, k, k, transpose_b ? k : n, n};
}
constexpr std::array packing_libraries = {GemmLibrary::onednn_packed, GemmLibrary::onednn_inner};
/// Those of a weight as matmul has it, and as Dense has it.
const std::vector<Gemm> products{product(rows, hidden, in), product(rows, out, hidden),
                                 product(rows, hidden, in, true), product(rows, out, hidden, true)};

esp::Executor inference(const Variable& y) { return y.get_executor({.mode = esp::Mode::inference}); }
double largest(const Variable& x) { return esp::max(esp::abs(x)).item(); }

}  // namespace

BOOST_AUTO_TEST_SUITE(packed_products)

BOOST_AUTO_TEST_CASE(a_primitive_of_a_packed_operand) {
  const int64_t m = 7, n = 33, k = 50;
  for (const GemmLibrary which : packing_libraries)
    for (const bool transposed : {false, true})
      for (const int64_t wider : {0, 5})
        for (const auto epilogue : {GemmEpilogue::none, GemmEpilogue::bias, GemmEpilogue::bias_relu}) {
          Gemm gemm = product(m, n, k, transposed);
          gemm.ldb += wider;
          gemm.epilogue = epilogue;
          const esp::Tensor a = floats({m, k}, 1), b = floats({transposed ? n : k, gemm.ldb}, 2),
                            bias = floats({n}, 3), y = esp::zeros({m, n}), expected = esp::zeros({m, n});
          GemmPrimitive plain(gemm), packing(gemm, which);
          const esp::Tensor packed({packing.packed_bytes()}, esp::boolean),
              scratch({std::max(plain.scratch_bytes(), packing.scratch_bytes())}, esp::boolean);
          BOOST_TEST(packing.packed_bytes() >= n * k * int64_t{sizeof(float)});
          const auto address = [](const esp::Tensor& x) { return const_cast<void*>(x.address()); };
          plain.run(a.address(), b.address(), bias.address(), address(expected), address(scratch));
          packing.pack(b.address(), address(packed));
          packing.run(a.address(), packed.address(), bias.address(), address(y), address(scratch));
          BOOST_TEST(difference(y, expected) < 1e-5);
          BOOST_TEST(largest(expected) > 0.1);
        }
}

/// The parameters are changed by the user, by eager updates and by another executor.
BOOST_DATA_TEST_CASE(they_follow_the_leaves, boost::unit_test::data::make({0, 1}), which) {
  esp::seed(8);
  const KeptBy packed(products, packing_libraries[static_cast<size_t>(which)]);
  const esp::nn::Sequential net(esp::nn::Dense(in, hidden), esp::nn::Relu(), esp::nn::Dense(hidden, out));
  const esp::Tensor rows_of_x = floats({rows, in}, 1), targets = floats({rows, out}, 2);
  const Variable x = esp::placeholder("x", {rows, in});
  const esp::Executor executor = inference(net(x)), alike = inference(esp::tanh(net(x)));
  const auto check = [&] {
    const Variable expected = net(rows_of_x);
    for (int i = 0; i < 2; ++i) {
      BOOST_TEST(largest(Variable(executor.run({{"x", rows_of_x}})) - expected) < 2e-5);
      BOOST_TEST(largest(Variable(alike.run({{"x", rows_of_x}})) - esp::tanh(expected)) < 2e-5);
    }
  };
  check();
  for (auto [path, leaf] : net.parameters()) {
    esp::set_value(leaf, (Variable(leaf.value().clone()) * 1.5 + 0.01).value());
    check();
  }
  const esp::optim::Sgd sgd(0.5);
  esp::mean(esp::square(net(rows_of_x) - targets)).update(sgd);
  check();
  const esp::data::Distributor feed({rows_of_x, targets}, {.batch_size = rows});
  const auto [fed, aim] = feed.get_output_graphs<2>();
  const esp::Executor trainer = esp::mean(esp::square(net(fed) - aim)).get_executor({.optimizer = sgd});
  for (int step = 0; step < 3; ++step) {
    const Variable before = Variable(executor.run({{"x", rows_of_x}})).value().clone();
    (void)trainer.execute({.epochs = 1, .progress = false});
    check();
    BOOST_TEST(largest(Variable(executor.run({{"x", rows_of_x}})) - before) > 1e-4);
  }
}

/// Operands of one shape, one of them a view of the other's memory, are not taken for each other.
BOOST_AUTO_TEST_CASE(each_operand_is_its_own) {
  const int64_t n = 224;
  const KeptBy packed({product(rows, n, n), product(rows, n, n, true)}, GemmLibrary::onednn_inner);
  const Variable x = esp::placeholder("x", {rows, n}), w = esp::parameter(floats({n, n}, 2), "w"),
                 v = esp::parameter(floats({2 * n, n}, 3), "v");
  const auto net = [&](const Variable& z) {
    return esp::matmul(z, w) + 2 * esp::matmul(z, esp::transpose(w)) +
           3 * esp::matmul(z, esp::slice(v, 0, 0, n)) + 4 * esp::matmul(z, esp::slice(v, 0, n, 2 * n)) +
           5 * esp::matmul(z, esp::Tensor(floats({n, n}, 4)));
  };
  const esp::Tensor rows_of_x = floats({rows, n}, 1);
  const esp::Executor executor = inference(net(x));
  for (int i = 0; i < 2; ++i)
    BOOST_TEST(largest(Variable(executor.run({{"x", rows_of_x}})) - net(rows_of_x)) < 1e-3);
}

BOOST_AUTO_TEST_CASE(several_threads_run_one_executor) {
  const KeptBy packed(products);
  const esp::nn::Sequential net(esp::nn::Dense(in, hidden), esp::nn::Relu(), esp::nn::Dense(hidden, out));
  const Variable x = esp::placeholder("x", {rows, in});
  const esp::Executor executor = inference(net(x));
  std::vector<double> differences(4, 1);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < differences.size(); ++t)
    threads.emplace_back([&, t] {
      const esp::NoGrad off;
      const esp::Tensor rows_of_x = floats({rows, in}, t);
      double worst = 0;
      for (int i = 0; i < 5; ++i)
        worst = std::max(worst, largest(Variable(executor.run({{"x", rows_of_x}})) - net(rows_of_x)));
      differences[t] = worst;
    });
  for (std::thread& thread : threads) thread.join();
  for (const double difference : differences) BOOST_TEST(difference < 2e-5);
}

/// Each thread has memory of its own for a run, and all have one packed operand.
BOOST_AUTO_TEST_CASE(threads_share_what_is_packed) {
  const int64_t n = 1000;
  const KeptBy packed({product(rows, n, n)});
  const Variable x = esp::placeholder("x", {rows, n}), w = esp::parameter(floats({n, n}, 2), "w");
  const esp::Executor executor = inference(esp::matmul(x, w));
  const auto live_with = [&](int threads) {
    executor.warm_up({{"x", {rows, n}}}, threads);
    return esp::memory_stats().live_bytes;
  };
  const int64_t one = live_with(1), five = live_with(5);
  BOOST_TEST(five > one);
  BOOST_TEST(five - one < w.value().bytes());
  const esp::Tensor rows_of_x = floats({rows, n}, 1);
  const auto check = [&] {
    std::vector<double> differences(5, 1);
    std::vector<std::thread> threads;
    for (double& difference : differences)
      threads.emplace_back([&] {
        const esp::NoGrad off;
        difference = largest(Variable(executor.run({{"x", rows_of_x}})) - esp::matmul(rows_of_x, w.value()));
      });
    for (std::thread& thread : threads) thread.join();
    for (const double difference : differences) BOOST_TEST(difference < 1e-3);
  };
  check();
  for (int i = 0; i < 3; ++i) {
    esp::set_value(w, floats({n, n}, static_cast<uint64_t>(3 + i)));
    check();
  }
}

/// Each thread's kernels, before a value comes.
BOOST_AUTO_TEST_CASE(warm_up_prepares_kernels) {
  const Variable x = esp::placeholder("x", {-1, 3});
  const Variable y = esp::apply(std::make_shared<Counting>(), {&x}, std::source_location::current());
  const esp::Executor executor = inference(y);
  Counting::prepared = Counting::ran = 0;
  executor.warm_up({{"x", {2, 3}}}, 3);
  BOOST_TEST(Counting::prepared == 3);
  BOOST_TEST(Counting::ran == 0);
  const esp::Tensor value = floats({2, 3}, 1);
  BOOST_TEST(difference(executor.run({{"x", value}}), value) == 0);
  BOOST_TEST(Counting::prepared == 3);
  BOOST_TEST(Counting::ran == 1);
}

BOOST_AUTO_TEST_CASE(kernels_that_are_prepared_have_packed) {
  const KeptBy packed(products);
  const esp::nn::Dense dense(in, hidden), second(hidden, out);
  const esp::nn::Conv2d convolution(16, 32, {.kernel = 3, .padding = 1});
  const Variable x = esp::placeholder("x", {rows, in}), image = esp::placeholder("image", {2, 16, 8, 8}),
                 w = esp::parameter(floats({in, hidden}, 1));
  std::map<std::string, int> kept_by;
  for (const auto precision : {esp::Precision::float32, esp::Precision::bfloat16}) {
    const auto plan =
        esp::compile(step_of({second(esp::relu(dense(x))), esp::matmul(x, w), esp::relu(convolution(image))}),
                     {}, {.inference = true, .precision = precision});
    for (const esp::GraphNode& node : plan->graph.nodes) {
      if (node.inputs.size() < 2) continue;
      std::vector<esp::Tensor> inputs, outputs;
      for (const esp::ValueRef& input : node.inputs) {
        const esp::Spec& spec = plan->graph.spec(input);
        inputs.push_back(numbers(spec.shape, -1, 1, inputs.size()).to(spec.dtype));
      }
      for (const esp::Spec& spec : node.outputs) outputs.emplace_back(spec.shape, spec.dtype);
      esp::KernelCall call;
      for (const esp::Tensor& input : inputs) call.inputs.push_back(&input);
      for (esp::Tensor& output : outputs) call.outputs.push_back(&output);
      struct Kept : OneVersion {
        std::shared_ptr<esp::KeptValue> of(const std::string& key, int64_t bytes) override {
          return value = OneVersion::of(key, bytes);
        }
        std::shared_ptr<esp::KeptValue> value;
      } kept;
      esp::KeptInputs which{esp::InputSet::only(1)};
      esp::BindContext context;
      context.offer<esp::KeptValues>(kept);
      context.offer(which);
      const auto kernel = node.op->bind_cpu(call, context);
      if (!kept.value) continue;
      ++kept_by[std::string(node.op->name())];
      kernel->prepare();
      bool prepared = true;
      kept.value->update(kept.version(), [&] { prepared = false; });
      BOOST_TEST(prepared, node.op->name());
    }
  }
  for (const auto& [name, count] : kept_by) BOOST_TEST_MESSAGE(name << " " << count);
  BOOST_TEST(kept_by.size() >= 3u);
}

/// Kernels are packed together with numbers that the plan makes of parameters first, in each thread's memory.
BOOST_AUTO_TEST_CASE(warm_up_computes_what_is_made_of_parameters) {
  esp::seed(3);
  const Variable w = esp::parameter(floats({8, 4, 3, 3}, 1)), b = esp::parameter(floats({8}, 2)),
                 image = esp::placeholder("x", {-1, 4, 6, 6});
  const esp::nn::Sequential net(esp::nn::Conv2d(8, {.kernel = 3}), esp::nn::BatchNorm(), esp::nn::Relu());
  (void)net(floats({2, 4, 6, 6}, 4));
  const std::vector<std::function<Variable(const Variable&)>> trees = {
      [&](const Variable& x) { return esp::conv(x, w, b * 3.0); },
      [&](const Variable& x) { return esp::relu(esp::conv(x, w * 2.0, b)); },
      [&](const Variable& x) { return net(x); }};
  for (const auto& tree : trees)
    for (const auto precision : {esp::Precision::float32, esp::Precision::bfloat16}) {
      const esp::ExecutorOptions options{.mode = esp::Mode::inference, .precision = precision};
      const esp::Executor warm = tree(image).get_executor(options), cold = tree(image).get_executor(options);
      const esp::Tensor x = floats({3, 4, 6, 6}, 5), other = floats({5, 4, 6, 6}, 6);
      for (int turn = 0; turn < 2; ++turn) {
        warm.warm_up({{"x", {3, 4, 6, 6}}}, 2);
        BOOST_TEST(difference(warm.run({{"x", x}}), cold.run({{"x", x}})) == 0);
        const esp::Tensor last = warm.value();
        esp::set_value(b, (Variable(b.value().clone()) * 1.5 + 0.25).value());
        warm.warm_up({{"x", {5, 4, 6, 6}}});  // which leaves the value of the last run
        BOOST_TEST(difference(warm.value(), last) == 0);
        BOOST_TEST(difference(warm.run({{"x", other}}), cold.run({{"x", other}})) == 0);
      }
    }
}

/// What is assigned while a plan runs is for the next run, which packs it.
BOOST_AUTO_TEST_CASE(a_leaf_assigned_within_a_run) {
  const int64_t n = 224;
  const KeptBy packed({product(rows, n, n)});
  const Variable w = esp::parameter(floats({n, n}, 2), "w"), v = esp::parameter(floats({n, n}, 3), "v"),
                 x = esp::placeholder("x", {rows, n});
  const esp::Tensor rows_of_x = floats({rows, n}, 1), next = floats({n, n}, 4);
  bool assigns = false;
  const auto assign_once = esp::custom_op({.name = "assign_once",
                                           .forward =
                                               [&](const std::vector<esp::Tensor>& in) {
                                                 if (std::exchange(assigns, false)) esp::set_value(v, next);
                                                 return in[0];
                                               },
                                           .infer = [](const std::vector<esp::Spec>& in) { return in[0]; }});
  const esp::Executor executor = inference(esp::matmul(assign_once({esp::matmul(x, w)}), v));
  const auto differs_from = [&](const esp::Tensor& last) {
    const Variable y(executor.run({{"x", rows_of_x}}));
    return largest(y - esp::matmul(esp::matmul(rows_of_x, w.value()), last));
  };
  const esp::Tensor before = v.value().clone();
  BOOST_TEST(differs_from(before) < 1e-3);
  assigns = true;
  BOOST_TEST(differs_from(before) < 1e-3);
  for (int i = 0; i < 2; ++i) BOOST_TEST(differs_from(next) < 1e-3);
}

/// Only plans that write no leaf and have no limit of memory keep an operand.
BOOST_AUTO_TEST_CASE(where_operands_are_kept) {
  const auto asked = [](const esp::Shape& x_shape, const auto& run) {
    Gemm gemm = product(x_shape[0], hidden, in);
    gemm.keeps_b = true;
    run();
    for (const auto epilogue : {GemmEpilogue::none, GemmEpilogue::bias}) {
      gemm.epilogue = epilogue;
      if (esp::gemm_choices().find(gemm)) return true;
    }
    return false;
  };
  const Variable w = esp::parameter(floats({in, hidden}, 1), "w");
  const auto run = [&](int64_t m, esp::ExecutorOptions options) {
    const Variable x = esp::placeholder("x", {m, in});
    options.mode = esp::Mode::inference;
    return [=] { (void)esp::matmul(x, w).get_executor(options).run({{"x", floats({m, in}, 1)}}); };
  };
  BOOST_TEST(asked({21}, run(21, {})));
  BOOST_TEST(!asked({22}, run(22, {.memory_budget = int64_t{1} << 30})));
  BOOST_TEST(!asked({23}, run(23, {.tune = false})));
  BOOST_TEST(!asked({24}, [&] {
    const esp::data::Distributor feed({floats({24, in}, 1)}, {.batch_size = 24});
    const Variable loss = esp::mean(esp::matmul(feed.get_output_graphs()[0], w));
    (void)loss.get_executor({.optimizer = esp::optim::Sgd(0.0)}).execute({.epochs = 1, .progress = false});
  }));
  BOOST_TEST(!asked({25}, [&] { (void)esp::matmul(floats({25, in}, 1), w).value(); }));
  const Variable x = esp::placeholder("x", {26, in}), y = esp::placeholder("y", {in, hidden});
  BOOST_TEST(!asked({26}, [&] {
    (void)inference(esp::matmul(x, y)).run({{"x", floats({26, in}, 1)}, {"y", w.value()}});
  }));
  BOOST_TEST(esp::may_pack(product(rows, hidden, in)));
  BOOST_TEST(!esp::may_pack(product(1, 8, 8)));
}

BOOST_AUTO_TEST_CASE(their_choices_in_files) {
  const TemporaryFolder folder;
  Gemm kept = product(5, 8, 4);
  kept.keeps_b = true;
  const auto choices_of = [&](const std::string& key, const std::string& library) {
    const auto file = folder / (key + library + ".txt");
    esp::ChoiceFile(file, "head").put(key, library);
    return std::make_unique<esp::GemmChoices>(file, "head");
  };
  const auto packed = choices_of("float32 n n 5 8 4 1 kept", "oneDNN-packed");
  BOOST_CHECK(packed->find(kept) == GemmLibrary::onednn_packed);
  BOOST_TEST(!packed->find(product(5, 8, 4)).has_value());
  BOOST_REQUIRE(packed->all().size() == 1u);
  BOOST_TEST(packed->all()[0].gemm.keeps_b);
  // An operand that is not kept cannot be packed.
  BOOST_TEST(!choices_of("float32 n n 5 8 4 1", "oneDNN-packed")->find(product(5, 8, 4)).has_value());
  // Without a measurement the choice is that for any operand.
  const esp::TuneScope no_tuning(false);
  const auto plain = choices_of("float32 n n 5 8 4 1", "OpenBLAS");
  BOOST_TEST(!plain->find(kept).has_value());
  BOOST_CHECK(plain->measure(kept) == GemmLibrary::openblas);
}

BOOST_AUTO_TEST_SUITE_END()
