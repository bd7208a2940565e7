// FailureDetector: one rank's connection to the failure monitor. It knows which collectives cannot complete
// because a rank failed, left or died.
#pragma once
#include <atomic>
#include <mutex>
#include <thread>

#include "espalier/executor/communicators/collective.h"
#include "espalier/executor/communicators/mpi/connection.h"

namespace espalier {

class FailureDetector {
 public:
  /// Connects to the monitor at one of these addresses. Throws Error.
  FailureDetector(int rank, const std::string& monitor, uint64_t token);
  ~FailureDetector();
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;

  /// This rank begins a collective; they are numbered from 1 on.
  void begin(uint64_t number, const Collective& call);
  /// Whether collective `number` cannot complete.
  bool lost(uint64_t number) const { return lost_after_.load(std::memory_order_acquire) < number; }
  /// Why: the first message that concerns it.
  std::string reason(uint64_t number);
  /// Whether any rank failed, this one included; leaving is no failure by itself.
  bool failed() const { return failed_.load(std::memory_order_acquire); }

  /// Tells all ranks that no collective completes after the present one of this rank.
  void fail(const std::string& reason);
  /// The same for the collectives after number `after`.
  void fail(const std::string& reason, uint64_t after);
  /// Tells the others that this rank begins no more collectives.
  void leave();
  /// Whether all ranks have left or died: no rank needs what this one has sent.
  bool finished() const { return finished_.load(std::memory_order_acquire); }
  /// Reports that collective `number` timed out. The monitor finds the missing ranks and answers with a
  /// failure.
  void report_timeout(uint64_t number, double seconds_waited);

 private:
  void listen();
  void handle(const Message& message);
  Message position();
  uint64_t present();
  bool note_loss(uint64_t after, const std::string& reason, bool failure);
  void send(Message message);

  const int rank_;
  Connection connection_;
  Descriptor stop_;
  std::mutex sending_, mutex_;
  Collective last_;  // the present collective and its number
  uint64_t number_ = 0;
  struct Loss {
    uint64_t after;
    std::string reason;
  };
  std::vector<Loss> losses_;  // in the order of their messages
  std::atomic<uint64_t> lost_after_{UINT64_MAX};
  std::atomic<bool> failed_{false}, finished_{false};
  bool first_left_ = false;  // rank 0, which has the monitor
  std::thread thread_;
};

}  // namespace espalier
