// Gradients of weights that are used several times: products are added up, and exist nowhere.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <functional>

#include "espalier/core/autograd.h"
#include "espalier/core/check_gradient.h"
#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/core/subscript.h"
#include "espalier/executor/compile.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "replica_programs.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

Array product(const Array& a, const Array& b, esp::MatmulForm form) {
  const auto size = [](const Array& m, bool axis) { return m.shape.dims()[axis]; };
  const auto [ta, tb] = form;
  const int64_t k = size(a, !ta);
  return Array({size(a, ta), size(b, !tb)}, [&, ta = ta, tb = tb](const Index& i) {
    double sum = 0;
    for (int64_t j = 0; j < k; ++j)
      sum += (ta ? a({j, i[0]}) : a({i[0], j})) * (tb ? b({i[1], j}) : b({j, i[1]}));
    return sum;
  });
}

esp::Tensor operand(int64_t rows, int64_t columns, bool transposed, uint64_t which) {
  return numbers(transposed ? esp::Shape{columns, rows} : esp::Shape{rows, columns}, -2, 2, which);
}

/// x[0] + the products of the other inputs, two by two; without `adds` of all inputs.
esp::Variable summed(const Variables& x, esp::MatmulForm form, bool adds) {
  std::vector<esp::GradientProduct> products;
  for (size_t k = adds; k + 1 < x.size(); k += 2) products.push_back({x[k], x[k + 1], form});
  return esp::sum_of_products(adds ? x[0] : esp::Variable(), products);
}

OpCase sum_case(esp::MatmulForm form, bool adds, int64_t m, int64_t n, const std::vector<int64_t>& inner) {
  std::vector<esp::Tensor> inputs;
  if (adds) inputs.push_back(numbers({m, n}, -2, 2, 9));
  for (const int64_t k : inner) {
    inputs.push_back(operand(m, k, form.transpose_a, inputs.size()));
    inputs.push_back(operand(k, n, form.transpose_b, inputs.size()));
  }
  return {.name = "sum_of_products",
          .op = [=](const Variables& x) { return summed(x, form, adds); },
          .inputs = inputs,
          .reference =
              [=](const std::vector<Array>& in) {
                std::vector<Array> products;
                for (size_t k = adds; k + 1 < in.size(); k += 2)
                  products.push_back(product(in[k], in[k + 1], form));
                return Array({m, n}, [&](const Index& i) {
                  double sum = adds ? in[0](i) : 0;
                  for (const Array& one : products) sum += one(i);
                  return sum;
                });
              },
          .tolerance32 = 1e-5,
          .roundings = static_cast<int>(inner.size()) + 1};  // GPUs round 16-bit sums after each product
}

/// A weight that is used on many inputs, one after the other.
esp::Variable recurrent(const std::vector<esp::Variable>& inputs, const esp::Variable& w) {
  esp::Variable h = esp::tanh(esp::matmul(inputs[0], w));
  for (size_t i = 1; i < inputs.size(); ++i) h = esp::tanh(esp::matmul(inputs[i] + h, w));
  return esp::sum(esp::square(h));
}

std::vector<esp::Variable> inputs_of(int count, const esp::Shape& shape) {
  std::vector<esp::Variable> inputs;
  for (int i = 0; i < count; ++i) inputs.emplace_back(numbers(shape, -1, 1, static_cast<uint64_t>(i)));
  return inputs;
}

int nodes_of(const esp::Plan& plan, const std::string& op) {
  const std::string text = plan.str();
  int count = 0;
  for (size_t at = text.find(op); at != std::string::npos; at = text.find(op, at + 1)) ++count;
  return count;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sum_of_products)

BOOST_AUTO_TEST_CASE(a_vector_is_added_to_each_row) {
  for (const int64_t rows : {1, 3})
    for (const esp::MatmulForm form : {esp::MatmulForm{false, true}, {true, false}})
      check_op({.name = "a layer",
                .op = [=](const Variables& x) { return summed(x, form, true); },
                .inputs = {numbers({4}, -2, 2, 9), operand(rows, 5, form.transpose_a, 1),
                           operand(5, 4, form.transpose_b, 2)},
                .reference =
                    [=](const std::vector<Array>& in) {
                      const Array all = product(in[1], in[2], form);
                      return Array(all.shape, [&](const Index& i) { return in[0]({i[1]}) + all(i); });
                    },
                .roundings = 2});  // plans round the product, too
}

