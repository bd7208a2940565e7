// Trees and options that replicas refuse, with the reason and the user's line.
#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/executor/communicators/collective_ops.h"
#include "espalier/executor/communicators/distributed.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "gpu_testing.h"
#include "replica_programs.h"
#include "testing.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// The message of the error from compiling an executor; empty if there is none.
template <class E>
std::string refusal(const Variable& root, const esp::ExecutorOptions& how) {
  try {
    (void)root.get_executor(how);
  } catch (const E& error) {
    return error.what();
  }
  return {};
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

BOOST_AUTO_TEST_SUITE(replicas_refusals)

BOOST_AUTO_TEST_CASE(what_needs_the_whole_batch_is_refused_with_its_line) {
  esp::data::Distributor feed({numbers({8, 3}, -1, 1, 1)}, {.batch_size = 4});
  const Variable in = feed.get_output_graphs()[0], w = esp::parameter(numbers({3}, -1, 1, 2), "w");
  const auto refused = [&](const Variable& root) {
    return refusal<esp::UnsupportedError>(root, {.optimizer = optim::Sgd({.lr = 0.1}), .devices = cpus(2)});
  };
  const auto refused_in_parts = [&](const Variable& root) {  // where replicas would exchange it
    BOOST_TEST(refused(root).empty());
    const std::string text =
        refusal<esp::UnsupportedError>(root, {.optimizer = optim::Sgd({.lr = 0.1}), .accumulate = 2});
    BOOST_TEST(says(text, "leave out .accumulate"), text);
    return text;
  };
  const Variable y = in * w;
  const Variable rms = esp::sqrt(esp::mean(esp::square(y)));
  const std::string text = refused_in_parts(rms);
  BOOST_TEST(says(text, "'sqrt'"), text);
  BOOST_TEST(says(text, "replicas_refusals_test.cpp:"), text);
  BOOST_TEST(says(refused(esp::max(y)), "'max'"));
  BOOST_TEST(says(refused_in_parts(esp::mean(y) * esp::mean(y)), "'multiply'"));
  BOOST_TEST(says(refused(esp::mean(esp::matmul(y, esp::transpose(in)))), "'matmul'"));
  BOOST_TEST(says(refused(esp::mean(esp::softmax(y, 0) * w)), "'softmax'"));
  BOOST_TEST(says(refused(esp::mean(esp::roll(y, 1, -2) * in)), "'roll'"));
  for (const Variable& whole :
       {esp::reshape(y, {4, 3}), esp::slice(y, 0, 0, 4), y + esp::ones({4, 1}, esp::float64)}) {
    const std::string fixed = refused(esp::mean(whole));  // the size of the whole batch
    BOOST_TEST(says(fixed, "get_executor: 2 replicas have a part"), fixed);
    BOOST_TEST(says(fixed, "replicas_refusals_test.cpp:"), fixed);
    const std::string in_parts = refusal<esp::UnsupportedError>(
        esp::mean(whole), {.optimizer = optim::Sgd({.lr = 0.1}), .accumulate = 2});
    BOOST_TEST(says(in_parts, "get_executor: 2 micro-batches have a part"), in_parts);
    BOOST_TEST(!says(in_parts, "replicas have"), in_parts);
  }
  const Variable centered = y - esp::mean(y, 0);
  BOOST_TEST(says(refused_in_parts(esp::mean(esp::square(centered))), "'subtract'"));
  // A statistic of the batch may be each replica's own, if the user says so.
  const esp::Executor local = esp::mean(esp::square(centered))
                                  .get_executor({.optimizer = optim::Sgd({.lr = 0.1}),
                                                 .devices = cpus(2),
                                                 .replicas = {.local_statistics = true}});
  BOOST_TEST(std::isfinite(local.step().loss));
  // That holds for means; a replica's own sum is smaller than that of the batch.
  const Variable normed = y / esp::sum(y);
  for (const int accumulate : {1, 2})
    BOOST_CHECK_EXCEPTION(esp::sum(esp::square(normed))
                              .get_executor({.optimizer = optim::Sgd({.lr = 0.1}),
                                             .devices = cpus(2),
                                             .replicas = {.local_statistics = true},
                                             .accumulate = accumulate}),
                          esp::UnsupportedError,
                          [](const esp::Error& e) { return says(e.what(), "a part's sum"); });
}

BOOST_AUTO_TEST_CASE(options_that_cannot_be) {
  const Variable w = esp::parameter(numbers({3}, -1, 1, 2), "w");
  const Variable loss = esp::sum(esp::square(w));
  const auto rule = optim::Sgd({.lr = 0.1});
  BOOST_TEST(says(refusal<esp::Error>(loss, {.optimizer = rule, .accumulate = 0}), "0 micro-batches"));
  BOOST_TEST(says(refusal<esp::Error>(loss, {.accumulate = 2}), "training only"));
  for (const esp::Device& gpu : gpus_to_test())
    BOOST_TEST(says(refusal<esp::UnsupportedError>(loss, {.optimizer = rule, .devices = {esp::cpu(), gpu}}),
                    "do not go together"));
  // Without a batch all replicas compute the same.
  const esp::Executor executor = loss.get_executor({.optimizer = rule, .devices = cpus(2)});
  const auto run = [&] { return executor.execute({.progress = false}).epochs[0].loss_mean; };
  const double before = run();
  BOOST_TEST(run() == before * 0.64, boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(a_refusal_says_which_of_two_reasons_it_has) {
  esp::data::Distributor feed({numbers({8, 3}, -1, 1, 1)}, {.batch_size = 4});
  const Variable w = esp::parameter(numbers({3}, -1, 1, 2), "w"), x = feed.get_output_graphs()[0] * w,
                 total = esp::sum(x, 0), average = esp::mean(x, 0);
  const std::string sum_and_none = "it adds a value to a sum over the batch",
                    read = "its rows read means or sums", function = "it is a function of means or sums";
  const auto check = [&](const Variable& y, const std::string& said, const std::string& op) {
    // Micro-batches take no mean or sum before the last of them; a part's own sum is smaller than the
    // batch's.
    const std::string text =
        refusal<esp::UnsupportedError>(y, {.optimizer = optim::Sgd(0.1),
                                           .replicas = {.local_statistics = said == sum_and_none},
                                           .accumulate = 2});
    BOOST_TEST(says(text, said), text);
    BOOST_TEST(says(text, "'" + op + "'"), text);
    BOOST_TEST(says(text, "replicas_refusals_test.cpp:"), text);
    BOOST_TEST(says(text, "local_statistics = true") == (said != sum_and_none), text);
    BOOST_TEST(says(text, "or by axis_size") == (op == "divide"), text);
  };
  check(esp::sum(total + w), sum_and_none, "add");
  check(total + 1.0, sum_and_none, "add");
  check(total - average, sum_and_none, "subtract");
  check(esp::concat({total, w}, 0), sum_and_none, "concat");
  check(esp::sum(total) + x, read, "add");  // combines a sum with rows
  check(total * esp::sum(x), function, "multiply");
  check(w / total, function, "divide");
  check(esp::sqrt(average), function, "sqrt");
  check(esp::maximum(total, w), function, "maximum");
}

BOOST_AUTO_TEST_CASE(a_tree_for_batches_of_one_row) {
  esp::data::Distributor feed({numbers({7, 5, 3}, -1, 1, 1)}, {.batch_size = 1});
  const Variable w = esp::parameter(numbers({3}, -1, 1, 2), "w"),
                 row = esp::squeeze(feed.get_output_graphs()[0], 0);
  const std::string text = refusal<esp::UnsupportedError>(
      esp::mean(row * w), {.optimizer = optim::Sgd({.lr = 0.1}), .devices = cpus(2)});
  BOOST_TEST(says(text, "(this batch has 1). For 2 rows: squeeze: axis 0 of shape [2, 5, 3]"), text);
}

BOOST_AUTO_TEST_CASE(functions_have_the_names_that_users_know) {
  esp::data::Distributor feed({numbers({8, 3}, -1, 1, 1)}, {.batch_size = 4});
  const Variable w = esp::parameter(numbers({3}, -1, 1, 2), "w"), x = feed.get_output_graphs()[0] * w;
  const std::string text =
      refusal<esp::UnsupportedError>(esp::mean(x * esp::unsqueeze(esp::arange_like(x, 0, esp::float64), 1)),
                                     {.optimizer = optim::Sgd({.lr = 0.1}), .devices = cpus(2)});
  BOOST_TEST(says(text, "'arange_like' (replicas_refusals_test.cpp:"), text);
}

BOOST_AUTO_TEST_CASE(a_tree_with_collectives_of_its_own_is_not_replicated) {
  const auto world = esp::distributed::make_group({esp::cpu()}).front();
  esp::data::Distributor feed({numbers({8, 3}, -1, 1, 1)}, {.batch_size = 4});
  const Variable y = esp::distributed::all_reduce(feed.get_output_graphs()[0], esp::Reduction::sum, world);
  BOOST_TEST(says(refusal<esp::UnsupportedError>(esp::mean(y), {.devices = cpus(2)}),
                  "replicas_refusals_test.cpp:"));
  BOOST_TEST(refusal<esp::Error>(esp::mean(y), {}).empty());
}

// A shard with one row would broadcast where the rows of the whole batch meet another axis of their number.
BOOST_AUTO_TEST_CASE(an_axis_of_the_size_of_the_batch_is_not_its_rows) {
  for (const int which : {0, 1, 2}) {
    const auto loss_on = [&](int replicas) {
      esp::data::Distributor feed({esp::tensor({{1., 2.}, {3., 5.}}, esp::float64)}, {.batch_size = 2});
      const Variable w = esp::parameter(esp::tensor({1., 10.}, esp::float64), "w"),
                     x = feed.get_output_graphs()[0];
      const Variable y = which == 0   ? x - esp::mean(x, 1)
                         : which == 1 ? x * esp::sum(x * w, -1)
                                      : x * esp::reshape(esp::mean(x, 1), {-1, 1});
      const esp::Executor executor =
          esp::mean(esp::square(y * w))
              .get_executor({.optimizer = optim::Sgd(0.01), .devices = cpus(replicas)});
      return executor.step().loss;
    };
    const double one = loss_on(1);
    for (const int replicas : {2, 4}) {
      if (which < 2)
        BOOST_CHECK_THROW((void)loss_on(replicas), esp::UnsupportedError);
      else
        BOOST_TEST(loss_on(replicas) == one, boost::test_tools::tolerance(1e-12));
    }
  }
}

BOOST_AUTO_TEST_CASE(more_parts_than_can_be) {
  const Variable w = esp::parameter(numbers({3}, -1, 1, 2), "w");
  const Variable loss = esp::mean(esp::placeholder("x", {4, 3}, esp::float64) * w);
  BOOST_CHECK_THROW((void)loss.plan_for({.optimizer = optim::Sgd(0.1), .devices = 4, .accumulate = 1 << 30}),
                    esp::Error);
  BOOST_CHECK_THROW((void)loss.get_executor({.optimizer = optim::Sgd(0.1), .accumulate = 1 << 30}),
                    esp::Error);
}

BOOST_AUTO_TEST_CASE(several_feeds) {
  const esp::data::Distributor a({numbers({12, 3}, -1, 1)}, {.batch_size = 4}),
      b({numbers({24, 3}, -1, 1, 1)}, {.batch_size = 8});
  const Variable w = esp::parameter(esp::ones({3}, esp::float64), "w"),
                 loss = esp::mean(a.get_output_graphs()[0] * w) + esp::mean(b.get_output_graphs()[0] * w);
  const optim::Sgd sgd(0.1);
  BOOST_CHECK_EXCEPTION(loss.get_executor({.optimizer = sgd, .validation = a}), esp::DataError,
                        espalier::testing::says({"2", "zip(", here()}));
  BOOST_CHECK_EXCEPTION(loss.get_executor({.optimizer = sgd, .accumulate = 2}), esp::UnsupportedError,
                        espalier::testing::says({"8 and 4", "zip(", here()}));
  const Variable x = esp::placeholder("x", {4, 3}, esp::float64),
                 y = esp::placeholder("y", {4, 3}, esp::float64);
  const esp::Executor executor =
      esp::mean(x * w - y).get_executor({.optimizer = sgd, .devices = {esp::cpu(0), esp::cpu(1)}});
  BOOST_CHECK_EXCEPTION(
      executor.run({{"x", esp::ones({4, 3}, esp::float64)}, {"y", esp::ones({5, 3}, esp::float64)}}),
      esp::UnsupportedError, espalier::testing::says({"run: replicas", "5 and 4", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
