// Training on replicas with ops along axes beside the rows of the batch, and with variances over the rows.
#include <boost/test/unit_test.hpp>

#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/scan.h"
#include "espalier/ops/functions/sorting.h"
#include "espalier/ops/functions/statistics.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

BOOST_AUTO_TEST_SUITE(order_on_replicas)

BOOST_AUTO_TEST_CASE(training_is_that_of_one_device) {
  const std::pair<const char*, std::function<Variable(const Variable&)>> features[] = {
      {"var of the batch", [](const Variable& h) { return h / (esp::var(h, 0, {.keep_dims = true}) + 1); }},
      {"std of the batch", [](const Variable& h) { return h / (esp::std(h, 0) + 1); }},
      {"norm", [](const Variable& h) { return h / esp::norm(h, 1, {.keep_dims = true}); }},
      {"logsumexp", [](const Variable& h) { return h - esp::logsumexp(h, 1, true); }},
      {"prod", [](const Variable& h) { return h + esp::prod(h, 1, true); }},
      {"cumsum", [](const Variable& h) { return esp::cumsum(h, 1); }},
      {"cumprod", [](const Variable& h) { return esp::cumprod(h, 1); }},
      {"logcumsumexp", [](const Variable& h) { return esp::logcumsumexp(h, 1); }},
      {"cummax", [](const Variable& h) { return esp::cummax(h, 1).values; }},
      {"sort", [](const Variable& h) { return esp::sort(h, 1).values * esp::arange(5, esp::float64); }},
      {"topk", [](const Variable& h) { return esp::topk(h, 2, 1).values; }},
      {"median", [](const Variable& h) { return h - esp::median(h, 1, true).values; }}};
  for (const auto& [name, feature] : features) BOOST_TEST_CONTEXT(name) {
      std::vector<esp::Tensor> trained;
      for (const int replicas : {1, 2, 3}) {
        esp::data::Distributor feed({numbers({17, 4}, -1, 1, 3), numbers({17, 1}, -1, 1, 4)},
                                    {.batch_size = 6});
        const auto [x, y] = feed.get_output_graphs<2>();
        const Variable w = esp::parameter(numbers({4, 5}), "w");
        const Variable loss = esp::mean(esp::square(esp::tanh(feature(esp::matmul(x, w))) - y));
        std::vector<esp::Device> devices;
        for (int i = 0; i < replicas; ++i) devices.push_back(esp::cpu(i));
        const esp::Executor executor =
            loss.get_executor({.optimizer = esp::optim::Sgd(0.1), .devices = devices});
        executor.execute({.epochs = 2, .progress = false});
        trained.push_back(w.value());
      }
      for (const esp::Tensor& other : trained) BOOST_TEST(difference(trained[0], other) < 1e-11);
    }
}

BOOST_AUTO_TEST_SUITE_END()
