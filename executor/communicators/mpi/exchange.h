// MpiExchange: transfers between this process and the other ranks through MPI. A transfer ends in time, and
// with the reason, if another rank fails: MPI itself does not report a rank that died.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "espalier/executor/communicators/mpi/failure_detector.h"
#include "espalier/executor/communicators/mpi/failure_monitor.h"
#include "espalier/executor/communicators/mpi/transport.h"

namespace espalier {

class MpiExchange {
 public:
  /// Connects to the other ranks. Throws CommunicatorError.
  MpiExchange(const EspalierMpi& mpi, double timeout);
  /// Leaves, and waits until all other ranks have left too.
  ~MpiExchange();
  MpiExchange(const MpiExchange&) = delete;
  MpiExchange& operator=(const MpiExchange&) = delete;

  /// Begins the next collective. Its transfers use `memory`, and have a timeout. Throws CommunicatorError if
  /// the group has failed.
  void begin(const Collective& call, std::vector<Tensor> memory, double timeout, bool blocking);

  /// Adds a message to the next transfer, unless it is empty.
  void send(int peer, const void* data, int64_t bytes);
  void receive(int peer, void* data, int64_t bytes);
  /// Keeps memory that messages use for as long as MPI may use it.
  void add_memory(const Tensor& tensor) { memory_.push_back(tensor); }
  /// Transfers all messages, or throws CommunicatorError in time.
  void transfer();

  /// Tells all ranks that collectives after the present one fail.
  void fail(const std::string& reason) { detector_->fail(reason); }

 private:
  using Clock = std::chrono::steady_clock;

  void connect();
  void check(int mpi_error);
  [[noreturn]] void give_up(const std::string& reason);

  const EspalierMpi& mpi_;
  std::unique_ptr<FailureMonitor> monitor_;  // in rank 0
  std::unique_ptr<FailureDetector> detector_;
  uint64_t number_ = 0;  // of the present collective
  const Collective* call_ = nullptr;
  std::vector<Tensor> memory_;
  double timeout_;
  bool blocking_ = false;
  std::vector<EspalierMpiMessage> messages_;
};

}  // namespace espalier