/// The product and the sum, for other passes to find.
BOOST_AUTO_TEST_CASE(plans_split_a_layer) {
  const Variables x{esp::parameter(numbers({4}), "bias"), esp::parameter(numbers({3, 5}), "x"),
                    esp::parameter(numbers({4, 5}), "weight")};
  esp::Graph graph = esp::freeze({summed(x, {false, true}, true)}, {}, {}, false);
  BOOST_TEST(esp::simplify(graph));
  BOOST_TEST(!esp::simplify(graph));
  esp::verify(graph, "simplify");
  const std::string text = graph.str();
  BOOST_TEST(text.find("= sum_of_products(") == std::string::npos, text);
  BOOST_TEST(text.find("= matmul(") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(all_forms) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const bool adds : {false, true}) {
        check_op(sum_case({ta, tb}, adds, 3, 2, {1, 4, 2}));
        check_op(sum_case({ta, tb}, adds, 1, 5, {3}));
      }
}

BOOST_AUTO_TEST_CASE(sizes_of_zero) {
  for (const bool adds : {false, true}) {
    check_op(sum_case({true, false}, adds, 3, 2, {0, 0}));
    check_op(sum_case({true, false}, adds, 3, 2, {2, 0, 1}));
    check_op(sum_case({true, false}, adds, 0, 2, {2, 1}));
  }
}

BOOST_AUTO_TEST_CASE(products_are_joined_and_apart) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const bool adds : {false, true}) {
        OpCase c = sum_case({ta, tb}, adds, 3, 2, {60, 60, 60, 60, 60, 270, 1, 2, 64});
        c.order = 0;
        c.tolerance32 = 1e-4;
        c.roundings = 0;
        check_op(c);
      }
}

BOOST_AUTO_TEST_CASE(operands_that_do_not_go_together_are_refused) {
  const auto sum = [](const esp::Tensor& base, const esp::Tensor& a, const esp::Tensor& b) {
    return summed({base, a, b}, {true, false}, true);
  };
  BOOST_CHECK_THROW(sum(numbers({2, 3}), numbers({4, 2}), numbers({5, 3})), esp::ShapeError);
  BOOST_CHECK_THROW(sum(numbers({3, 3}), numbers({4, 2}), numbers({4, 3})), esp::ShapeError);
  BOOST_CHECK_THROW(sum(numbers({2, 3}), numbers({1, 4, 2}), numbers({4, 3})), esp::ShapeError);
  BOOST_CHECK_THROW(sum(esp::zeros({2, 3}), numbers({4, 2}), numbers({4, 3})), esp::TypeError);
}

BOOST_AUTO_TEST_CASE(gradients_of_a_weight_used_several_times) {
  const esp::Variable w = esp::parameter(numbers({3, 3}, -1, 1, 7));
  const std::vector<esp::Variable> inputs = inputs_of(5, {2, 3});
  const esp::Variable gradient = recurrent(inputs, w).gradient(w);
  BOOST_TEST(gradient.node()->op().name() == "sum_of_products");
  esp::Variable once = esp::sum(esp::matmul(inputs[0], w));
  BOOST_TEST(once.gradient(w).node()->op().name() == "matmul");
  // In turns with other uses, on either side, transposed, and of each other.
  const auto tangled = [&](const Variables& x) {
    const esp::Variable& v = x[0];
    return esp::sum(esp::matmul(esp::matmul(inputs[0], v), esp::transpose(v)) * 0.3) +
           esp::sum(esp::square(v)) + esp::sum(esp::matmul(esp::matmul(v, esp::tanh(v)), v)) +
           esp::sum(esp::sin(esp::matmul(inputs[2], v))) +
           esp::sum(esp::matmul(v, esp::transpose(inputs[3])) * 0.2);
  };
  const auto check = [&](const std::function<esp::Variable(const Variables&)>& f) {
    const esp::CheckResult result = esp::check_gradient(f, {w.value()}, {.order = 2});
    BOOST_TEST(result.passed, result.message);
  };
  check([&](const Variables& x) { return recurrent(inputs, x[0]); });
  check(tangled);
}

BOOST_AUTO_TEST_CASE(no_gradient_of_a_use_is_kept) {
  const int64_t width = 256, bytes = width * width * 4;
  for (const int64_t rows : {1, 400}) BOOST_TEST_CONTEXT(rows << " rows") {
      const esp::Variable w = esp::parameter(numbers({width, width}, -0.1, 0.1).to(esp::float32));
      const esp::Variable x = numbers({rows, width}).to(esp::float32);
      esp::Variable loss = esp::sum(esp::matmul(x, w));
      for (int i = 0; i < 60; ++i) loss = loss + esp::sum(esp::matmul(x * static_cast<float>(i), w));
      const int64_t before = esp::memory_stats().live_bytes;
      esp::reset_peak_memory();
      loss.backward();
      const int64_t peak = esp::memory_stats().peak_bytes - before;
      BOOST_TEST(peak < 3 * bytes + 6 * rows * width * 4 + (int64_t{3} << 20));
    }
}

