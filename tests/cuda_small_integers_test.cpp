// int8, uint8 and int16 on a GPU: casts, moves and comparisons give what they give on the CPU.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>

#include "espalier/core/error.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/arrange.h"
#include "espalier/ops/functions/masks.h"
#include "espalier/ops/functions/scatter.h"
#include "espalier/ops/functions/statistics.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "figures/casts.h"
#include "gpu_testing.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Tensor, esp::Variable;

namespace {

constexpr esp::DType small_types[] = {esp::int8, esp::uint8, esp::int16};

bool same(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(esp::cpu()), y = b.to(esp::cpu());
  return x.spec() == y.spec() && difference(x.to(esp::float64), y.to(esp::float64)) == 0;
}

/// Small numbers, of which few are equal.
Tensor counted(const esp::Shape& shape, esp::DType dtype) {
  return (esp::cast(esp::arange(shape.elements()), esp::int32) * 7 - (dtype == esp::uint8 ? 0 : 120))
      .value()
      .to(dtype)
      .reshape(shape);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_small_integers, *boost::unit_test::precondition(has_gpu))

BOOST_AUTO_TEST_CASE(casts_are_those_of_the_cpu) {
  for (const CastFigures& figures : cast_figures)
    BOOST_TEST_CONTEXT(esp::name(figures.from) << " to " << esp::name(figures.to)) {
      const auto n = static_cast<int64_t>(figures.values.size());
      Tensor x({40, n}, figures.from);
      for (int64_t row = 0; row < 40; ++row) {
        Tensor part = x.slice(0, row, row + 1).reshape({n});
        esp::copy_elements(esp::tensor_from(figures.values, {n}).to(figures.from), part);
      }
      for (const Tensor& view : {x, x.slice(1, 1, n), laid_out_in_reverse(x), x.slice(0, 3, 4)})
        BOOST_TEST(same(esp::cast(on_gpu(view), figures.to).value(), view.to(figures.to)),
                   view.shape().str());
    }
}

BOOST_AUTO_TEST_CASE(reals_outside_go_to_the_nearest_end) {
  const std::vector<double> numbers{-INFINITY, -40000, -129, -0.75, 127.5, 256, 40000, INFINITY, NAN};
  for (const esp::DType real : {esp::float32, esp::float64, esp::float16, esp::bfloat16})
    for (const esp::DType dtype : small_types) {
      const Tensor x = esp::tensor_from(numbers, {9}).to(real);
      BOOST_TEST(same(esp::cast(on_gpu(x), dtype).value(), x.to(dtype)), esp::name(real) << esp::name(dtype));
    }
}

BOOST_AUTO_TEST_CASE(moves_are_those_of_the_cpu) {
  const Tensor places = esp::tensor({{2, 0, -1, 1}, {1, 1, 0, 0}}), rows = esp::tensor({1, 1, 0});
  const Tensor mask =
      esp::tensor({{true, false, true, false}, {false, true, true, true}, {true, true, false, false}});
  using Move = std::function<Variable(const Variable&)>;
  const std::pair<const char*, Move> moves[] = {
      {"copy", [](const Variable& x) { return Variable(x.value().clone()); }},
      {"transpose", [](const Variable& x) { return esp::reshape(esp::transpose(x), {12}); }},
      {"concat",
       [](const Variable& x) {
         return esp::concat({x, esp::flip(x)}, 1);
       }},
      {"gather", [&](const Variable& x) { return esp::gather(x, Variable(rows).to(x.device()), 0); }},
      {"gather along the last axis",
       [&](const Variable& x) { return esp::gather(x, Variable(rows).to(x.device()), -1); }},
      {"take_along_axis",
       [&](const Variable& x) { return esp::take_along_axis(x, Variable(places).to(x.device()), 0); }},
      {"pick", [&](const Variable& x) { return esp::pick(x, Variable(rows).to(x.device())); }},
      {"put_along_axis",
       [&](const Variable& x) {
         return esp::put_along_axis(x, Variable(places).to(x.device()), esp::slice(x, 0, 0, 2), 0);
       }},
      {"pad",
       [](const Variable& x) {
         return esp::pad(x, {{1, 2}, {0, 3}}, {.value = 7});
       }},
      {"where",
       [&](const Variable& x) { return esp::where(Variable(mask).to(x.device()), x, esp::flip(x)); }},
      {"where with a number",
       [&](const Variable& x) { return esp::where(Variable(mask).to(x.device()), x, 3); }},
      {"equal", [](const Variable& x) { return esp::equal(x, esp::flip(x)); }},
      {"not_equal", [](const Variable& x) { return esp::not_equal(x, 6); }},
      {"count_nonzero", [](const Variable& x) { return esp::count_nonzero(x, 0); }},
      {"full_like", [](const Variable& x) { return esp::full_like(x, 5); }},
      {"one_hot",
       [&](const Variable& x) { return esp::one_hot(Variable(rows).to(x.device()), 3, x.dtype()); }},
  };
  for (const esp::DType dtype : small_types)
    for (const auto& [name, move] : moves) {
      const Tensor x = counted({3, 4}, dtype);
      BOOST_TEST(same(move(on_gpu(x)).value(), move(x).value()), name << " of " << esp::name(dtype));
    }
}

BOOST_AUTO_TEST_CASE(what_computes_refuses_them) {
  for (const esp::DType dtype : small_types) {
    const Variable x = on_gpu(counted({3, 4}, dtype));
    BOOST_CHECK_EXCEPTION(x + 1, esp::TypeError, says({"add", "cast() it first", here()}));
    BOOST_CHECK_EXCEPTION(esp::sum(x), esp::TypeError, says({"sum", "cast() it first", here()}));
  }
}

BOOST_AUTO_TEST_CASE(plans_cast_what_is_fed) {
  for (const esp::DType dtype : small_types) {
    const auto train = [&](esp::Device device, esp::Launch launch) {
      const esp::data::Distributor feed({counted({11, 5}, dtype)}, {.batch_size = 4});
      const Variable x = feed.get_output_graphs()[0], w = esp::parameter(numbers({5, 2}, -1, 1), "w");
      const Variable loss = esp::mean(esp::square(esp::matmul(esp::cast(x, esp::float64) / 255.0, w) - 0.5));
      const esp::Executor executor =
          loss.get_executor({.optimizer = esp::optim::Sgd(0.1),
                             .devices = {device},
                             .launch = launch,
                             .outputs = {{"bytes", esp::cast(esp::cast(x, esp::float32) * 0.5, dtype)}}});
      (void)executor.execute({.epochs = 2, .progress = false});
      return std::pair(w.value().to(esp::cpu()).clone(), executor.output("bytes").to(esp::cpu()));
    };
    const auto [w, bytes] = train(esp::cpu(), esp::Launch::graph);
    for (const esp::Launch launch : {esp::Launch::graph, esp::Launch::stream}) {
      const auto [there, others] = train(esp::gpu(), launch);
      BOOST_TEST(difference(there, w) < 1e-12);
      BOOST_TEST(same(others, bytes));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
