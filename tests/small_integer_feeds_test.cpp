// Data sets of int8, uint8 and int16, which a tree casts: eagerly, in a plan and on replicas alike.
#include <boost/test/unit_test.hpp>

#include <optional>

#include "espalier/core/with_assignment.h"
#include "espalier/data/batches.h"
#include "espalier/data/views/cache.h"
#include "espalier/data/views/map.h"
#include "espalier/data/views/padded.h"
#include "espalier/ops/functions/arrange.h"
#include "replica_programs.h"

namespace esp = espalier;
namespace data = espalier::data;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Tensor, esp::Variable;

namespace {

constexpr int64_t images_of_data = 23;

Tensor images(esp::DType dtype) {
  return numbers({images_of_data, 4, 5}, dtype == esp::uint8 ? 0 : -128, 127, 3).to(dtype);
}
Tensor labels() {
  Tensor result({images_of_data}, esp::int16);
  for (int64_t i = 0; i < images_of_data; ++i)
    result.span<int16_t>()[static_cast<size_t>(i)] = static_cast<int16_t>(i * 7 % 3);
  return result;
}

struct Training {
  explicit Training(esp::DType dtype, data::DatasetPtr dataset = nullptr)
      : feed(dataset ? dataset : std::make_shared<data::TensorDataset>(std::vector{images(dtype), labels()}),
             {.batch_size = 5, .shuffle = true, .seed = 9}) {
    const auto [x, y] = feed.get_output_graphs<2>();
    const Variable padded = esp::pad(x, {{0, 0}, {1, 1}, {1, 1}});  // of bytes
    const Variable seen = esp::cast(esp::slice(padded, 1, 0, 4), esp::float64) / 255.0;
    const Variable h = esp::tanh(esp::matmul(esp::flatten(seen, 1), w));
    loss = esp::softmax_cross_entropy(esp::matmul(h, out), esp::cast(y, esp::int64));
  }
  Trace values() const { return {w.value().to(esp::cpu()).clone(), out.value().to(esp::cpu()).clone()}; }

