#include "espalier/executor/communicators/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"

namespace espalier {

Rendezvous::Rendezvous(int threads, int phases, int first_rank)
    : phases_(phases), first_rank_(first_rank), barrier_(threads), places_(static_cast<size_t>(threads)) {}

uint64_t Rendezvous::phase_number(int thread, int phase) const {
  const uint64_t before = places_[static_cast<size_t>(thread)].count - 1;
  return before * static_cast<uint64_t>(phases_) + static_cast<uint64_t>(phase);
}

bool Rendezvous::begin(int thread, const Collective& call, double timeout, bool blocking) {
  const auto until =
      FailableBarrier::Clock::now() + std::chrono::duration_cast<FailableBarrier::Clock::duration>(
                                          std::chrono::duration<double>(std::min(timeout, 1e9)));
  if (barrier_.failed()) throw_failure(call);
  Place& place = places_[static_cast<size_t>(thread)];
  place.calls[place.count % 2] = call;
  place.begun.store(++place.count, std::memory_order_release);
  const uint64_t first = phase_number(thread, 1);
  if (!barrier_.arrive(first)) throw_failure(call);
  using Outcome = FailableBarrier::Outcome;
  Outcome outcome = barrier_.wait(first, until, blocking);
  if (outcome == Outcome::timed_out)
    outcome = barrier_.fail(missing(place.count, timeout), first) ? Outcome::failed : Outcome::complete;
  if (outcome == Outcome::failed) throw_failure(call);
  return compare(thread, call);
}

void Rendezvous::arrive_and_wait(int thread, int phase, bool blocking) {
  const uint64_t number = phase_number(thread, phase);
  barrier_.arrive_always(number);
  barrier_.wait_always(number, blocking);
}

void Rendezvous::fail(const std::string& reason) noexcept {
  try {
    barrier_.fail(reason);
  } catch (...) {
  }
}

void Rendezvous::leave(int thread) noexcept {
  try {
    barrier_.fail(fmt::format("rank {} has left", first_rank_ + thread));
  } catch (...) {
  }
}

// Returns whether any thread requests a stop.
bool Rendezvous::compare(int thread, const Collective& call) {
  bool stop_requested = false;
  const uint64_t turn = (places_[static_cast<size_t>(thread)].count - 1) % 2;
  for (size_t other = 0; other < places_.size(); ++other) {
    const Collective& theirs = places_[other].calls[turn];
    stop_requested |= theirs.stop_requested;
    if (theirs.matches(call)) continue;
    const std::string message = fmt::format("{}: rank {} called {}", call.str(),
                                            static_cast<size_t>(first_rank_) + other, theirs.str());
    barrier_.fail("an earlier collective failed: " + message);
    throw CommunicatorError(message);
  }
  return stop_requested;
}

std::string Rendezvous::missing(uint64_t number, double timeout) const {
  std::string text;
  for (size_t other = 0; other < places_.size(); ++other) {
    const Place& place = places_[other];
    if (place.begun.load(std::memory_order_acquire) >= number) continue;
    if (!text.empty()) text += "; ";
    text += fmt::format("rank {} has not come within {:g} s, ", static_cast<size_t>(first_rank_) + other,
                        timeout);
    // It cannot begin the collective after the next before this one is complete, so the text is stable.
    text += number > 1 ? fmt::format("after {}", place.calls[number % 2].str()) : "and to no other before";
  }
  return text.empty() ? fmt::format("the ranks did not meet within {:g} s", timeout) : text;
}

void Rendezvous::throw_failure(const Collective& call) {
  throw CommunicatorError(fmt::format("{}: {}", call.str(), barrier_.reason()));
}

}  // namespace espalier
