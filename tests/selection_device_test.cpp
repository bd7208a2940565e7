// Decompositions of matrices, and elements chosen and counted by their values, on each device: results are
// those of eager evaluation on the CPU.
#include <boost/test/unit_test.hpp>

#include "device_cases.h"
#include "espalier/core/error.h"
#include "espalier/core/subscript.h"
#include "espalier/ops/ops.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Device;
using esp::Variable;
using Cases = std::vector<DeviceCase>;

namespace {

Variable flipped(const Variable& a) { return esp::swapaxes(a, -1, -2); }
Variable with_columns_times(const Variable& a, const Variable& factors) { return a * unsqueeze(factors, -2); }
Variable real(const Variable& counts) { return cast(counts, esp::float64); }

/// Two matrices of full rank, [2, 3, 4].
Variable wide(const Matrices& m, Device device) {
  return esp::stack({m.u + reals({3, 4}, device), 2 * m.u - reals({3, 4}, device, 7)});
}
/// Of rank 2, [4, 4].
Variable singular(const Matrices& m, Device device) {
  const Variable rows = m.u[{esp::range(0, 2)}] + reals({2, 4}, device);
  return matmul(flipped(rows), rows);
}

// Signs of vectors are arbitrary: products and squares have none.
Cases decomposition_cases() {
  const auto factors = [](const Variable& a) -> Variables {
    const auto [u, s, vt] = esp::svd(a);
    return {matmul(with_columns_times(u, s), vt), s, square(u), square(vt), esp::svdvals(a)};
  };
  return {
      matrices_case("svd, wide",
                    [=](const Matrices& m, Device device) {
                      Variables all = factors(wide(m, device));
                      all.push_back(m.w);
                      return all;
                    }),
      matrices_case(
          "svd, tall",
          [=](const Matrices& m, Device device) { return factors(matmul(m.w, flipped(wide(m, device)))); }),
      matrices_case(
          "eigh",
          [](const Matrices& m, Device device) -> Variables {
            const Variable a = m.w + flipped(m.w) + matmul(flipped(m.u), m.u) + reals({4, 4}, device);
            const auto [values, vectors] = esp::eigh(a);
            return {matmul(with_columns_times(vectors, values), flipped(vectors)), values, square(vectors),
                    esp::eigvalsh(a)};
          }),
      matrices_case("pinv",
                    [](const Matrices& m, Device device) -> Variables {
                      const Variable a = wide(m, device);
                      return {esp::pinv(a), esp::pinv(flipped(a)), esp::pinv(singular(m, device), 1e-6),
                              esp::pinv(m.w + reals({4, 4}, device))};
                    }),
      matrices_case("lstsq",
                    [](const Matrices& m, Device device) -> Variables {
                      const Variable a = wide(m, device);
                      return {esp::lstsq(a, reals({3, 2}, device)), esp::lstsq(flipped(a), m.w),
                              esp::lstsq(flipped(a), reals({4}, device))};
                    }),
      matrices_case("matrix_rank",
                    [](const Matrices& m, Device device) -> Variables {
                      return {real(esp::matrix_rank(wide(m, device))) + sum(m.w),
                              real(esp::matrix_rank(singular(m, device), 1e-6))};
                    }),
  };
}

/// Which elements of [3, 4] are chosen: seven of them.
esp::Tensor chosen(Device device) {
  return esp::tensor({{true, false, true, true}, {false, false, true, false}, {true, true, false, true}})
      .to(device);
}

Cases selection_cases() {
  return {
      matrices_case("masked_select",
                    [](const Matrices& m, Device device) -> Variables {
                      const esp::Tensor column = esp::tensor({{true}, {false}, {true}}).to(device);
                      return {esp::masked_select(m.u, chosen(device)), esp::masked_select(m.u, column), m.w};
                    }),
      matrices_case("masked_scatter",
                    [](const Matrices& m, Device device) -> Variables {
                      return {esp::masked_scatter(m.u, chosen(device), m.w)};
                    }),
      matrices_case("nonzero",
                    [](const Matrices& m, Device device) -> Variables {
                      const Variable places = esp::nonzero(chosen(device));
                      return {real(places), m.w[places[{esp::range(), 1}]] * sum(m.u)};
                    }),
      matrices_case("unique",
                    [](const Matrices& m, Device device) -> Variables {
                      const auto words = esp::unique(integers({5, 2, 5, 0, 2, 5}, {2, 3}, device),
                                                     {.inverse = true, .counts = true});
                      const auto numbers = esp::unique(reals({4, 4}, device));
                      return {real(words.values), real(words.inverse), real(words.counts), numbers.values,
                              sum(m.u) * sum(m.w)};
                    }),
      matrices_case("histogram",
                    [](const Matrices& m, Device device) -> Variables {
                      const esp::Tensor bins = integers({0, 2, 1, 2}, {4}, device);
                      return {real(esp::histogram(m.u, 4, -0.4, 0.3)),
                              esp::bincount(bins, {.weights = sum(m.w, 0), .length = 5}),
                              real(esp::bincount(bins)), m.u};
                    }),
  };
}

}  // namespace

