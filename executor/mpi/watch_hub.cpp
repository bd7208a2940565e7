#include "espalier/executor/mpi/watch_hub.h"

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

constexpr auto patience = std::chrono::milliseconds(2000);  // for answers about positions
constexpr auto longest_end = std::chrono::seconds(3);       // for the last words of this process's own rank

}  // namespace

WatchHub::WatchHub(int ranks, uint64_t token, bool this_machine_only)
    : ranks_(ranks), token_(token), stop_(eventfd(0, EFD_CLOEXEC)), gone_(static_cast<size_t>(ranks)) {
  if (stop_.get() < 0) throw Error("ranks cannot talk to each other: no eventfd");
  std::tie(listener_, addresses_) = listen_anywhere(this_machine_only);
  thread_ = std::thread([this] { serve(); });
}

WatchHub::~WatchHub() {
  const uint64_t one = 1;
  if (write(stop_.get(), &one, sizeof(one)) == sizeof(one))
    thread_.join();
  else
    thread_.detach();
}

void WatchHub::serve() {
  std::vector<pollfd> polled;
  auto stop_by = Clock::time_point::max();  // once it is asked to
  while (true) {
    polled.assign({{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}});
    for (const Member& member : members_) polled.push_back({member.wire.descriptor(), POLLIN, 0});
    int wait = -1;
    if (const auto until = std::min(answer_by_, stop_by); until != Clock::time_point::max()) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
      wait = static_cast<int>(std::max<int64_t>(left.count(), 0)) + 1;
    }
    // Once asked to stop, it would be told so again and again.
    if (stop_by != Clock::time_point::max()) polled[1].events = 0;
    poll(polled.data(), polled.size(), wait);
    if (polled[1].revents) stop_by = Clock::now() + longest_end;
    std::vector<Member> lost;
    for (size_t i = members_.size(); i-- > 0;)
      if (!hear(members_[i])) {
        lost.push_back(std::move(members_[i]));
        members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    for (const Member& member : lost) lose(member);
    if (polled[0].revents) accept_one();
    if (Clock::now() >= answer_by_) conclude();
    // What this process's rank said last is for the others; it has closed its end.
    if (stop_by != Clock::time_point::max() && (!hears_own_rank() || Clock::now() >= stop_by)) return;
  }
}

bool WatchHub::hears_own_rank() const {
  return std::ranges::any_of(members_, [](const Member& member) { return member.rank == 0; });
}

void WatchHub::accept_one() {
  Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.get() < 0) return;
  watch_connection(socket.get());
  members_.push_back({Wire(std::move(socket))});
}

bool WatchHub::hear(Member& member) {
  const bool open = member.wire.receive();
  while (const auto note = member.wire.next()) {
    if (member.rank < 0) {
      if (note->kind != Note::Kind::hello || note->number != token_) return false;
      if (note->rank < 0 || note->rank >= ranks_) return false;
      member.rank = note->rank;
      for (const Note& told : news_) member.wire.send(told);
    } else if (note->rank == member.rank) {
      handle(*note);
    }
  }
  return open;
}

void WatchHub::handle(const Note& note) {
  switch (note.kind) {
    case Note::Kind::failed: failed_ = true; return tell_all(note);
    case Note::Kind::left: tell_all(note); return note_gone(note.rank);
    case Note::Kind::late: return ask(note);
    case Note::Kind::position:
      if (positions_.empty()) return;
      positions_[static_cast<size_t>(note.rank)] = {true, note.number, note.text};
      if (std::ranges::all_of(positions_, &Position::known)) conclude();
      return;
    case Note::Kind::hello:
    case Note::Kind::over:
    case Note::Kind::where: return;
  }
}

void WatchHub::lose(const Member& member) {
  if (member.rank < 0) return;
  if (gone_[static_cast<size_t>(member.rank)] && (failed_ || over_)) return;
  failed_ = true;
  tell_all({Note::Kind::failed, member.rank, 0, fmt::format("rank {} died", member.rank)});
  note_gone(member.rank);
}

// Who failed has said so before it left, so all know whether it ended well when it is over.
void WatchHub::note_gone(int rank) {
  gone_[static_cast<size_t>(rank)] = true;
  if (over_ || !std::ranges::all_of(gone_, std::identity())) return;
  over_ = true;
  tell_all({Note::Kind::over, rank, 0, {}});
}

void WatchHub::ask(const Note& late) {
  if (!positions_.empty()) return;
  question_ = late;
  positions_.assign(static_cast<size_t>(ranks_), {});
  answer_by_ = Clock::now() + patience;
  tell_all({Note::Kind::where, late.rank, 0, {}});
}

// What is wrong with those who are not where the question came from.
void WatchHub::conclude() {
  std::string reason;
  for (size_t rank = 0; rank < positions_.size(); ++rank) {
    const Position& position = positions_[rank];
    if (position.known && position.number >= question_.number) continue;
    if (!reason.empty()) reason += "; ";
    reason += fmt::format("rank {} has not come within {} s, ", rank, question_.text);
    if (!position.known)
      reason += "and does not answer";
    else if (position.number == 0)
      reason += "and to no other before";
    else
      reason += fmt::format("after {}", position.text);
  }
  if (reason.empty()) reason = fmt::format("the ranks did not meet within {} s", question_.text);
  positions_.clear();
  answer_by_ = Clock::time_point::max();
  failed_ = true;
  tell_all({Note::Kind::failed, question_.rank, question_.number - 1, reason});
}

void WatchHub::tell_all(const Note& note) {
  if (note.kind != Note::Kind::where) news_.push_back(note);
  for (Member& member : members_)
    if (member.rank >= 0) member.wire.send(note);
}

}  // namespace espalier
