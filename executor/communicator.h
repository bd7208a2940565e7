// Communicator: where replicas meet. Each rank has one, all call the same collectives in the same order, and
// what goes wrong on one rank is an error on every rank within a set time.
#pragma once
#include <atomic>
#include <exception>
#include <span>

#include "espalier/executor/collective.h"

namespace espalier {

class Communicator {
 public:
  using Where = std::source_location;

  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Collectives. Tensors are contiguous and lie where this communicator works. Reductions go over the ranks
  // in their order, whoever comes first, so that results are equal from run to run, to the last bit; 16-bit
  // reals are reduced in float32 and rounded once. All throw CommunicatorError if the ranks do not meet, and
  // after that always; TypeError, ShapeError and DeviceError for tensors that cannot be used end the others,
  // too.

  /// Every rank's `values` become the reduction over all ranks. Numbers only; the mean takes reals.
  void all_reduce(Tensor& values, Reduction reduction = Reduction::sum, Where where = Where::current());
  /// Every rank's `values` become the sum over ranks r of `weights[r]` times those of rank r. Reals only.
  /// There is one weight per rank, finite and not negative, and all ranks give the same ones. What a rank of
  /// weight 0 has is not read. Weights of 1 make the bits of the plain sum.
  void all_reduce_weighted(Tensor& values, std::span<const double> weights, Where where = Where::current());
  /// The reduction of `values`, cut into as many equal parts as there are ranks: rank r gets part r.
  void reduce_scatter(const Tensor& values, Tensor& part, Reduction reduction = Reduction::sum,
                      Where where = Where::current());
  /// Every rank's `values` become the parts of all ranks, one after the other.
  void all_gather(const Tensor& part, Tensor& values, Where where = Where::current());
  // Parts of unequal sizes, side by side in `values`: rank r's are the elements bounds[r] to bounds[r + 1]
  // (excluded). There is one bound more than there are ranks, from 0 to all elements, none below the one
  // before; all ranks give the same.

  /// Rank r's part of its `values` becomes the sum over ranks s of `weights[s]` times that part of those of
  /// rank s, as in all_reduce_weighted. The rest of its `values` may be anything then.
  void reduce_parts(Tensor& values, std::span<const int64_t> bounds, std::span<const double> weights,
                    Where where = Where::current());
  /// Every rank's `values` become the parts of those of all ranks.
  void gather_parts(Tensor& values, std::span<const int64_t> bounds, Where where = Where::current());
  /// Every rank's `values` become those of rank `root`.
  void broadcast(Tensor& values, int root, Where where = Where::current());
  /// Returns when all ranks have come.
  void barrier(Where where = Where::current());

  // A mark that travels with collectives, so that all ranks stop at the same step when one is told to.

  /// Marks this rank. From any thread, also in a signal's handler.
  void raise() noexcept { mark_.store(true); }
  /// Takes this rank's mark back.
  void lower() noexcept { mark_.store(false); }
  /// Whether any rank was marked when it came to the last collective that this communicator finished: the
  /// same on all ranks. False before the first one.
  bool raised() const noexcept { return raised_.load(); }

  /// Tells all ranks that this one failed: their present and later calls throw, and name this rank and the
  /// error. May come from any thread.
  void abort(std::exception_ptr error) noexcept;
  /// The same in these words, for communicators that are made of others.
  virtual void fail(const std::string& reason) noexcept = 0;

  /// How long a rank waits for the others.
  double timeout() const { return timeout_; }
  /// How long it does at first: 60 s, or what ESPALIER_COLLECTIVE_TIMEOUT says. Throws Error if that is no
  /// number of seconds.
  static double default_timeout();
  /// Throws Error unless it is positive.
  void set_timeout(double seconds);

  /// Whether who waits sleeps at once instead of looking without pause at first, as it does else: for a
  /// thread beside others that compute.
  void set_napping(bool naps) { naps_ = naps; }
  bool napping() const { return naps_; }

 protected:
  Communicator(int rank, int size);
  /// Performs a collective of another communicator as a part of `whole`, which its ranks compare as well and
  /// which their errors name.
  static void call_part(Communicator& other, const Collective& whole, Collective::Kind kind,
                        Reduction reduction, int root, const Tensor* from, Tensor* to,
                        std::span<const double> weights = {}, std::span<const int64_t> bounds = {});

 private:
  /// Does it, or throws CommunicatorError. Says whether any rank's call is `raised`. Of `from` and `to` there
  /// is what the kind needs; all_reduce and broadcast have the same tensor in both.
  virtual bool run(const Collective& call, const Tensor* from, Tensor* to) = 0;
  /// Where its tensors lie.
  virtual DeviceType device_type() const { return DeviceType::cpu; }

  void check(const Collective& call, const Tensor* from, const Tensor* to) const;
  void call(Collective::Kind kind, Reduction reduction, int root, const Tensor* from, Tensor* to, Where where,
            std::span<const double> weights = {}, const Collective* whole = nullptr,
            std::span<const int64_t> bounds = {});

  int rank_, size_;
  double timeout_;
  bool naps_ = false;
  Collective call_;  // the last one
  std::atomic<bool> mark_{false}, raised_{false};
};

/// What an exception says, and its kind where it is not one of the library's.
std::string message_of(const std::exception_ptr& error) noexcept;

}  // namespace espalier
