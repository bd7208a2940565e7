// Plan files: what is loaded computes, and goes on training, as what was saved.
#include <boost/test/unit_test.hpp>

#include <cstring>

#include "checkpoint_program.h"
#include "espalier/core/custom_op.h"
#include "espalier/core/device.h"
#include "espalier/core/recompute.h"
#include "espalier/data/views/padded.h"
#include "espalier/optim/adadelta.h"
#include "espalier/optim/adafactor.h"
#include "espalier/optim/adagrad.h"
#include "espalier/optim/adamax.h"
#include "espalier/optim/average.h"
#include "espalier/optim/lamb.h"
#include "espalier/optim/lion.h"
#include "espalier/optim/nadam.h"
#include "espalier/optim/radam.h"
#include "espalier/optim/rmsprop.h"
#include "gpu_testing.h"
#include "plan_programs.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Executor;
using esp::Tensor;
using esp::Variable;

namespace {

/// The bits of all leaves.
std::string bits_of(const Executor& executor) {
  std::string text;
  for (const esp::LeafInfo& leaf : executor.leaves())
    text += leaf.name + " " + bits(leaf.leaf.value()) + "\n";
  return text;
}

const esp::data::DistributorOptions batching{.batch_size = 6, .shuffle = true, .seed = 5};

struct Training {
  std::vector<Tensor> columns, held_out;
  esp::data::Distributor validation;
  Executor executor;

