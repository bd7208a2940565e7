#include "espalier/executor/thread_group.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"

namespace espalier {

ThreadGroup::ThreadGroup(int threads, int phases, int first_rank)
    : phases_(phases), first_rank_(first_rank), meeting_(threads), places_(static_cast<size_t>(threads)) {}

uint64_t ThreadGroup::number(int thread, int phase) const {
  const uint64_t before = places_[static_cast<size_t>(thread)].count - 1;
  return before * static_cast<uint64_t>(phases_) + static_cast<uint64_t>(phase);
}

bool ThreadGroup::meet(int thread, const Collective& call, double timeout, bool nap) {
  const auto until = ThreadMeeting::Clock::now() + std::chrono::duration_cast<ThreadMeeting::Clock::duration>(
                                                       std::chrono::duration<double>(std::min(timeout, 1e9)));
  if (meeting_.failed()) throw_failure(call);
  Place& place = places_[static_cast<size_t>(thread)];
  place.calls[place.count % 2] = call;
  place.begun.store(++place.count, std::memory_order_release);
  const uint64_t first = number(thread, 1);
  if (!meeting_.arrive(first)) throw_failure(call);
  using Outcome = ThreadMeeting::Outcome;
  Outcome outcome = meeting_.wait(first, until, nap);
  if (outcome == Outcome::late)
    outcome = meeting_.fail(missing(place.count, timeout), first) ? Outcome::failed : Outcome::complete;
  if (outcome == Outcome::failed) throw_failure(call);
  return compare(thread, call);
}

void ThreadGroup::arrive(int thread, int phase) { meeting_.arrive_anyway(number(thread, phase)); }
void ThreadGroup::wait(int thread, int phase, bool nap) { meeting_.wait_anyway(number(thread, phase), nap); }

// Says whether any rank is marked.
bool ThreadGroup::compare(int thread, const Collective& call) {
  bool raised = false;
  const uint64_t turn = (places_[static_cast<size_t>(thread)].count - 1) % 2;
  for (size_t other = 0; other < places_.size(); ++other) {
    const Collective& theirs = places_[other].calls[turn];
    raised |= theirs.raised;
    if (theirs.matches(call)) continue;
    const std::string message = fmt::format("{}: rank {} called {}", call.str(),
                                            static_cast<size_t>(first_rank_) + other, theirs.str());
    meeting_.fail("an earlier collective failed: " + message);
    throw CommunicatorError(message);
  }
  return raised;
}

std::string ThreadGroup::missing(uint64_t number, double timeout) const {
  std::string text;
  for (size_t other = 0; other < places_.size(); ++other) {
    const Place& place = places_[other];
    if (place.begun.load(std::memory_order_acquire) >= number) continue;
    if (!text.empty()) text += "; ";
    text += fmt::format("rank {} has not come within {:g} s, ", static_cast<size_t>(first_rank_) + other,
                        timeout);
    // It cannot come to the one after the next as long as this one is not complete, so this stays.
    text += number > 1 ? fmt::format("after {}", place.calls[number % 2].str()) : "and to no other before";
  }
  return text.empty() ? fmt::format("the ranks did not meet within {:g} s", timeout) : text;
}

void ThreadGroup::throw_failure(const Collective& call) {
  throw CommunicatorError(fmt::format("{}: {}", call.str(), meeting_.reason()));
}

}  // namespace espalier
