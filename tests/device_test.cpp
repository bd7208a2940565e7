// Devices: names, use, and trees on one device. Without a GPU the second device is another logical CPU.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <sstream>

#include "espalier/espalier.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// A device other than the default one.
esp::Device elsewhere() {
  const auto gpus = esp::all_gpus();
  return gpus.empty() ? esp::cpu(1) : gpus[0];
}

/// 0.5, 1, 1.5, …
esp::Tensor halves(const esp::Shape& shape) {
  esp::Tensor t = esp::arange(shape.elements(), esp::float32);
  for (float& x : t.span<float>()) x = x * 0.5f + 0.5f;
  return t.reshape(shape);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(device)

BOOST_AUTO_TEST_CASE(memory_has_a_limit_where_one_is_set) {
  std::vector<esp::Device> devices = esp::all_gpus();
  devices.push_back(esp::cpu());
  constexpr int64_t mebibyte = 1 << 20;
  for (const esp::Device device : devices) BOOST_TEST_CONTEXT(device) {
      const bool on_gpu = device.type == esp::DeviceType::cuda;
      BOOST_TEST(esp::memory_stats(device).limit_bytes == esp::no_memory_limit);
      const esp::Tensor kept({mebibyte}, esp::boolean, device);
      const int64_t live = esp::memory_stats(device).live_bytes;
      esp::set_memory_limit(device, live + 64 * mebibyte);
      BOOST_TEST(esp::memory_stats(device).limit_bytes == live + 64 * mebibyte);
      BOOST_CHECK_EXCEPTION(esp::Tensor({65 * mebibyte}, esp::boolean, device), esp::OutOfMemory,
                            says({"[68157440]", "memory limit of", std::to_string(live + 64 * mebibyte)}));
      BOOST_TEST(esp::memory_stats(device).live_bytes == live);
      {
        const esp::Tensor large({40 * mebibyte}, esp::boolean, device);
        BOOST_CHECK_THROW(esp::Tensor({40 * mebibyte}, esp::boolean, device), esp::OutOfMemory);
      }
      // Memory that is cached in other sizes is given back to make room.
      { const esp::Tensor large({30 * mebibyte}, esp::boolean, device); }
      { const esp::Tensor large({50 * mebibyte}, esp::boolean, device); }
      if (on_gpu) {
        const esp::MemoryStats now = esp::memory_stats(device);
        BOOST_TEST(now.live_bytes + now.cached_bytes <= now.limit_bytes);
      }
      // A limit below what is held: tensors are kept, and none is added.
      esp::set_memory_limit(device, mebibyte / 2);
      BOOST_CHECK_THROW(esp::Tensor({1000}, esp::float32, device), esp::OutOfMemory);
      BOOST_TEST(kept.defined());
      esp::set_memory_limit(device, esp::no_memory_limit);
      BOOST_CHECK_NO_THROW(esp::Tensor({65 * mebibyte}, esp::boolean, device));
      BOOST_CHECK_EXCEPTION(esp::set_memory_limit(device, -1), esp::Error, says({"-1", "device_test.cpp"}));
    }
  BOOST_CHECK_THROW(esp::set_memory_limit(esp::gpu(63), 1), esp::DeviceError);
}

BOOST_AUTO_TEST_CASE(only_gpus_have_streams) {
  BOOST_CHECK_EXCEPTION(esp::cuda_stream(esp::cpu()), esp::DeviceError,
                        says({"cpu:0 is no GPU", "device_test.cpp"}));
  BOOST_CHECK_THROW(esp::cuda_stream(esp::gpu(63)), esp::DeviceError);
}

BOOST_AUTO_TEST_CASE(naming_is_free) {
  BOOST_TEST(esp::gpu().str() == "cuda:0");
  BOOST_TEST(esp::gpu(70).str() == "cuda:70");
  BOOST_CHECK_THROW(esp::gpu(-1), esp::DeviceError);
  BOOST_CHECK_THROW(esp::cpu(-1), esp::DeviceError);
}

BOOST_AUTO_TEST_CASE(communicators_of_gpus_that_are_not_there_say_why) {
  if (!esp::all_gpus().empty()) return;
  namespace distributed = esp::distributed;
  BOOST_CHECK_THROW(distributed::make_group({esp::gpu()}), esp::DeviceError);
  BOOST_CHECK_THROW(distributed::make_group({esp::gpu(), esp::gpu(1)}), esp::DeviceError);
  // Without NCCL an UnsupportedError; with it there is still no GPU.
  BOOST_CHECK_THROW(distributed::make_group({esp::gpu()}, distributed::make_group({esp::cpu()})[0]),
                    esp::Error);
}

BOOST_AUTO_TEST_CASE(using_what_is_not_there_says_why) {
  const auto gpus = esp::all_gpus();
  for (size_t i = 0; i < gpus.size(); ++i) BOOST_TEST(gpus[i] == esp::gpu(static_cast<int>(i)));
  const esp::Device none = esp::gpu(static_cast<int>(gpus.size()) + 65);
  const auto reason = says({none.str() + " cannot be used: "});
  BOOST_CHECK_EXCEPTION(esp::Tensor({2}, esp::float32, none), esp::DeviceError, reason);
  BOOST_CHECK_EXCEPTION(esp::ones({2}).to(none), esp::DeviceError, says({none.str(), "device_test.cpp"}));
  BOOST_CHECK_EXCEPTION(esp::Variable(1.0).to(none), esp::DeviceError, says({none.str(), "device_test.cpp"}));
  BOOST_CHECK_EXCEPTION(esp::synchronize(none), esp::DeviceError, reason);
  BOOST_CHECK_EXCEPTION(esp::memory_stats(none), esp::DeviceError, reason);
  BOOST_CHECK_EXCEPTION(esp::release_cached_memory(none), esp::DeviceError, reason);
  esp::nn::Dense layer(2);
  BOOST_CHECK_EXCEPTION(layer.to(none), esp::DeviceError, says({none.str(), "device_test.cpp"}));
  if (gpus.empty()) BOOST_CHECK_EXCEPTION(esp::synchronize(esp::gpu()), esp::DeviceError, says({"cuda:0"}));
}

BOOST_AUTO_TEST_CASE(tensors_go_there_and_back) {
  const esp::Tensor here = halves({3, 4}), there = here.to(elsewhere());
  BOOST_TEST(there.device() == elsewhere());
  BOOST_TEST(there.clone().device() == elsewhere());
  BOOST_TEST(there.slice(1, 1, 3).to(esp::cpu()).at<float>({2, 1}) == here.at<float>({2, 2}));
  BOOST_TEST(there.slice(0, 1, 2).slice(1, 0, 1).item() == 2.5);
  std::ostringstream text, same;
  text << there;
  same << here;
  BOOST_TEST(text.str() == same.str());
  if (there.device().type == esp::DeviceType::cuda) {
    BOOST_CHECK_EXCEPTION(there.at<float>({0, 0}), esp::DeviceError, says({"at", there.device().str()}));
    BOOST_CHECK_EXCEPTION(there.span<float>(), esp::DeviceError, says({"span", there.device().str()}));
  }
}

BOOST_AUTO_TEST_CASE(numbers_are_where_the_other_operand_is) {
  const esp::Variable x(halves({3}).to(elsewhere()));
  for (const esp::Variable& y :
       {x * 2.0, 2.0 * x, 1 / x, esp::maximum(x, 1), 1.0 - x, esp::where(esp::greater(x, 1), x, 0.0),
        esp::where(esp::greater(x, 1), 1.0, 0.0), -x}) {
    BOOST_TEST(y.device() == elsewhere());
    BOOST_TEST(y.value().device() == elsewhere());
  }
  BOOST_TEST(esp::where(esp::greater(x, 1), 2.0, 3.0).value().to(esp::cpu()).at<float>({2}) == 2.0f);
  BOOST_TEST((2.0 * x).value().to(esp::cpu()).at<float>({1}) == 2.0f);
}

BOOST_AUTO_TEST_CASE(gradients_are_where_their_variables_are) {
  const esp::Variable x = esp::variable(halves({2, 3}).to(elsewhere()));
  const esp::Variable y = esp::variable(halves({2, 3}).to(elsewhere()));
  const esp::Variable both = esp::concat({x * x, y}, 0);
  for (const esp::Variable& root : {both, esp::sum(both), esp::mean(both)}) {
    BOOST_TEST(root.gradient(x).value().device() == elsewhere());
    BOOST_TEST(root.gradient(y).device() == elsewhere());
  }
  BOOST_TEST(both.gradient(x).value().to(esp::cpu()).at<float>({1, 2}) == 6.0f);
  const esp::Variable second = esp::sum(x * x * x).gradient(x).gradient(x);
  BOOST_TEST(second.value().to(esp::cpu()).at<float>({0, 1}) == 6.0f);
  const esp::Variable none = esp::sum(esp::cast(esp::greater(x, 1), esp::float32));
  BOOST_TEST(none.gradient(x).value().device() == elsewhere());
}

BOOST_AUTO_TEST_CASE(what_is_not_computed_yet_knows_its_device) {
  const esp::Variable x = esp::placeholder("x", {4, 3});
  BOOST_TEST(x.device() == esp::cpu());
  const esp::Variable y = x.to(elsewhere());
  BOOST_TEST(y.device() == elsewhere());
  BOOST_TEST(y.to(elsewhere()).node() == y.node());
  BOOST_TEST((2.0 * y + 1.0).device() == elsewhere());
  BOOST_TEST((y + 1.0).to(esp::cpu()).device() == esp::cpu());
  esp::nn::Dense layer(2);
  BOOST_TEST(layer(y).device() == elsewhere());
  BOOST_TEST(layer.parameter("weight").device() == elsewhere());
}

BOOST_AUTO_TEST_CASE(layers_start_where_their_input_is) {
  const auto weight_on = [](esp::Device device) {
    esp::seed(3);
    esp::nn::Sequential net(esp::nn::Dense(4), esp::nn::LayerNorm(), esp::nn::Dense(2));
    const esp::Variable y = net(esp::Variable(halves({5, 3}).to(device)));
    BOOST_TEST(y.device() == device);
    for (const auto& [path, parameter] : net.parameters()) BOOST_TEST(parameter.device() == device);
    return net.parameter("2.weight").value().to(esp::cpu());
  };
  BOOST_TEST(difference(weight_on(elsewhere()), weight_on(esp::cpu())) == 0);
  esp::nn::Embedding words(7, 2);
  BOOST_TEST(words(esp::Variable(esp::tensor({1, 3}).to(elsewhere()))).device() == elsewhere());
}

BOOST_AUTO_TEST_CASE(a_module_moves_and_its_optimizer_follows) {
  const auto train = [](bool moves) {
    esp::seed(8);
    esp::nn::Dense layer(2);
    const esp::optim::Optimizer rule =
        esp::optim::Adam({.lr = 0.1, .clip_norm = 1, .schedule = esp::optim::exponential(0.5)});
    esp::Tensor x = halves({5, 3});
    const auto step = [&] { esp::sum(esp::square(layer(x) - 1.0)).update(rule); };
    step();
    const esp::Variable weight = layer.parameter("weight");
    if (moves) {
      layer.to(elsewhere());
      x = x.to(elsewhere());
      BOOST_TEST(weight.device() == elsewhere());
      BOOST_TEST(weight.node() == layer.parameter("weight").node());
    }
    step();
    step();
    if (moves) {
      BOOST_TEST(weight.value().device() == elsewhere());
      for (const auto& [name, state] : rule.state_of(weight)) BOOST_TEST(state.device() == elsewhere());
    }
    return weight.value().to(esp::cpu());
  };
  BOOST_TEST(difference(train(true), train(false)) < 1e-5);
}

BOOST_AUTO_TEST_CASE(settings_reach_every_device) {
  const esp::Variable w = esp::parameter(esp::tensor(1.0).to(elsewhere())),
                      v = esp::parameter(esp::tensor(1.0));
  esp::optim::Sgd rule(0.5);
  (w * 1.0).update(rule);
  (v * 1.0).update(rule);
  rule.set("lr", 0.25);
  (w * 1.0).update(rule);
  (v * 1.0).update(rule);
  BOOST_TEST(w.item() == 0.25);
  BOOST_TEST(v.item() == 0.25);
}

BOOST_AUTO_TEST_CASE(a_leaf_stays_where_it_is) {
  const esp::Variable w = esp::parameter(esp::ones({2}).to(elsewhere()));
  const esp::Tensor mine = halves({2});
  esp::set_value(w, mine);
  BOOST_TEST(w.device() == elsewhere());
  BOOST_TEST(w.value().storage().get() != mine.storage().get());
  const esp::Tensor there = mine.to(elsewhere());
  esp::set_value(w, there);
  BOOST_TEST(w.value().storage().get() != there.storage().get());
  BOOST_TEST(w.value().to(esp::cpu()).at<float>({1}) == 1.0f);
}

BOOST_AUTO_TEST_SUITE_END()
