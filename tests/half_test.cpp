// float16 and bfloat16: conversions, tensors, files, and ops that compute in float32.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "checkpoint_program.h"
#include "espalier/core/error.h"
#include "espalier/core/files/safetensors.h"
#include "espalier/core/random.h"
#include "espalier/data/batches.h"
#include "espalier/data/csv.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/init.h"
#include "espalier/nn/losses.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::BFloat16;
using esp::Float16;

namespace {

template <class T>
T from_bits(uint16_t bits) {
  return __builtin_bit_cast(T, bits);
}

/// The value of an encoding, computed from the definition of the format.
template <class T>
double meaning(uint16_t bits) {
  constexpr int mantissa_bits = std::is_same_v<T, Float16> ? 10 : 7;
  constexpr int exponents = 1 << (15 - mantissa_bits), bias = exponents / 2 - 1;
  const int exponent = bits >> mantissa_bits & (exponents - 1), mantissa = bits & ((1 << mantissa_bits) - 1);
  double size;
  if (exponent == exponents - 1)
    size = mantissa ? NAN : INFINITY;
  else if (exponent == 0)
    size = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  else
    size = std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  return bits & 0x8000 ? -size : size;
}

template <class T>
bool same(T half, uint16_t bits) {
  return half.bits == bits;
}

using Halves = std::tuple<Float16, BFloat16>;
const esp::DType both_types[] = {esp::float16, esp::bfloat16};

std::string text(const esp::Tensor& t) {
  std::ostringstream out;
  out << t;
  return out.str();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(halves)

BOOST_AUTO_TEST_CASE_TEMPLATE(every_value_is_what_its_bits_mean, T, Halves) {
  int wrong = 0;
  for (int i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const double known = meaning<T>(bits);
    const float value = from_bits<T>(bits);
    if (std::isnan(known))
      wrong += !std::isnan(value) || !std::isnan(static_cast<float>(T(value)));
    else
      wrong += value != known || std::signbit(value) != std::signbit(known) || !same(T(value), bits);
  }
  BOOST_TEST(wrong == 0);
}

// Between all adjacent numbers: ties to even, else to the nearest.
BOOST_AUTO_TEST_CASE_TEMPLATE(rounding_goes_to_the_nearest, T, Halves) {
  int wrong = 0, asked = 0;
  for (uint16_t bits = 0; !std::isinf(meaning<T>(bits)); ++bits) {
    const double low = meaning<T>(bits);
    // The upper neighbour of the largest number is the next power of two, which becomes infinity.
    const double high =
        std::isinf(meaning<T>(bits + 1)) ? 2 * low - meaning<T>(bits - 1) : meaning<T>(bits + 1);
    const double half = low + (high - low) / 2;
    const uint16_t even = bits % 2 ? bits + 1 : bits;
    for (const double sign : {1.0, -1.0}) {
      const uint16_t minus = sign < 0 ? 0x8000 : 0;
      const auto ask = [&](double x, uint16_t expected) {
        wrong += !same(T(sign * x), static_cast<uint16_t>(expected | minus));
        if (static_cast<float>(x) == x)
          wrong += !same(T(static_cast<float>(sign * x)), static_cast<uint16_t>(expected | minus));
        ++asked;
      };
      ask(half, even);
      ask(std::nextafter(half, 0), bits);
      ask(std::nextafter(half, INFINITY), bits + 1);
      if (std::isinf(static_cast<float>(half))) continue;
      ask(std::nextafter(static_cast<float>(half), 0.0f), bits);
      ask(std::nextafter(static_cast<float>(half), INFINITY), bits + 1);
    }
  }
  BOOST_TEST(wrong == 0);
  BOOST_TEST(asked > 250'000);
  BOOST_TEST(std::isinf(static_cast<float>(T(1e300))));
  BOOST_TEST(static_cast<float>(T(-1e300)) == -INFINITY);
  BOOST_TEST(static_cast<float>(T(std::numeric_limits<float>::infinity())) == INFINITY);
  BOOST_TEST(static_cast<float>(T(1e-300)) == 0.0f);
  BOOST_TEST(std::signbit(static_cast<float>(T(-1e-300))));
  BOOST_TEST(std::isnan(static_cast<float>(T(double(NAN)))));
}

BOOST_AUTO_TEST_CASE(wide_numbers_are_rounded_once) {
  // Rounding to float32 first would give a tie, and then the even number.
  BOOST_TEST(static_cast<float>(Float16(1 + 0x1p-11 + 0x1p-40)) == 1 + 0x1p-10f);
  BOOST_TEST(static_cast<float>(BFloat16(1 + 0x1p-8 - 0x1p-40)) == 1.0f);
  const int64_t large = int64_t{1} << 60, halfway = int64_t{1} << 52;
  BOOST_TEST(static_cast<float>(BFloat16(large + halfway)) == 0x1p60f);
  BOOST_TEST(static_cast<float>(BFloat16(large + halfway + 1)) == 0x1.02p60f);
  BOOST_TEST(static_cast<float>(BFloat16(-large - halfway - 1)) == -0x1.02p60f);
  BOOST_TEST(static_cast<float>(BFloat16(INT64_MIN)) == -0x1p63f);
  BOOST_TEST(static_cast<float>(Float16(2049)) == 2048.0f);
  const esp::Tensor x = esp::full({}, 1 + 0x1p-11 + 0x1p-40, esp::float64);
  BOOST_TEST(x.to(esp::float16).item() == 1 + 0x1p-10);
  BOOST_TEST(esp::cast(x, esp::float16).item() == 1 + 0x1p-10);
  BOOST_TEST(esp::full({}, 1 + 0x1p-11 + 0x1p-40, esp::float16).item() == 1 + 0x1p-10);
}

BOOST_AUTO_TEST_CASE(tensors_of_them) {
  for (const esp::DType dtype : both_types) {
    BOOST_TEST_CONTEXT("in " << esp::name(dtype)) {
      BOOST_TEST(esp::is_real(dtype));
      BOOST_TEST(esp::size_of(dtype) == 2u);
      const esp::Tensor x = esp::tensor({{1.0f, 2.5f, -3.0f}, {0.0f, 1e-3f, 96.0f}}, dtype);
      BOOST_TEST(x.dtype() == dtype);
      BOOST_TEST(x.bytes() == 12u);
      BOOST_TEST(esp::tensor({1, 2, 3}, dtype).slice(0, 1, 2).item<int32_t>() == 2);
      BOOST_TEST(esp::full({2}, 0.1, dtype).slice(0, 0, 1).item() ==
                 (dtype == esp::float16 ? meaning<Float16>(0x2e66) : meaning<BFloat16>(0x3dcd)));
      BOOST_TEST(difference(esp::arange(4, dtype), esp::arange(4)) == 0);
      BOOST_TEST(difference(esp::eye(3, dtype), esp::eye(3)) == 0);
      BOOST_TEST(esp::zeros({3}, dtype).to(esp::float32).at<float>({2}) == 0);
      BOOST_TEST(esp::ones({3}, dtype).to(esp::int64).at<int64_t>({2}) == 1);
      BOOST_TEST(x.to(esp::boolean).at<bool>({0, 0}));
      BOOST_TEST(!x.to(esp::boolean).at<bool>({1, 0}));
      BOOST_TEST(esp::tensor({true, false}).to(dtype).slice(0, 0, 1).item() == 1);
      BOOST_TEST(text(esp::tensor({1.5f, 2.0f}, dtype)) == "[1.5, 2]");
    }
  }
  esp::Tensor halves = esp::tensor({1.0f, 2.0f}, esp::float16);
  BOOST_TEST(halves.data<Float16>()[1].bits == 0x4000);
  halves.at<Float16>({0}) = Float16(7);
  BOOST_TEST(halves.slice(0, 0, 1).item<Float16>().bits == 0x4700);
  BOOST_CHECK_EXCEPTION(halves.data<BFloat16>(), esp::TypeError, says({"bfloat16", "float16"}));
  BOOST_CHECK_THROW(halves.data<float>(), esp::TypeError);
  const std::vector<BFloat16> list{BFloat16(1), BFloat16(-2)};
  BOOST_TEST(esp::tensor_from(list, {2}).span<BFloat16>()[1].bits == 0xc000);
}

BOOST_AUTO_TEST_CASE(random_numbers_are_those_of_float32) {
  for (const esp::DType dtype : both_types)
    for (const auto draw : {esp::randn, esp::rand}) {
      esp::seed(4);
      const esp::Tensor wide = draw({100}, esp::float32, std::source_location::current());
      esp::seed(4);
      const esp::Tensor half = draw({100}, dtype, std::source_location::current());
      BOOST_TEST(half.dtype() == dtype);
      BOOST_TEST(difference(half, wide.to(dtype)) == 0);
      esp::seed(4);
      const esp::Variable masked = esp::dropout(esp::ones({100}, dtype), 0.5);
      esp::seed(4);
      BOOST_TEST(difference(masked.value(), esp::dropout(esp::ones({100}), 0.5).value()) == 0);
      esp::seed(4);
      const esp::Tensor weights = esp::nn::init::XavierNormal()({10, 10}, 10, 10, dtype);
      esp::seed(4);
      BOOST_TEST(difference(weights, esp::nn::init::XavierNormal()({10, 10}, 10, 10).to(dtype)) == 0);
    }
}

// An op rounds once: its result has the bits of the rounded float32 result.
BOOST_AUTO_TEST_CASE(ops_compute_in_float32) {
  for (const esp::DType dtype : both_types) {
    BOOST_TEST_CONTEXT("in " << esp::name(dtype)) {
      const esp::Tensor x = numbers({37, 41}).to(dtype), y = numbers({41, 29}, -2, 2, 1).to(dtype);
      const esp::Tensor wide_x = x.to(esp::float32), wide_y = y.to(esp::float32);
      const auto check = [&](const esp::Variable& half, const esp::Variable& wide) {
        BOOST_TEST(half.dtype() == dtype);
        BOOST_TEST(difference(half.value(), wide.value().to(dtype)) == 0);
      };
      check(esp::matmul(x, y), esp::matmul(wide_x, wide_y));
      check(esp::sum(x, 1), esp::sum(wide_x, 1));
      check(esp::mean(x), esp::mean(wide_x));
      check(esp::softmax(x), esp::softmax(wide_x));
      check(esp::exp(x), esp::exp(wide_x));
      check(esp::Variable(x) * x, esp::Variable(wide_x) * wide_x);
      const esp::Tensor row = x.slice(0, 3, 4);
      check(esp::Variable(x) + row, esp::Variable(wide_x) + row.to(esp::float32));
      // A sum that would be far off if accumulated in 16 bits.
      const esp::Tensor many = esp::ones({8192}, dtype);
      BOOST_TEST(esp::sum(many).item() == 8192);
      BOOST_TEST(esp::argmax(x).value().dtype() == esp::int64);
    }
  }
  BOOST_CHECK_EXCEPTION(esp::Variable(esp::ones({2}, esp::float16)) + esp::ones({2}, esp::bfloat16),
                        esp::TypeError, says({"float16", "bfloat16", "cast"}));
}

BOOST_AUTO_TEST_CASE(they_train) {
  for (const esp::DType dtype : both_types) {
    BOOST_TEST_CONTEXT("in " << esp::name(dtype)) {
      // Updates are computed in float32: 1 - 0.999 would be 0 in bfloat16.
      esp::seed(1);
      esp::nn::Dense layer(1);
      const esp::Tensor x = numbers({64, 3}).to(dtype);
      const esp::Tensor target = esp::sum(x, 1, true).value();
      const auto loss = [&] { return esp::mean_squared_error(layer(x), target); };
      const double before = loss().item();
      const esp::optim::Adam adam(0.05);
      for (int i = 0; i < 60; ++i) loss().update(adam);
      BOOST_TEST(loss().dtype() == dtype);
      BOOST_TEST(loss().item() < 0.02 * before);
      for (const auto& [path, p] : layer.parameters()) {
        BOOST_TEST(p.dtype() == dtype);
        for (const auto& [name, leaf] : adam.state_of(p)) BOOST_TEST(leaf.dtype() == esp::float32);
      }
    }
  }
}

// Plans with parameters, batches and losses in 16 bits: as in eager mode, and resumed with the same bits.
BOOST_AUTO_TEST_CASE(plans_and_checkpoints_of_them) {
  for (const esp::DType dtype : both_types) {
    BOOST_TEST_CONTEXT("in " << esp::name(dtype)) {
      const esp::Tensor x = numbers({23, 3}).to(dtype), y = numbers({23, 2}, -1, 1, 1).to(dtype);
      const esp::data::DistributorOptions options{.batch_size = 5, .shuffle = true};
      const auto state_of = [](const esp::nn::Sequential& model) {
        std::string state;
        for (const auto& [path, p] : model.parameters()) state += bits(p.value());
        return state;
      };
      const auto frozen = [&](uint64_t seed, const std::function<void(const esp::Executor&)>& run) {
        esp::seed(seed);
        esp::nn::Sequential model(esp::nn::Dense(4), esp::nn::Tanh(), esp::nn::Dense(2));
        esp::data::Distributor feed({x, y}, options);
        const auto [inputs, targets] = feed.get_output_graphs<2>();
        run(esp::nn::MeanSquared()(model(inputs), targets)
                .get_executor({.optimizer = esp::optim::Adam(0.01)}));
        return state_of(model);
      };
      const TemporaryFolder folder;
      const std::string whole = frozen(3, [&](const esp::Executor& e) {
        e.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
          if (info.epoch == 1 && info.step == 2) e.checkpoint(folder.path());
        });
        e.execute({.epochs = 3, .progress = false});
      });
      BOOST_TEST(frozen(4, [&](const esp::Executor& e) {
                   e.resume(folder.path());
                   e.execute({.epochs = 3, .progress = false});
                 }) == whole);

      esp::seed(3);
      esp::nn::Sequential model(esp::nn::Dense(4), esp::nn::Tanh(), esp::nn::Dense(2));
      const esp::optim::Adam adam(0.01);
      auto batches = esp::data::batches<2>({x, y}, options);
      for (int epoch = 0; epoch < 3; ++epoch)
        for (const auto& [inputs, targets] : batches)
          esp::nn::MeanSquared()(model(inputs), targets).update(adam);
      BOOST_TEST(state_of(model) == whole);
    }
  }
}

// The fused kernel has two results: the loss of each row, and what its gradient reads.
BOOST_AUTO_TEST_CASE(plans_differentiate_cross_entropy_of_them) {
  for (const esp::DType dtype : both_types) {
    const esp::Variable x = esp::parameter(numbers({6, 5}, -2, 2, 1).to(dtype), "x");
    const esp::Tensor labels = esp::tensor({3, 0, 4, 2, 1, 3}, esp::int64);
    const esp::Variable weight = esp::parameter(esp::full({}, 1.5, dtype), "weight");
    const esp::Variable loss = esp::softmax_cross_entropy(x, labels) * weight, both = loss + loss.gradient(x);
    const esp::Executor executor = both.get_executor();
    (void)executor.step();
    BOOST_TEST(executor.plan().str().find("log_softmax_pick_gradient") != std::string::npos);
    BOOST_TEST(executor.value().dtype() == dtype);
    BOOST_TEST(difference(executor.value(), both.value()) < (dtype == esp::float16 ? 2e-3 : 2e-2));
  }
}

BOOST_AUTO_TEST_CASE(files) {
  const TemporaryFolder folder;
  for (const esp::DType dtype : both_types) {
    const auto path = folder / "some.safetensors";
    const esp::Tensor x = numbers({3, 5}, -100, 100).to(dtype);
    esp::write_safetensors(path, {{"x", x}, {"y", esp::ones({1}, esp::boolean)}});
    std::ifstream in(path, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(in), {});
    BOOST_TEST(bytes.find(dtype == esp::float16 ? "\"F16\"" : "\"BF16\"") != std::string::npos);
    const esp::NamedTensors read = esp::read_safetensors(path);
    const auto& again = read[read[0].first == "x" ? 0 : 1].second;
    BOOST_TEST(again.dtype() == dtype);
    BOOST_TEST(std::memcmp(again.address(), x.address(), x.bytes()) == 0);
  }
  const auto table = folder.write("table.csv", "1.5,-2\n65504,3e-1\n");
  BOOST_TEST(difference(esp::data::read_csv(table, {.dtype = esp::float16}),
                        esp::tensor({{1.5, -2.0}, {65504.0, 0.3}}, esp::float16)) == 0);
  BOOST_CHECK_EXCEPTION(esp::data::read_csv(folder.write("large.csv", "1,70000\n"), {.dtype = esp::float16}),
                        esp::FileError, says({"line 1", "70000", "does not fit float16"}));
  BOOST_TEST(esp::data::read_csv(folder / "large.csv", {.dtype = esp::bfloat16}).dtype() == esp::bfloat16);
  for (const char* number : {"3.4e38", "-3.4e38"})  // rounds beyond the range of bfloat16
    BOOST_CHECK_EXCEPTION(esp::data::read_csv(folder.write("n.csv", number), {.dtype = esp::bfloat16}),
                          esp::FileError, says({"does not fit", "bfloat16"}));
  for (const esp::DType dtype : both_types)
    BOOST_TEST(esp::data::read_csv(folder.write("n.csv", "-inf"), {.dtype = dtype}).item() == -INFINITY);
}

BOOST_AUTO_TEST_SUITE_END()
