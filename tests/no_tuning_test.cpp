// Plans that take no measured choice, so that their numbers depend on sizes and seeds alone.
#include <boost/test/unit_test.hpp>

#include "espalier/espalier.h"
#include "espalier/ops/matmul/gemm_choice.h"
#include "espalier/ops/matmul/onednn_gemm.h"
#include "testing.h"
#include "training_runs.h"

namespace esp = espalier;
namespace nn = espalier::nn;
using namespace espalier::testing;

namespace {

/// Images, a convolution and products of sizes that no other test has.
Trace train(bool tune, int64_t width) {
  esp::seed(8);
  const esp::data::Distributor feed(
      {numbers({30, 2, 9, 9}, -1, 1, 1).to(esp::float32), numbers({30, width}, -1, 1, 2).to(esp::float32)},
      {.batch_size = 7, .shuffle = true, .seed = 3});
  const auto [x, y] = feed.get_output_graphs<2>();
  const nn::Sequential net{nn::Conv2d(6, {.kernel = 3}),
                           nn::BatchNorm(),
                           nn::Relu(),
                           nn::Flatten(),
                           nn::Dense(width),
                           nn::Dropout(0.2)};
  const nn::Lstm lstm(width);
  const esp::Variable sequence = esp::reshape(net(x), {-1, 1, width});
  const esp::Variable loss = esp::mean_squared_error(esp::reshape(lstm(sequence).outputs, {-1, width}), y);
  const esp::Executor executor = loss.get_executor({.optimizer = esp::optim::Adam(0.01), .tune = tune});
  (void)executor.execute({.epochs = 2, .progress = false});
  Trace trace;
  for (const nn::Module& module : {nn::Module(net), nn::Module(lstm)})
    for (const auto& [name, p] : module.parameters()) trace.push_back(p.value().clone());
  return trace;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(no_tuning)

BOOST_AUTO_TEST_CASE(training_measures_nothing_and_repeats_bit_by_bit) {
  const int64_t before = esp::gemm_choices().measurements();
  const Trace once = train(false, 53), again = train(false, 53);
  BOOST_TEST(esp::gemm_choices().measurements() == before);
  BOOST_TEST(once.size() > 6u);
  BOOST_TEST(difference_of(once, again) == 0);
  (void)train(true, 59);  // measures, if there is a choice
  if (esp::has_onednn()) BOOST_TEST(esp::gemm_choices().measurements() > before);
}

BOOST_AUTO_TEST_SUITE_END()