  static Training of(const PlanNetwork& network, const esp::optim::Optimizer& optimizer,
                     const esp::ExecutorOptions& options = {}) {
    esp::seed(4);
    const int64_t rows = network.x.shape()[0];
    Tensor targets = reals_of({rows, 3}, 9);
    std::vector<Tensor> columns{network.x, targets},
        held_out{network.x.slice(0, 0, 8), targets.slice(0, 0, 8)};
    const esp::data::Distributor feed(columns, batching);
    const auto [x, y] = feed.get_output_graphs<2>();
    const Variable outputs = network.outputs(x), loss = esp::mean(esp::square(outputs - y));
    esp::ExecutorOptions all = options;
    all.optimizer = optimizer;
    const esp::data::Distributor validation(held_out, {.batch_size = 5});
    all.validation = validation;
    all.outputs = {{"outputs", outputs}, {"size", esp::mean(esp::abs(outputs))}};
    return {columns, held_out, validation, loss.get_executor(all)};
  }
  esp::LoadOptions with_data() const {
    return {.data = {esp::data::Distributor(columns, batching)},
            .validation = esp::data::Distributor(held_out, {.batch_size = 5})};
  }
};

void check_goes_on(const Training& training, const std::filesystem::path& file) {
  const esp::Generator random = esp::generator();
  const std::string before = bits_of(training.executor);
  const std::string expected = bits(training.executor.execute({.epochs = 2, .progress = false}));
  const std::string after = bits_of(training.executor);
  const esp::Generator random_after = esp::generator();
  esp::seed(99);
  const Executor loaded = esp::load_executor(file, training.with_data());
  BOOST_TEST(bits_of(loaded) == before);
  BOOST_TEST(esp::generator().next_stream == random.next_stream);
  BOOST_TEST(bits(loaded.execute({.epochs = 2, .progress = false})) == expected);
  BOOST_TEST(bits_of(loaded) == after);
  BOOST_TEST(esp::generator().next_stream == random_after.next_stream);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(plan_files)

BOOST_AUTO_TEST_CASE(inference_gives_the_same_bits) {
  const TemporaryFolder folder;
  for (const PlanNetwork& network : plan_networks()) BOOST_TEST_CONTEXT(network.name) {
      esp::seed(2);
      const Variable x = esp::placeholder("x", network.x.shape(), network.x.dtype());
      const Variable hidden = network.outputs(x);
      const Executor saved = esp::softmax(hidden).get_executor({.outputs = {{"hidden", hidden}}});
      const Tensor expected = saved.run({{"x", network.x}});
      saved.save(folder / "a.plan");
      BOOST_TEST(folder.files() == 1u);
      const Executor loaded = esp::load_executor(folder / "a.plan");
      BOOST_TEST(bits(loaded.run({{"x", network.x}})) == bits(expected));
      BOOST_TEST(bits(loaded.output("hidden")) == bits(saved.output("hidden")));
      // Another number of rows, and two replicas of it.
      const Tensor few = network.x.slice(0, 3, 9).contiguous_copy();
      const Tensor of_few = saved.run({{"x", few}});
      BOOST_TEST(bits(loaded.run({{"x", few}})) == bits(of_few));
      const Executor two = esp::load_executor(folder / "a.plan", {.devices = {esp::cpu(0), esp::cpu(1)}});
      BOOST_TEST(difference(two.run({{"x", few}}), of_few) < 1e-5);
      const Executor half = esp::load_executor(folder / "a.plan", {.precision = esp::Precision::bfloat16});
      BOOST_TEST(difference(half.run({{"x", few}}), of_few) < 0.05);
      // What was loaded can be saved.
      loaded.save(folder / "b.plan");
      BOOST_TEST(bits(esp::load_executor(folder / "b.plan").run({{"x", few}})) == bits(of_few));
      std::filesystem::remove(folder / "b.plan");
    }
}

BOOST_AUTO_TEST_CASE(a_file_of_a_cpu_is_loaded_on_a_gpu, *boost::unit_test::precondition(has_gpu)) {
  const TemporaryFolder folder;
  for (const PlanNetwork& network : plan_networks()) BOOST_TEST_CONTEXT(network.name) {
      const Training training = Training::of(network, esp::optim::Sgd({.lr = 0.05, .momentum = 0.9}));
      training.executor.execute({.epochs = 1, .progress = false});
      training.executor.save(folder / "cpu.plan");
      training.executor.execute({.epochs = 1, .progress = false});
      esp::LoadOptions options = training.with_data();
      options.devices = {esp::gpu()};
      const Executor on_gpu = esp::load_executor(folder / "cpu.plan", options);  // with the random numbers
      on_gpu.execute({.epochs = 1, .progress = false});
      const auto wanted = training.executor.leaves(), computed = on_gpu.leaves();
      BOOST_REQUIRE(wanted.size() == computed.size());
      for (size_t i = 0; i < wanted.size(); ++i)
        BOOST_TEST(difference(computed[i].leaf.value().to(esp::cpu()), wanted[i].leaf.value()) < 1e-3,
                   wanted[i].name);
    }
}

BOOST_AUTO_TEST_CASE(processes_share_the_parameters_of_a_file) {
  const TemporaryFolder folder;
  const Variable x = esp::placeholder("x", {1, 600});
  const esp::nn::Dense wide(700);
  wide(x).get_executor({.mode = esp::Mode::inference}).save(folder / "wide.plan");
  const Executor executor = esp::load_executor(folder / "wide.plan");
  (void)executor.run({{"x", esp::ones({1, 600})}});
  // Of /proc/self/smaps: a line with the path begins a mapping, and lines with sizes in kB follow.
  std::ifstream maps("/proc/self/smaps");
  bool of_file = false;
  int64_t mapped = 0, own = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(" kB") == std::string::npos && line.find('-') != std::string::npos)
      of_file = line.find("wide.plan") != std::string::npos;
    if (of_file && line.starts_with("Rss:")) mapped += std::atoll(line.c_str() + 4);
    if (of_file && line.starts_with("Private_Dirty:")) own += std::atoll(line.c_str() + 14);
  }
  BOOST_TEST(mapped >= 600 * 700 * 4 / 1024);
  BOOST_TEST(own == 0);
}

BOOST_AUTO_TEST_CASE(inputs_and_outputs_have_names_and_open_axes) {
  const TemporaryFolder folder;
  const Variable x = esp::placeholder("x", {-1, 4}), scale = esp::placeholder("scale", {});
  const Variable y = x * scale;
  y.get_executor({.outputs = {{"sum", esp::sum(y)}}}).save(folder / "a.plan");
  const Executor loaded = esp::load_executor(folder / "a.plan");
  const auto in = loaded.inputs(), out = loaded.outputs();
  BOOST_REQUIRE(in.size() == 2u);
  BOOST_TEST(in[0].name == "x");
  BOOST_TEST((in[0].shape == esp::Shape{-1, 4}));
  BOOST_TEST(in[1].name == "scale");
  BOOST_REQUIRE(out.size() == 2u);
  BOOST_TEST(out[0].name == "value");
  BOOST_TEST((out[0].shape == esp::Shape{-1, 4}));
  BOOST_TEST(out[1].name == "sum");
  for (const int64_t rows : {1, 7})
    BOOST_TEST(difference(loaded.run({{"x", reals_of({rows, 4}, 1)}, {"scale", esp::full({}, 2)}}),
                          (Variable(reals_of({rows, 4}, 1)) * 2.0).value()) == 0);
}

