// RankWatch: what a rank knows of the others' failures, beside MPI, which says nothing of a rank that died.
#pragma once
#include <atomic>
#include <mutex>
#include <thread>

#include "espalier/executor/collective.h"
#include "espalier/executor/mpi/wire.h"

namespace espalier {

class RankWatch {
 public:
  /// Connects to the hub. Throws Error.
  RankWatch(int rank, const std::string& hub, uint64_t token);
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  /// What this rank comes to now; collectives are numbered from 1 on.
  void begin(uint64_t number, const Collective& call);
  /// Whether collective `number` cannot come about.
  bool lost(uint64_t number) const { return lost_after_.load(std::memory_order_acquire) < number; }
  /// Why: what was heard first of all that concerns it.
  std::string reason(uint64_t number);
  /// Whether any rank failed, be it this one; leaving is no failure by itself.
  bool failed() const { return failed_.load(std::memory_order_acquire); }

  /// Tells all ranks, this one included, that what comes after its last collective will not come about.
  void fail(const std::string& reason);
  /// The same of what comes after that collective.
  void fail(const std::string& reason, uint64_t after);
  /// Tells the others that this rank comes to no more collectives.
  void leave();
  /// Whether all ranks have left or died: nobody needs what this one has sent.
  bool over() const { return over_.load(std::memory_order_acquire); }
  /// Asks who is missing in collective `number`. The answer comes as a failure.
  void ask(uint64_t number, double seconds_waited);

 private:
  void listen();
  bool note_loss(uint64_t after, const std::string& reason, bool failure);
  void send(Note note);

  const int rank_;
  Wire wire_;
  Descriptor stop_;
  std::mutex sending_, mutex_;
  Collective last_;
  uint64_t number_ = 0;
  struct Loss {
    uint64_t after;
    std::string reason;
  };
  std::vector<Loss> losses_;  // as they were heard
  std::atomic<uint64_t> lost_after_{UINT64_MAX};
  std::atomic<bool> failed_{false}, over_{false};
  std::thread thread_;
};

}  // namespace espalier
