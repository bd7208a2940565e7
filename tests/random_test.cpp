#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <thread>
#include <vector>

#include "espalier/core/bind_context.h"
#include "espalier/core/cpu/philox_words.h"
#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/philox.h"
#include "espalier/core/random.h"
#include "espalier/core/sanitizers.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/dropout.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace {

using namespace espalier;

using Words = std::vector<uint32_t>;

struct Restore {
  VectorLevel level = vector_level();
  int threads = num_threads();
  Generator state = generator();
  ~Restore() {
    set_vector_level(level);
    set_num_threads(threads);
    generator() = state;
  }
};

template <class Check>
void at_every_level(const Check& check) {
  const Restore restore;
  for (const VectorLevel level : {VectorLevel::baseline, VectorLevel::avx2, VectorLevel::avx512})
    if (set_vector_level(level) == level)
      BOOST_TEST_CONTEXT("vector level " << static_cast<int>(level)) check();
}

template <class T>
std::vector<T> uniform(int64_t n, RandomStream stream = {1, 2}, double low = 0, double high = 1) {
  std::vector<T> result(static_cast<size_t>(n));
  fill_uniform(stream, result.data(), n, low, high);
  return result;
}
template <class T>
std::vector<T> normal(int64_t n, RandomStream stream = {1, 2}, double mean = 0, double stddev = 1) {
  std::vector<T> result(static_cast<size_t>(n));
  fill_normal(stream, result.data(), n, mean, stddev);
  return result;
}
template <class T>
std::vector<T> bernoulli(int64_t n, double keep, T kept, RandomStream stream = {1, 2}) {
  std::vector<T> result(static_cast<size_t>(n));
  fill_bernoulli(stream, result.data(), n, keep, kept);
  return result;
}
std::vector<int64_t> shuffled(uint64_t seed, uint64_t epoch, int64_t n) {
  std::vector<int64_t> result(static_cast<size_t>(n));
  permutation(seed, epoch, result.data(), n);
  return result;
}

Words philox_of(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0, uint32_t k1) {
  const auto block = philox::philox4x32({{c0, c1, c2, c3}}, k0, k1);
  return Words(block.word, block.word + 4);
}

/// The largest difference between the sample's distribution and `cumulative` (Kolmogorov and Smirnov), times
/// sqrt(n). It exceeds 2 once in 1,500 times.
template <class T, class Cumulative>
double distance(std::vector<T> sample, const Cumulative& cumulative) {
  std::sort(sample.begin(), sample.end());
  const auto n = static_cast<double>(sample.size());
  double worst = 0;
  for (size_t i = 0; i < sample.size(); ++i) {
    const double p = cumulative(static_cast<double>(sample[i]));
    worst = std::max({worst, p - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - p});
  }
  return worst * std::sqrt(n);
}

/// Mean of x^power.
template <class T>
double moment(const std::vector<T>& sample, int power) {
  double sum = 0;
  for (const T x : sample) sum += std::pow(static_cast<double>(x), power);
  return sum / static_cast<double>(sample.size());
}