BOOST_AUTO_TEST_CASE(training_goes_on_bit_by_bit) {
  const TemporaryFolder folder;
  using namespace esp::optim;
  const std::vector<Optimizer> optimizers{
      Adam({.lr = 0.01, .clip_norm = 1, .schedule = cosine({.steps = 30, .warm_up = 3})}),
      Sgd({.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01}), Lamb(0.01)};
  size_t which = 0;
  for (const PlanNetwork& network : plan_networks()) BOOST_TEST_CONTEXT(network.name) {
      const Training training = Training::of(network, optimizers[which++]);
      training.executor.execute({.epochs = 2, .progress = false});
      training.executor.save(folder / "a.plan", {.columns = {"x", "y"}});
      check_goes_on(training, folder / "a.plan");
    }
}

BOOST_AUTO_TEST_CASE(every_kind_of_optimizer_goes_on) {
  const TemporaryFolder folder;
  using namespace esp::optim;
  const Schedule schedule = cosine({.steps = 30, .warm_up = 3});
  const std::vector<Optimizer> optimizers{
      AdamW({.lr = 0.01, .weight_decay = 0.05, .schedule = schedule}),
      NAdam(0.01),
      RAdam(0.01),
      Adamax(0.01),
      Adagrad(0.05),
      Adadelta(0.5),
      RmsProp(0.01),
      Lion(1e-3),
      Adafactor(0.02),
      Ema(Sgd({.lr = 0.05, .momentum = 0.9, .schedule = schedule}), {.decay = 0.9})};
  size_t which = 0;
  const std::vector<PlanNetwork> networks = plan_networks();
  for (const Optimizer& optimizer : optimizers) BOOST_TEST_CONTEXT(optimizer.name()) {
      const Training training = Training::of(networks[which++ % networks.size()], optimizer);
      training.executor.execute({.epochs = 1, .progress = false});
      training.executor.save(folder / "a.plan", {.columns = {"x", "y"}});
      check_goes_on(training, folder / "a.plan");
    }
}

BOOST_AUTO_TEST_CASE(blocks_that_are_computed_again_go_on_bit_by_bit) {
  const TemporaryFolder folder;
  using namespace esp::nn;
  const std::vector<Sequential> blocks{Sequential{Dense(7), BatchNorm(), Relu(), Dropout(0.3)},
                                       Sequential{Dense(7), Tanh()}};
  const PlanNetwork network{"blocks", reals_of({22, 6}, 1), [=, out = Dense(3)](const Variable& x) {
                              Variable h = x;
                              for (const Sequential& block : blocks)
                                h = esp::recompute([&](const Variable& v) { return block(v); }, h);
                              return out(h);
                            }};
  const Training training = Training::of(network, esp::optim::Adam(0.01));
  training.executor.execute({.epochs = 1, .progress = false});
  training.executor.save(folder / "a.plan");
  check_goes_on(training, folder / "a.plan");
}

BOOST_AUTO_TEST_CASE(a_callback_saves_within_an_epoch) {
  const TemporaryFolder folder;
  const Training training = Training::of(plan_networks()[0], esp::optim::Adam(0.01));
  training.executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
    if (info.epoch == 1 && info.step == 2) training.executor.save(folder / "a.plan");
  });
  const std::string expected = bits(training.executor.execute({.epochs = 3, .progress = false}));
  const Executor loaded = esp::load_executor(folder / "a.plan", training.with_data());
  BOOST_TEST(bits(loaded.execute({.epochs = 3, .progress = false})) == expected);
  BOOST_TEST(bits_of(loaded) == bits_of(training.executor));
}

