// Losses that are taken over the rows of each replica or micro-batch, such as those over pairs of rows:
// training minimizes the mean of the parts' losses, each counted by its rows.
#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/espalier.h"
#include "replica_programs.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Variable;

namespace {

using LossOf = std::function<Variable(const Variable& x, const Variable& w)>;

/// Each row is to be told from the others.
Variable contrast(const Variable& x, const Variable& w) {
  const Variable z = esp::matmul(x, w);
  return esp::softmax_cross_entropy(esp::matmul(z, esp::transpose(z)), esp::arange_like(z, 0));
}
Variable contrast_by_sums(const Variable& x, const Variable& w) {
  const Variable z = esp::matmul(x, w), pairs = esp::matmul(z, esp::transpose(z));
  return esp::mean(esp::log(esp::sum(esp::exp(pairs), 1)) - esp::sum(z * z, 1));
}
/// The share of each column times its mean, as experts are balanced.
Variable balance(const Variable& x, const Variable& w) {
  const Variable gates = esp::softmax(esp::matmul(x, w), -1);
  const Variable load = esp::mean(esp::one_hot(esp::argmax(gates, -1), 4, esp::float64), 0);
  return esp::mean(esp::square(gates)) + esp::sum(load * esp::mean(gates, 0)) * 4.0;
}
Variable worst_row(const Variable& x, const Variable& w) {
  return esp::max(esp::square(esp::matmul(x, w) - 0.5));
}
Variable over_the_batch(const Variable& x, const Variable& w) {
  return esp::mean(esp::softmax(esp::matmul(x, w), 0) * esp::slice(x, 1, 0, 4));
}
/// Rows that look at each other.
Variable attending(const Variable& x, const Variable& w) {
  const Variable z = esp::matmul(x, w);
  const Variable weights = esp::softmax(esp::matmul(z, esp::transpose(z)), -1);
  return esp::mean(esp::square(esp::matmul(weights, z) - 1.0));
}

esp::Tensor rows_of_data() { return numbers({19, 6}, -1, 1, 3); }
Variable weights() { return esp::parameter(numbers({6, 4}, -1, 1, 8), "w"); }

/// The steps over batches of 7 rows, each cut into parts, written out.
esp::Tensor by_hand(const LossOf& loss_of, int64_t parts) {
  const Variable w = weights();
  const esp::Tensor data = rows_of_data();
  const optim::Sgd rule({.lr = 0.2});
  for (int64_t begin = 0; begin < 19; begin += 7) {
    const int64_t n = std::min<int64_t>(7, 19 - begin);
    const auto cut = [&](int64_t part) { return begin + n / parts * part + n % parts * part / parts; };
    Variable loss = esp::zeros({}, esp::float64);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t rows = cut(part + 1) - cut(part);
      const Variable x = esp::slice(data, 0, cut(part), cut(part + 1));
      loss += loss_of(x, w) * (static_cast<double>(rows) / static_cast<double>(n));
    }
    loss.backward();
    loss.update(rule);
  }
  return w.value().clone();
}

/// A mean over the rows that count.
Variable masked(const Variable& x, const Variable& w) {
  const Variable counts = esp::cast(esp::greater(esp::slice(x, 1, 0, 1), -0.9), esp::float64);
  return esp::sum(esp::square(esp::matmul(x, w)) * counts) / esp::sum(counts);
}
/// Guards of parts without a row that counts.
Variable guarded(const Variable& x, const Variable& w) {
  const Variable counts = esp::cast(esp::greater(esp::slice(x, 1, 0, 1), 0.3), esp::float64),
                 n = esp::sum(counts);
  const Variable s = esp::sum(esp::square(esp::matmul(x, w)) * counts);
  return s / esp::maximum(n, 1.0) + s / (n + 1e-6) * 0.1 +
         esp::where(n > 0.0, s / esp::maximum(n, 1.0), 0.0) * 0.1;
}
Variable ignoring(const Variable& x, const Variable& w) {
  const Variable labels = esp::cast(esp::greater(esp::squeeze(esp::slice(x, 1, 0, 1), 1), 0.8), esp::int64);
  return esp::nn::SoftmaxCrossEntropy({.ignored_label = 1})(esp::matmul(x, w), labels);
}
Variable pairs_by_count(const Variable& x, const Variable& w) {
  const Variable z = esp::matmul(x, w), n = esp::cast(esp::axis_size(x, 0), esp::float64);
  return esp::sum(esp::exp(esp::matmul(z, esp::transpose(z)))) / (n * n);
}