BOOST_AUTO_TEST_CASE(elementwise_uses_add_up_in_place) {
  const int64_t width = 512, bytes = width * width * 4;
  const esp::Variable w = esp::parameter(numbers({width, width}).to(esp::float32));
  esp::Variable loss = esp::sum(w);
  for (int i = 1; i < 60; ++i) loss = loss + esp::sum(w * static_cast<float>(i));
  const int64_t before = esp::memory_stats().live_bytes;
  esp::reset_peak_memory();
  loss.backward();
  BOOST_TEST(esp::memory_stats().peak_bytes - before < 8 * bytes);
  const esp::Tensor gradient = loss.gradient(w).value();
  BOOST_TEST(gradient.at<float>({3, 4}) == 1 + 59 * 60 / 2);
}

BOOST_AUTO_TEST_CASE(plans_add_up_as_eager_steps_do) {
  const esp::Tensor start = numbers({4, 4}, -1, 1, 3);
  const std::vector<esp::Variable> inputs = inputs_of(6, {2, 4});
  for (const bool plain : {false, true}) BOOST_TEST_CONTEXT("without fusion: " << plain) {
      const esp::Variable eager = esp::parameter(start.clone()), frozen = esp::parameter(start.clone());
      esp::ExecutorOptions options{.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(0.1)};
      if (plain) options.without = {"fuse_pointwise", "fuse_matmul", "fuse_sgd"};
      auto executor = recurrent(inputs, frozen).get_executor(options);
      BOOST_TEST(nodes_of(executor.plan(), plain ? "sum_of_products" : "transpose_a=true") >= 1);
      esp::optim::Sgd sgd(0.1);
      for (int step = 0; step < 3; ++step) {
        recurrent(inputs, eager).backward().update(sgd);
        executor.execute({.epochs = 1, .progress = false});
      }
      BOOST_TEST(difference(frozen.value(), eager.value()) < 1e-12);
    }
}

BOOST_AUTO_TEST_CASE(plans_keep_no_gradient_of_a_use) {
  const int64_t width = 256, bytes = width * width * 4;
  const esp::Variable w = esp::parameter(numbers({width, width}, -0.1, 0.1).to(esp::float32));
  const esp::Variable x = numbers({1, width}).to(esp::float32);
  esp::Variable loss = esp::sum(esp::square(esp::matmul(x, w)));
  for (int i = 0; i < 60; ++i) loss = loss + esp::sum(esp::square(esp::matmul(x * static_cast<float>(i), w)));
  const auto executor = loss.get_executor({.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(0.1)});
  BOOST_TEST(executor.plan().arena_bytes() < 6 * bytes);
}

BOOST_AUTO_TEST_CASE(plans_keep_few_gradients_of_other_uses) {
  const int64_t width = 256, bytes = width * width * 4;
  const esp::Variable w = esp::parameter(numbers({width, width}, -0.1, 0.1).to(esp::float32));
  const esp::Variable x = numbers({1, width}).to(esp::float32);
  const auto row = [&](int i) { return w[i]; };
  const auto columns = [&](int i) {
    return esp::matmul(x * static_cast<float>(i), w[{esp::all, esp::range(0, width / 2)}]);
  };
  const auto by_einsum = [&](int i) { return esp::einsum("bi,io->bo", {x * static_cast<float>(i), w}); };
  for (const std::function<esp::Variable(int)>& use :
       {std::function<esp::Variable(int)>(row), {columns}, {by_einsum}}) {
    esp::Variable loss = esp::sum(esp::square(use(0)));
    for (int i = 1; i < 60; ++i) loss = loss + esp::sum(esp::square(use(i)));
    const auto executor = loss.get_executor({.optimizer = esp::optim::Sgd(0.1)});
    BOOST_TEST(executor.plan().arena_bytes() < 10 * bytes);
  }
}

BOOST_AUTO_TEST_CASE(replicas_sum_over_their_rows) {
  const auto train = [](const std::vector<esp::Device>& devices) {
    esp::data::Distributor feed({numbers({12, 4}, -1, 1, 1)}, {.batch_size = 6});
    auto [x] = feed.get_output_graphs<1>();
    const esp::Variable w = esp::parameter(numbers({4, 4}, -1, 1, 2));
    esp::Variable h = x;
    for (int i = 0; i < 4; ++i) h = esp::tanh(esp::matmul(h + x, w));
    esp::mean(esp::square(h))
        .get_executor({.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(0.1), .devices = devices})
        .execute({.epochs = 3, .progress = false});
    return w.value();
  };
  BOOST_TEST(difference(train(cpus(2)), train({})) < 1e-12);
}

BOOST_AUTO_TEST_SUITE_END()
