// Decompositions of matrices whose rows or columns are the rows of a batch, so that a short last batch turns
// high matrices into wide ones.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <functional>

#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/decompositions.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "matrices.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Shape;
using esp::Tensor;
using esp::Variable;

namespace {

/// A loss of the matrix `a` of a batch.
using LossOfMatrix = std::function<Variable(const Variable& a)>;

/// How often each step differentiates: the second order goes through the gradient itself.
enum class Order { first, second };

Variable with_order(const Variable& loss, const Variable& w, Order order) {
  return order == Order::first ? loss : loss + 0.01 * esp::sum(esp::square(loss.gradient(w)));
}

/// The parameter after an epoch: each batch is a Tensor of its own, so its sizes are those of its tree.
Tensor trained_by_tensors(const Tensor& rows, int64_t batch, const LossOfMatrix& f, Order order) {
  const Variable w = esp::parameter(regular({rows.shape()[-1], rows.shape()[-1]}, 5, 2));
  const esp::optim::Sgd sgd(0.02);
  for (int64_t begin = 0; begin < rows.shape()[0]; begin += batch) {
    const Tensor x = rows.slice(0, begin, std::min(begin + batch, rows.shape()[0]));
    with_order(f(esp::matmul(x, w)), w, order).forward().update(sgd);
  }
  return w.value();
}
/// The same, from a feed.
Tensor trained_by_feed(const Tensor& rows, int64_t batch, const LossOfMatrix& f, Order order, bool planned) {
  const esp::data::Distributor feed({rows}, {.batch_size = batch});
  const Variable w = esp::parameter(regular({rows.shape()[-1], rows.shape()[-1]}, 5, 2));
  const Variable loss = with_order(f(esp::matmul(feed.get_output_graphs()[0], w)), w, order);
  const esp::optim::Sgd sgd(0.02);
  if (planned) {
    loss.get_executor({.optimizer = sgd}).execute({.progress = false});
  } else {
    for (int64_t step = 0; step < feed.steps(); ++step) loss.forward().update(sgd);
  }
  return w.value();
}

void check_feeds(const std::string& name, const LossOfMatrix& f) {
  struct Case {
    Shape rows;
    int64_t batch;
  };
  // High and then wide, square and then wide, high and then square, always wide.
  for (const auto& [shape, batch] : {Case{{7, 3}, 5}, Case{{7, 4}, 4}, Case{{8, 3}, 5}, Case{{5, 4}, 3}})
    for (const Order order : {Order::first, Order::second}) {
      const Tensor rows = numbers(shape, -1, 1, 3);
      const Tensor wanted = trained_by_tensors(rows, batch, f, order);
      for (const bool planned : {false, true})
        BOOST_TEST(difference(wanted, trained_by_feed(rows, batch, f, order, planned)) < 1e-11,
                   name << " of " << shape.str() << " in batches of " << batch << ", planned " << planned
                        << ", order " << (order == Order::first ? 1 : 2));
    }
}

Variable fourth_powers(const Variable& x) { return esp::sum(esp::square(esp::square(x))); }

}  // namespace

BOOST_AUTO_TEST_SUITE(matrices_of_feeds)

BOOST_AUTO_TEST_CASE(singular_values_and_vectors) {
  // Signs of the vectors are arbitrary.
  check_feeds("svd", [](const Variable& a) {
    const auto [u, s, vt] = esp::svd(a);
    return fourth_powers(u) + esp::sum(s) + fourth_powers(vt);
  });
  check_feeds("svd of the transpose", [](const Variable& a) {
    const auto [u, s, vt] = esp::svd(esp::transpose(a));
    return fourth_powers(u * esp::unsqueeze(s, -2)) + fourth_powers(vt);
  });
  check_feeds("svd, u", [](const Variable& a) { return fourth_powers(esp::svd(a).u); });
  check_feeds("svd, vt", [](const Variable& a) { return fourth_powers(esp::svd(a).vt); });
  check_feeds("svdvals", [](const Variable& a) { return esp::sum(esp::svdvals(a)); });
}

BOOST_AUTO_TEST_CASE(orthonormal_columns) {
  check_feeds("qr", [](const Variable& a) {
    const auto [q, r] = esp::qr(a);
    return esp::sum(esp::tanh(q)) + esp::sum(esp::tanh(r));
  });
  check_feeds("qr of the transpose", [](const Variable& a) {
    const auto [q, r] = esp::qr(esp::transpose(a));
    return esp::sum(esp::tanh(q)) + esp::sum(esp::tanh(r));
  });
  check_feeds("qr, q", [](const Variable& a) { return esp::sum(esp::tanh(esp::qr(a).q)); });
  check_feeds("qr, r", [](const Variable& a) { return esp::sum(esp::tanh(esp::qr(a).r)); });
}

BOOST_AUTO_TEST_CASE(least_squares_and_pseudoinverses) {
  check_feeds("lstsq",
              [](const Variable& a) { return esp::sum(esp::square(esp::lstsq(a, esp::sum(a, 1) + 1.0))); });
  check_feeds("lstsq of the transpose", [](const Variable& a) {
    return esp::sum(esp::square(esp::lstsq(esp::transpose(a), esp::sum(a, 0) + 1.0)));
  });
  check_feeds("pinv", [](const Variable& a) { return esp::sum(esp::square(esp::pinv(a))); });
}

// All columns of a square matrix are spanned by u: a singular value of 0 divides nothing.
BOOST_AUTO_TEST_CASE(a_singular_value_of_zero) {
  const Tensor rows = esp::tensor({{2.0, 1.0}, {0.0, 0.0}, {1.0, 3.0}, {1.0, 1.0}, {2.0, 1.0}}, esp::float64);
  const LossOfMatrix f = [](const Variable& a) { return fourth_powers(esp::svd(a).u); };
  const Tensor wanted = trained_by_tensors(rows, 2, f, Order::first);
  for (const double w : wanted.span<double>()) BOOST_TEST(std::isfinite(w));
  for (const bool planned : {false, true})
    BOOST_TEST(difference(wanted, trained_by_feed(rows, 2, f, Order::first, planned)) < 1e-11);
}

// The default tolerance counts the rows of each batch.
BOOST_AUTO_TEST_CASE(ranks) {
  const esp::data::Distributor feed({numbers({7, 4})}, {.batch_size = 5});
  const Variable rank = esp::matrix_rank(feed.get_output_graphs()[0]);
  BOOST_TEST(rank.forward().item() == 4);
  BOOST_TEST(rank.forward().item() == 2);
}

BOOST_AUTO_TEST_SUITE_END()