Variable rows_in(const Variable& x) { return esp::cast(esp::axis_size(x, 0), esp::int64); }
/// Two views of each row behind each other: the labels of one are the rows of the other.
Variable views(const Variable& x, const Variable& w) {
  return esp::concat({esp::matmul(x, w), esp::matmul(x * 1.1 + 0.1, w)}, 0);
}
Variable labels_by_count(const Variable& x, const Variable& w) {
  const Variable z = views(x, w), r = esp::arange_like(x, 0);
  return esp::softmax_cross_entropy(esp::matmul(z, esp::transpose(z)), esp::concat({r + rows_in(x), r}, 0));
}
Variable labels_by_remainder(const Variable& x, const Variable& w) {
  const Variable z = views(x, w), r = esp::arange_like(z, 0), n = rows_in(x);
  const Variable self = esp::equal(esp::unsqueeze(r, 1), esp::unsqueeze(r, 0));
  return esp::softmax_cross_entropy(esp::masked_fill(esp::matmul(z, esp::transpose(z)), self, -1e9),
                                    (r + n) % (2 * n));
}
Variable determinant(const Variable& x, const Variable& w) {
  const Variable z = esp::matmul(x, w), k = esp::exp(-esp::square(esp::cdist(z, z)));
  const Variable r = esp::arange_like(x, 0);
  const Variable self = esp::equal(esp::unsqueeze(r, 1), esp::unsqueeze(r, 0));
  const Variable a = k + esp::cast(self, esp::float64);
  const Variable logarithms = esp::log(esp::diagonal(esp::cholesky(a + 0.1 * esp::cast(self, esp::float64))));
  return (esp::slogdet(a).log_abs + esp::sum(logarithms)) / esp::axis_size(x, 0);
}
/// Variances that are large enough, and covariances that are small.
Variable spread(const Variable& x, const Variable& w) {
  const Variable z = esp::matmul(x, w), c = esp::cov(esp::transpose(z));
  return esp::mean(esp::relu(1.0 - esp::std(z, 0))) + esp::mean(esp::var(z, 0)) +
         (esp::sum(esp::square(c)) - esp::sum(esp::square(esp::diagonal(c)))) * 0.1;
}
Variable own_normalization(const Variable& x, const Variable& w) {
  const Variable z = esp::matmul(x, w);
  const Variable y = (z - esp::mean(z, 0)) / esp::sqrt(esp::var(z, 0, {.correction = 0}) + 1e-3);
  return esp::mean(esp::square(y - esp::slice(x, 1, 0, 4)));
}
/// Correlations of two views, by standard deviations and by norms over the batch.
Variable correlation(const Variable& x, const Variable& w) {
  const Variable a = esp::matmul(x, w), b = esp::matmul(x * x, w);
  const auto standard = [](const Variable& z) {
    return (z - esp::mean(z, 0)) / esp::sqrt(esp::var(z, 0, {.correction = 0}) + 1e-3);
  };
  const auto unit = [](const Variable& z) { return z / esp::norm(z, 0, {.keep_dims = true}); };
  const Variable c = esp::einsum("ni,nj->ij", {standard(a), standard(b)}) / esp::axis_size(x, 0);
  const Variable d = esp::einsum("ni,nj->ij", {unit(a), unit(b)});
  return esp::sum(esp::square(esp::diagonal(c) - 1.0)) + esp::sum(esp::square(c)) * 0.1 +
         esp::mean(esp::square(d));
}
Variable by_roots(const Variable& x, const Variable& w) {
  const Variable z = esp::matmul(x, w), squares = esp::sum(z * z);
  return squares * esp::rsqrt(esp::square(esp::sum(esp::square(x))));
}
Variable each_by_count(const Variable& x, const Variable& w) {
  return esp::sum(esp::square(esp::matmul(x, w)) / esp::axis_size(x, 0)) + worst_row(x, w);
}