BOOST_AUTO_TEST_CASE(training_in_other_ways_gives_the_same_to_rounding) {
  const TemporaryFolder folder;
  const Training training = Training::of(plan_networks()[1], esp::optim::Sgd({.lr = 0.02, .momentum = 0.9}));
  training.executor.execute({.epochs = 1, .progress = false});
  training.executor.save(folder / "a.plan");
  const auto expected = training.executor.execute({.epochs = 2, .progress = false}).epochs;
  const auto check = [&](const esp::LoadOptions& options, double tolerance) {
    const auto epochs =
        esp::load_executor(folder / "a.plan", options).execute({.epochs = 2, .progress = false}).epochs;
    BOOST_REQUIRE(epochs.size() == expected.size());
    for (size_t i = 0; i < epochs.size(); ++i) {
      BOOST_TEST(std::abs(epochs[i].loss_mean - expected[i].loss_mean) < tolerance);
      BOOST_TEST(std::abs(epochs[i].validation_loss - expected[i].validation_loss) < tolerance);
    }
  };
  esp::LoadOptions two = training.with_data();
  two.devices = {esp::cpu(0), esp::cpu(1)};
  check(two, 1e-4);
  const int threads = esp::num_threads();
  esp::set_num_threads(1);
  check(training.with_data(), 1e-4);
  esp::set_num_threads(threads);
  esp::LoadOptions half = training.with_data();
  half.precision = esp::Precision::bfloat16;
  check(half, 0.1);
}

BOOST_AUTO_TEST_CASE(float16_keeps_the_scale_of_its_loss) {
  const TemporaryFolder folder;
  const Training training =
      Training::of(plan_networks()[0], esp::optim::Adam(0.01), {.precision = esp::Precision::float16});
  training.executor.execute({.epochs = 1, .progress = false});
  training.executor.save(folder / "a.plan");
  BOOST_TEST(esp::load_executor(folder / "a.plan", training.with_data()).loss_scale() ==
             training.executor.loss_scale());
  check_goes_on(training, folder / "a.plan");
}

BOOST_AUTO_TEST_CASE(columns_without_data_are_placeholders) {
  const TemporaryFolder folder;
  const PlanNetwork network = plan_networks()[0];
  const Training training = Training::of(network, esp::optim::Sgd(0.1));
  training.executor.save(folder / "a.plan", {.columns = {"x", "y"}});
  const Executor steps = esp::load_executor(folder / "a.plan");
  const esp::Feeds batch{{"x", training.columns[0]}, {"y", training.columns[1]}};
  (void)training.executor.step();  // where the data were in their epoch does not matter
  training.executor.save(folder / "within.plan", {.columns = {"x", "y"}});
  BOOST_CHECK_NO_THROW((void)esp::load_executor(folder / "within.plan").run(batch));
  const double first = steps.run(batch).item();
  double last = first;
  for (int i = 0; i < 40; ++i) last = steps.run(batch).item();
  BOOST_TEST(last < 0.8 * first);
  // A step of training is saved and loaded as well.
  steps.save(folder / "b.plan");
  const Executor again = esp::load_executor(folder / "b.plan");
  const esp::Generator random = esp::generator();
  const std::string of_again = bits(again.run(batch));
  esp::generator() = random;
  BOOST_TEST(of_again == bits(steps.run(batch)));
  const Executor inference = esp::load_executor(folder / "b.plan", {.mode = esp::Mode::inference});
  (void)inference.run(batch);
  BOOST_TEST((inference.output("outputs").shape() == esp::Shape{22, 3}));
  // One output alone, which does not read all inputs.
  const esp::Executor one =
      esp::load_executor(folder / "b.plan", {.mode = esp::Mode::inference, .outputs = {"outputs"}});
  BOOST_REQUIRE(one.inputs().size() == 1);
  BOOST_TEST(one.inputs()[0].name == "x");
  BOOST_TEST(bits(one.run({batch[0]})) == bits(inference.output("outputs")));
  BOOST_TEST(bits(one.output("outputs")) == bits(one.value()));
  BOOST_CHECK_THROW((void)one.output("size"), esp::Error);
  const esp::Executor both =
      esp::load_executor(folder / "b.plan", {.mode = esp::Mode::inference, .outputs = {"size", "value"}});
  BOOST_TEST(bits(both.run(batch)) == bits(inference.value()));
  BOOST_TEST(bits(both.output("size")) == bits(inference.output("size")));
  const auto refused = [&](const std::vector<std::string>& outputs, esp::Mode mode, const char* said) {
    BOOST_CHECK_EXCEPTION(esp::load_executor(folder / "b.plan", {.mode = mode, .outputs = outputs}),
                          esp::Error, says({said}));
  };
  refused({"sizes"}, esp::Mode::inference, "no output 'sizes'; it has value, outputs, size");
  refused({"size", "size"}, esp::Mode::inference, "'size' twice");
  refused({"value", "size", "value"}, esp::Mode::inference, "'value' twice");
  refused({"size"}, esp::Mode::training, "trains");
  // Another optimizer, also for a tree that was saved for inference.
  Executor(inference).save(folder / "c.plan");
  BOOST_CHECK_EXCEPTION(esp::load_executor(folder / "c.plan", {.mode = esp::Mode::training}), esp::Error,
                        says({"c.plan", "saved for inference"}));
  const Executor other = esp::load_executor(folder / "c.plan", {.optimizer = esp::optim::Adam(0.02)});
  const double begin = other.run(batch).item();
  for (int i = 0; i < 40; ++i) last = other.run(batch).item();
  BOOST_TEST(last < begin);
}

