// Normalization layers: values by plain loops, gradients, running statistics, files, errors, and that plans
// and replicas train as an eager loop does.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <map>

#include "espalier/core/check_gradient.h"
#include "espalier/core/error.h"
#include "espalier/nn/batch_norm.h"
#include "espalier/nn/channel_norm.h"
#include "espalier/nn/container.h"
#include "espalier/nn/l2_norm.h"
#include "espalier/nn/rms_norm.h"
#include "espalier/nn/serialize.h"
#include "layer_figures.h"
#include "layer_training.h"
#include "temporary_folder.h"

namespace esp = espalier;
using namespace espalier::nn;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// (x − mean) / √(variance + epsilon) over the elements for which `group` gives one number.
esp::Tensor normalized_by_hand(const esp::Tensor& x, double epsilon,
                               const std::function<int64_t(const Index&)>& group) {
  const Array in(x);
  std::map<int64_t, std::vector<double>> members;
  each_index(x.shape(), [&](const Index& i) { members[group(i)].push_back(in(i)); });
  esp::Tensor y = esp::zeros(x.shape(), esp::float64);
  size_t at = 0;
  each_index(x.shape(), [&](const Index& i) {
    const std::vector<double>& values = members[group(i)];
    double mean = 0, variance = 0;
    for (const double v : values) mean += v / static_cast<double>(values.size());
    for (const double v : values) variance += (v - mean) * (v - mean) / static_cast<double>(values.size());
    y.span<double>()[at++] = (in(i)-mean) / std::sqrt(variance + epsilon);
  });
  return y;
}

/// Gives parameters values other than those they start with.
void spread(const Module& module) {
  uint64_t which = 20;
  for (const auto& [path, p] : module.parameters())
    esp::set_value(p, numbers(p.shape(), 0.5, 1.5, which++).to(p.dtype()));
}

const std::vector<esp::Shape> image_shapes{{5, 4}, {3, 4, 2}, {2, 4, 3, 2}};

}  // namespace

BOOST_AUTO_TEST_SUITE(norm_layers)

BOOST_AUTO_TEST_CASE(batch_norm_normalizes_features) {
  for (const esp::Shape& shape : image_shapes) {
    const esp::Tensor x = numbers(shape, -1, 3, 1);
    BatchNorm norm({.epsilon = 1e-3});
    BOOST_TEST(difference(norm(x).value(), normalized_by_hand(x, 1e-3, [](const Index& i) { return i[1]; })) <
               1e-12);
    spread(norm);
    esp::Dims column(shape.rank() - 1, 1);
    column[0] = 4;
    const Variable w = esp::reshape(norm.parameter("weight"), esp::Shape(column)),
                   b = esp::reshape(norm.parameter("bias"), esp::Shape(column));
    BOOST_TEST(
        difference(norm(x).value(),
                   (normalized_by_hand(x, 1e-3, [](const Index& i) { return i[1]; }) * w + b).value()) <
        1e-12);
    norm.train(false);
    const Variable mean = esp::reshape(norm.buffer("running_mean"), esp::Shape(column)),
                   variance = esp::reshape(norm.buffer("running_var"), esp::Shape(column));
    BOOST_TEST(difference(norm(x).value(), ((x - mean) / esp::sqrt(variance + 1e-3) * w + b).value()) <
               1e-12);
    const BatchNorm plain({.epsilon = 1e-3, .affine = false, .running_statistics = false});
    BOOST_TEST(plain.parameters().empty());
    const auto result = esp::check_gradient(
        [&](const std::vector<Variable>& v) { return esp::sum(plain(v[0]) * numbers(shape, -1, 1, 9)); }, {x},
        {.order = 2});
    BOOST_TEST(result.passed, result.message);
  }
}

