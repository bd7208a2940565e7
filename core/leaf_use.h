// LeafUse: the order in which threads read and write leaves that several executors have.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

/// Guards the values and versions of leaves, as far as executors and assignments are concerned. No other lock
/// is taken while it is held.
std::mutex& leaves_mutex();
/// How often leaves have been given another value. Changes only while `leaves_mutex` is held.
std::atomic<uint64_t>& leaf_assignments();

/// The leaves that the plans of one session read or write. While a step writes leaves, no plan of another
/// LeafUse reads or writes them: each waits for the other, in the order of coming. Plans that only read run
/// at the same time; for these, entering and leaving is a store each. A LeafUse belongs to one thread at a
/// time.
class LeafUse {
 public:
  LeafUse() : state_(std::make_shared<State>()) {}
  ~LeafUse();
  LeafUse(const LeafUse&) = delete;
  LeafUse& operator=(const LeafUse&) = delete;

  /// Called once, before the first `enter`. `written` are those of the leaves that steps write.
  void add(std::span<const Variable> leaves, const std::set<const Node*>& written);

  enum class Access : uint8_t {
    read,   ///< a plan that writes no leaf
    step,   ///< a plan that writes the leaves named as written
    alone,  ///< no other plan uses any of the leaves
  };
  /// Waits until the access is possible. Throws Error if it never will be, since this thread waits for
  /// itself: it is inside a plan of another LeafUse, which called it.
  void enter(Access access);
  void leave() noexcept;
  /// Whether others have leaves that this one writes, or write leaves that this one has.
  bool has_conflicts() const { return conflicts_.load(std::memory_order_relaxed); }

 private:
  /// Outlives the LeafUse for those that wait on it.
  struct State {
    alignas(64) std::atomic<uint32_t> active{0};  // 1 while entered
    std::atomic<uint32_t> blockers{0};            // claims of others on the leaves
    std::atomic<uint64_t> waiting{0};             // since when, as a ticket; 0: not waiting
  };
  using StatePtr = std::shared_ptr<State>;
  void enter_to_read();
  void claim(bool all);
  void wait_for_claims_of_others();
  void start_waiting();
  void stop_waiting();
  void release_claims() noexcept;
  void update_conflicts();

  StatePtr state_;
  std::vector<const Node*> leaves_;
  std::set<const Node*> written_;
  // The following are guarded by a mutex of all LeafUses.
  std::map<LeafUse*, bool> others_;  // that have some of the leaves; true: one of the two writes such a leaf
  std::vector<StatePtr> claimed_;    // by this one, while it is entered
  bool claims_all_ = false;
  bool claims_ = false;
  // Written under that mutex.
  std::atomic<bool> conflicts_{false};
};

/// Enters a LeafUse for a scope.
class LeafScope {
 public:
  LeafScope(LeafUse& use, LeafUse::Access access) : use_(use) { use_.enter(access); }
  ~LeafScope() { use_.leave(); }
  LeafScope(const LeafScope&) = delete;
  LeafScope& operator=(const LeafScope&) = delete;

 private:
  LeafUse& use_;
};

}  // namespace espalier
