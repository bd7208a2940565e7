#include "espalier/executor/mpi/rank_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "espalier/core/error.h"

namespace espalier {

RankWatch::RankWatch(int rank, const std::string& hub, uint64_t token)
    : rank_(rank), wire_(connect_to(hub)), stop_(eventfd(0, EFD_CLOEXEC)) {
  if (stop_.get() < 0) throw Error("ranks cannot talk to each other: no eventfd");
  watch_connection(wire_.descriptor());
  send({Note::Kind::hello, rank_, token, {}});
  thread_ = std::thread([this] { listen(); });
}

RankWatch::~RankWatch() {
  send({Note::Kind::left, rank_, number_, fmt::format("rank {} has left", rank_)});
  const uint64_t one = 1;
  if (write(stop_.get(), &one, sizeof(one)) == sizeof(one))
    thread_.join();
  else
    thread_.detach();
}

void RankWatch::send(Note note) {
  const std::lock_guard lock(sending_);
  wire_.send(note);  // if the hub is gone, the thread finds out
}

void RankWatch::begin(uint64_t number, const Collective& call) {
  const std::lock_guard lock(mutex_);
  number_ = number;
  last_ = call;
}

std::string RankWatch::reason() {
  const std::lock_guard lock(mutex_);
  return reason_;
}

void RankWatch::fail(const std::string& reason) {
  uint64_t after = 0;
  {
    const std::lock_guard lock(mutex_);
    after = number_;
  }
  fail(reason, after);
}

void RankWatch::fail(const std::string& reason, uint64_t after) {
  const bool known = lost(after + 1);
  note_loss(after, reason, true);
  if (known) return;
  send({Note::Kind::failed, rank_, after, reason});
}

void RankWatch::ask(uint64_t number, double seconds_waited) {
  send({Note::Kind::late, rank_, number, fmt::format("{:g}", seconds_waited)});
}

// What concerns the earliest collective counts, and of these the first.
void RankWatch::note_loss(uint64_t after, const std::string& reason, bool failure) {
  if (failure) failed_.store(true, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  if (after >= lost_after_.load(std::memory_order_relaxed)) return;
  reason_ = reason;
  lost_after_.store(after, std::memory_order_release);
}

void RankWatch::listen() {
  bool hub_left = false;
  while (true) {
    pollfd polled[] = {{wire_.descriptor(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    poll(polled, 2, -1);
    if (polled[1].revents) return;
    const bool open = wire_.receive();
    while (const auto note = wire_.next()) {
      if (note->kind == Note::Kind::where) {
        Note answer{Note::Kind::position, rank_, 0, {}};
        {
          const std::lock_guard lock(mutex_);
          answer.number = number_;
          if (number_) answer.text = last_.str();
        }
        send(std::move(answer));
      }
      const bool left = note->kind == Note::Kind::left;
      if (left || note->kind == Note::Kind::failed) note_loss(note->number, note->text, !left);
      hub_left |= left && note->rank == 0;
    }
    if (open) continue;
    if (!hub_left) note_loss(0, "rank 0 died", true);
    return;
  }
}

}  // namespace espalier
