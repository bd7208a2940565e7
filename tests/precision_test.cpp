// Mixed precision: products in 16 bits, parameters in float32, and the loss scaled for float16.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>

#include "attention_block.h"
#include "checkpoint_program.h"
#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Precision;

namespace {

const Precision halves[] = {Precision::bfloat16, Precision::float16};

esp::DType dtype_of(Precision precision) {
  return precision == Precision::float16 ? esp::float16 : esp::bfloat16;
}

std::string lowered(const Variables& results, Precision precision = Precision::bfloat16) {
  esp::Graph graph = esp::freeze(results, {}, {}, false);
  BOOST_TEST(esp::lower_precision(graph, precision));
  esp::verify(graph, "precision");
  const std::string text = graph.str();
  BOOST_TEST(!esp::lower_precision(graph, precision));
  BOOST_TEST(graph.str() == text);
  return text;
}

/// A small network for a regression, and its loss after each epoch.
struct Mlp {
  esp::nn::Sequential model;
  std::vector<double> losses;
  double loss_scale = 1;

  explicit Mlp(Precision precision, const optim::Optimizer& optimizer) : model(begin()) {
    const esp::Tensor x = numbers({128, 6}).to(esp::float32);
    const esp::Tensor target = esp::sin(esp::sum(x, 1, true)).value();
    esp::data::Distributor feed({x, target}, {.batch_size = 32, .shuffle = true});
    const auto [inputs, targets] = feed.get_output_graphs<2>();
    const auto loss = esp::nn::MeanSquared()(model(inputs), targets);
    const auto executor =
        loss.get_executor({.mode = esp::Mode::training, .optimizer = optimizer, .precision = precision});
    for (const auto& epoch : executor.execute({.epochs = 40, .progress = false}).epochs)
      losses.push_back(epoch.loss_mean);
    loss_scale = executor.loss_scale();
  }

 private:
  static esp::nn::Sequential begin() {
    esp::seed(3);
    return esp::nn::Sequential(esp::nn::Dense(32), esp::nn::Tanh(), esp::nn::Dense(32), esp::nn::Relu(),
                               esp::nn::Dense(1));
  }
};

std::vector<double> losses_of_attention(Precision precision) {
  const auto [tokens, next] = sequences(49);  // the last batch is short
  esp::seed(7);
  Model model;
  esp::data::Distributor feed({tokens, next}, {.batch_size = 16, .shuffle = true});
  auto [x, y] = feed.get_output_graphs<2>();
  const auto executor = model(x, y).get_executor(
      {.mode = esp::Mode::training, .optimizer = optim::Adam(0.01), .precision = precision});
  std::vector<double> losses;
  for (const auto& epoch : executor.execute({.epochs = 20, .progress = false}).epochs)
    losses.push_back(epoch.loss_sum);
  return losses;
}

/// The loss mean((x · w)²) · weight, whose gradient overflows float16 for a large weight.
struct Overflowing {
  esp::Variable w = esp::parameter(esp::full({4, 4}, 0.1), "w");
  esp::Variable weight = esp::state(esp::full({}, 1), "weight");
  optim::Optimizer adam = optim::AdamW({.lr = 1e-4, .schedule = optim::exponential(0.999)});
  esp::Executor executor = esp::Variable(esp::mean(esp::square(esp::matmul(esp::ones({8, 4}), w))) * weight)
                               .get_executor({.optimizer = adam, .precision = Precision::float16});

