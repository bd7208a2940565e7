// Random numbers. They depend only on the seed and on the number of random nodes evaluated before, not on the
// number of threads, the vector width or the device.
#pragma once
#include <cstdint>

namespace espalier {

/// Restarts this thread's generator: what is drawn from here on is determined by `value` alone.
void seed(uint64_t value);

/// The numbers of one random node: number i is a function of seed, stream and i. Element e of the node is
/// number `first + e`. A node that computes a shard of the rows of a larger one draws the numbers of these
/// rows: runs of `run` numbers which begin `stride` apart.
struct RandomStream {
  uint64_t seed = 0;
  uint64_t stream = 0;
  int64_t first = 0;
  int64_t run = 0;  ///< 0: all that are drawn
  int64_t stride = 0;
};

/// A thread's generator. A copy that is assigned later goes on from there. Without `seed`, its seed is 0.
struct Generator {
  uint64_t seed = 0;
  uint64_t next_stream = 0;
  uint64_t next_parameter_stream = 0;
};

/// The calling thread's generator.
Generator& generator();

/// For the next random node.
RandomStream next_stream();

/// For the next parameter's initial values; these have a counter and streams of their own.
RandomStream next_parameter_stream();

/// The number of a stream for validation: streams of their own, so that training draws the same numbers with
/// and without it.
uint64_t validation_stream(uint64_t number);

/// For a row of a dataset in an epoch: the same numbers in whatever batch, thread or process it is read.
RandomStream row_stream(uint64_t seed, int64_t epoch, int64_t row);

// The functions below write n numbers; T is float or double.

/// Uniform in [low, high), or `low` where both are equal. Throws Error unless low <= high and their
/// difference is finite.
template <class T>
void fill_uniform(RandomStream stream, T* out, int64_t n, double low, double high);

/// Normal, by Box and Muller's formula. The last bits may depend on the machine.
template <class T>
void fill_normal(RandomStream stream, T* out, int64_t n, double mean, double stddev);

/// `value_if_kept` with probability `keep_probability` (to 24 bits), else 0. Throws Error unless it is a
/// probability.
template <class T>
void fill_bernoulli(RandomStream stream, T* out, int64_t n, double keep_probability, T value_if_kept);

/// The numbers 0 to n - 1 in a random order, every order as likely as any other; it depends on `seed` and
/// `epoch`.
void permutation(uint64_t seed, uint64_t epoch, int64_t* out, int64_t n);

}  // namespace espalier
