#include "espalier/executor/communicators/mpi/failure_monitor.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "espalier/core/error.h"

namespace espalier {
namespace {

constexpr auto reply_timeout = std::chrono::milliseconds(2000);
constexpr auto stop_timeout = std::chrono::seconds(3);  // for the last messages of this process's own rank

}  // namespace

FailureMonitor::FailureMonitor(int ranks, uint64_t token, bool this_machine_only)
    : ranks_(ranks), token_(token), stop_(eventfd(0, EFD_CLOEXEC)), gone_(static_cast<size_t>(ranks)) {
  if (stop_.get() < 0) throw Error("ranks cannot talk to each other: no eventfd");
  std::tie(listener_, addresses_) = listen_anywhere(this_machine_only);
  thread_ = std::thread([this] { serve(); });
}

FailureMonitor::~FailureMonitor() {
  const uint64_t one = 1;
  if (write(stop_.get(), &one, sizeof(one)) == sizeof(one))
    thread_.join();
  else
    thread_.detach();
}

// In milliseconds; -1 for no timeout.
int FailureMonitor::poll_timeout(Clock::time_point stop_by) const {
  const auto until = std::min(answer_by_, stop_by);
  if (until == Clock::time_point::max()) return -1;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0)) + 1;
}

void FailureMonitor::serve() {
  std::vector<pollfd> polled;
  auto stop_by = Clock::time_point::max();
  while (true) {
    const bool stopping = stop_by != Clock::time_point::max();
    polled.assign({{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}});
    for (const Member& member : members_) polled.push_back({member.connection.descriptor(), POLLIN, 0});
    if (stopping) polled[1].events = 0;  // the event stays set
    poll(polled.data(), polled.size(), poll_timeout(stop_by));
    if (polled[1].revents) stop_by = Clock::now() + stop_timeout;
    std::vector<Member> lost;
    for (size_t i = members_.size(); i-- > 0;)
      if (!receive(members_[i])) {
        lost.push_back(std::move(members_[i]));
        members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    for (const Member& member : lost) lose(member);
    if (polled[0].revents) accept_connection();
    if (Clock::now() >= answer_by_) conclude();
    // The own rank has closed its connection; its last messages are for the others.
    if (stop_by != Clock::time_point::max() && (!own_rank_connected() || Clock::now() >= stop_by)) return;
  }
}

bool FailureMonitor::own_rank_connected() const {
  return std::ranges::any_of(members_, [](const Member& member) { return member.rank == 0; });
}

void FailureMonitor::accept_connection() {
  Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.get() < 0) return;
  detect_dead_peer(socket.get());
  members_.push_back({Connection(std::move(socket))});
}

bool FailureMonitor::receive(Member& member) {
  const bool open = member.connection.receive();
  while (const auto message = member.connection.next()) {
    if (member.rank < 0) {
      if (message->kind != Message::Kind::hello || message->number != token_) return false;
      if (message->rank < 0 || message->rank >= ranks_) return false;
      member.rank = message->rank;
      for (const Message& earlier : history_) member.connection.send(earlier);
    } else if (message->rank == member.rank) {
      handle(*message);
    }
  }
  return open;
}

void FailureMonitor::handle(const Message& message) {
  switch (message.kind) {
    case Message::Kind::failed: failed_ = true; return send_all(message);
    case Message::Kind::left: send_all(message); return note_gone(message.rank);
    case Message::Kind::timed_out: return query_positions(message);
    case Message::Kind::position:
      if (positions_.empty()) return;
      positions_[static_cast<size_t>(message.rank)] = {true, message.number, message.text};
      if (std::ranges::all_of(positions_, &Position::known)) conclude();
      return;
    case Message::Kind::hello:
    case Message::Kind::finished:
    case Message::Kind::query_position: return;
  }
}

void FailureMonitor::lose(const Member& member) {
  if (member.rank < 0) return;
  if (gone_[static_cast<size_t>(member.rank)] && (failed_ || finished_)) return;
  failed_ = true;
  send_all({Message::Kind::failed, member.rank, 0, fmt::format("rank {} died", member.rank)});
  note_gone(member.rank);
}

// A rank reports its failure before it leaves, so at `finished` all know whether any rank failed.
void FailureMonitor::note_gone(int rank) {
  gone_[static_cast<size_t>(rank)] = true;
  if (finished_ || !std::ranges::all_of(gone_, std::identity())) return;
  finished_ = true;
  send_all({Message::Kind::finished, rank, 0, {}});
}

void FailureMonitor::query_positions(const Message& timed_out) {
  if (!positions_.empty()) return;
  timed_out_ = timed_out;
  positions_.assign(static_cast<size_t>(ranks_), {});
  answer_by_ = Clock::now() + reply_timeout;
  send_all({Message::Kind::query_position, timed_out.rank, 0, {}});
}

// Fails the collective that timed out, with the positions of the ranks that have not begun it.
void FailureMonitor::conclude() {
  std::string reason;
  for (size_t rank = 0; rank < positions_.size(); ++rank) {
    const Position& position = positions_[rank];
    if (position.known && position.number >= timed_out_.number) continue;
    if (!reason.empty()) reason += "; ";
    reason += fmt::format("rank {} has not come within {} s, ", rank, timed_out_.text);
    if (!position.known)
      reason += "and does not answer";
    else if (position.number == 0)
      reason += "and to no other before";
    else
      reason += fmt::format("after {}", position.text);
  }
  if (reason.empty()) reason = fmt::format("the ranks did not meet within {} s", timed_out_.text);
  positions_.clear();
  answer_by_ = Clock::time_point::max();
  failed_ = true;
  send_all({Message::Kind::failed, timed_out_.rank, timed_out_.number - 1, reason});
}

void FailureMonitor::send_all(const Message& message) {
  if (message.kind != Message::Kind::query_position) history_.push_back(message);
  for (Member& member : members_)
    if (member.rank >= 0) member.connection.send(message);
}

}  // namespace espalier