BOOST_AUTO_TEST_CASE(frozen_parameters_stay_frozen) {
  const TemporaryFolder folder;
  const Variable x = esp::placeholder("x", {4, 3}), v = esp::parameter(reals_of({3, 2}, 1), "v"),
                 w = esp::parameter(reals_of({2, 2}, 2), "w"), u = esp::parameter(reals_of({3, 2}, 3), "u");
  esp::set_trainable(v, false);
  const auto without_gradient = [&] {
    const esp::NoGrad no_grad;
    return esp::matmul(x, u);
  };
  esp::mean(esp::square(esp::matmul(esp::matmul(x, v) + without_gradient(), w)))
      .get_executor({.optimizer = esp::optim::Sgd(0.1)})
      .save(folder / "a.plan");
  for (const bool other : {false, true}) {
    esp::LoadOptions options;
    if (other) options.optimizer = esp::optim::Sgd(0.2);
    const Executor loaded = esp::load_executor(folder / "a.plan", options);
    (void)loaded.run({{"x", reals_of({4, 3}, 3)}});
    for (const esp::LeafInfo& leaf : loaded.leaves())
      for (const auto& [name, before] : {std::pair("v", v), {"w", w}, {"u", u}})
        if (leaf.name == name)
          BOOST_TEST((bits(leaf.leaf.value()) == bits(before.value())) == (leaf.name != "w"), name);
  }
}

BOOST_AUTO_TEST_CASE(the_validation_feed_goes_on_in_its_epoch) {
  const TemporaryFolder folder;
  const Training training = Training::of(plan_networks()[0], esp::optim::Sgd(0.1));
  const auto feed = training.validation.feed();
  feed->set_epoch(3);
  training.executor.save(folder / "a.plan");
  const esp::LoadOptions options = training.with_data();
  (void)esp::load_executor(folder / "a.plan", options);
  BOOST_TEST(options.validation->feed()->epoch() == 3);
}

BOOST_AUTO_TEST_CASE(other_data_must_fit) {
  const TemporaryFolder folder;
  const Training training = Training::of(plan_networks()[0], esp::optim::Sgd(0.1));
  training.executor.save(folder / "a.plan");
  const auto load = [&](const std::vector<Tensor>& columns, int64_t batch) {
    return esp::load_executor(folder / "a.plan",
                              {.data = {esp::data::Distributor(columns, {.batch_size = batch})}});
  };
  BOOST_TEST(load({reals_of({50, 6}, 1), reals_of({50, 3}, 2)}, 7)
                 .execute({.epochs = 2, .progress = false})
                 .epochs.size() == 2u);
  BOOST_CHECK_EXCEPTION(load({reals_of({50, 5}, 1), reals_of({50, 3}, 2)}, 7), esp::DataError,
                        says({"[6, 6]", "[7, 5]"}));
  BOOST_CHECK_EXCEPTION(load({reals_of({50, 6}, 1)}, 7), esp::DataError, says({"the data shows"}));
  const esp::data::DatasetPtr open =
      esp::data::padded({{reals_of({6}, 1), reals_of({5}, 1)}, {reals_of({3}, 2), reals_of({3}, 3)}});
  BOOST_CHECK_EXCEPTION(
      esp::load_executor(folder / "a.plan", {.data = {esp::data::Distributor(open, {.batch_size = 2})}}),
      esp::DataError, says({"the data shows", "[2, -1]"}));
  esp::LoadOptions twice = training.with_data();
  twice.data.push_back(twice.data[0]);
  BOOST_CHECK_EXCEPTION(esp::load_executor(folder / "a.plan", twice), esp::DataError, says({"1", "2"}));
}

