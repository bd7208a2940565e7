// Random kernels of GPUs: they draw the numbers of the CPU, for all rows and for windows of them.
#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>

#include "espalier/core/bind_context.h"
#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

/// The random op below a Variable, through ops of one input.
const esp::Op& random_op_of(const Variable& v) {
  const esp::Node* node = v.node();
  while (!node->op().is_random()) node = node->inputs[0].node();
  return node->op();
}

/// One call of an op's kernel on a device.
Tensor drawn(const esp::Op& op, Tensor input, const esp::Device& device, const esp::RandomStream& stream) {
  Tensor in = input.to(device), out(in.shape(), in.dtype(), device);
  esp::KernelCall call;
  call.inputs.push_back(&in);
  call.outputs.push_back(&out);
  call.random = stream;
  if (device.type == esp::DeviceType::cpu)
    esp::backend(device).run(op, call);
  else
    esp::bind_kernel(op, call)->run(stream);
  return out.to(esp::cpu());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_random)

BOOST_AUTO_TEST_CASE(gpus_draw_what_the_cpu_draws) {
  for (const esp::Device& device : gpus_to_test())
    for (const esp::DType dtype : {esp::float32, esp::float64, esp::float16, esp::bfloat16}) {
      const Tensor one = esp::full({1}, 0.5, dtype);
      const Variable normal = esp::randn_like(one), uniform = esp::rand_like(one),
                     coins = esp::bernoulli(one);
      for (const int64_t n : {1, 5, 64, 4099})
        for (const auto& [first, run, stride] : {std::array<int64_t, 3>{0, 0, 0},
                                                 {4, 0, 0},
                                                 {7, 0, 0},
                                                 {0, 1, 3},
                                                 {8, 4, 8},
                                                 {5, 3, 11},
                                                 {2, 5000, 0}}) {
          esp::RandomStream window{3, 4};
          window.first = first;
          window.run = run;
          window.stride = stride;
          const Tensor p = numbers({n}, 0, 1, 5).to(dtype);
          const auto apart = [&](const Variable& v) {
            const esp::Op& op = random_op_of(v);
            return difference(drawn(op, p, device, window), drawn(op, p, esp::cpu(), window));
          };
          BOOST_TEST(apart(uniform) == 0);
          BOOST_TEST(apart(coins) == 0);
          const double unit = dtype == esp::float64   ? 1e-14
                              : dtype == esp::float32 ? 2e-6
                              : dtype == esp::float16 ? 1e-3
                                                      : 8e-3;
          BOOST_TEST(apart(normal) < unit);
        }
    }
}

BOOST_AUTO_TEST_CASE(gpus_report_what_is_no_probability) {
  for (const esp::Device& device : gpus_to_test())
    for (const double bad : {-0.5, 1.5, static_cast<double>(NAN)}) {
      const Tensor p = esp::tensor({0.5, bad}, esp::float64).to(device);
      const auto [draws, line] = std::pair(esp::bernoulli(p), here());
      BOOST_CHECK_EXCEPTION(esp::synchronize(device), esp::Error,
                            says({"bernoulli", "not a probability", line}));
    }
}

BOOST_AUTO_TEST_SUITE_END()
