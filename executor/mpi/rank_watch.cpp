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

std::string RankWatch::reason(uint64_t number) {
  const std::lock_guard lock(mutex_);
  for (const Loss& loss : losses_)
    if (loss.after < number) return loss.reason;
  return {};
}

void RankWatch::fail(const std::string& reason) {
  uint64_t after = 0;
  {
    const std::lock_guard lock(mutex_);
    after = number_;
  }
  fail(reason, after);
}

// Also if the others know why: those who have left wait to hear whether this rank ends well.
void RankWatch::fail(const std::string& reason, uint64_t after) {
  if (note_loss(after, reason, true)) send({Note::Kind::failed, rank_, after, reason});
}

void RankWatch::leave() {
  uint64_t after = 0;
  {
    const std::lock_guard lock(mutex_);
    after = number_;
  }
  send({Note::Kind::left, rank_, after, fmt::format("rank {} has left", rank_)});
}

void RankWatch::ask(uint64_t number, double seconds_waited) {
  send({Note::Kind::late, rank_, number, fmt::format("{:g}", seconds_waited)});
}

// Says whether it is the first failure.
bool RankWatch::note_loss(uint64_t after, const std::string& reason, bool failure) {
  const std::lock_guard lock(mutex_);
  // Of two that concern the same collectives, the first counts.
  if (after < lost_after_.load(std::memory_order_relaxed)) {
    losses_.push_back({after, reason});
    lost_after_.store(after, std::memory_order_release);
  }
  return failure && !failed_.exchange(true, std::memory_order_acq_rel);
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
      if (note->kind == Note::Kind::over) over_.store(true, std::memory_order_release);
    }
    if (open) continue;
    if (!over()) note_loss(0, hub_left ? "rank 0 has left" : "rank 0 died", true);
    over_.store(true, std::memory_order_release);  // for all that will be heard
    return;
  }
}

}  // namespace espalier
