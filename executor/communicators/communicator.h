// Communicator: one rank's access to the collectives of a group. All ranks call the same collectives in the
// same order; an error on one rank becomes an error on every rank within a timeout.
#pragma once
#include <atomic>
#include <exception>
#include <span>

#include "espalier/executor/communicators/collective.h"

namespace espalier {

class Communicator {
 public:
  using Where = std::source_location;

  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Collectives. Tensors are contiguous and on the communicator's device. Reductions combine the ranks in
  // the order of their numbers, independent of timing, so results have the same bits in every run; 16-bit
  // reals are reduced in float32 and rounded once. All throw CommunicatorError if the ranks do not arrive,
  // and then always. TypeError, ShapeError and DeviceError for unusable tensors fail the other ranks too.

  /// Every rank's `values` become the reduction over all ranks. Numbers only; the mean takes reals.
  void all_reduce(Tensor& values, Reduction reduction = Reduction::sum,
                  const CallSite& where = Where::current());
  /// Every rank's `values` become the sum over ranks r of `weights[r]` times those of rank r. Reals only.
  /// There is one weight per rank, finite and not negative, and all ranks pass the same ones. The values of a
  /// rank of weight 0 are not read. Weights of 1 give the bits of the plain sum.
  void all_reduce_weighted(Tensor& values, std::span<const double> weights,
                           const CallSite& where = Where::current());
  /// The reduction of `values`, divided into as many equal parts as there are ranks: rank r receives part r.
  void reduce_scatter(const Tensor& values, Tensor& part, Reduction reduction = Reduction::sum,
                      const CallSite& where = Where::current());
  /// Every rank's `values` become the parts of all ranks, one after the other.
  void all_gather(const Tensor& part, Tensor& values, const CallSite& where = Where::current());
  // Parts of unequal sizes, side by side in `values`: rank r's are the elements bounds[r] to bounds[r + 1]
  // (excluded). There is one bound more than there are ranks, ascending from 0 to the number of elements; all
  // ranks pass the same ones.

  /// Rank r's part of its `values` becomes the sum over ranks s of `weights[s]` times that part of those of
  /// rank s, as in all_reduce_weighted. The rest of its `values` is unspecified afterwards.
  void reduce_parts(Tensor& values, std::span<const int64_t> bounds, std::span<const double> weights,
                    const CallSite& where = Where::current());
  /// Every rank's `values` become the parts of those of all ranks.
  void gather_parts(Tensor& values, std::span<const int64_t> bounds,
                    const CallSite& where = Where::current());
  /// Every rank's `values` become those of rank `root`.
  void broadcast(Tensor& values, int root, const CallSite& where = Where::current());
  /// Returns when all ranks have called it.
  void barrier(const CallSite& where = Where::current());

  // A stop request travels with the collectives, so that all ranks stop after the same one.

  /// Requests a stop. May be called from any thread and from a signal handler.
  void request_stop() noexcept { stop_request_.store(true); }
  /// Withdraws this rank's request.
  void clear_stop() noexcept { stop_request_.store(false); }
  /// Whether any rank requested a stop before it called the last collective that this communicator finished:
  /// the same on all ranks. False before the first one.
  bool stop_requested() const noexcept { return stop_requested_.load(); }

  /// Fails the group: present and later calls of all ranks throw, and name this rank and the error. May be
  /// called from any thread.
  void abort(std::exception_ptr error) noexcept;
  /// The same with this message, for communicators on top of others.
  virtual void fail(const std::string& reason) noexcept = 0;

  /// How many seconds a rank waits for the others.
  double timeout() const { return timeout_; }
  /// The initial timeout: 60 s, or ESPALIER_COLLECTIVE_TIMEOUT. Throws Error if that is not a number of
  /// seconds.
  static double default_timeout();
  /// Throws Error unless it is positive.
  void set_timeout(double seconds);

  /// Waits block at once instead of spinning first. Set it on threads that share cores with computation.
  void set_blocking_wait(bool blocks) { blocking_wait_ = blocks; }
  bool blocking_wait() const { return blocking_wait_; }

 protected:
  Communicator(int rank, int size);
  /// Performs a collective in normal form on another communicator.
  static void forward(Communicator& other, const Collective& call, const Tensor* input, Tensor* output);

 private:
  /// Performs the collective or throws CommunicatorError. Returns whether any rank requested a stop.
  virtual bool run(const Collective& call, const RankBuffers& own) = 0;
  /// The device of its tensors; CPU devices are all alike.
  virtual Device device() const { return cpu(); }

  // A public collective describes itself in call_, checks that, and is performed.
  template <class F>
  void guarded(F&& f);
  Collective& describe(std::string_view name, Collective::Kind kind, const Tensor* input,
                       const CallSite& where);
  void check(const Tensor* input, const Tensor* output) const;
  void perform(const Tensor* input, Tensor* output);

  int rank_, size_;
  double timeout_;
  bool blocking_wait_ = false;
  Collective call_;  // the last one
  std::atomic<bool> stop_request_{false}, stop_requested_{false};
};

/// The message of an exception; for one that is no std::exception, a text that says so.
std::string message_of(const std::exception_ptr& error) noexcept;

}  // namespace espalier
