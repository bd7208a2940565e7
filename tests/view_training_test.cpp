// Training on views of datasets: alike on replicas, with workers, and from a checkpoint.
#include <boost/test/unit_test.hpp>
#include <optional>

#include "checkpoint_program.h"
#include "espalier/data/distributor.h"
#include "espalier/data/views/combine.h"
#include "espalier/data/views/map.h"
#include "espalier/data/views/padded.h"
#include "espalier/data/views/sample.h"
#include "espalier/data/views/select.h"
#include "espalier/data/workers/parallel.h"
#include "espalier/ops/ops.h"
#include "replica_programs.h"

namespace esp = espalier;
namespace data = espalier::data;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

constexpr int64_t view_width = 3;

/// Each kind of view, with rows that augment: 30 rows or so.
data::DatasetPtr composed(int64_t workers) {
  const auto noisy = [](const data::Row& row, const data::RowContext& context) -> data::Row {
    Tensor x = row[0].clone();
    double noise[view_width];
    esp::fill_normal(context.random, noise, view_width, 0, 1);
    for (int64_t k = 0; k < view_width; ++k) x.data<double>()[k] += noise[k];
    return {x};
  };
  const auto source = std::make_shared<data::TensorDataset>(std::vector{numbers({23, view_width}, -1, 1, 7)});
  data::DatasetPtr rows = data::map(source, data::RowFunction(noisy));
  rows = data::concat({data::skip(rows, 3), data::repeat(data::take(rows, 5), 2)});
  rows = data::weighted_sample(data::shuffle(rows, 2), esp::arange(rows->rows()), {.rows = 31});
  return workers > 0 ? data::parallel(rows, {.workers = workers}) : rows;
}

struct ViewTraining {
  explicit ViewTraining(int64_t workers = 0, const std::vector<esp::Device>& devices = {})
      : feed(composed(workers), {.batch_size = 5, .seed = 5}) {
    const Variable x = feed.get_output_graphs()[0];
    const Variable loss = esp::mean(esp::square(esp::tanh(esp::matmul(x, w)) - 0.5));
    executor.emplace(loss.get_executor({.optimizer = esp::optim::Adam({.lr = 0.05}), .devices = devices}));
  }
  Trace finish() const {
    Trace trace;
    for (const auto& epoch : executor->execute({.epochs = 3, .progress = false}).epochs)
      trace.push_back(esp::tensor(epoch.loss_sum, esp::float64));
    trace.push_back(w.value().clone());
    return trace;
  }
  data::Distributor feed;
  Variable w = esp::parameter(numbers({view_width, 2}, -1, 1, 1), "w");
  std::optional<esp::Executor> executor;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(view_training)

BOOST_AUTO_TEST_CASE(replicas_and_workers_train_alike) {
  const Trace one = ViewTraining().finish();
  for (const int count : {2, 3}) BOOST_TEST(difference_of(ViewTraining(0, cpus(count)).finish(), one) < 1e-9);
  for (const int64_t workers : {1, 3}) BOOST_TEST(difference_of(ViewTraining(workers).finish(), one) == 0);
  BOOST_TEST(difference_of(ViewTraining(3, cpus(2)).finish(), one) < 1e-9);
}

BOOST_AUTO_TEST_CASE(a_run_resumed_within_an_epoch_ends_with_the_same_bits) {
  const Trace whole = ViewTraining().finish();
  for (const int64_t workers : {0, 2}) {
    const TemporaryFolder folder;
    const ViewTraining first(workers);
    for (int step = 0; step < 9; ++step) try {
        first.executor->step();
      } catch (const esp::EndOfData&) {
      }
    first.executor->checkpoint(folder.path());
    const ViewTraining second(workers);
    second.executor->resume(folder.path());
    const Trace resumed = second.finish();
    BOOST_TEST(difference_of({resumed.begin() + 1, resumed.end()}, {whole.begin() + 1, whole.end()}) == 0);
  }
}

BOOST_AUTO_TEST_CASE(padded_batches_train_as_one_by_one) {
  std::vector<Tensor> rows;
  for (int64_t length = 1; length <= 7; ++length) rows.push_back(numbers({length, 2}, -1, 1, 3));
  const auto loss_with = [&](int64_t batch_size, const std::vector<esp::Device>& devices) {
    data::Distributor feed(data::padded({rows}), {.batch_size = batch_size});
    const Variable x = feed.get_output_graphs()[0];
    const Variable w = esp::parameter(numbers({2, 1}, -1, 1, 1), "w");
    const Variable loss = esp::sum(esp::square(esp::matmul(x, w)));
    auto executor = loss.get_executor({.optimizer = esp::optim::Sgd({.lr = 0}), .devices = devices});
    return executor.execute({.epochs = 1, .progress = false}).epochs[0].loss_sum;
  };
  const double one = loss_with(1, {});
  BOOST_TEST(one > 0);
  for (const int64_t size : {3, 4})
    BOOST_TEST(loss_with(size, cpus(2)) == loss_with(size, {}), boost::test_tools::tolerance(1e-12));
  double sum = 0;
  for (const Tensor& row : rows)
    sum += esp::sum(esp::square(esp::matmul(row, numbers({2, 1}, -1, 1, 1)))).item();
  BOOST_TEST(one == sum, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_SUITE_END()