BOOST_AUTO_TEST_CASE(batch_norm_keeps_running_statistics) {
  for (const std::optional<double> momentum : {std::optional(0.3), std::optional<double>()}) {
    const BatchNorm norm({.momentum = momentum});
    std::vector<double> mean(3, 0), variance(3, 1);
    for (int step = 1; step <= 3; ++step) {
      const esp::Tensor x = numbers({4, 3, 2}, -1, 2, static_cast<uint64_t>(step));
      (void)norm(x);
      const Array in(x);
      const double part = momentum.value_or(1.0 / step);
      for (int64_t f = 0; f < 3; ++f) {
        double m = 0, v = 0;
        for (int64_t i = 0; i < 8; ++i) m += in({i / 2, f, i % 2}) / 8;
        for (int64_t i = 0; i < 8; ++i) v += std::pow(in({i / 2, f, i % 2}) - m, 2) / 7;
        double &running = mean[size_t(f)], &spread_of = variance[size_t(f)];
        running += (m - running) * part;
        spread_of += (v - spread_of) * part;
      }
    }
    BOOST_TEST(difference(norm.buffer("running_mean").value(), esp::tensor_from(mean, {3})) < 1e-12);
    BOOST_TEST(difference(norm.buffer("running_var").value(), esp::tensor_from(variance, {3})) < 1e-12);
    BOOST_TEST(norm.buffer("num_batches_tracked").value().item<int64_t>() == 3);
  }
}

BOOST_AUTO_TEST_CASE(batch_norm_in_files_clones_and_inference) {
  BatchNorm norm(3);
  BOOST_TEST(norm.parameters().size() == 2u);
  BOOST_TEST(norm.buffers().size() == 3u);
  (void)norm(numbers({6, 3}).to(esp::float32));
  const TemporaryFolder folder;
  save(norm, folder / "norm.safetensors");
  BatchNorm loaded, clone = norm.clone();
  load(loaded, folder / "norm.safetensors");
  const esp::Tensor x = numbers({2, 3}, 0, 1, 5).to(esp::float32);
  for (BatchNorm* each : {&norm, &loaded, &clone}) each->train(false);
  BOOST_TEST(difference(loaded(x).value(), norm(x).value()) == 0);
  BOOST_TEST(difference(clone(x).value(), norm(x).value()) == 0);
  norm.train();
  (void)norm(numbers({6, 3}, 0, 5, 8).to(esp::float32));  // a clone has buffers of its own
  BOOST_TEST(difference(clone.buffer("running_mean").value(), norm.buffer("running_mean").value()) > 0.1);
  norm.trainable(false);
  BOOST_CHECK_THROW(esp::mean(norm(x)).update(esp::optim::Sgd(0.1)), esp::Error);
}

