#include "espalier/executor/communicators/mpi/failure_detector.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "espalier/core/error.h"

namespace espalier {

FailureDetector::FailureDetector(int rank, const std::string& monitor, uint64_t token)
    : rank_(rank), connection_(connect_to(monitor)), stop_(eventfd(0, EFD_CLOEXEC)) {
  if (stop_.get() < 0) throw Error("ranks cannot talk to each other: no eventfd");
  detect_dead_peer(connection_.descriptor());
  send({Message::Kind::hello, rank_, token, {}});
  thread_ = std::thread([this] { listen(); });
}

FailureDetector::~FailureDetector() {
  const uint64_t one = 1;
  if (write(stop_.get(), &one, sizeof(one)) == sizeof(one))
    thread_.join();
  else
    thread_.detach();
}

void FailureDetector::send(Message message) {
  const std::lock_guard lock(sending_);
  connection_.send(message);  // the thread notices if the monitor is gone
}

void FailureDetector::begin(uint64_t number, const Collective& call) {
  const std::lock_guard lock(mutex_);
  number_ = number;
  last_ = call;
}

uint64_t FailureDetector::present() {
  const std::lock_guard lock(mutex_);
  return number_;
}

std::string FailureDetector::reason(uint64_t number) {
  const std::lock_guard lock(mutex_);
  for (const Loss& loss : losses_)
    if (loss.after < number) return loss.reason;
  return {};
}

void FailureDetector::fail(const std::string& reason) { fail(reason, present()); }

// Sent even if the others know the reason: ranks that have left wait to hear whether this one fails.
void FailureDetector::fail(const std::string& reason, uint64_t after) {
  if (note_loss(after, reason, true)) send({Message::Kind::failed, rank_, after, reason});
}

void FailureDetector::leave() {
  send({Message::Kind::left, rank_, present(), fmt::format("rank {} has left", rank_)});
}

void FailureDetector::report_timeout(uint64_t number, double seconds_waited) {
  send({Message::Kind::timed_out, rank_, number, fmt::format("{:g}", seconds_waited)});
}

// Returns whether it is the first failure.
bool FailureDetector::note_loss(uint64_t after, const std::string& reason, bool failure) {
  const std::lock_guard lock(mutex_);
  // Of two that concern the same collectives, the first counts.
  if (after < lost_after_.load(std::memory_order_relaxed)) {
    losses_.push_back({after, reason});
    lost_after_.store(after, std::memory_order_release);
  }
  return failure && !failed_.exchange(true, std::memory_order_acq_rel);
}

Message FailureDetector::position() {
  const std::lock_guard lock(mutex_);
  return {Message::Kind::position, rank_, number_, number_ ? last_.str() : std::string()};
}

void FailureDetector::handle(const Message& message) {
  switch (message.kind) {
    case Message::Kind::query_position: return send(position());
    case Message::Kind::left:
      first_left_ |= message.rank == 0;
      note_loss(message.number, message.text, false);
      return;
    case Message::Kind::failed: note_loss(message.number, message.text, true); return;
    case Message::Kind::finished: return finished_.store(true, std::memory_order_release);
    case Message::Kind::hello:
    case Message::Kind::timed_out:
    case Message::Kind::position: return;
  }
}

void FailureDetector::listen() {
  while (true) {
    pollfd polled[] = {{connection_.descriptor(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    poll(polled, 2, -1);
    if (polled[1].revents) return;
    const bool open = connection_.receive();
    while (const auto message = connection_.next()) handle(*message);
    if (open) continue;
    if (!finished()) note_loss(0, first_left_ ? "rank 0 has left" : "rank 0 died", true);
    finished_.store(true, std::memory_order_release);  // no further message can arrive
    return;
  }
}

}  // namespace espalier
