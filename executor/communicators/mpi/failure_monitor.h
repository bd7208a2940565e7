// FailureMonitor: a thread in the process of rank 0 that tells every rank of failures and ends of the others.
#pragma once
#include <atomic>
#include <chrono>
#include <thread>

#include "espalier/executor/communicators/mpi/connection.h"

namespace espalier {

class FailureMonitor {
 public:
  /// Starts to listen; a connection must begin with the token. Throws Error.
  FailureMonitor(int ranks, uint64_t token, bool this_machine_only);
  ~FailureMonitor();
  FailureMonitor(const FailureMonitor&) = delete;
  FailureMonitor& operator=(const FailureMonitor&) = delete;

  const std::string& addresses() const { return addresses_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Member {
    Connection connection;
    int rank = -1;  // until its hello
  };
  struct Position {
    bool known = false;
    uint64_t number = 0;
    std::string text;
  };

  void serve();
  int poll_timeout(Clock::time_point stop_by) const;
  bool own_rank_connected() const;
  void accept_connection();
  bool receive(Member& member);
  void handle(const Message& message);
  void lose(const Member& member);
  void query_positions(const Message& timed_out);
  void conclude();
  void note_gone(int rank);
  void send_all(const Message& message);

  const int ranks_;
  const uint64_t token_;
  Descriptor listener_, stop_;
  std::string addresses_;
  std::vector<Member> members_;
  std::vector<Message> history_;     // failures and ends so far, for ranks that connect later
  std::vector<bool> gone_;           // by rank: it left or died
  bool failed_ = false;              // any rank failed; a lost connection of a rank that left is none then
  bool finished_ = false;            // all ranks are gone
  std::vector<Position> positions_;  // during a query; else empty
  Message timed_out_;                // the report that caused it
  Clock::time_point answer_by_ = Clock::time_point::max();
  std::thread thread_;
};

}  // namespace espalier
