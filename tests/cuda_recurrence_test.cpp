// Recurrences on a GPU beside the CPU: states wide enough that one kernel runs all steps.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "espalier/core/random.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/recurrent.h"
#include "espalier/ops/matmul/matmul_precision.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/recurrent/recurrence.h"
#include "espalier/optim/sgd.h"
#include "gpu_testing.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::RecurrenceForm;
using esp::RecurrentCell;
using esp::Tensor;
using esp::Variable;

namespace {

struct Sizes {
  int64_t steps, batch, width;
};
constexpr RecurrentCell all_cells[] = {RecurrentCell::tanh, RecurrentCell::relu, RecurrentCell::lstm,
                                       RecurrentCell::gru};

struct Case {
  RecurrenceForm form;
  Sizes sizes;
  bool bias = true, lengths = false;

  int64_t columns() const { return sizes.width * esp::gates_of(form.cell); }
  std::string text() const {
    return std::string(esp::name(form.cell)) + (form.reverse ? " reversed" : "") +
           (form.batch_sizes.empty() ? "" : " packed") + (lengths ? " with lengths" : "") + ", " +
           std::to_string(sizes.batch) + " rows of " + std::to_string(sizes.width);
  }
  /// x, weight, h, c and the biases. Numbers that 16 bits hold.
  std::vector<Tensor> operands() const {
    int64_t rows = 0;
    for (const int64_t size : form.batch_sizes) rows += size;
    const auto operand = [](const esp::Shape& shape, double scale, uint64_t which) {
      return numbers(shape, -scale, scale, which).to(esp::bfloat16).to(esp::float32);
    };
    const double scale = 1 / std::sqrt(static_cast<double>(sizes.width));
    std::vector<Tensor> all{
        rows ? operand({rows, columns()}, 1, 1) : operand({sizes.steps, sizes.batch, columns()}, 1, 1),
        operand({columns(), sizes.width}, scale, 2), operand({sizes.batch, sizes.width}, 1, 3)};
    if (form.cell == RecurrentCell::lstm) all.push_back(operand({sizes.batch, sizes.width}, 1, 4));
    if (bias) all.push_back(operand({columns()}, 1, 5)), all.push_back(operand({columns()}, 1, 6));
    return all;
  }
};

/// The states, the last ones, and the gradients of all operands.
std::vector<Tensor> results(const Case& c, esp::Device device, esp::DType dtype) {
  std::vector<Variable> leaves;
  for (const Tensor& x : c.operands()) leaves.push_back(esp::variable(x.to(dtype).to(device)));
  esp::RecurrenceInputs in{leaves[0], leaves[1], leaves[2]};
  const bool lstm = c.form.cell == RecurrentCell::lstm;
  if (lstm) in.c = leaves[3];
  if (c.bias) in.bias_ih = leaves[lstm ? 4 : 3], in.bias_hh = leaves[lstm ? 5 : 4];
  if (c.lengths) {
    std::vector<int64_t> lengths;
    for (int64_t b = 0; b < c.sizes.batch; ++b) lengths.push_back(b * 7 % (c.sizes.steps + 1));
    in.lengths = Variable(esp::tensor_from(lengths, {c.sizes.batch}).to(device));
  }
  const esp::RecurrenceOutputs out = esp::recurrence(in, c.form);
  std::vector<Variable> outputs{out.h, out.last_h};
  if (lstm) outputs.push_back(out.last_c);
  std::vector<Tensor> all;
  Variable loss;
  for (const Variable& y : outputs) {
    const Tensor slope = numbers(y.value().shape(), -1, 1, 7 + all.size()).to(dtype).to(device);
    const Variable term = esp::sum(y * Variable(slope));
    loss = loss.defined() ? loss + term : term;
    all.push_back(y.value());
  }
  for (const Variable& leaf : leaves) all.push_back(loss.gradient(leaf).value());
  return all;
}

void check(const Case& c, esp::DType dtype, double tolerance) {
  const std::vector<Tensor> expected = results(c, esp::cpu(), esp::float64),
                            got = results(c, esp::gpu(), dtype), again = results(c, esp::gpu(), dtype);
  for (size_t i = 0; i < expected.size(); ++i) {
    const double by = relative_difference(got[i], expected[i]);
    BOOST_TEST(by < tolerance, c.text()
                                   << ", " << esp::name(dtype) << ": result " << i << " differs by " << by);
    BOOST_TEST(difference(got[i].to(esp::cpu()), again[i].to(esp::cpu())) == 0,
               c.text() << ", " << esp::name(dtype) << ": result " << i << " is another one the second time");
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_recurrence, *boost::unit_test::precondition(has_gpu))

BOOST_AUTO_TEST_CASE(cells) {
  for (const RecurrentCell cell : all_cells) {
    const Case c{{.cell = cell}, {5, 20, 32}};
    check(c, esp::float32, 2e-6);
    if (cell == RecurrentCell::relu) continue;  // rounding changes which units have a slope
    check(c, esp::float16, 1e-2);
    check(c, esp::bfloat16, 8e-2);
  }
}

BOOST_AUTO_TEST_CASE(products_in_tf32) {
  const esp::MatmulPrecisionScope scope(esp::MatmulPrecision::tf32);
  for (const RecurrentCell cell : all_cells) check({{.cell = cell}, {5, 20, 32}}, esp::float32, 2e-3);
}

BOOST_AUTO_TEST_CASE(sizes_that_tiles_do_not_divide) {
  for (const Sizes& s : {Sizes{4, 1, 24}, Sizes{6, 33, 8}, Sizes{4, 17, 40}})
    for (const RecurrentCell cell : {RecurrentCell::lstm, RecurrentCell::gru}) {
      check({.form = {.cell = cell}, .sizes = s, .bias = false}, esp::float32, 2e-6);
      check({.form = {.cell = cell}, .sizes = s, .bias = false}, esp::float16, 1e-2);
    }
  check({{.cell = RecurrentCell::gru}, {4, 3, 20}}, esp::float32, 2e-6);    // several units left over
  check({{.cell = RecurrentCell::lstm}, {4, 2, 144}}, esp::float32, 5e-6);  // rows in several stages
}

BOOST_AUTO_TEST_CASE(rows_of_several_lengths) {
  for (const RecurrentCell cell : all_cells)
    for (const bool reverse : {false, true}) {
      check({.form = {.cell = cell, .reverse = reverse}, .sizes = {5, 20, 16}, .lengths = true}, esp::float32,
            2e-6);
      check({{.cell = cell, .reverse = reverse, .batch_sizes = {20, 18, 18, 3, 1}}, {5, 20, 16}},
            esp::float32, 2e-6);
    }
  check({.form = {.reverse = true}, .sizes = {5, 20, 16}, .lengths = true}, esp::float16, 1e-2);
  // On a device of few multiprocessors, blocks have several tiles of rows.
  check({.form = {}, .sizes = {4, 36, 144}, .lengths = true}, esp::float32, 5e-6);
  check({.form = {.cell = RecurrentCell::gru}, .sizes = {4, 36, 144}, .lengths = true}, esp::float16, 1e-2);
}

/// Other sizes, for which each step has kernels of its own.
BOOST_AUTO_TEST_CASE(what_one_kernel_does_not_have) {
  for (const Sizes& s : {Sizes{2, 20, 16}, Sizes{5, 3, 18}, Sizes{4, 5, 7}})
    for (const RecurrentCell cell : {RecurrentCell::lstm, RecurrentCell::gru})
      check({{.cell = cell}, s}, esp::float32, 2e-6);
}

/// Both directions of two layers, trained by single kernels and by a graph, while kernels for fewer units
/// run.
BOOST_AUTO_TEST_CASE(plans) {
  const auto trained = [](esp::Device device, esp::Launch launch,
                          esp::Precision precision = esp::Precision::float32) {
    esp::seed(3);
    const esp::Variable x = esp::placeholder("x", {5, 20, 6}, esp::float32);
    const esp::nn::Lstm net(6, 48, {.layers = 2, .bidirectional = true});
    const esp::Executor executor = esp::mean(esp::square(net(x).outputs))
                                       .get_executor({.optimizer = esp::optim::Sgd(1),
                                                      .devices = {device},
                                                      .launch = launch,
                                                      .precision = precision});
    for (uint64_t i = 0; i < 4; ++i) {
      (void)executor.run({{"x", numbers({5, 20, 6}, -1, 1, i).to(esp::float32)}});
      (void)results({{}, {4, 3, 16}}, device, esp::float32);
    }
    std::vector<Tensor> parameters;
    for (const auto& [path, p] : net.parameters()) parameters.push_back(p.value().to(esp::cpu()));
    return parameters;
  };
  const std::vector<Tensor> expected = trained(esp::cpu(), esp::Launch::graph),
                            got = trained(esp::gpu(), esp::Launch::graph),
                            singly = trained(esp::gpu(), esp::Launch::stream),
                            mixed = trained(esp::gpu(), esp::Launch::graph, esp::Precision::bfloat16);
  for (size_t i = 0; i < expected.size(); ++i) {
    BOOST_TEST(relative_difference(got[i], expected[i]) < 1e-5);
    BOOST_TEST(difference(got[i], singly[i]) == 0);
    BOOST_TEST(relative_difference(mixed[i], expected[i]) < 2e-2);
  }
}

/// Recurrences stay in float32 there; only their products are those of TF32.
BOOST_AUTO_TEST_CASE(plans_of_16_bits_multiply_in_tf32) {
  const Case c{{.cell = RecurrentCell::gru}, {5, 20, 32}, false};
  const std::vector<Tensor> operands = c.operands();
  const auto run = [&](esp::Precision precision) {
    const esp::RecurrenceInputs in{Variable(operands[0]), Variable(operands[1]), Variable(operands[2])};
    return esp::recurrence(in, c.form)
        .h.get_executor({.mode = esp::Mode::inference, .devices = {esp::gpu()}, .precision = precision})
        .run({});
  };
  const Tensor tf32 = run(esp::Precision::tf32);
  BOOST_TEST(difference(tf32, run(esp::Precision::float32)) > 0);
  for (const esp::Precision precision : {esp::Precision::bfloat16, esp::Precision::float16})
    BOOST_TEST(difference(tf32, run(precision)) == 0);
}

BOOST_AUTO_TEST_CASE(plans_of_packed_rows) {
  const Case packed{{.cell = RecurrentCell::gru, .batch_sizes = {20, 18, 18, 3, 1}}, {5, 20, 16}, false};
  const std::vector<Tensor> operands = packed.operands();
  const esp::RecurrenceInputs in{Variable(operands[0]), Variable(operands[1]), Variable(operands[2])};
  const esp::Executor executor = esp::recurrence(in, packed.form)
                                     .h.get_executor({.mode = esp::Mode::inference, .devices = {esp::gpu()}});
  for (int i = 0; i < 3; ++i)
    BOOST_TEST(relative_difference(executor.run({}), results(packed, esp::cpu(), esp::float64)[0]) < 2e-6);
}

BOOST_AUTO_TEST_SUITE_END()
