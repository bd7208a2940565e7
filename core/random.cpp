#include "espalier/core/random.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "espalier/core/cpu/parallel.h"
#include "espalier/core/cpu/philox_words.h"
#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/error.h"
#include "espalier/core/philox.h"
#include "espalier/core/scalar_math.h"

namespace espalier {
namespace {

// Streams of random nodes count from 0, others have a high bit of their own.
constexpr uint64_t parameter_streams = uint64_t{1} << 63;
constexpr uint64_t shuffle_streams = uint64_t{1} << 62;
constexpr uint64_t validation_streams = uint64_t{1} << 61;
constexpr uint64_t row_streams = uint64_t{1} << 60;
constexpr int numbers_of_row_bits = 32;  // of an epoch

constexpr int64_t chunk_words = 1024;  // Words and values of a chunk stay in the first cache.
constexpr int64_t parallel_chunks = 32;

/// Runs `convert(words, values, count)` over chunks of a stream, for its numbers `first` to `first + n`.
/// Counts are rounded up to whole vectors, and down at the beginning, so that every number goes through the
/// same instructions, wherever the array begins and ends.
template <class T, int words_per_element, class Convert>
void fill_run(RandomStream stream, int64_t first, T* out, int64_t n, const Convert& convert) {
  constexpr int64_t chunk = chunk_words / words_per_element;
  constexpr int64_t vector = 64;
  if (n <= 0) return;
  const int64_t first_chunk = first / chunk, chunks = (first + n - 1) / chunk - first_chunk + 1;
  parallel_for(chunks, parallel_chunks, [&](int64_t begin, int64_t end) {
    alignas(64) uint32_t words[chunk_words];
    alignas(64) T values[chunk];
    for (int64_t c = first_chunk + begin; c < first_chunk + end; ++c) {
      const int64_t from_number = std::max(first, c * chunk),
                    to_number = std::min(first + n, (c + 1) * chunk);
      const int64_t at = from_number / vector * vector;
      const int64_t rounded = (to_number - at + vector - 1) / vector * vector;
      const int64_t blocks = rounded * words_per_element / 4;
      detail::philox_words(stream, static_cast<uint64_t>(at) * words_per_element / 4, blocks, words);
      const uint32_t* from = words;
      T* to = values;
      vectorized([=]() __attribute__((always_inline)) { convert(from, to, rounded); });
      std::copy_n(values + (from_number - at), to_number - from_number, out + (from_number - first));
    }
  });
}

/// The same for the n numbers that a stream shows.
template <class T, int words_per_element, class Convert>
void fill(RandomStream stream, T* out, int64_t n, const Convert& convert) {
  const int64_t run = stream.run ? stream.run : std::max<int64_t>(n, 1);
  int64_t first = stream.first;
  for (int64_t at = 0; at < n; at += run, first += stream.stride)
    fill_run<T, words_per_element>(stream, first, out + at, std::min(run, n - at), convert);
}

/// The product, rounded before anything is added: a fused operation would round once, and on some machines
/// only.
template <class T>
[[gnu::always_inline]] inline T rounded_product(T a, T b) {
#if __has_builtin(__builtin_assoc_barrier)
  return __builtin_assoc_barrier(a * b);
#else
  const T product = a * b;
  return product;
#endif
}

[[gnu::always_inline]] inline float uniform_at(const uint32_t* words, int64_t i, float) {
  return philox::uniform_float(words[i]);
}
[[gnu::always_inline]] inline double uniform_at(const uint32_t* words, int64_t i, double) {
  return philox::uniform_double(words[2 * i], words[2 * i + 1]);
}
[[gnu::always_inline]] inline float positive_at(const uint32_t* words, int64_t i, float) {
  return philox::positive_float(words[i]);
}
[[gnu::always_inline]] inline double positive_at(const uint32_t* words, int64_t i, double) {
  return philox::positive_double(words[2 * i], words[2 * i + 1]);
}
[[gnu::always_inline]] inline float square_root(float x) { return __builtin_sqrtf(x); }
[[gnu::always_inline]] inline double square_root(double x) { return __builtin_sqrt(x); }

/// Draws 64 bits at a time.
class WordSource {
 public:
  explicit WordSource(RandomStream stream) : stream_(stream) {}

  /// A number below `bound`, all as likely: Lemire, "Fast random integer generation in an interval" (2019).
  uint64_t below(uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    Wide product = static_cast<Wide>(next()) * bound;
    if (static_cast<uint64_t>(product) < bound) {
      const uint64_t rejected = -bound % bound;
      while (static_cast<uint64_t>(product) < rejected) product = static_cast<Wide>(next()) * bound;
    }
    return static_cast<uint64_t>(product >> 64);
  }

