// Replicas: the devices of an executor in this process, each with a session and, if there are several, a
// thread.
#pragma once
#include <memory>
#include <vector>

#include "espalier/core/function_ref.h"
#include "espalier/core/leaf_use.h"
#include "espalier/executor/replicas/thread_team.h"
#include "espalier/executor/runtime/session.h"
#include "espalier/executor/sharding/batch_shard.h"
#include "espalier/executor/sharding/state_owners.h"

namespace espalier {

class Communicator;

/// Throws UnsupportedError for devices of different types, and DeviceError for one that is not there.
void check_devices(const std::vector<Device>& devices);

/// Each device computes some rows of every batch. Each process of a job has as many replicas. If one of them
/// throws, the step of the others ends with an error, too.
class Replicas {
 public:
  /// The devices have been checked. `world` connects the processes of a job; null if this process is alone.
  Replicas(const std::vector<Device>& devices, Launch launch, std::shared_ptr<Communicator> world);
  ~Replicas();
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  /// How many there are in this process.
  size_t size() const { return sessions_.size(); }
  Session& operator[](size_t i) const { return *sessions_[i]; }
  Session& first() const { return *sessions_[0]; }
  /// The rows of replica i of this process, or of one of its micro-batches.
  BatchShard shard(size_t i, int micro_batch = 0, int micro_batches = 1) const;
  /// Null if this process is alone.
  const std::shared_ptr<Communicator>& world() const { return world_; }

  /// Gives each replica memory for the leaves, and for the states that it owns; owners may be null.
  /// `in_order`: side by side in this order, as far as no executor has settled them yet; with owners, in any
  /// case. `written` are those that steps write.
  void add_leaves(const std::vector<Variable>& leaves, const std::set<const Node*>& written,
                  const StateOwners* owners, bool in_order);

  /// Calls `f(i)` for each replica of this process, at the same time, each in its own thread and on its own
  /// cores; a single replica runs in the calling thread. When all have ended, rethrows what one of them
  /// threw.
  void run(FunctionRef<void(size_t)> f);
  /// The same, one replica after the other.
  void run_in_turn(FunctionRef<void(size_t)> f);

  // These do for all sessions what Session documents for one.
  void begin_after_eager();
  void finish_before_eager();
  void update_leaves();
  /// Calls `f`, which runs a plan of the first replica. If the plan writes leaves, no other plan uses them
  /// meanwhile, in whatever thread; if it only reads them, none writes them, and their values are those of
  /// `update_leaves` or newer.
  void use_leaves(bool writes, FunctionRef<void()> f);
  void mark_assigned(std::span<const size_t> slots);
  void forget_losses();
  /// The losses of the first replica, which are those of the whole batch. Throws the errors of earlier steps
  /// of all replicas.
  void take_losses(std::vector<double>& losses);
  /// Throws if an exchange between GPUs has failed so far. All processes must call it.
  void confirm();

 private:
  void reconnect();

  std::vector<Device> devices_;
  std::shared_ptr<Communicator> world_;
  int all_ = 1;                                               // replicas of all processes
  std::vector<std::shared_ptr<Communicator>> communicators_;  // one for each replica; none for a single one
  std::vector<std::unique_ptr<Session>> sessions_;
  LeafUse use_;                       // of the first session
  std::unique_ptr<ThreadTeam> team_;  // if there are several here
};

}  // namespace espalier
