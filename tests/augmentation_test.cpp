// Datasets that augment their rows: what a row becomes follows from the row, the epoch and the seed.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <optional>
#include <thread>

#include "checkpoint_program.h"
#include "espalier/data/batches.h"
#include "espalier/ops/ops.h"
#include "replica_programs.h"

namespace esp = espalier;
namespace data = espalier::data;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

constexpr int64_t rows_of_data = 23, width = 3;

/// Adds noise to the rows of a tensor; slow reading is done in the background.
struct Noisy : data::TensorDataset {
  explicit Noisy(int microseconds = 0)
      : TensorDataset({numbers({rows_of_data, width}, -1, 1, 7)}), delay(microseconds) {}
  void read_in(const data::ReadContext& context, std::span<const int64_t> rows,
               std::span<Tensor> outputs) const override {
    read(rows, outputs);
    for (size_t i = 0; i < rows.size(); ++i) {
      double noise[width];
      esp::fill_normal(context.random(rows[i]), noise, width, 0, 1);
      for (size_t k = 0; k < width; ++k) outputs[0].span<double>()[i * width + k] += noise[k];
    }
    std::this_thread::sleep_for(delay);
  }
  std::chrono::microseconds delay;
};

/// As datasets were written before reading had a context.
struct Plain : data::Dataset {
  int64_t rows() const override { return 6; }
  std::vector<esp::Spec> specs() const override { return {{esp::int64, {6}}}; }
  void read(std::span<const int64_t> rows, std::span<Tensor> outputs) const override {
    std::ranges::copy(rows, outputs[0].span<int64_t>().begin());
  }
};

data::DistributorOptions options_of(uint64_t seed = 5) {
  return {.batch_size = 5, .shuffle = true, .seed = seed};
}

/// The rows that batches<1>() shows in an epoch after the other.
Trace shown(int microseconds, uint64_t seed, int epochs = 2) {
  Trace trace;
  const auto batches = data::batches<1>(std::make_shared<Noisy>(microseconds), options_of(seed));
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (const auto& [x] : batches) trace.push_back(x.clone());
  return trace;
}

struct Training {
  explicit Training(int microseconds = 0, const std::vector<esp::Device>& devices = {}, int accumulate = 1)
      : feed(std::make_shared<Noisy>(microseconds), options_of()) {
    const Variable x = feed.get_output_graphs()[0];
    const Variable loss = esp::mean(esp::square(esp::tanh(esp::matmul(x, w)) - 0.5));
    executor.emplace(loss.get_executor(
        {.optimizer = optim::Adam({.lr = 0.05}),
         .devices = devices,
         .accumulate = accumulate,
         .validation = data::Distributor(std::make_shared<Noisy>(), {.batch_size = 4, .seed = 3})}));
  }
  Trace finish() const {
    Trace trace;
    for (const auto& epoch : executor->execute({.epochs = 3, .progress = false}).epochs)
      trace.push_back(esp::tensor({epoch.loss_sum, epoch.validation_loss}, esp::float64));
    trace.push_back(w.value().clone());
    return trace;
  }
  data::Distributor feed;
  Variable w = esp::parameter(numbers({width, 2}, -1, 1, 1), "w");
  std::optional<esp::Executor> executor;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(augmentation)

BOOST_AUTO_TEST_CASE(rows_differ_by_row_epoch_and_seed_alone) {
  const Noisy noisy;
  const std::vector<int64_t> all{3, 4, 4};
  Tensor three({3, width}, esp::float64), other({3, width}, esp::float64), one({1, width}, esp::float64);
  noisy.read_in({1, 2}, all, {&three, 1});
  noisy.read_in({1, 2}, std::span(all).first(1), {&one, 1});
  BOOST_TEST(difference(three.slice(0, 0, 1), one) == 0);
  BOOST_TEST(difference(three.slice(0, 1, 2), three.slice(0, 2, 3)) == 0);
  for (const data::ReadContext& context : {data::ReadContext{2, 2}, data::ReadContext{1, 3}}) {
    noisy.read_in(context, all, {&other, 1});
    BOOST_TEST(difference(three.slice(0, 0, 1), other.slice(0, 0, 1)) > 0.001);
  }
  const auto number = [](int64_t row) {
    double x = 0;
    esp::fill_uniform(data::ReadContext{1, 2}.random(row), &x, 1, 0, 1);
    return x;
  };
  BOOST_TEST(number(3) != number(4));
}

BOOST_AUTO_TEST_CASE(epochs_follow_the_seed) {
  const Trace one = shown(0, 5), same = shown(0, 5), other = shown(0, 6);
  BOOST_TEST(difference_of(one, same) == 0);
  BOOST_TEST(difference_of(one, other) > 0.001);
  const Noisy noisy;
  std::vector<double> sums(2);
  for (size_t i = 0; i < one.size(); ++i) sums[i >= one.size() / 2] += esp::sum(one[i]).item();
  BOOST_TEST(sums[0] != sums[1]);  // the same rows in another order, with other noise
}

BOOST_AUTO_TEST_CASE(batches_read_in_the_background_are_the_same) {
  BOOST_TEST(difference_of(shown(300, 5), shown(0, 5)) == 0);
}

BOOST_AUTO_TEST_CASE(a_distributor_shows_what_batches_do) {
  data::Distributor feed(std::make_shared<Noisy>(), options_of());
  const Variable x = feed.get_output_graphs()[0];
  Trace trace;
  for (int epoch = 0; epoch < 2; ++epoch, feed.reset())
    for (int64_t step = 0; step < feed.steps(); ++step) trace.push_back(x.forward().value().clone());
  BOOST_TEST(difference_of(trace, shown(0, 5)) == 0);
}

BOOST_AUTO_TEST_CASE(a_dataset_without_a_context_reads_as_before) {
  std::vector<int64_t> seen;
  for (const auto& [x] : data::batches<1>(std::make_shared<Plain>(), {.batch_size = 4}))
    for (const int64_t row : x.span<int64_t>()) seen.push_back(row);
  BOOST_TEST((seen == std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
}

// A device would read the rows of the tensors instead.
BOOST_AUTO_TEST_CASE(a_derived_dataset_has_no_columns) {
  BOOST_TEST(Noisy().columns().empty());
  BOOST_TEST(data::TensorDataset({esp::ones({2})}).columns().size() == 1u);
}

BOOST_AUTO_TEST_CASE(replicas_read_the_same_rows) {
  const Trace one = Training().finish();
  for (const int count : {2, 3}) BOOST_TEST(difference_of(Training(0, cpus(count)).finish(), one) < 1e-9);
  BOOST_TEST(difference_of(Training(0, cpus(2), 2).finish(), one) < 1e-9);
  BOOST_TEST(difference_of(Training(100).finish(), one) == 0);
}

BOOST_AUTO_TEST_CASE(a_run_resumed_within_an_epoch_ends_with_the_same_bits) {
  const Trace whole = Training().finish();
  for (const int microseconds : {0, 100}) {
    const TemporaryFolder folder;
    const Training first(microseconds);
    for (int step = 0; step < 8; ++step) try {
        first.executor->step();
      } catch (const esp::EndOfData&) {
      }
    first.executor->checkpoint(folder.path());
    const Training second(microseconds);
    second.executor->resume(folder.path());
    const Trace resumed = second.finish();
    // The first epoch was done by step(), without validation.
    BOOST_TEST(difference_of({resumed.begin() + 1, resumed.end()}, {whole.begin() + 1, whole.end()}) == 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()
