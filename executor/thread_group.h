// ThreadGroup: ranks that are threads of this process come to a collective together, or hear why not.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "espalier/executor/collective.h"
#include "espalier/executor/thread_meeting.h"

namespace espalier {

/// Threads 0 to `threads` (excluded) are the ranks from `first_rank` on. A collective is so many meetings,
/// `phases`; in the first one they compare what they call.
class ThreadGroup {
 public:
  ThreadGroup(int threads, int phases, int first_rank = 0);

  /// Thread `thread` comes to its next collective. Returns when all have come and call the same, and says
  /// whether any is marked; else CommunicatorError on all, after `timeout` seconds at the latest. What it
  /// wrote before can be read by the others now.
  bool meet(int thread, const Collective& call, double timeout, bool nap);
  /// The meetings after it, which fail for nobody: from the second on. Who has arrived waits before it
  /// arrives at the next: meetings only count.
  void arrive(int thread, int phase);
  void wait(int thread, int phase, bool nap);

  /// Present and later calls of `meet` throw; the first reason counts.
  void fail(std::string reason) { meeting_.fail(std::move(reason)); }
  std::string reason() { return meeting_.reason(); }

 private:
  // What a rank brings to a collective. Two descriptions, in turn: whoever waits in vain for a rank can read
  // the last one that it came to.
  struct alignas(64) Place {
    std::array<Collective, 2> calls;
    std::atomic<uint64_t> begun{0};
    uint64_t count = 0;  // collectives it has come to
  };

  uint64_t number(int thread, int phase) const;
  bool compare(int thread, const Collective& call);
  std::string missing(uint64_t number, double timeout) const;
  [[noreturn]] void throw_failure(const Collective& call);

  const int phases_, first_rank_;
  ThreadMeeting meeting_;
  std::vector<Place> places_;
};

}  // namespace espalier
