// One executor of inference on a device, run by several threads at a time.
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <thread>

#include "espalier/core/device.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

BOOST_AUTO_TEST_SUITE(device_threads)

BOOST_AUTO_TEST_CASE(one_executor_serves_many_threads) {
  std::vector<esp::Device> devices = gpus_to_test();
  devices.push_back(esp::cpu());
  for (const esp::Device device : devices)
    for (const bool moved : {false, true}) BOOST_TEST_CONTEXT(device.str() << (moved ? ", moved" : "")) {
        const esp::nn::Sequential net{esp::nn::Dense(20, 32), esp::nn::Relu(), esp::nn::Dense(32, 3)};
        std::vector<esp::Tensor> inputs, expected;
        for (int64_t rows = 1; rows <= 4; ++rows) {
          inputs.push_back(numbers({rows, 20}, -1, 1, static_cast<uint64_t>(rows)).to(esp::float32));
          expected.push_back(net(Variable(inputs.back())).value());
        }
        if (moved) net.to(device);
        const esp::Executor executor = net(esp::placeholder("x", {1, 20}))
                                           .get_executor({.mode = esp::Mode::inference, .devices = {device}});
        std::atomic<int> wrong = 0;
        std::vector<std::thread> threads;
        for (size_t t = 0; t < 6; ++t)
          threads.emplace_back([&, t] {
            esp::set_num_threads(1);
            for (size_t i = 0; i < 20; ++i) {
              const size_t k = (t + i) % 4;
              const esp::Tensor out = executor.run({{"x", inputs[k]}});
              wrong +=
                  !(out.shape() == expected[k].shape()) || difference(out.to(esp::cpu()), expected[k]) > 1e-5;
            }
          });
        for (std::thread& thread : threads) thread.join();
        BOOST_TEST(wrong == 0);
      }
}

BOOST_AUTO_TEST_SUITE_END()
