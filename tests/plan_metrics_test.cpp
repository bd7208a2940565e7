// Plan files with outputs that are Metrics: the program that loads one finds their functions by name.
#include <boost/test/unit_test.hpp>

#include "checkpoint_program.h"
#include "espalier/executor/kit/metrics.h"
#include "espalier/executor/metric_functions.h"
#include "espalier/executor/training/plan_file/container.h"
#include "plan_programs.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

double spread(std::span<const double> means) { return means[0] - means[1] * means[1]; }

Variable mean_of(const Variable& x) { return esp::mean(esp::cast(x, esp::float64)); }

struct Classifier {
  esp::data::Distributor feed, held_out;
  esp::Executor executor;

  static Classifier of(const std::vector<std::pair<std::string, esp::PlanOutput>>& more = {}) {
    esp::seed(7);
    const Tensor x = reals_of({30, 5}, 1);
    const Tensor y = (esp::abs(Variable(reals_of({30}, 2))) * 2.99).value().to(esp::int64);
    const esp::data::Distributor feed({x, y}, {.batch_size = 8, .shuffle = true, .seed = 3});
    const esp::data::Distributor held_out({x, y}, {.batch_size = 7});
    const auto [a, b] = feed.get_output_graphs<2>();
    const Variable logits = esp::nn::Sequential{esp::nn::Dense(8), esp::nn::Relu(), esp::nn::Dense(3)}(a);
    const Variable top = esp::max(logits, 1);
    esp::ExecutorOptions options{.optimizer = esp::optim::Adam(0.02), .validation = held_out};
    options.outputs = {{"precision", esp::precision(logits, b)},
                       {"recall of 1", esp::recall(logits, b, {.of_class = 1})},
                       {"f1", esp::f1_score(logits, b)},
                       {"micro", esp::f1_score(logits, b, {.average = esp::Average::micro})},
                       {"perplexity", esp::perplexity(logits, b)},
                       {"r2", esp::r2_score(top, esp::cast(b, esp::float32))},
                       {"top", esp::mean(top)}};
    options.outputs.insert(options.outputs.end(), more.begin(), more.end());
    return {feed, held_out, esp::nn::SoftmaxCrossEntropy()(logits, b).get_executor(options)};
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(plan_metrics)

BOOST_AUTO_TEST_CASE(figures_of_epochs_go_on_bit_by_bit) {
  static const esp::Metric::Finish function = esp::register_metric_function("plan_metrics.spread", 2, spread);
  const TemporaryFolder folder;
  const Variable noise = esp::uniform({4});  // drawn with the random numbers of the run
  const Classifier classifier =
      Classifier::of({{"spread", esp::Metric({mean_of(esp::square(noise)), mean_of(noise)}, function)}});
  const auto epochs = [](const esp::Executor& executor) {
    return executor.execute({.epochs = 2, .progress = false});
  };
  (void)epochs(classifier.executor);
  classifier.executor.save(folder / "a.plan");
  const esp::History expected = epochs(classifier.executor);
  const esp::Executor loaded =
      esp::load_executor(folder / "a.plan", {.data = {classifier.feed}, .validation = classifier.held_out});
  const esp::History of_loaded = epochs(loaded);
  BOOST_TEST(bits(of_loaded) == bits(expected));
  const esp::EpochRecord &last = of_loaded.epochs.back(), &saved = expected.epochs.back();
  BOOST_TEST(last.outputs.size() == 8u);
  BOOST_TEST(last.validation_outputs.size() == 8u);
  BOOST_TEST((last.outputs == saved.outputs));
  BOOST_TEST((last.validation_outputs == saved.validation_outputs));
  BOOST_TEST(last.outputs.at("f1") > 0);
  // What was loaded can be saved.
  loaded.save(folder / "b.plan");
  BOOST_TEST(esp::load_executor(folder / "b.plan").outputs().size() == 9u);
  // A Metric is no value of a run, and may be computed beside one.
  esp::LoadOptions options{.mode = esp::Mode::inference, .outputs = {"f1", "top"}};
  BOOST_CHECK_EXCEPTION(esp::load_executor(folder / "b.plan", options), esp::Error,
                        says({"'f1' is a Metric"}));
  options.outputs = {"top", "f1"};
  BOOST_TEST(esp::load_executor(folder / "b.plan", options).outputs().size() == 3u);
}

BOOST_AUTO_TEST_CASE(a_file_without_metrics_is_of_the_first_version) {
  const TemporaryFolder folder;
  const Variable x = esp::placeholder("x", {4});
  esp::mean(x).get_executor({.outputs = {{"largest", esp::max(x)}}}).save(folder / "a.plan");
  BOOST_TEST(esp::read_plan_container(folder / "a.plan").version == 1u);
  Classifier::of().executor.save(folder / "b.plan");
  BOOST_TEST(esp::read_plan_container(folder / "b.plan").version == 2u);
}

BOOST_AUTO_TEST_CASE(functions_are_found_by_their_names) {
  const TemporaryFolder folder;
  const esp::Metric unnamed({mean_of(esp::ones({2})), mean_of(esp::ones({2}))}, spread);
  BOOST_CHECK_EXCEPTION(Classifier::of({{"own", unnamed}}).executor.save(folder / "a.plan"),
                        esp::UnsupportedError, says({"own", "Metric", "register_metric_function"}));
  BOOST_TEST(folder.files() == 0u);
  BOOST_CHECK_EXCEPTION(esp::register_metric_function("", 1, spread), esp::Error, says({"name"}));
  BOOST_CHECK_EXCEPTION(esp::register_metric_function("f1_score", 2, spread), esp::Error, says({"f1_score"}));
  BOOST_CHECK_EXCEPTION(esp::metric_function("none"), esp::Error, says({"none", "register_metric_function"}));
  const double means[] = {0.5, 0.25};
  BOOST_TEST(esp::metric_function("ratio")(means) == 2.0);
}

BOOST_AUTO_TEST_CASE(a_file_with_another_function_is_refused) {
  const TemporaryFolder folder;
  Classifier::of().executor.save(folder / "a.plan");
  const auto refused = [&](const nlohmann::json& function, const std::string& reason) {
    esp::PlanContainer container = esp::read_plan_container(folder / "a.plan");
    container.text.erase("tensors");
    container.text["outputs"][2]["function"] = function;
    esp::write_plan_container(folder / "b.plan", container);
    BOOST_CHECK_EXCEPTION(esp::load_executor(folder / "b.plan"), esp::FileError, says({"b.plan", reason}));
  };
  refused("of another program", "'of another program'");
  refused("r2_score", "of 4 means, not of 9");
  refused(3, "function");
}

BOOST_AUTO_TEST_SUITE_END()