esp::Tensor frozen(const LossOf& loss_of, int replicas, int accumulate, bool local = true) {
  const Variable w = weights();
  const esp::data::Distributor feed({rows_of_data()}, {.batch_size = 7});
  const esp::Executor executor = loss_of(feed.get_output_graphs()[0], w)
                                     .get_executor({.optimizer = optim::Sgd({.lr = 0.2}),
                                                    .devices = cpus(replicas),
                                                    .replicas = {.local_statistics = local},
                                                    .accumulate = accumulate});
  (void)executor.execute({.epochs = 1, .progress = false});
  return w.value().clone();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(local_losses)

BOOST_AUTO_TEST_CASE(the_mean_of_those_of_the_parts) {
  struct Case {
    const char* name;
    LossOf loss_of;
    int most_parts = 4;  // more would have a part without a row that counts
  };
  const Case all[] = {{"contrast", contrast},
                      {"by sums", contrast_by_sums},
                      {"balance", balance},
                      {"worst row", worst_row},
                      {"over the batch", over_the_batch},
                      {"attending", attending},
                      {"masked", masked, 2},
                      {"guarded", guarded},
                      {"ignoring", ignoring, 2},
                      {"pairs by count", pairs_by_count},
                      {"labels by count", labels_by_count},
                      {"labels by remainder", labels_by_remainder},
                      {"determinant", determinant},
                      {"spread", spread, 2},  // a variance of one row is none
                      {"own normalization", own_normalization},
                      {"correlation", correlation},
                      {"by roots", by_roots},
                      {"each by count", each_by_count}};
  for (const Case& c : all)
    for (const auto& [replicas, accumulate] : {std::pair{2, 1}, {1, 2}, {3, 1}, {2, 2}}) {
      if (replicas * accumulate > c.most_parts) continue;
      BOOST_TEST_CONTEXT(c.name << ", " << replicas << " replicas, " << accumulate << " micro-batches") {
        const esp::Tensor expected = by_hand(c.loss_of, replicas * accumulate);
        BOOST_TEST(difference(frozen(c.loss_of, replicas, accumulate), expected) < 1e-12);
        BOOST_TEST(difference(weights().value(), expected) > 1e-3);
      }
    }
}

BOOST_AUTO_TEST_CASE(metrics_as_well) {
  const Variable w = weights();
  const esp::data::Distributor feed({rows_of_data()}, {.batch_size = 19});
  const Variable x = feed.get_output_graphs()[0];
  const Variable worst = worst_row(x, w);
  const esp::Executor executor = esp::mean(esp::matmul(x, w))
                                     .get_executor({.optimizer = optim::Sgd({.lr = 0.0}),
                                                    .devices = cpus(2),
                                                    .replicas = {.local_statistics = true},
                                                    .outputs = {{"worst", worst}}});
  (void)executor.step();
  const esp::Tensor data = rows_of_data();
  const double first = worst_row(esp::slice(data, 0, 0, 9), w).value().item<double>(),
               second = worst_row(esp::slice(data, 0, 9, 19), w).value().item<double>();
  BOOST_TEST(executor.output("worst").item<double>() == (9 * first + 10 * second) / 19,
             boost::test_tools::tolerance(1e-12));
}

/// What get_executor says of a loss on two replicas, or nothing.
std::string refusal(const LossOf& loss_of, bool local) {
  const Variable w = weights();
  const esp::data::Distributor feed({rows_of_data()}, {.batch_size = 6});
  try {
    (void)loss_of(feed.get_output_graphs()[0], w)
        .get_executor({.optimizer = optim::Sgd({.lr = 0.2}),
                       .devices = cpus(2),
                       .replicas = {.local_statistics = local}});
  } catch (const esp::UnsupportedError& e) {
    return e.what();
  }
  return "";
}
void check_refusal(const LossOf& loss_of, bool local, const std::vector<std::string>& parts) {
  const std::string text = refusal(loss_of, local);
  for (const std::string& part : parts) BOOST_TEST(text.find(part) != text.npos, text << " lacks " << part);
  BOOST_TEST((text.find("local_statistics = true") != text.npos) != local, text);
}

/// Parts have smaller sums than the batch, and other pairs of rows: neither can be put together.
BOOST_AUTO_TEST_CASE(no_sums_and_no_pairs) {
  const auto z = [](const Variable& x, const Variable& w) { return esp::matmul(x, w); };
  const auto pairs = [&](const Variable& x, const Variable& w) {
    return esp::matmul(z(x, w), esp::transpose(z(x, w)));
  };
  const struct {
    const char *op, *why;
    LossOf loss_of;
  } all[] = {
      {"'sum'", "it grows", [&](auto& x, auto& w) { return esp::sum(pairs(x, w)); }},
      {"'sum'", "it grows", [&](auto& x, auto& w) { return esp::tanh(w) * 0.0 + esp::sum(pairs(x, w)); }},
      {"'square'", "it grows", [&](auto& x, auto& w) { return 2.0 * esp::square(esp::sum(z(x, w))); }},
      {"'divide'", "the smaller it",
       [&](auto& x, auto& w) { return esp::mean(z(x, w) / esp::sum(z(x, w))); }},
      {"'divide'", "the smaller it",
       [&](auto& x, auto& w) { return worst_row(x, w) + esp::sum(w * w) / esp::axis_size(x, 0); }},
      {"'square'", "it grows",
       [&](auto& x, auto& w) { return esp::mean(z(x, w) * esp::square(esp::sum(z(x, w)))); }},
      {"'exp'", "is not known", [&](auto& x, auto& w) { return esp::exp(esp::sum(z(x, w)) * 0.1) * 2.0; }},
      {"the determinant", "it grows",
       [&](auto& x, auto& w) { return esp::slogdet(esp::exp(pairs(x, w))).log_abs; }},
      {"'prod'", "is not known", [&](auto& x, auto& w) { return esp::sum(esp::prod(z(x, w), 0)); }},
  };
  for (const auto& c : all)
    check_refusal(c.loss_of, true, {c.op, c.why, "a part's sum", "local_losses_test"});
  check_refusal([&](auto& x, auto& w) { return esp::exp(pairs(x, w)); }, true,
                {"'matmul' (local_losses_test.cpp:", "for rows of several parts"});
  check_refusal(contrast, false, {"'matmul' (local_losses_test.cpp:"});
  BOOST_TEST(refusal(contrast, true) == "");
}

/// What is refused is named, and not what came before it.
BOOST_AUTO_TEST_CASE(a_state_of_rows) {
  check_refusal(
      [](const Variable& x, const Variable& w) {
        const Variable queue = esp::state(numbers({8, 4}, -1, 1, 5), "queue"), z = esp::matmul(x, w);
        return esp::with_assignment(worst_row(x, w), queue, esp::slice(esp::concat({z, queue}, 0), 0, 0, 8));
      },
      true, {"'slice'", "at fixed positions"});
}

/// A part has other rows at a position than the batch.
BOOST_AUTO_TEST_CASE(no_rows_at_positions) {
  const auto refused = [](const char* name, const auto& choose) {
    const Variable w = weights();
    const esp::data::Distributor feed({rows_of_data()}, {.batch_size = 6});
    const Variable z = esp::matmul(feed.get_output_graphs()[0], w);
    BOOST_TEST_CONTEXT(name)
    BOOST_CHECK_THROW((void)esp::mean(choose(z)).get_executor({.optimizer = optim::Sgd({.lr = 0.2}),
                                                               .devices = cpus(2),
                                                               .replicas = {.local_statistics = true}}),
                      esp::UnsupportedError);
  };
  refused("row", [](const Variable& z) { return z[0]; });
  refused("range", [](const Variable& z) { return esp::slice(z, 0, 0, 2); });
  refused("all but one", [](const Variable& z) { return esp::slice(z, 0, 1, esp::open_end); });
  refused("gather", [](const Variable& z) { return esp::gather(z, esp::tensor({0, 2})); });
  refused("of pairs", [](const Variable& z) { return esp::matmul(z, esp::transpose(z))[1]; });
  refused("diagonal beside",
          [](const Variable& z) { return esp::diagonal(esp::matmul(z, esp::transpose(z)), 1); });
  refused("mask", [](const Variable& z) { return z[esp::tensor({true, false, false, true, false, false})]; });
  refused("selected", [](const Variable& z) {
    return esp::masked_select(z, esp::Variable(esp::arange(24)).reshape({6, 4}) < 7);
  });
  refused("scattered", [](const Variable& z) { return esp::scatter_max(z, esp::tensor({0}), 100.0); });
}

/// Without local_statistics: the number of rows is known before any of them is read.
BOOST_AUTO_TEST_CASE(numbers_of_rows_are_the_batch_s) {
  const LossOf by_count = [](const Variable& x, const Variable& w) {
    return esp::sum(esp::square(esp::matmul(x, w))) / esp::cast(esp::axis_size(x, 0), esp::float64);
  };
  const LossOf each_by_count = [](const Variable& x, const Variable& w) {
    return esp::sum(esp::square(esp::matmul(x, w)) / esp::cast(esp::axis_size(x, 0), esp::float64));
  };
  // The gradient of a mean is divided by the number of rows, and moves each of them.
  const LossOf adversarial = [](const Variable& x, const Variable& w) {
    const Variable first = esp::mean(esp::square(esp::matmul(x, w)));
    return esp::mean(esp::square(esp::matmul(x + esp::stop_gradient(first.gradient(x)) * 3.0, w)));
  };
  const LossOf penalized = [](const Variable& x, const Variable& w) {  // a sum, and what is none
    return esp::sum(esp::square(esp::matmul(x, w))) * 0.1 + esp::sum(esp::square(w));
  };
  for (const LossOf& loss_of : {by_count, each_by_count, adversarial, penalized}) {
    const esp::Tensor expected = by_hand(loss_of, 1);
    for (const auto& [replicas, accumulate] : {std::pair{2, 1}, {1, 2}, {1, 3}, {2, 2}})
      BOOST_TEST_CONTEXT(replicas << " replicas, " << accumulate << " micro-batches") {
        BOOST_TEST(difference(frozen(loss_of, replicas, accumulate, false), expected) < 1e-12);
      }
  }
  for (const auto& [replicas, accumulate] : {std::pair{2, 1}, {1, 3}})
    BOOST_TEST(difference(frozen(by_count, replicas, accumulate), by_hand(by_count, 1)) < 1e-12);
}

/// Gradients of means over single rows, which the elements of each row were chosen for, are as large in a
/// part as in the batch.
BOOST_AUTO_TEST_CASE(penalties_on_gradients) {
  const auto label = [](const Variable& x) {
    return esp::cast(esp::greater(esp::squeeze(esp::slice(x, 1, 0, 1), 1), 0.0), esp::int64);
  };
  using Rows = std::function<Variable(const Variable& x, const Variable& y)>;
  const Rows all_rows[] = {
      [&](const Variable& x, const Variable& y) {
        return esp::softmax_cross_entropy(y, label(x), {.reduction = esp::LossReduction::none});
      },
      [&](const Variable& x, const Variable& y) { return esp::square(esp::pick(y, label(x))); },
      [](const Variable&, const Variable& y) { return esp::square(esp::slice(y, 1, 1, 2)); },
  };
  for (const Rows& rows : all_rows) {
    const LossOf loss_of = [&](const Variable& x, const Variable& w) {
      const Variable loss = esp::mean(rows(x, esp::matmul(x, w)));
      return loss + 0.1 * esp::sum(esp::square(loss.gradient(w)));
    };
    for (const auto& [replicas, accumulate] : {std::pair{2, 1}, {1, 2}, {2, 2}})
      BOOST_TEST_CONTEXT(replicas << " replicas, " << accumulate << " micro-batches") {
        BOOST_TEST(difference(frozen(loss_of, replicas, accumulate),
                              by_hand(loss_of, int64_t{replicas} * accumulate)) < 1e-12);
      }
    BOOST_TEST(difference(frozen(loss_of, 2, 1, false), by_hand(loss_of, 1)) < 1e-12);
  }
}

/// Running statistics move to the mean of those of the micro-batches, once in a step.
BOOST_AUTO_TEST_CASE(states_written_from_micro_batches) {
  struct Result {
    esp::Tensor w;
    esp::nn::BatchNorm norm;
  };
  const auto loss_of = [](const Variable& x, const Variable& w, const esp::nn::BatchNorm& norm) {
    return esp::mean(esp::square(norm(esp::matmul(x, w)) - 0.5));
  };
  const auto trained = [&](int replicas, int accumulate) {
    Result result{{}, esp::nn::BatchNorm(4, {.dtype = esp::float64})};
    const Variable w = weights();
    const esp::data::Distributor feed({rows_of_data()}, {.batch_size = 7});
    const esp::Executor executor = loss_of(feed.get_output_graphs()[0], w, result.norm)
                                       .get_executor({.optimizer = optim::Sgd({.lr = 0.2}),
                                                      .devices = cpus(replicas),
                                                      .replicas = {.local_statistics = true},
                                                      .accumulate = accumulate});
    (void)executor.execute({.epochs = 1, .progress = false});
    result.w = w.value().clone();
    return result;
  };
  const auto buffer = [](const Result& r, const char* name) { return r.norm.buffer(name).value(); };
  for (const auto& [replicas, accumulate] : {std::pair{1, 2}, {1, 3}, {2, 2}})
    BOOST_TEST_CONTEXT(replicas << " replicas, " << accumulate << " micro-batches") {
      const Result parts = trained(replicas * accumulate, 1), own = trained(replicas, accumulate);
      BOOST_TEST(difference(own.w, parts.w) < 1e-12);
      for (const char* name : {"running_mean", "running_var", "num_batches_tracked"})
        BOOST_TEST(difference(buffer(own, name), buffer(parts, name)) < 1e-12);
      BOOST_TEST(buffer(own, "num_batches_tracked").item() == 3);
    }
}

BOOST_AUTO_TEST_SUITE_END()
