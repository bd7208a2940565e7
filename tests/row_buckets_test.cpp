// Batches that `run` fills up to a few numbers of rows.
#include <boost/test/unit_test.hpp>

#include <set>
#include <thread>

#include "espalier/core/error.h"
#include "espalier/espalier.h"
#include "espalier/executor/training/setup.h"
#include "file_errors.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// Hands values on, and notes how many rows they have.
struct Rows {
  std::set<int64_t> run;
  Variable operator()(const Variable& x) {
    const auto op = esp::custom_op({.name = "rows",
                                    .forward =
                                        [this](const auto& inputs) {
                                          run.insert(inputs[0].shape()[0]);
                                          return inputs[0].clone();
                                        },
                                    .row_by_row = true,
                                    .infer = [](const auto& specs) { return specs[0]; }});
    return op({x});
  }
};

esp::Tensor rows_of(int64_t rows, int64_t width) { return numbers({rows, width}).to(esp::float32); }

bool refused(const Variable& y, const std::string& part) {
  const esp::Executor executor = y.get_executor({.mode = esp::Mode::inference, .buckets = {4}});
  try {
    (void)executor.run({{"x", rows_of(3, 2)}});
  } catch (const esp::UnsupportedError& error) {
    BOOST_TEST(has(error.what(), part), error.what());
    BOOST_TEST(has(error.what(), "row_buckets_test.cpp"), error.what());
    return true;
  }
  return false;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(row_buckets)

BOOST_AUTO_TEST_CASE(batches_take_the_plan_of_the_next_bucket) {
  const Variable x = esp::placeholder("x", {-1, 3});
  const Variable w = esp::parameter(rows_of(3, 2));
  Rows rows;
  const Variable y = esp::softmax(esp::matmul(rows(x), w), 1);
  const esp::Executor executor =
      y.get_executor({.mode = esp::Mode::inference,
                      .outputs = {{"turned", esp::swapaxes(y, 0, 1)},
                                  {"flat", esp::reshape(y, {-1})},
                                  {"by columns", esp::reshape(esp::swapaxes(y, 0, 1), {-1})},
                                  {"twice", esp::concat({y, y * 2}, 0)},
                                  {"weights", w * 2}},
                      .buckets = {8, 2}});
  const auto check = [&](int64_t n, int64_t computed) {
    rows.run.clear();
    const esp::Tensor in = numbers({n, 3}).to(esp::float32);
    const esp::StepValues values = executor.run_outputs({{"x", in}});
    const esp::Tensor expected = esp::softmax(esp::matmul(in, w), 1).value();
    BOOST_TEST(values.value.shape() == esp::Shape({n, 2}));
    BOOST_TEST(difference(values.value, expected) < 1e-6);
    BOOST_TEST(difference(values.outputs.at("turned"), esp::swapaxes(expected, 0, 1).value()) < 1e-6);
    BOOST_TEST(difference(values.outputs.at("flat"), esp::reshape(expected, {-1}).value()) < 1e-6);
    BOOST_TEST(difference(values.outputs.at("by columns"),
                          esp::reshape(esp::swapaxes(expected, 0, 1), {-1}).value()) < 1e-6);
    BOOST_TEST(difference(values.outputs.at("twice"),
                          esp::concat({expected, (expected * 2).value()}, 0).value()) < 1e-6);
    BOOST_TEST(difference(values.outputs.at("weights"), (w * 2).value()) == 0);
    BOOST_TEST(difference(executor.value(), expected) < 1e-6);
    BOOST_TEST((rows.run == std::set<int64_t>{computed}));
  };
  check(3, 8);
  check(1, 2);
  check(2, 2);
  check(7, 8);
  check(8, 8);
  check(9, 9);
  check(0, 0);
  executor.warm_up({{"x", {5, 3}}});
  check(5, 8);
}

BOOST_AUTO_TEST_CASE(all_placeholders_are_filled_up) {
  const Variable x = esp::placeholder("x", {-1, -1, 2}), n = esp::placeholder("n", {-1}, esp::int64),
                 scale = esp::placeholder("scale", {});
  const Variable y = esp::sum(x, 1) * scale + esp::one_hot(n, 2);
  const esp::Executor executor = y.get_executor({.mode = esp::Mode::inference, .buckets = {4}});
  for (const int64_t length : {3, 5}) {
    const esp::Tensor in = numbers({3, length, 2}).to(esp::float32), labels = esp::tensor({1, 0, 1});
    const esp::Tensor out = executor.run({{"x", in}, {"n", labels}, {"scale", esp::tensor(2.0)}});
    BOOST_TEST(difference(out, (esp::sum(in, 1) * 2 + esp::one_hot(labels, 2)).value()) < 1e-5);
  }
  BOOST_CHECK_EXCEPTION(
      executor.run(
          {{"x", rows_of(3, 2).reshape({3, 1, 2})}, {"n", esp::tensor({1, 0})}, {"scale", esp::tensor(2.0)}}),
      esp::UnsupportedError, [](const esp::Error& e) { return has(e.what(), "have 3 and 2"); });
}

BOOST_AUTO_TEST_CASE(what_depends_on_other_rows_is_refused) {
  const Variable x = esp::placeholder("x", {-1, 2});
  BOOST_TEST(refused(esp::mean(x), "a mean over all"));
  BOOST_TEST(refused(esp::sum(x, 0), "a sum over all"));
  BOOST_TEST(refused(x - esp::mean(x, 0), "'subtract'"));
  BOOST_TEST(refused(esp::softmax(x, 0), "'softmax'"));
  BOOST_TEST(refused(esp::cumsum(x, 0), "'cumsum'"));
  BOOST_TEST(refused(esp::matmul(x, esp::swapaxes(x, 0, 1)), "'matmul'"));
  BOOST_TEST(refused(x * esp::cast(esp::axis_size(x, 0), esp::float32), "'multiply'"));
  BOOST_TEST(refused(esp::flip(x, {0}), "'flip'"));
  BOOST_TEST(refused(esp::concat({esp::slice(x, 1, 0, 1), esp::reshape(x, {-1, 1})}, 0), "another order"));
  BOOST_TEST(!refused(esp::sort(x, 1).values, ""));
}

BOOST_AUTO_TEST_CASE(options) {
  const Variable x = esp::placeholder("x", {-1, 2});
  BOOST_CHECK_THROW(x.get_executor({.buckets = {4, 0}}), esp::Error);
  BOOST_CHECK_THROW(x.get_executor({.devices = {esp::cpu(0), esp::cpu(1)}, .buckets = {4}}),
                    esp::UnsupportedError);
  esp::Setup one(x, {.mode = esp::Mode::inference, .buckets = {4}});
  BOOST_CHECK_NO_THROW(one.prepare_for({.replicas = 1}));
  BOOST_CHECK_THROW(one.prepare_for({.replicas = 2}), esp::UnsupportedError);  // in a job of two processes
  const esp::data::Distributor feed({rows_of(6, 2)}, {.batch_size = 4});
  BOOST_CHECK_THROW(feed.get_output_graphs()[0].get_executor({.buckets = {4}}), esp::Error);
  const Variable loss = esp::mean(x * esp::parameter(rows_of(1, 2)));
  BOOST_CHECK_THROW(loss.get_executor({.optimizer = esp::optim::Sgd({.lr = 1}), .buckets = {4}}), esp::Error);
}

BOOST_AUTO_TEST_CASE(many_threads_and_a_file) {
  const TemporaryFolder folder;
  const Variable x = esp::placeholder("x", {-1, 3});
  const Variable y = esp::tanh(x * 2);
  y.get_executor({.mode = esp::Mode::inference}).save(folder.path() / "plan");
  const esp::Executor executor = esp::load_executor(folder.path() / "plan", {.buckets = {4, 16}});
  std::vector<double> worst(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < worst.size(); ++t)
    threads.emplace_back([&, t] {
      for (int64_t n = 1; n < 20; ++n) {
        const esp::Tensor in = numbers({n + static_cast<int64_t>(t), 3}).to(esp::float32);
        worst[t] = std::max(worst[t], difference(executor.run({{"x", in}}), esp::tanh(in * 2).value()));
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const double each : worst) BOOST_TEST(each < 1e-6);
}

BOOST_AUTO_TEST_SUITE_END()
