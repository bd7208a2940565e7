#include "espalier/core/leaf_use.h"

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/wait_for_change.h"

namespace espalier {

namespace {

struct Registry {
  std::mutex mutex;
  std::map<const Node*, std::vector<LeafUse*>> users;
  uint64_t tickets = 0;
};
Registry& registry() {
  static Registry* all = new Registry;  // outlives static executors
  return *all;
}

/// How many LeafUses this thread has entered.
thread_local int entered = 0;

template <class T>
void wait_for_zero(const std::atomic<T>& value) {
  for (T now = value.load(); now != 0;) now = wait_for_change(value, now);
}

[[noreturn]] void throw_waits_for_itself() {
  throw Error(
      "an executor was called inside a step of another one, which uses the same parameters, and one of the "
      "two "
      "writes them");
}

}  // namespace

std::mutex& leaves_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}
std::atomic<uint64_t>& leaf_assignments() {
  static std::atomic<uint64_t> count{0};
  return count;
}

void LeafUse::add(std::span<const Variable> leaves, const std::set<const Node*>& written) {
  const std::scoped_lock lock(registry().mutex);
  written_ = written;
  for (const Variable& leaf : leaves) {
    leaves_.push_back(leaf.node());
    auto& users = registry().users[leaf.node()];
    for (LeafUse* other : users) {
      const bool conflict = written_.contains(leaf.node()) || other->written_.contains(leaf.node());
      others_[other] |= conflict;
      other->others_[this] |= conflict;
    }
    users.push_back(this);
  }
  update_conflicts();
  for (const auto& [other, conflict] : others_) {
    other->update_conflicts();
    if (!other->claims_ || !(conflict || other->claims_all_)) continue;
    ++state_->blockers;
    other->claimed_.push_back(state_);
  }
}

LeafUse::~LeafUse() {
  const std::scoped_lock lock(registry().mutex);
  for (const Node* leaf : leaves_) {
    const auto users = registry().users.find(leaf);
    std::erase(users->second, this);
    if (users->second.empty()) registry().users.erase(users);
  }
  for (const auto& [other, conflict] : others_) {
    other->others_.erase(this);
    other->update_conflicts();
  }
}

void LeafUse::update_conflicts() {
  conflicts_ = std::ranges::any_of(others_, [](const auto& other) { return other.second; });
}

void LeafUse::enter(Access access) {
  access == Access::read ? enter_to_read() : claim(access == Access::alone);
  ++entered;
}

void LeafUse::leave() noexcept {
  --entered;
  state_->active.store(0);
  if (state_->blockers.load()) state_->active.notify_all();
  if (claims_) release_claims();  // set by this thread alone
}

void LeafUse::enter_to_read() {
  // Each side stores its own mark before it loads the other's, so at least one of them sees the other.
  for (;;) {
    state_->active.store(1);
    if (state_->blockers.load() == 0) break;
    state_->active.store(0);
    state_->active.notify_all();
    wait_for_claims_of_others();
  }
  if (state_->waiting.load(std::memory_order_relaxed)) stop_waiting();
}

void LeafUse::wait_for_claims_of_others() {
  if (entered > 0) {
    stop_waiting();
    throw_waits_for_itself();
  }
  start_waiting();
  wait_for_zero(state_->blockers);
}

void LeafUse::start_waiting() {
  if (state_->waiting.load()) return;
  const std::scoped_lock lock(registry().mutex);
  state_->waiting = ++registry().tickets;
}

void LeafUse::stop_waiting() {
  state_->waiting = 0;
  state_->waiting.notify_all();
}

/// Keeps others from using the leaves, then waits until none of them does. Those that have waited longer come
/// first.
void LeafUse::claim(bool all) {
  for (;;) {
    if (state_->blockers.load()) wait_for_claims_of_others();
    StatePtr earlier;
    uint64_t since = 0;
    {
      const std::scoped_lock lock(registry().mutex);
      if (state_->blockers.load()) continue;
      const uint64_t own = state_->waiting.load();
      for (const auto& [other, conflict] : others_) {
        const uint64_t theirs = conflict || all ? other->state_->waiting.load() : 0;
        if (theirs && (own == 0 || theirs < own)) earlier = other->state_, since = theirs;
      }
      if (!earlier) {
        for (const auto& [other, conflict] : others_)
          if (conflict || all) claimed_.push_back(other->state_);
        for (const StatePtr& other : claimed_) ++other->blockers;
        state_->active = 1;
        claims_ = true;
        claims_all_ = all;
        break;
      }
    }
    if (entered > 0) throw_waits_for_itself();
    wait_for_change(earlier->waiting, since);
  }
  stop_waiting();
  // Uses that are added from here on are claimed before they are entered.
  std::vector<StatePtr> others;
  {
    const std::scoped_lock lock(registry().mutex);
    others = claimed_;
  }
  for (const StatePtr& other : others) {
    if (entered > 0 && other->active.load()) {
      state_->active = 0;
      release_claims();
      throw_waits_for_itself();
    }
    wait_for_zero(other->active);
  }
}

void LeafUse::release_claims() noexcept {
  const std::scoped_lock lock(registry().mutex);
  for (const StatePtr& other : claimed_)
    if (--other->blockers == 0) other->blockers.notify_all();
  claimed_.clear();
  claims_ = claims_all_ = false;
}

}  // namespace espalier
