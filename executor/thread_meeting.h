// ThreadMeeting: where the threads of a group wait for each other, and learn that one of them failed.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

namespace espalier {

/// Counts arrivals. Meetings come one after the other, and each rank arrives at each, so the n-th is complete
/// when n times all ranks have arrived. Once the group has failed, nobody arrives any more, so all agree on
/// which meetings came about. Whatever a rank wrote before it arrived can be read by who saw the meeting
/// complete.
class ThreadMeeting {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Outcome { complete, failed, late };

  explicit ThreadMeeting(int ranks);

  /// Counts this rank in for meeting `number` (from 1 on), unless the group has failed: then it says false.
  bool arrive(uint64_t number);
  /// The same even if it failed: for ranks which are in the midst of something together.
  void arrive_anyway(uint64_t number);

  /// Waits for meeting `number` until the time comes, or the group fails. Who naps does not spin first.
  Outcome wait(uint64_t number, Clock::time_point until, bool nap = false);
  /// Waits for as long as it takes, even if the group fails meanwhile.
  void wait_anyway(uint64_t number, bool nap = false);

  /// Lets the group fail, if it has not failed yet. Says false, and does nothing, if meeting `number` is
  /// complete; with 0 it always fails.
  bool fail(std::string reason, uint64_t number = 0);
  bool failed() const { return state_.load(std::memory_order_acquire) & failed_bit; }
  /// Why it failed.
  std::string reason();

 private:
  static constexpr uint64_t failed_bit = uint64_t{1} << 63;

  bool complete(uint64_t state, uint64_t number) const { return (state & ~failed_bit) >= number * ranks_; }
  void wake();
  template <class Done>
  bool spin(const Done& done);

  const uint64_t ranks_;
  const int spins_;
  std::atomic<uint64_t> state_{0};  // how many have arrived, in all; and whether the group failed
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string reason_;
};

}  // namespace espalier