double normal_cumulative(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

template <class T>
void check_uniform() {
  const std::vector<T> x = uniform<T>(100'000);
  BOOST_TEST(moment(x, 1) == 1.0 / 2, boost::test_tools::tolerance(0.01));
  BOOST_TEST(moment(x, 2) == 1.0 / 3, boost::test_tools::tolerance(0.01));
  BOOST_TEST(distance(x, [](double p) { return p; }) < 2);
  for (const T v : uniform<T>(10'000, {3, 4}, -2, 5)) BOOST_REQUIRE((v >= -2 && v < 5));
  // If the two bounds are adjacent numbers, no result may be rounded to the upper one.
  const T one = 1;
  const T next = std::nextafter(one, T(2));
  BOOST_TEST((uniform<T>(1000, {3, 4}, one, next) == std::vector<T>(1000, one)));
  BOOST_TEST((uniform<T>(10, {3, 4}, 7, 7) == std::vector<T>(10, 7)));
  BOOST_CHECK_THROW(uniform<T>(1, {}, 1, 0), Error);
  BOOST_CHECK_THROW(uniform<T>(1, {}, 0, std::numeric_limits<double>::infinity()), Error);
  BOOST_CHECK_THROW(uniform<T>(1, {}, std::nan(""), 0), Error);
}

template <class T>
void check_normal() {
  const std::vector<T> x = normal<T>(100'000);
  BOOST_TEST(std::abs(moment(x, 1)) < 0.01);
  BOOST_TEST(moment(x, 2) == 1.0, boost::test_tools::tolerance(0.02));
  BOOST_TEST(std::abs(moment(x, 3)) < 0.05);
  BOOST_TEST(moment(x, 4) == 3.0, boost::test_tools::tolerance(0.05));
  BOOST_TEST(distance(x, normal_cumulative) < 2);
  const std::vector<T> moved = normal<T>(1000, {1, 2}, 10, 0.5);
  for (size_t i = 0; i < moved.size(); ++i) BOOST_REQUIRE(std::abs(moved[i] - (10 + 0.5 * x[i])) < 1e-5);
}

/// Box and Muller's formula with the C library's functions.
template <class T>
std::vector<long double> exact_normals(int64_t pairs, RandomStream stream) {
  constexpr int words = sizeof(T) / 4;
  constexpr long double full_turn = 6.283185307179586476925L;
  Words w(static_cast<size_t>(2 * words * pairs + 4));
  detail::philox_words(stream, 0, static_cast<int64_t>(w.size() / 4), w.data());
  std::vector<long double> result;
  for (int64_t i = 0; i < pairs; ++i) {
    const uint32_t* at = &w[static_cast<size_t>(2 * words * i)];
    const long double u = words == 1 ? philox::positive_float(at[0]) : philox::positive_double(at[0], at[1]);
    const long double turn = words == 1 ? philox::uniform_float(at[1]) : philox::uniform_double(at[2], at[3]);
    const long double radius = std::sqrt(-2 * std::log(u));
    result.push_back(radius * std::cos(full_turn * turn));
    result.push_back(radius * std::sin(full_turn * turn));
  }
  return result;
}

template <class T>
void check_normals_are_exact() {
  const auto exact = exact_normals<T>(5000, {5, 6});
  at_every_level([&] {
    const std::vector<T> x = normal<T>(10'000, {5, 6});
    long double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, std::abs(x[i] - exact[i]));
    BOOST_TEST(worst < 5 * std::numeric_limits<T>::epsilon());
  });
}

/// An element does not depend on the length of the array or the number of threads.
template <class T, class Fill>
void check_elements_stand_alone(const Fill& fill) {
  const Restore restore;
  set_num_threads(1);
  const std::vector<T> all = fill(200'000);
  for (const int64_t n : {0, 1, 2, 3, 5, 15, 16, 17, 63, 64, 65, 511, 1023, 1025, 4097, 65'537}) {
    const std::vector<T> some = fill(n);
    BOOST_TEST((std::equal(some.begin(), some.end(), all.begin())), n << " elements are a prefix");
  }
#if !ESPALIER_THREAD_SANITIZER  // It does not detect synchronization by OpenMP.
  set_num_threads(3);
  BOOST_TEST((fill(200'000) == all));
#endif
}

template <class T>
void check_all_elements_stand_alone() {
  at_every_level([] {
    check_elements_stand_alone<T>([](int64_t n) { return uniform<T>(n); });
    check_elements_stand_alone<T>([](int64_t n) { return normal<T>(n); });
    check_elements_stand_alone<T>([](int64_t n) { return bernoulli<T>(n, 0.7, 2); });
  });
}

/// A window of a stream has the same bits as the whole stream at these positions.
template <class T, class Fill>
void check_windows(const Fill& fill) {
  const RandomStream whole{1, 2};
  const std::vector<T> all = fill(whole, 150'000);
  struct Window {
    int64_t first, run, stride, n;
  };
  for (const auto& [first, run, stride, n] : {Window{0, 0, 0, 1000},
                                              {1, 0, 0, 5000},
                                              {63, 0, 0, 130},
                                              {64, 0, 0, 64},
                                              {511, 0, 0, 3},
                                              {1023, 0, 0, 2},
                                              {777, 0, 0, 100'000},
                                              {0, 1, 1, 700},
                                              {0, 1, 7, 3000},
                                              {5, 3, 10, 3001},
                                              {1000, 64, 100, 6400},
                                              {1021, 1025, 2050, 70'000},
                                              {3, 5000, 5001, 140'000},
                                              {99, 40'000, 50'000, 120'000},
                                              {17, 2, 0, 9},
                                              {12, 10, 10, 4},
                                              {4, 3, 8, 0}}) {
    RandomStream window = whole;
    window.first = first;
    window.run = run;
    window.stride = stride;
    const std::vector<T> some = fill(window, n);
    int64_t wrong = 0;
    for (int64_t e = 0; e < n; ++e) {
      const int64_t at = first + (run ? e / run * stride + e % run : e);
      wrong += std::memcmp(&some[static_cast<size_t>(e)], &all[static_cast<size_t>(at)], sizeof(T)) != 0;
    }
    BOOST_TEST(wrong == 0, wrong << " of " << n << " numbers differ, " << run << " from each " << stride
                                 << " beginning at " << first);
  }
}

template <class T>
void check_all_windows() {
  at_every_level([] {
    for (const int threads : {1, 3}) {
#if ESPALIER_THREAD_SANITIZER  // It does not detect synchronization by OpenMP.
      if (threads > 1) continue;
#endif
      set_num_threads(threads);
      check_windows<T>([](RandomStream s, int64_t n) { return uniform<T>(n, s, -1, 2); });
      check_windows<T>([](RandomStream s, int64_t n) { return normal<T>(n, s, 1, 2); });
      check_windows<T>([](RandomStream s, int64_t n) { return bernoulli<T>(n, 0.7, 2, s); });
    }
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(random_numbers)

// The known answers that the authors of Philox publish with Random123.
BOOST_AUTO_TEST_CASE(philox_gives_the_known_answers) {
  const uint32_t ones = 0xFFFFFFFF;
  BOOST_TEST((philox_of(0, 0, 0, 0, 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  BOOST_TEST((philox_of(ones, ones, ones, ones, ones, ones) ==
              Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  BOOST_TEST((philox_of(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0) ==
              Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

BOOST_AUTO_TEST_CASE(words_in_bulk_are_the_words_of_the_blocks) {
  const RandomStream stream{0x0123456789abcdef, 0xfedcba9876543210};
  at_every_level([&] {
    for (const uint64_t first : {uint64_t{0}, uint64_t{0xFFFFFFFD}, ~uint64_t{0} - 40})
      for (const int64_t blocks : {1, 3, 4, 7, 8, 9, 37}) {
        Words words(static_cast<size_t>(4 * blocks + 1), 99);
        detail::philox_words(stream, first, blocks, words.data());
        bool same = words.back() == 99;
        for (int64_t i = 0; i < blocks; ++i) {
          const auto block = philox::block(stream.seed, stream.stream, first + static_cast<uint64_t>(i));
          same &= std::memcmp(block.word, &words[static_cast<size_t>(4 * i)], sizeof(block.word)) == 0;
        }
        BOOST_TEST(same, blocks << " blocks from " << first);
      }
  });
}

BOOST_AUTO_TEST_CASE(uniform_numbers) {
  check_uniform<float>();
  check_uniform<double>();
}

BOOST_AUTO_TEST_CASE(normal_numbers) {
  check_normal<float>();
  check_normal<double>();
  check_normals_are_exact<float>();
  check_normals_are_exact<double>();
}

BOOST_AUTO_TEST_CASE(bernoulli_numbers) {
  const auto x = bernoulli<float>(100'000, 0.3, 4);
  const auto kept = std::count(x.begin(), x.end(), 4.0f);
  BOOST_TEST(std::abs(kept - 30'000) < 600);
  BOOST_TEST(std::count(x.begin(), x.end(), 0.0f) == 100'000 - kept);
  BOOST_TEST((bernoulli<float>(999, 0, 4) == std::vector<float>(999, 0)));
  BOOST_TEST((bernoulli<float>(999, 1, 4) == std::vector<float>(999, 4)));
  const auto wide = bernoulli<double>(100'000, 0.3, 4);
  BOOST_TEST((std::equal(x.begin(), x.end(), wide.begin())), "floats and doubles are kept alike");
  // An element is kept if a uniform number is below the probability.
  const auto u = uniform<float>(100'000);
  BOOST_TEST(
      (std::equal(x.begin(), x.end(), u.begin(), [](float a, float b) { return (a != 0) == (b < 0.3); })));
  BOOST_CHECK_THROW(bernoulli<float>(1, 1.5, 1), Error);
  BOOST_CHECK_THROW(bernoulli<float>(1, -0.1, 1), Error);
  BOOST_CHECK_THROW(bernoulli<float>(1, std::nan(""), 1), Error);
}

BOOST_AUTO_TEST_CASE(uniform_and_bernoulli_numbers_are_the_same_on_every_machine) {
  at_every_level([] {
    BOOST_TEST((uniform<float>(4, {42, 7}, -1, 1) ==
                std::vector<float>{-0x1.81191p-3f, 0x1.95504p-1f, -0x1.38136p-3f, -0x1.54634p-2f}));
    BOOST_TEST((uniform<double>(3, {42, 7}, -1, 1) ==
                std::vector<double>{-0x1.81190c3557de8p-3, -0x1.38135d5518ce8p-3, 0x1.9777a53007b0cp-1}));
    BOOST_TEST((bernoulli<float>(8, 0.5, 1, {42, 7}) == std::vector<float>{1, 0, 1, 1, 0, 1, 0, 1}));
  });
  std::vector<std::vector<float>> results;
  at_every_level([&] { results.push_back(uniform<float>(50'000, {8, 9}, -0.3, 0.7)); });
  for (const auto& result : results) BOOST_TEST((result == results[0]));
  std::vector<std::vector<double>> wide_results;
  at_every_level([&] { wide_results.push_back(uniform<double>(50'000, {8, 9}, -0.3, 0.7)); });
  for (const auto& result : wide_results) BOOST_TEST((result == wide_results[0]));
}

BOOST_AUTO_TEST_CASE(elements_stand_alone) {
  check_all_elements_stand_alone<float>();
  check_all_elements_stand_alone<double>();
}

BOOST_AUTO_TEST_CASE(windows_show_what_the_whole_stream_has_there) {
  check_all_windows<float>();
  check_all_windows<double>();
}

BOOST_AUTO_TEST_CASE(dropout_masks_of_windows_on_a_gpu_are_those_of_the_cpu) {
  using namespace espalier::testing;
  const Variable mask_of = dropout(placeholder("x", {2}), 0.3);
  const Op& op = mask_of.node()->inputs[1].node()->op();
  for (const Device& device : gpus_to_test())
    for (const DType dtype : {float32, float64, float16, bfloat16})
      for (const int64_t n : {1, 5, 64, 1000, 4099})
        for (const auto& [first, run, stride] : {std::array<int64_t, 3>{0, 0, 0},
                                                 {4, 0, 0},
                                                 {7, 0, 0},
                                                 {0, 1, 3},
                                                 {8, 4, 8},
                                                 {5, 3, 11},
                                                 {2, 5000, 0}}) {
          RandomStream window{3, 4};
          window.first = first;
          window.run = run;
          window.stride = stride;
          const auto drawn = [&](const Device& where) {
            Tensor like({n}, dtype, where), out({n}, dtype, where);
            KernelCall call;
            call.inputs.push_back(&like);
            call.outputs.push_back(&out);
            call.random = window;
            if (where.type == DeviceType::cpu)
              op.run_cpu(call);
            else
              bind_kernel(op, call)->run(window);
            return out.to(cpu());
          };
          const bool half = dtype == float16 || dtype == bfloat16;  // which the CPU computes in float32
          const Tensor on_gpu = drawn(device);
          std::vector<float> kept = bernoulli<float>(n, 0.7, 1, window);
          const Array mask(cast(Variable(on_gpu), float64).value());
          int64_t wrong = 0;
          for (size_t i = 0; i < kept.size(); ++i) wrong += (mask.values[i] != 0) != (kept[i] != 0);
          BOOST_TEST(wrong == 0, name(dtype) << ", " << n << " numbers: " << wrong << " differ");
          if (!half) BOOST_TEST(difference(on_gpu, drawn(cpu())) == 0);
        }
}

BOOST_AUTO_TEST_CASE(streams_and_seeds_differ) {
  BOOST_TEST((uniform<float>(100, {1, 2}) == uniform<float>(100, {1, 2})));
  BOOST_TEST((uniform<float>(100, {1, 2}) != uniform<float>(100, {1, 3})));
  BOOST_TEST((uniform<float>(100, {1, 2}) != uniform<float>(100, {2, 2})));
  // A row may draw many numbers in each epoch.
  const auto first = uniform<float>(70'000, row_stream(1, 0, 5)),
             second = uniform<float>(9, row_stream(1, 1, 5));
  BOOST_TEST((std::ranges::search(first, second).empty()));
  const auto a = normal<double>(100'000, {1, 2});
  const auto b = normal<double>(100'000, {1, 3});
  BOOST_TEST(std::abs(std::inner_product(a.begin(), a.end(), b.begin(), 0.0)) < 1500);
}

BOOST_AUTO_TEST_CASE(the_generator_counts_streams) {
  const Restore restore;
  seed(11);
  BOOST_TEST(next_stream().stream == 0);
  BOOST_TEST(next_stream().stream == 1);
  const RandomStream parameter = next_parameter_stream();
  BOOST_TEST(parameter.seed == 11);
  BOOST_TEST(parameter.stream != 0);
  BOOST_TEST(next_stream().stream == 2);
  BOOST_TEST(next_parameter_stream().stream == parameter.stream + 1);
  std::thread([] {
    BOOST_TEST(generator().seed == 0);
    seed(5);
    BOOST_TEST(next_stream().stream == 0);
  }).join();
  BOOST_TEST(next_stream().seed == 11);
  seed(11);
  BOOST_TEST(next_stream().stream == 0);
  BOOST_TEST(next_parameter_stream().stream == parameter.stream);
}

/// As a loop of one's own does that goes on from files.
BOOST_AUTO_TEST_CASE(a_generator_that_was_kept_goes_on) {
  const Restore restore;
  const auto draw = [] {
    const nn::Dropout dropout(0.5);
    return concat({dropout(ones({50})), randn({3}), nn::Dense(3, 2).parameter("bias")}, 0).value();
  };
  seed(7);
  (void)draw();
  const Generator kept = generator();
  const Tensor first = draw(), second = draw();
  seed(8);
  (void)draw();
  generator() = kept;
  BOOST_TEST(testing::difference(first, draw()) == 0);
  BOOST_TEST(testing::difference(second, draw()) == 0);
}

BOOST_AUTO_TEST_CASE(permutations) {
  for (const int64_t n : {0, 1, 2, 3, 100, 5000}) {
    auto order = shuffled(1, 0, n);
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < n; ++i) BOOST_REQUIRE(order[static_cast<size_t>(i)] == i);
  }
  BOOST_TEST((shuffled(1, 3, 1000) == shuffled(1, 3, 1000)));
  BOOST_TEST((shuffled(1, 3, 1000) != shuffled(1, 4, 1000)));
  BOOST_TEST((shuffled(1, 3, 1000) != shuffled(2, 3, 1000)));
  at_every_level([] { BOOST_TEST((shuffled(42, 7, 8) == std::vector<int64_t>{4, 7, 0, 6, 3, 1, 2, 5})); });

  std::map<std::vector<int64_t>, int> counts;
  for (uint64_t epoch = 0; epoch < 24'000; ++epoch) ++counts[shuffled(9, epoch, 4)];
  BOOST_TEST(counts.size() == 24u);
  double chi_squared = 0;
  for (const auto& [order, count] : counts) chi_squared += (count - 1000.0) * (count - 1000.0) / 1000;
  BOOST_TEST(chi_squared < 50);  // 23 degrees of freedom: exceeded once in 1,000 times
}

BOOST_AUTO_TEST_SUITE_END()