  data::Distributor feed;
  Variable w = esp::parameter(numbers({28, 6}, -1, 1, 1), "w"),
           out = esp::parameter(numbers({6, 3}, -1, 1, 2), "out");
  Variable loss;
};

Trace eagerly(esp::DType dtype) {
  Training training(dtype);
  const optim::Adam adam({.lr = 0.01});
  Trace trace;
  for (int epoch = 0; epoch < 2; ++epoch, training.feed.reset())
    for (int64_t step = 0; step < 5; ++step) {  // the last one has three rows
      trace.push_back(esp::tensor(training.loss.forward().item(), esp::float64));
      training.loss.update(adam);
    }
  for (const Tensor& value : training.values()) trace.push_back(value);
  return trace;
}

Trace in_a_plan(esp::DType dtype, const esp::ExecutorOptions& given = {},
                data::DatasetPtr dataset = nullptr) {
  const Training training(dtype, std::move(dataset));
  esp::ExecutorOptions options = given;
  options.mode = esp::Mode::training;
  options.optimizer = optim::Adam({.lr = 0.01});
  const esp::Executor executor = training.loss.get_executor(options);
  Trace trace;
  executor.on(esp::Event::step_finish,
              [&](const esp::StepInfo& info) { trace.push_back(esp::tensor(info.loss, esp::float64)); });
  (void)executor.execute({.epochs = 2, .progress = false});
  for (const Tensor& value : training.values()) trace.push_back(value);
  return trace;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(small_integer_feeds)

BOOST_AUTO_TEST_CASE(a_tree_that_casts_its_data_trains_alike_everywhere) {
  for (const esp::DType dtype : {esp::uint8, esp::int8, esp::int16}) BOOST_TEST_CONTEXT(esp::name(dtype)) {
      const Trace eager = eagerly(dtype), plan = in_a_plan(dtype);
      BOOST_TEST(eager.size() == 12u);
      BOOST_TEST(difference_of(plan, eager) < 1e-12);
      BOOST_TEST(difference_of(in_a_plan(dtype, {.devices = cpus(2)}), eager) < 1e-9);
      BOOST_TEST(difference_of(in_a_plan(dtype, {.devices = cpus(3)}), eager) < 1e-9);
      BOOST_TEST(difference_of(in_a_plan(dtype, {.accumulate = 2}), eager) < 1e-9);
    }
}

BOOST_AUTO_TEST_CASE(views_of_datasets_keep_them) {
  const auto bytes = std::make_shared<data::TensorDataset>(std::vector{images(esp::uint8), labels()});
  const data::DatasetPtr mirrored = data::map(bytes, [](const data::Row& row) {
    return data::Row{esp::flip(row[0], 1).value(), row[1]};
  });
  BOOST_CHECK(mirrored->specs()[0].dtype == esp::uint8);
  BOOST_CHECK(mirrored->specs()[1].dtype == esp::int16);
  const TemporaryFolder folder;
  const data::DatasetPtr in_file = data::cache(mirrored, folder / "rows");
  BOOST_CHECK(data::cache(mirrored, folder / "rows")->specs() == mirrored->specs());  // read again
  const Trace once = in_a_plan(esp::uint8, {}, mirrored);
  BOOST_TEST(difference_of(in_a_plan(esp::uint8, {}, in_file), once) == 0);
  BOOST_TEST(difference_of(in_a_plan(esp::uint8, {}, data::cache(mirrored)), once) == 0);
  BOOST_TEST(difference_of(in_a_plan(esp::uint8), once) > 1e-6);  // those are not mirrored
}

BOOST_AUTO_TEST_CASE(rows_of_other_lengths_are_filled_up) {
  const data::DatasetPtr rows =
      data::padded({{esp::tensor({1, 2}, esp::uint8), esp::tensor({3}, esp::uint8)}}, {.values = {255}});
  Tensor batch({2, 2}, esp::uint8);
  const int64_t both[] = {0, 1};
  rows->read(both, {&batch, 1});
  BOOST_TEST(std::vector<int>(batch.span<uint8_t>().begin(), batch.span<uint8_t>().end()) ==
             (std::vector<int>{1, 2, 3, 255}));
}

BOOST_AUTO_TEST_CASE(states_hold_them) {
  const Tensor all = images(esp::uint8).to(esp::float32);
  for (const bool frozen : {false, true}) {
    data::Distributor feed({images(esp::uint8)}, {.batch_size = 1});
    const Variable last = esp::state(esp::zeros({1, 4, 5}, esp::uint8), "last"),
                   x = feed.get_output_graphs()[0], w = esp::parameter(esp::tensor(1.0f), "w");
    const Variable step_between = esp::sum(esp::cast(last, esp::float32));
    const Variable loss = esp::with_assignment(
        esp::square(w) * 0.0 + step_between + esp::sum(esp::cast(x, esp::float32)), last, x);
    std::optional<esp::Executor> executor;
    if (frozen) executor.emplace(loss.get_executor({.optimizer = optim::Sgd(0.1)}));
    double before = 0;
    for (int64_t step = 0; step < 3; ++step) {
      const double shown = esp::sum(all.slice(0, step, step + 1)).value().item();
      const double found = frozen ? executor->step().loss : loss.forward().item();
      BOOST_TEST(found == shown + before);
      BOOST_TEST(difference(last.value().to(esp::float32), all.slice(0, step, step + 1)) == 0);
      before = shown;
    }
  }
}

BOOST_AUTO_TEST_CASE(plans_have_them_as_values_and_outputs) {
  const data::Distributor feed({images(esp::uint8)}, {.batch_size = 5});
  const Variable x = feed.get_output_graphs()[0];
  const Variable corner = esp::reshape(esp::slice(esp::slice(esp::slice(x, 0, 0, 1), 1, 0, 1), 2, 0, 1), {});
  const esp::Executor executor =
      esp::cast(esp::cast(x, esp::float32) * 0.5, esp::uint8)
          .get_executor({.mode = esp::Mode::inference, .outputs = {{"corner", corner}}});
  executor.step();
  const Tensor all = images(esp::uint8);
  BOOST_CHECK(executor.value().dtype() == esp::uint8);
  BOOST_TEST(difference(executor.value(),
                        (esp::cast(all.slice(0, 0, 5), esp::float32) * 0.5).value().to(esp::uint8)) == 0);
  BOOST_CHECK(executor.output("corner").dtype() == esp::uint8);
  BOOST_TEST(executor.output("corner").item() == all.at<uint8_t>({0, 0, 0}));
}

BOOST_AUTO_TEST_SUITE_END()
