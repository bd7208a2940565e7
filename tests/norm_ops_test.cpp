// Batch, instance and group normalization as ops of an input, a weight and a bias: layers in the op table.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <map>

#include "espalier/core/check_gradient.h"
#include "espalier/nn/batch_norm.h"
#include "espalier/nn/channel_norm.h"
#include "espalier/nn/functional_call.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using namespace espalier::nn;
using esp::Shape;
using esp::Tensor;
using esp::Variable;

namespace {

constexpr double epsilon = 0.1;
constexpr int64_t channels = 4;

enum class Statistics { of_input, running };

Tensor running_mean() { return numbers({channels}, -1, 1, 5); }
Tensor running_variance() { return numbers({channels}, 0.5, 2, 6); }

/// y for an element of x, times the weight and plus the bias of its channel, if they are there.
Array with_affine(const std::vector<Array>& in, const std::function<double(const Index&)>& y) {
  return Array(in[0].shape,
               [&](const Index& i) { return in.size() == 1 ? y(i) : y(i) * in[1]({i[1]}) + in[2]({i[1]}); });
}

/// Normalized over the elements for which `group` gives one number.
Reference by_groups(const std::function<int64_t(const Index&)>& group) {
  return [=](const std::vector<Array>& in) {
    struct Moments {
      double count = 0, mean = 0, variance = 0;
    };
    std::map<int64_t, Moments> of;
    each_index(in[0].shape, [&](const Index& i) { ++of[group(i)].count; });
    each_index(in[0].shape, [&](const Index& i) { of[group(i)].mean += in[0](i) / of[group(i)].count; });
    each_index(in[0].shape, [&](const Index& i) {
      Moments& m = of[group(i)];
      m.variance += std::pow(in[0](i) - m.mean, 2) / m.count;
    });
    return with_affine(in, [&](const Index& i) {
      const Moments& m = of[group(i)];
      return (in[0](i) - m.mean) / std::sqrt(m.variance + epsilon);
    });
  };
}

Reference by_running() {
  return [mean = Array(running_mean()), variance = Array(running_variance())](const std::vector<Array>& in) {
    return with_affine(in, [&](const Index& i) {
      return (in[0](i) - mean({i[1]})) / std::sqrt(variance({i[1]}) + epsilon);
    });
  };
}

/// What a layer makes of x[0], with the weight x[1] and the bias x[2] if they are given.
Variable call(const Layer& layer, const Variables& x, Statistics statistics = Statistics::of_input) {
  if (statistics == Statistics::running) {
    const auto give = [&](const char* name, const Tensor& value) {
      esp::set_value(layer.buffer(name), value.to(layer.buffer(name).dtype()));
    };
    give("running_mean", running_mean());
    give("running_var", running_variance());
    layer.train(false);
  }
  layer.to(x[0].device());
  if (x.size() == 1) return layer(x[0]);
  const auto as = [&](const char* name, const Variable& v) {
    return esp::cast(v, layer.parameter(name).dtype());
  };
  return functional_call(layer, {{"weight", as("weight", x[1])}, {"bias", as("bias", x[2])}}, x[0]);
}

/// Of parameters and statistics that are computed in float32 for 16-bit inputs.
esp::DType wide(const Variable& x) { return esp::is_half(x.dtype()) ? esp::float32 : x.dtype(); }

Variable batch_norm(const Variables& x, Statistics statistics) {
  const bool running = statistics == Statistics::running;
  return call(
      BatchNorm(
          x[0].shape()[1],
          {.epsilon = epsilon, .affine = x.size() > 1, .running_statistics = running, .dtype = wide(x[0])}),
      x, statistics);
}

Variable instance_norm(const Variables& x, Statistics statistics) {
  const bool running = statistics == Statistics::running;
  return call(InstanceNorm({.epsilon = epsilon,
                            .affine = x.size() > 1,
                            .running_statistics = running,
                            .channels = x[0].shape()[1],
                            .dtype = running ? wide(x[0]) : x[0].dtype()}),
              x, statistics);
}

Variable group_norm(const Variables& x, int64_t groups) {
  return call(
      GroupNorm(
          groups,
          {.epsilon = epsilon, .affine = x.size() > 1, .channels = x[0].shape()[1], .dtype = x[0].dtype()}),
      x);
}

void check(const std::string& name, const Shape& shape, const Reference& reference,
           const std::function<Variable(const Variables&)>& op) {
  const Tensor x = numbers(shape, -1, 2, 1);
  const OpCase affine{.name = name,
                      .op = op,
                      .inputs = {x, numbers({channels}, 0.5, 1.5, 2), numbers({channels}, -1, 1, 3)},
                      .reference = reference};
  check_op(affine);
  if (shape.rank() == 3)
    check_op({.name = name + ", not affine", .op = op, .inputs = {x}, .reference = reference});
}

const Shape shapes[] = {{5, channels}, {3, channels, 2}, {2, channels, 3, 2}, {2, channels, 1, 2, 3}};

/// A layer in training mode, in two steps: results, gradients, and the statistics that it keeps.
template <class L>
std::vector<Tensor> trained(const L& layer, const Shape& shape, esp::Device device) {
  layer.to(device);
  std::vector<Tensor> all;
  for (const uint64_t step : {1, 2}) {
    const Variable x = esp::variable(numbers(shape, -1, 2, step).to(device));
    const Variable y = layer(x), loss = esp::sum(y * numbers(shape, -1, 1, 9).to(device));
    all.push_back(y.value());
    for (const Variable& v : {x, layer.parameter("weight"), layer.parameter("bias")})
      all.push_back(loss.gradient(v).value());
  }
  for (const auto& [path, buffer] : layer.buffers()) all.push_back(buffer.value());
  for (Tensor& t : all) t = t.to(esp::cpu());
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(norm_ops)

BOOST_AUTO_TEST_CASE(batch_norms) {
  for (const Shape& shape : shapes) {
    check("BatchNorm", shape, by_groups([](const Index& i) { return i[1]; }),
          [](const Variables& x) { return batch_norm(x, Statistics::of_input); });
    check("BatchNorm in inference", shape, by_running(),
          [](const Variables& x) { return batch_norm(x, Statistics::running); });
  }
}

BOOST_AUTO_TEST_CASE(instance_norms) {
  for (const Shape& shape : shapes) {
    if (shape.rank() < 3) continue;
    check("InstanceNorm", shape, by_groups([](const Index& i) { return i[0] * channels + i[1]; }),
          [](const Variables& x) { return instance_norm(x, Statistics::of_input); });
    check("InstanceNorm in inference", shape, by_running(),
          [](const Variables& x) { return instance_norm(x, Statistics::running); });
  }
}

BOOST_AUTO_TEST_CASE(group_norms) {
  for (const Shape& shape : shapes)
    for (const int64_t groups : {1, 2}) {
      if (groups == 1 && shape.rank() != 3) continue;
      check("GroupNorm of " + std::to_string(groups), shape,
            by_groups([=](const Index& i) { return i[0] * groups + i[1] / (channels / groups); }),
            [=](const Variables& x) { return group_norm(x, groups); });
    }
}

/// Plans of inference compute something else, so these are not in the table.
BOOST_AUTO_TEST_CASE(layers_in_training_that_keep_statistics) {
  const auto check_layer = [](const auto& make, const Shape& shape) {
    const auto layer = make();
    const esp::CheckResult result = esp::check_gradient(
        [&](const Variables& x) { return call(layer, x); },
        {numbers(shape, -1, 2, 1), numbers({channels}, 0.5, 1.5, 2), numbers({channels}, -1, 1, 3)},
        {.order = 2});
    BOOST_TEST(result.passed, result.message);
    const std::vector<Tensor> expected = trained(make(), shape, esp::cpu());
    for (const esp::Device& gpu : gpus_to_test()) {
      const std::vector<Tensor> found = trained(make(), shape, gpu);
      BOOST_REQUIRE(found.size() == expected.size());
      for (size_t i = 0; i < found.size(); ++i)
        BOOST_TEST(difference(expected[i], found[i]) < 1e-12, "result " << i);
    }
  };
  for (const Shape& shape : shapes) BOOST_TEST_CONTEXT(shape.str()) {
      check_layer([] { return BatchNorm(channels, {.dtype = esp::float64}); }, shape);
      check_layer([] { return BatchNorm(channels, {.momentum = {}, .dtype = esp::float64}); }, shape);
      if (shape.rank() < 3) continue;
      check_layer(
          [] {
            return InstanceNorm(
                {.affine = true, .running_statistics = true, .channels = channels, .dtype = esp::float64});
          },
          shape);
    }
}

BOOST_AUTO_TEST_SUITE_END()