 private:
  uint64_t next() {
    if (used_ == chunk_words) {
      detail::philox_words(stream_, block_, chunk_words / 4, words_);
      block_ += chunk_words / 4;
      used_ = 0;
    }
    const uint64_t low = words_[used_];
    const uint64_t high = words_[used_ + 1];
    used_ += 2;
    return low | high << 32;
  }

  RandomStream stream_;
  uint64_t block_ = 0;
  int64_t used_ = chunk_words;
  uint32_t words_[chunk_words];
};

}  // namespace

Generator& generator() {
  static thread_local Generator state;
  return state;
}

void seed(uint64_t value) { generator() = {value, 0, 0}; }

RandomStream next_stream() {
  Generator& g = generator();
  return {g.seed, g.next_stream++};
}

RandomStream next_parameter_stream() {
  Generator& g = generator();
  return {g.seed, parameter_streams | g.next_parameter_stream++};
}

uint64_t validation_stream(uint64_t number) { return validation_streams | number; }

RandomStream row_stream(uint64_t seed, int64_t epoch, int64_t row) {
  RandomStream stream{seed, row_streams | static_cast<uint64_t>(row)};
  stream.first = epoch << numbers_of_row_bits;
  return stream;
}

template <class T>
void fill_uniform(RandomStream stream, T* out, int64_t n, double low, double high) {
  const T from = static_cast<T>(low);
  const T to = static_cast<T>(high);
  const T range = to - from;
  if (!(low <= high) || !std::isfinite(range))
    throw Error("no even distribution from " + std::to_string(low) + " to " + std::to_string(high));
  // Rounding may give `high` itself, which is excluded.
  const T last = std::max(from, std::nextafter(to, -std::numeric_limits<T>::infinity()));
  fill<T, sizeof(T) / 4>(
      stream, out, n, [=](const uint32_t* words, T* values, int64_t count) __attribute__((always_inline)) {
        for (int64_t i = 0; i < count; ++i) {
          const T value = from + rounded_product(uniform_at(words, i, T()), range);
          values[i] = value < last ? value : last;
        }
      });
}

template <class T>
void fill_normal(RandomStream stream, T* out, int64_t n, double mean, double stddev) {
  const T center = static_cast<T>(mean);
  const T scale = static_cast<T>(stddev);
  fill<T, sizeof(T) / 4>(
      stream, out, n, [=](const uint32_t* words, T* values, int64_t count) __attribute__((always_inline)) {
        for (int64_t i = 0; i < count; i += 2) {
          const T radius = square_root(T(-2) * math::log_positive(positive_at(words, i, T())));
          const auto [sine, cosine] = math::sine_cosine_of_turns(uniform_at(words, i + 1, T()));
          values[i] = center + scale * (radius * cosine);
          values[i + 1] = center + scale * (radius * sine);
        }
      });
}

template <class T>
void fill_bernoulli(RandomStream stream, T* out, int64_t n, double keep_probability, T value_if_kept) {
  if (!(keep_probability >= 0 && keep_probability <= 1))
    throw Error("a probability is from 0 to 1, not " + std::to_string(keep_probability));
  const int threshold = philox::keep_threshold(keep_probability);
  fill<T, 1>(
      stream, out, n, [=](const uint32_t* words, T* values, int64_t count) __attribute__((always_inline)) {
        for (int64_t i = 0; i < count; ++i)
          values[i] = philox::high_bits(words[i]) < threshold ? value_if_kept : T(0);
      });
}

template void fill_uniform(RandomStream, float*, int64_t, double, double);
template void fill_uniform(RandomStream, double*, int64_t, double, double);
template void fill_normal(RandomStream, float*, int64_t, double, double);
template void fill_normal(RandomStream, double*, int64_t, double, double);
template void fill_bernoulli(RandomStream, float*, int64_t, double, float);
template void fill_bernoulli(RandomStream, double*, int64_t, double, double);

void permutation(uint64_t seed, uint64_t epoch, int64_t* out, int64_t n) {
  std::iota(out, out + std::max<int64_t>(n, 0), int64_t{0});
  WordSource source({seed, shuffle_streams | epoch});
  // Durstenfeld's form of Fisher and Yates' shuffle.
  for (int64_t i = n - 1; i > 0; --i) {
    const auto j = static_cast<int64_t>(source.below(static_cast<uint64_t>(i) + 1));
    std::swap(out[i], out[j]);
  }
}

}  // namespace espalier
