// WatchHub: in the process of rank 0, it hears of every rank's failure or end, and tells the others.
#pragma once
#include <atomic>
#include <chrono>
#include <thread>

#include "espalier/executor/mpi/wire.h"

namespace espalier {

class WatchHub {
 public:
  /// Begins to listen. Who connects must know the token. Throws Error.
  WatchHub(int ranks, uint64_t token, bool this_machine_only);
  ~WatchHub();
  WatchHub(const WatchHub&) = delete;
  WatchHub& operator=(const WatchHub&) = delete;

  const std::string& addresses() const { return addresses_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Member {
    Wire wire;
    int rank = -1;  // until it has said hello
  };
  struct Position {
    bool known = false;
    uint64_t number = 0;
    std::string text;
  };

  void serve();
  bool hears_own_rank() const;
  void accept_one();
  bool hear(Member& member);
  void handle(const Note& note);
  void lose(const Member& member);
  void ask(const Note& late);
  void conclude();
  void note_gone(int rank);
  void tell_all(const Note& note);

  const int ranks_;
  const uint64_t token_;
  Descriptor listener_, stop_;
  std::string addresses_;
  std::vector<Member> members_;
  std::vector<Note> news_;           // what was told of failures and ends, for those who connect later
  std::vector<bool> gone_;           // by rank: it left or died
  bool failed_ = false;              // whether any has failed; then those who left may end as they like
  bool over_ = false;                // all are gone
  std::vector<Position> positions_;  // while somebody asked who is missing
  Note question_;
  Clock::time_point answer_by_ = Clock::time_point::max();
  std::thread thread_;
};

}  // namespace espalier