  void step(int64_t times = 1) const {
    executor.execute({.epochs = times, .progress = false, .stop_on_nan = false});
  }
  std::string state() const {
    std::string text = bits(w.value());
    for (const auto& [name, leaf] : adam.state_of(w)) text += name + bits(leaf.value());
    for (const auto& [name, leaf] : adam.state()) text += name + bits(leaf.value());
    return text;
  }
};

esp::Variable program_loss(const esp::nn::Sequential& model, const esp::data::Distributor& feed) {
  const auto [x, y] = feed.get_output_graphs<2>();
  return esp::nn::MeanSquared()(model(x), y);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(mixed_precision)

BOOST_AUTO_TEST_CASE(what_is_cast) {
  const esp::Variable x = esp::placeholder("x", {4, 3});
  const esp::Variable w = esp::parameter(esp::ones({3, 5}), "w"), b = esp::parameter(esp::ones({5}), "b"),
                      v = esp::parameter(esp::ones({5, 2}), "v");
  const esp::Variable y = esp::matmul(esp::relu(esp::matmul(x, w) + b), v);
  // All values between products are 16 bits: inputs are cast before the first, the result after the last.
  BOOST_TEST(lowered({esp::softmax(y)}) ==
             "%0 = source(feed=x output=0) : float32 [4, 3]\n"
             "%1 = w : float32 [3, 5]\n"
             "%2 = b : float32 [5]\n"
             "%3 = v : float32 [5, 2]\n"
             "%4 = cast(dtype=bfloat16) %0 : bfloat16 [4, 3]\n"
             "%5 = cast(dtype=bfloat16) %1 : bfloat16 [3, 5]\n"
             "%6 = matmul(transpose_a=false transpose_b=false) %4 %5 : bfloat16 [4, 5]\n"
             "%7 = cast(dtype=bfloat16) %2 : bfloat16 [5]\n"
             "%8 = add %6 %7 : bfloat16 [4, 5]\n"
             "%9 = relu %8 : bfloat16 [4, 5]\n"
             "%10 = cast(dtype=bfloat16) %3 : bfloat16 [5, 2]\n"
             "%11 = matmul(transpose_a=false transpose_b=false) %9 %10 : bfloat16 [4, 2]\n"
             "%12 = cast(dtype=float32) %11 : float32 [4, 2]\n"
             "%13 = softmax %12 : float32 [4, 2]\n"
             "results: %13\n");
}

BOOST_AUTO_TEST_CASE(casts_are_shared_and_cancel) {
  const esp::Variable x = esp::placeholder("x", {4, 4});
  // One cast of x for three readers, one of them through a view; casts of the user cancel.
  const esp::Variable once = esp::matmul(x, esp::transpose(x));
  const esp::Variable there_and_back = esp::cast(esp::cast(once, esp::bfloat16), esp::float32);
  const std::string text = lowered({esp::matmul(there_and_back, x)});
  const auto count = [&](const std::string& part) {
    size_t n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  };
  BOOST_TEST(count("cast(dtype=bfloat16)") == 1u, text);
  BOOST_TEST(count("cast(dtype=float32)") == 1u, text);
  BOOST_TEST(count("matmul") == 2u, text);
}

// A whole training step, with gradients, clipping and Adam.
BOOST_AUTO_TEST_CASE(nothing_is_left_for_a_second_run) {
  const auto [tokens, next] = sequences(4);
  esp::seed(7);
  Model model;
  const esp::Variable loss = model(tokens, next);
  const optim::Adam adam({.lr = 0.01, .clip_norm = 1});
  std::vector<std::pair<esp::Variable, esp::Variable>> gradients;
  for (const auto& [path, p] : model.parameters()) gradients.emplace_back(p, loss.gradient(p));
  for (const Precision precision : halves) {
    esp::Graph graph = esp::freeze({loss}, adam.build(gradients), {}, false);
    (void)esp::simplify(graph);  // layers of a tree without feeds are one node
    BOOST_TEST(esp::lower_precision(graph, precision));
    esp::verify(graph, "precision");
    int products = 0;
    for (const esp::GraphNode& n : graph.nodes) {
      if (n.op->has_side_effects() || n.op->is_leaf())
        BOOST_TEST((n.outputs[0].dtype == esp::float32 || !esp::is_real(n.outputs[0].dtype)));
      if (!n.op->traits().matmul_form) continue;
      ++products;
      BOOST_TEST(n.outputs[0].dtype == dtype_of(precision));
    }
    BOOST_TEST(products == 3 * 9);  // seven layers and two products of attention, forward and twice backward
    const std::string text = graph.str();
    BOOST_TEST(!esp::lower_precision(graph, precision));
    BOOST_TEST(graph.str() == text);
  }
}

BOOST_AUTO_TEST_CASE(what_stays_in_float32) {
  const esp::Variable x = esp::placeholder("x", {4, 4});
  const auto has = [](const std::string& text, const std::string& line) {
    BOOST_TEST(text.find(line) != std::string::npos, line << " is not in\n" << text);
  };
  const esp::Variable y = esp::matmul(x, x);
  has(lowered({esp::sum(y)}), "sum(axes=[] keep_dims=false) %3 : float32 []");
  has(lowered({esp::exp(y)}), "exp %3 : float32");
  has(lowered({y + x}), "add %3 %0 : float32");          // a residual stream stays float32
  has(lowered({y * 3.0}), "multiply %2 %3 : bfloat16");  // a constant is rounded, too
  has(lowered({y * 1e-30}, Precision::float16), "multiply %4 %3 : float32");  // unless it underflows
  has(lowered({esp::where(causal(4), y, -1e9)}, Precision::float16), "where %3 %5 %4 : float32 [4, 4]");
  has(lowered({esp::where(causal(4), y, -1e9)}), "where %3 %2 %4 : bfloat16");
  has(lowered({esp::dropout(y, 0.5)}), "dropout_mask(rate=0.5) %3 : float32");
  // A parameter is rounded because the product is, a state or variable is not.
  has(lowered({y + esp::parameter(esp::ones({4}), "p")}), "bfloat16 [4]\n");
  for (const esp::Variable& kept : {esp::state(esp::ones({4}), "s"), esp::variable(esp::ones({4}))}) {
    const std::string text = lowered({y + kept});
    BOOST_TEST(text.find("bfloat16 [4]\n") == std::string::npos, text);
  }
  // Types that the user chose are kept, and a tree without products is not changed.
  const esp::Variable wide = esp::placeholder("wide", {4, 4}, esp::float64);
  for (const Variables& results : {Variables{esp::matmul(wide, wide)}, Variables{esp::exp(x) + x}}) {
    esp::Graph graph = esp::freeze(results, {}, {}, false);
    for (const Precision precision :
         {Precision::float32, Precision::tf32, Precision::bfloat16, Precision::float16})
      BOOST_TEST(!esp::lower_precision(graph, precision));
  }
  esp::Graph product = esp::freeze({y}, {}, {}, false);
  BOOST_TEST(!esp::lower_precision(product, Precision::float32));
  BOOST_TEST(!esp::lower_precision(product, Precision::tf32));
}

BOOST_AUTO_TEST_CASE(a_network_learns_as_in_float32) {
  for (const auto& optimizer : {std::function<optim::Optimizer()>([] { return optim::Adam(0.01); }),
                                std::function<optim::Optimizer()>([] {
                                  return optim::Sgd({.lr = 0.02, .momentum = 0.9, .clip_norm = 1});
                                })}) {
    const Mlp wide(Precision::float32, optimizer());
    BOOST_TEST(wide.losses.back() < 0.3 * wide.losses.front());
    BOOST_TEST(wide.loss_scale == 1);
    for (const Precision precision : halves) {
      BOOST_TEST_CONTEXT("in " << esp::name(dtype_of(precision))) {
        const Mlp half(precision, optimizer());
        BOOST_TEST(half.losses.front() == wide.losses.front(), boost::test_tools::tolerance(0.02));
        BOOST_TEST(half.losses.back() < 1.15 * wide.losses.back() + 0.005);
        BOOST_TEST(half.losses != wide.losses);
        for (const auto& [path, p] : half.model.parameters()) BOOST_TEST(p.value().dtype() == esp::float32);
        BOOST_TEST(half.loss_scale == (precision == Precision::float16 ? 65536 : 1));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(attention_learns_as_in_float32) {
  const std::vector<double> wide = losses_of_attention(Precision::float32);
  BOOST_TEST(losses_of_attention(Precision::tf32) == wide, boost::test_tools::per_element());
  for (const Precision precision : halves) {
    BOOST_TEST_CONTEXT("in " << esp::name(dtype_of(precision))) {
      const std::vector<double> half = losses_of_attention(precision);
      BOOST_TEST(half.front() == wide.front(), boost::test_tools::tolerance(0.01));
      BOOST_TEST(half.back() == wide.back(), boost::test_tools::tolerance(0.05));
    }
  }
}

BOOST_AUTO_TEST_CASE(the_plan_shows_the_casts) {
  const esp::Variable w = esp::parameter(esp::ones({4, 4}), "w");
  const esp::Variable loss = esp::mean(esp::square(esp::matmul(esp::ones({8, 4}), w)));
  const auto executor = loss.get_executor({.optimizer = optim::Adam(0.1), .precision = Precision::bfloat16});
  const std::string text = executor.plan().str();
  BOOST_TEST(text.find("cast(dtype=bfloat16)") != std::string::npos, text);
  BOOST_TEST(text.find("v0 = cast(i0)") != std::string::npos, text);  // the product, in a kernel
  for (const esp::PassReport& pass : executor.plan().passes())
    BOOST_TEST((pass.name != "precision" || pass.changed));
  // Without the pass, no value is lowered.
  const auto plain = loss.get_executor(
      {.optimizer = optim::Adam(0.1), .precision = Precision::bfloat16, .without = {"precision"}});
  BOOST_TEST(plain.plan().str().find("cast") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(inference_gives_float32) {
  esp::seed(3);
  esp::nn::Dense layer(3);
  const esp::Variable y = layer(esp::placeholder("x", {2, 4}));
  const esp::Tensor x = numbers({2, 4}).to(esp::float32);
  const esp::Tensor wide = y.get_executor().run({{"x", x}});
  for (const Precision precision : halves) {
    const esp::Tensor half = y.get_executor({.precision = precision}).run({{"x", x}});
    BOOST_TEST(half.dtype() == esp::float32);
    BOOST_TEST(difference(half, half.to(dtype_of(precision))) == 0);
    BOOST_TEST(difference(half, wide) < 0.02);
    BOOST_TEST(difference(half, wide) > 0);
  }
}

BOOST_AUTO_TEST_CASE(a_step_that_overflows_changes_nothing_but_the_scale) {
  const Overflowing t;
  BOOST_TEST(t.executor.loss_scale() == 65536);
  const std::string before = t.state();
  t.step();
  BOOST_TEST(t.executor.loss_scale() == 65536);
  const std::string good = t.state();
  BOOST_TEST(good != before);
  esp::set_value(t.weight, esp::full({}, 1e4));
  for (const double scale : {32768, 16384, 8192}) {
    t.step();
    BOOST_TEST(t.executor.loss_scale() == scale);
    BOOST_TEST(t.state() == good);
  }
  t.step(20);
  const double settled = t.executor.loss_scale();
  BOOST_TEST(settled < 8192);
  BOOST_TEST(settled >= 1);
  BOOST_TEST(t.state() != good);
  esp::set_value(t.weight, esp::full({}, NAN));
  const std::string last = t.state();
  t.step();
  BOOST_TEST(t.state() == last);
  BOOST_TEST(t.executor.loss_scale() == settled / 2);
  t.step(50);
  BOOST_TEST(t.executor.loss_scale() == 0x1p-24);
}

BOOST_AUTO_TEST_CASE(good_steps_double_the_scale) {
  const Overflowing t;
  t.step(1999);
  BOOST_TEST(t.executor.loss_scale() == 65536);
  t.step();
  BOOST_TEST(t.executor.loss_scale() == 131072);
  // A step with infinite gradients resets the count.
  t.step(1000);
  esp::set_value(t.weight, esp::full({}, INFINITY));
  t.step();
  esp::set_value(t.weight, esp::full({}, 1));
  t.step(1999);
  BOOST_TEST(t.executor.loss_scale() == 65536);
  t.step();
  BOOST_TEST(t.executor.loss_scale() == 131072);
}

BOOST_AUTO_TEST_CASE(scaling_rounds_nothing) {
  // If no gradient is very small or large, scaling changes no bit, since the factor is a power of two.
  // Products with a fused update round differently, so this fusion is off in both runs.
  const auto train = [](Precision precision) {
    esp::seed(1);
    esp::nn::Dense layer(2);
    const esp::Tensor x = numbers({16, 3}).to(esp::float32);
    const auto loss = esp::mean(esp::square(esp::exp(layer(x)) - 1.0));
    loss.get_executor(
            {.optimizer = optim::Sgd(0.1), .precision = precision, .without = {"precision", "fuse_sgd"}})
        .execute({.epochs = 5, .progress = false});
    return bits(layer.parameters()[0].second.value());
  };
  BOOST_TEST(train(Precision::float16) == train(Precision::float32));
}

BOOST_AUTO_TEST_CASE(checkpoints_keep_the_scale) {
  for (const Precision precision : halves) {
    const auto make = [&](uint64_t seed, auto&& use) {
      esp::seed(seed);
      esp::nn::Sequential model{esp::nn::Dense(8), esp::nn::Tanh(), esp::nn::Dropout(0.3), esp::nn::Dense(2)};
      const esp::data::Distributor feed(
          {numbers({23, 4}).to(esp::float32), numbers({23, 2}).to(esp::float32)},
          {.batch_size = 5, .shuffle = true, .seed = 3});
      // The loss is so large that the first steps overflow.
      const esp::Variable loss = program_loss(model, feed) * 1e4;
      const optim::Adam adam(0.01);
      const auto executor = loss.get_executor({.optimizer = adam, .precision = precision});
      use(executor);
      std::string text = bits(executor.loss_scale());
      for (const auto& [path, p] : model.parameters()) {
        text += bits(p.value());
        for (const auto& [name, leaf] : adam.state_of(p)) text += bits(leaf.value());
      }
      return text;
    };
    const TemporaryFolder folder;
    double scale = 0;
    const std::string whole = make(5, [&](const esp::Executor& e) {
      e.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
        if (info.epoch != 1 || info.step != 2) return;
        e.checkpoint(folder.path());
        scale = e.loss_scale();
      });
      e.execute({.epochs = 4, .progress = false});
    });
    BOOST_TEST((precision == Precision::float16 ? scale > 1 && scale < 65536 : scale == 1));
    BOOST_TEST(make(6, [&](const esp::Executor& e) {
                 e.resume(folder.path());
                 BOOST_TEST(e.loss_scale() == scale);
                 e.execute({.epochs = 4, .progress = false});
               }) == whole);
  }
}

BOOST_AUTO_TEST_CASE(gradients_side_by_side_are_float32) {
  for (const Precision precision : halves) {
    const auto train = [&](bool bucket) {
      esp::seed(4);
      esp::nn::Sequential model(esp::nn::Dense(6), esp::nn::Relu(), esp::nn::Dense(2));
      const auto loss = esp::mean(esp::square(model(numbers({16, 3}).to(esp::float32))));
      const auto executor = esp::internal::make_executor(
          loss, {.optimizer = optim::Adam(0.01), .precision = precision}, bucket);
      executor.execute({.epochs = 5, .progress = false});
      const std::string text = executor.plan().str();
      BOOST_TEST((text.find("gradient_bucket") != std::string::npos) == bucket, text);
      std::string state;
      for (const auto& [path, p] : model.parameters()) state += bits(p.value());
      return state;
    };
    BOOST_TEST(train(true) == train(false));
  }
}

BOOST_AUTO_TEST_CASE(updates_that_the_tree_holds) {
  const auto loss_of = [](const esp::Variable& w) {
    return esp::mean(esp::square(esp::matmul(esp::ones({8, 4}), w)));
  };
  const esp::Variable w = esp::parameter(esp::full({4, 4}, 0.3), "w");
  const esp::Variable loss = loss_of(w);
  loss.update(optim::Sgd(0.01));
  BOOST_CHECK_EXCEPTION(loss.get_executor({.precision = Precision::float16}), esp::Error,
                        says({"float16", "optimizer", "precision_test.cpp"}));
  const auto executor = loss.get_executor({.precision = Precision::bfloat16});
  const auto epochs = executor.execute({.epochs = 2, .progress = false}).epochs;
  BOOST_TEST(epochs[1].loss_sum < epochs[0].loss_sum);
}

BOOST_AUTO_TEST_CASE(rows_without_a_key_have_equal_weights) {
  const esp::Variable x = esp::placeholder("x", {2, 4}), w = esp::parameter(esp::ones({4, 4}), "w");
  const esp::Tensor seen = esp::tensor({{true, true, false, false}, {false, false, false, false}});
  const esp::Variable weights = esp::softmax(esp::where(seen, esp::matmul(x, w), -1e9));
  for (const Precision precision : halves) {
    const esp::Tensor y = weights.get_executor({.mode = esp::Mode::inference, .precision = precision})
                              .run({{"x", esp::ones({2, 4})}});
    BOOST_TEST(difference(y, esp::tensor({{0.5, 0.5, 0.0, 0.0}, {0.25, 0.25, 0.25, 0.25}})) < 1e-6);
  }
}

// The gradients of slices are 16-bit values, whose sum is one in float32.
BOOST_AUTO_TEST_CASE(gradients_of_slices_are_joined_in_16_bits) {
  const esp::Variable w = esp::parameter(numbers({5, 12}, -1, 1, 1).to(esp::float32), "w"),
                      x = esp::parameter(numbers({6, 5}, -1, 1, 2).to(esp::float32), "x");
  const esp::Variable y = esp::matmul(x, w);
  const auto part = [&](int64_t i) { return esp::slice(y, 1, 4 * i, 4 * i + 4); };
  const esp::Variable scores = esp::matmul(part(0), esp::transpose(part(1)));
  const esp::Variable slope = esp::sum(esp::square(esp::matmul(scores, part(2)))).gradient(w);
  for (const Precision precision : halves) {
    const auto run = [&](const std::vector<std::string>& without, std::string& text) {
      const esp::Executor executor =
          slope.get_executor({.mode = esp::Mode::inference, .precision = precision, .without = without});
      executor.execute({.progress = false});
      text = executor.plan().str();
      return executor.value();
    };
    std::string joined, added;
    const esp::Tensor with = run({}, joined), without = run({"join_slices"}, added);
    BOOST_TEST(joined.find("pad_like") == std::string::npos, joined);
    BOOST_TEST(joined.find("join") != std::string::npos, joined);
    BOOST_TEST(added.find("pad_like") != std::string::npos, added);
    BOOST_TEST(difference(with, without) == 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()