BOOST_AUTO_TEST_CASE(custom_ops_are_found_by_their_names) {
  const TemporaryFolder folder;
  const esp::CustomOp op = esp::custom_op(
      {.name = "tripled",
       .forward = [](const std::vector<Tensor>& in) { return (Variable(in[0]) * 3.0).value(); },
       .row_by_row = true,
       .infer = [](const std::vector<esp::Spec>& in) { return in[0]; }});
  const Variable x = esp::placeholder("x", {2, 3});
  const Executor executor = op({x}).get_executor();
  BOOST_CHECK_EXCEPTION(executor.save(folder / "a.plan"), esp::UnsupportedError,
                        says({"tripled", "register_custom_op", "plan_files_test.cpp"}));
  BOOST_TEST(folder.files() == 0u);
  esp::register_custom_op(op);
  esp::register_custom_op(op);
  executor.save(folder / "a.plan");
  BOOST_TEST(esp::load_executor(folder / "a.plan").run({{"x", esp::full({2, 3}, 2)}}).at<float>({1, 2}) == 6);
  const esp::CustomOp other =
      esp::custom_op({.name = "tripled", .forward = [](const std::vector<Tensor>& in) { return in[0]; }});
  BOOST_CHECK_EXCEPTION(esp::register_custom_op(other), esp::Error, says({"tripled"}));
}

BOOST_AUTO_TEST_CASE(what_a_file_cannot_hold_is_refused) {
  const TemporaryFolder folder;
  const Variable x = esp::placeholder("x", {4});
  const esp::Metric metric({esp::mean(x)}, [](std::span<const double> m) { return m[0]; });
  const Executor with_metric = esp::sum(x).get_executor({.outputs = {{"figure", metric}}});
  BOOST_CHECK_EXCEPTION(with_metric.save(folder / "a.plan"), esp::UnsupportedError,
                        says({"figure", "Metric"}));
  const Executor plain = esp::sum(x).get_executor();
  BOOST_CHECK_EXCEPTION(plain.save(folder / "a.plan", {.columns = {"z"}}), esp::Error, says({"0 columns"}));
  BOOST_CHECK_EXCEPTION(plain.save(folder / "none" / "a.plan"), esp::FileError, says({"none"}));
  BOOST_CHECK_EXCEPTION(plain.save(""), esp::FileError, says({"an empty path"}));
  const Training training = Training::of(plan_networks()[0], esp::optim::Sgd(0.1));
  for (const std::vector<std::string>& columns :
       std::vector<std::vector<std::string>>{{"x"}, {"x", "x"}, {"x", ""}, {"x", "y", "z"}})
    BOOST_CHECK_EXCEPTION(training.executor.save(folder / "a.plan", {.columns = columns}), esp::Error,
                          says({"2 columns", "all different"}));
  const esp::data::Distributor feed({esp::ones({4, 3})}, {.batch_size = 2});
  for (const std::string name : {"p", "column_0"}) {
    const Executor both = (esp::sum(feed.get_output_graphs()[0]) * esp::placeholder(name, {})).get_executor();
    BOOST_CHECK_EXCEPTION(both.save(folder / "a.plan", {.columns = {name}}), esp::Error,
                          says({"'" + name + "'", "as a placeholder is"}));
    if (name == "column_0")
      BOOST_CHECK_EXCEPTION(both.save(folder / "a.plan"), esp::Error,
                            says({"'column_0'", "as a placeholder is"}));
  }
  BOOST_TEST(folder.files() == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