BOOST_AUTO_TEST_CASE(instance_norm_keeps_running_statistics) {
  for (const std::optional<double> momentum : {std::optional(0.3), std::optional<double>()}) {
    InstanceNorm norm({.affine = true, .running_statistics = true, .momentum = momentum});
    std::vector<double> mean(3, 0), variance(3, 1);
    for (int step = 1; step <= 3; ++step) {
      const esp::Tensor x = numbers({4, 3, 2, 3}, -1, 2, static_cast<uint64_t>(step));
      BOOST_TEST(difference(norm(x).value(), InstanceNorm()(x).value()) < 1e-12);
      const Array in(x);
      const double part = momentum.value_or(1.0 / step);
      for (int64_t c = 0; c < 3; ++c) {
        double m_all = 0, v_all = 0;
        for (int64_t n = 0; n < 4; ++n) {
          double m = 0, v = 0;
          for (int64_t i = 0; i < 6; ++i) m += in({n, c, i / 3, i % 3}) / 6;
          for (int64_t i = 0; i < 6; ++i) v += std::pow(in({n, c, i / 3, i % 3}) - m, 2) / 5;
          m_all += m / 4, v_all += v / 4;
        }
        mean[size_t(c)] += (m_all - mean[size_t(c)]) * part;
        variance[size_t(c)] += (v_all - variance[size_t(c)]) * part;
      }
    }
    BOOST_TEST(difference(norm.buffer("running_mean").value(), esp::tensor_from(mean, {3})) < 1e-12);
    BOOST_TEST(difference(norm.buffer("running_var").value(), esp::tensor_from(variance, {3})) < 1e-12);
    BOOST_TEST(norm.buffer("num_batches_tracked").value().item<int64_t>() == 3);
    spread(norm);
    const esp::Tensor x = numbers({2, 3, 4}, -1, 1, 7);
    const auto column = [](const Variable& v) { return esp::reshape(v, {3, 1}); };
    const Variable expected = (x - column(norm.buffer("running_mean"))) /
                                  esp::sqrt(column(norm.buffer("running_var")) + 1e-5) *
                                  column(norm.parameter("weight")) +
                              column(norm.parameter("bias"));
    norm.train(false);
    BOOST_TEST(difference(norm(x).value(), expected.value()) < 1e-12);
    InstanceNorm clone = norm.clone();
    BOOST_TEST(difference(clone(x).value(), expected.value()) < 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(running_statistics_are_those_of_pytorch) {
  const auto check = [](const std::string& name, auto layer, const esp::Shape& shape) {
    give_figure_values(layer);
    Variable loss = esp::tensor(0.0, esp::float64);
    for (int step = 0; step < 2; ++step)
      loss = loss + weighed(layer(figure_numbers(shape, 37 + 4 * step, 19, 8)));
    for (const auto& [path, p] : layer.parameters()) (void)loss.gradient(p);
    layer.train(false);
    check_layer_figures(
        name,
        {layer.buffer("running_mean"), layer.buffer("running_var"), layer(figure_numbers(shape, 29, 23, 8))},
        loss, layer);
  };
  check("batch norm", BatchNorm(3, {.dtype = esp::float64}), {5, 3});
  check("batch norm of all batches", BatchNorm(3, {.momentum = {}, .dtype = esp::float64}), {5, 3});
  check("instance norm",
        InstanceNorm({.affine = true, .running_statistics = true, .channels = 3, .dtype = esp::float64}),
        {2, 3, 4});
}

BOOST_AUTO_TEST_CASE(norms_of_examples) {
  for (const esp::Shape& shape : image_shapes) {
    const esp::Tensor x = numbers(shape, -1, 3, 1);
    for (const int64_t groups : {1, 2, 4}) {
      if (shape.rank() == 2 && groups == 4) continue;  // each element is its own mean
      const GroupNorm norm(groups);
      BOOST_TEST(difference(norm(x).value(), normalized_by_hand(x, 1e-5, [&](const Index& i) {
                              return i[0] * groups + i[1] / (4 / groups);
                            })) < 1e-12);
      spread(norm);
      const auto result = esp::check_gradient(
          [&](const std::vector<Variable>& v) { return esp::sum(norm(v[0]) * numbers(shape, -1, 1, 9)); },
          {x}, {.order = 2});
      BOOST_TEST(result.passed, result.message);
    }
    if (shape.rank() < 3) continue;
    const InstanceNorm norm;
    BOOST_TEST(norm.parameters().empty());
    BOOST_TEST(difference(norm(x).value(), normalized_by_hand(x, 1e-5, [](const Index& i) {
                            return i[0] * 4 + i[1];
                          })) < 1e-12);
    const InstanceNorm affine({.affine = true, .channels = 4, .dtype = esp::float64});
    BOOST_TEST(affine.parameters().size() == 2u);
    BOOST_TEST(difference(affine(x).value(), norm(x).value()) < 1e-12);
  }
  const esp::Tensor rows = numbers({2, 3, 4}, -1, 1, 3);
  const L2Norm unit(1);
  const Variable ones = esp::sum(esp::square(unit(rows)), 1);
  BOOST_TEST(difference(ones.value(), esp::ones({2, 4}, esp::float64)) < 1e-12);
  BOOST_TEST(difference(unit(esp::zeros({2, 3})).value(), esp::zeros({2, 3})) == 0);
  BOOST_CHECK_EXCEPTION(L2Norm(3)(rows), esp::ShapeError,
                        says({"L2Norm", "3", "[2, 3, 4]", "norm_layers_test.cpp"}));
  const RmsNorm norm(1e-3);
  BOOST_TEST(difference(norm(rows).value(),
                        (rows / esp::sqrt(esp::mean(esp::square(rows), -1, true) + 1e-3)).value()) < 1e-12);
  spread(norm);
  const auto result = esp::check_gradient(
      [&](const std::vector<Variable>& v) {
        return esp::sum(norm(v[0]) * numbers({2, 3, 4}, -1, 1, 9));
      },
      {rows}, {.order = 2});
  BOOST_TEST(result.passed, result.message);
}

BOOST_AUTO_TEST_CASE(sixteen_bits_are_computed_in_float32) {
  const esp::Tensor wide = numbers({4, 4, 2}, 100, 101, 1).to(esp::bfloat16).to(esp::float32),
                    x = wide.to(esp::bfloat16);
  const auto check = [&](const Layer& narrow, const Layer& full) {
    const esp::Tensor y = narrow(x).value();
    BOOST_TEST(y.dtype() == esp::bfloat16);
    BOOST_TEST(difference(y, full(wide).value().to(esp::bfloat16)) == 0);
  };
  check(BatchNorm(), BatchNorm());
  check(GroupNorm(2), GroupNorm(2));
  check(InstanceNorm(), InstanceNorm());
  check(InstanceNorm({.running_statistics = true}), InstanceNorm({.running_statistics = true}));
  check(RmsNorm(), RmsNorm());
}

/// On the CPU and on GPUs.
BOOST_AUTO_TEST_CASE(plans_and_replicas_train_as_an_eager_loop) {
  const Places places = replica_places();
  const auto check = [&]<class L>(const std::function<L()>& make, const esp::Shape& shape) {
    BOOST_TEST(training_differences(make, shape, places) < 1e-9);
  };
  for (const esp::Shape& shape : std::vector<esp::Shape>{{4}, {4, 2}, {4, 3, 2}}) {
    check(std::function([] { return BatchNorm(); }), shape);
    check(std::function([] { return BatchNorm({.momentum = {}}); }), shape);
    check(std::function([] { return GroupNorm(2); }), shape);
    check(std::function([] { return RmsNorm(); }), shape);
    if (shape.rank() > 1)
      for (const bool running : {false, true})
        check(std::function([=] { return InstanceNorm({.affine = true, .running_statistics = running}); }),
              shape);
  }
}

BOOST_AUTO_TEST_CASE(open_axes_of_images) {
  const Variable x = esp::placeholder("x", {-1, 4, -1, -1}, esp::float64);
  const GroupNorm group(2);
  const InstanceNorm instance;
  BatchNorm batch;
  const Variable y = instance(group(batch(x)));
  const esp::Executor executor = y.get_executor();
  batch.train(false);  // plans of inference take running statistics
  for (const esp::Shape& shape : std::vector<esp::Shape>{{2, 4, 3, 3}, {3, 4, 2, 5}}) {
    const esp::Tensor value = numbers(shape, -1, 1, 1);
    BOOST_TEST(difference(executor.run({{"x", value}}), instance(group(batch(value))).value()) < 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(a_placeholder_of_one_row_takes_more) {
  const Variable x = esp::placeholder("x", {1, 3}, esp::float64);
  BatchNorm batch;
  const Variable y = batch(x);  // in training mode
  const esp::Executor executor = y.get_executor();
  batch.train(false);  // plans of inference take running statistics
  const esp::Tensor value = numbers({4, 3});
  BOOST_TEST(difference(executor.run({{"x", value}}), batch(value).value()) < 1e-12);
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused) {
  const BatchNorm norm(3);
  BOOST_CHECK_EXCEPTION(norm(esp::ones({2, 4})), esp::ShapeError,
                        says({"BatchNorm", "[2, 4]", "[3]", "norm_layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(norm(esp::ones({3})), esp::ShapeError, says({"BatchNorm", "[3]"}));
  BOOST_CHECK_EXCEPTION(norm(esp::ones({1, 3})), esp::ShapeError, says({"[1, 3]", "norm_layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(norm(esp::ones({2, 3}, esp::float64)), esp::TypeError, says({"float64", "float32"}));
  BOOST_CHECK_EXCEPTION(BatchNorm(0), esp::Error, says({"BatchNorm", "0", "norm_layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(BatchNorm({.momentum = 1.5}), esp::Error, says({"momentum", "1.5"}));
  BOOST_CHECK_EXCEPTION(BatchNorm({.epsilon = 0}), esp::Error, says({"epsilon"}));
  BOOST_CHECK_EXCEPTION(BatchNorm(3, {.dtype = esp::int64}), esp::TypeError, says({"int64"}));
  BOOST_CHECK_EXCEPTION(GroupNorm(0), esp::Error, says({"GroupNorm", "0", "norm_layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(GroupNorm(3)(esp::ones({2, 4})), esp::ShapeError,
                        says({"GroupNorm", "3", "4", "norm_layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(GroupNorm(3, {.channels = 4}), esp::ShapeError, says({"GroupNorm", "3", "4"}));
  BOOST_CHECK_EXCEPTION(InstanceNorm()(esp::ones({2, 4})), esp::ShapeError, says({"InstanceNorm", "[2, 4]"}));
  const InstanceNorm running({.running_statistics = true});
  BOOST_CHECK_EXCEPTION(running(esp::ones({2, 4, 1})), esp::ShapeError,
                        says({"InstanceNorm", "[2, 4, 1]", "one element", "norm_layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(running(esp::ones({0, 4, 3})), esp::ShapeError,
                        says({"InstanceNorm", "[0, 4, 3]", "no element"}));
  BOOST_CHECK_EXCEPTION(InstanceNorm({.running_statistics = true, .momentum = -0.5}), esp::Error,
                        says({"InstanceNorm", "momentum", "-0.5"}));
  BOOST_CHECK_EXCEPTION(RmsNorm()(esp::tensor(1.0f)), esp::ShapeError, says({"RmsNorm"}));
  BOOST_CHECK_EXCEPTION(RmsNorm(-1.0), esp::Error, says({"epsilon", "-1", "norm_layers_test.cpp"}));
  BOOST_CHECK_EXCEPTION(RmsNorm(0), esp::Error, says({"RmsNorm", "0"}));
}

// As eager calls do, one after the other: also where a call reads how many batches the one before has
// counted.
BOOST_AUTO_TEST_CASE(batches_of_one_step_move_running_statistics_in_turn) {
  for (const std::optional<double> momentum : {std::optional(0.3), std::optional<double>()}) {
    std::vector<std::vector<esp::Tensor>> found;
    for (const bool frozen : {false, true}) {
      esp::data::Distributor feed({numbers({8, 3}, -1, 1, 4), numbers({8, 3}, 2, 5, 5)},
                                  {.batch_size = 4, .shuffle = false});
      const BatchNorm norm({.momentum = momentum}), eager({.momentum = momentum});
      const Variable w = esp::parameter(numbers({3}, -1, 1, 1)), x = feed.get_output_graphs()[0] * w,
                     y = feed.get_output_graphs()[1] * w, one = norm(x), other = norm(y),
                     again = norm(esp::tanh(one));
      const Variable loss = esp::mean(esp::square(one - other + again));
      if (frozen) {
        loss.get_executor({.optimizer = esp::optim::Sgd(0.0)}).execute({.progress = false});
      } else {
        for (int step = 0; step < 2; ++step) {
          (void)loss.forward();
          const Variable first = eager(Variable(x.value()));
          (void)eager(Variable(y.value()));
          (void)eager(esp::tanh(first));
        }
        for (const BatchNorm* each : {&norm, &eager}) {
          found.emplace_back();
          for (const char* name : {"running_mean", "running_var"})
            found.back().push_back(each->buffer(name).value());
        }
        BOOST_TEST(norm.buffer("num_batches_tracked").value().item<int64_t>() == 6);
        continue;
      }
      found.push_back({norm.buffer("running_mean").value(), norm.buffer("running_var").value()});
      BOOST_TEST(norm.buffer("num_batches_tracked").value().item<int64_t>() == 6);
    }
    for (const auto& each : found)
      for (size_t k = 0; k < 2; ++k) BOOST_TEST(difference(each[k], found[0][k]) < 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(an_empty_batch_has_no_statistics) {
  const esp::nn::BatchNorm layer(4);
  BOOST_CHECK_EXCEPTION(layer(esp::randn({0, 4})), esp::ShapeError, says({"BatchNorm", "no element"}));
}

BOOST_AUTO_TEST_SUITE_END()