BOOST_AUTO_TEST_SUITE(selection_device)

BOOST_AUTO_TEST_CASE(decompositions) { check_on_devices(decomposition_cases()); }
BOOST_AUTO_TEST_CASE(decompositions_in_training) { check_training_on_devices(decomposition_cases()); }
BOOST_AUTO_TEST_CASE(selections) { check_on_devices(selection_cases()); }
BOOST_AUTO_TEST_CASE(selections_in_training) { check_training_on_devices(selection_cases()); }

// Which elements they are may change from step to step, and no plan can follow.
BOOST_AUTO_TEST_CASE(selections_by_parameters_are_eager) {
  using Select = std::function<Variable(const Matrices&)>;
  const std::vector<std::pair<std::string, Select>> selections{
      {"masked_select", [](const Matrices& m) { return esp::masked_select(m.u, m.u > 0.0); }},
      {"nonzero", [](const Matrices& m) { return real(esp::nonzero(m.u > 0.0)); }},
  };
  for (const Device device : gpus_and_cpu())
    for (const auto& [name, select] : selections) BOOST_TEST_CONTEXT(name << " on " << device) {
        const DeviceCase c = matrices_case(name, [&select](const Matrices& m, Device) -> Variables {
          return {select(m) * sum(m.w), m.u};
        });
        const std::vector<esp::Tensor> expected = results_of(c, esp::cpu(), By::eager);
        for (const By way : {By::eager, By::deferred}) check_alike(expected, results_of(c, device, way));
        BOOST_CHECK_EXCEPTION((void)results_of(c, device, By::plan), esp::UnsupportedError,
                              says({name, "depends on values"}));
      }
}

// Kernels of GPUs count eight axes.
BOOST_AUTO_TEST_CASE(gpus_solve_systems_with_few_leading_axes) {
  const esp::Shape many{1, 2, 1, 1, 2, 1, 1, 2, 1, 2, 1};
  const auto solved = [&](Device device, bool triangular) {
    const Variable a = esp::eye(2, esp::float64).to(device), b = reals(many, device);
    return (triangular ? esp::triangular_solve(a, b) : esp::solve(a, b)).value();
  };
  for (const bool triangular : {true, false}) {
    BOOST_TEST(difference(solved(esp::cpu(), triangular), reals(many, esp::cpu())) < 1e-12);
    for (const Device device : gpus_to_test())
      BOOST_CHECK_EXCEPTION((void)solved(device, triangular), esp::UnsupportedError,
                            says({triangular ? "triangular_solve" : "solve", "8 leading axes", many.str()}));
  }
}

BOOST_AUTO_TEST_SUITE_END()
