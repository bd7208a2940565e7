// Replicas: the devices of one executor, each with a session and, where there are several, a thread.
#pragma once
#include <memory>
#include <vector>

#include "espalier/core/function_ref.h"
#include "espalier/executor/replicas/thread_team.h"
#include "espalier/executor/runtime/session.h"
#include "espalier/executor/sharding/batch_shard.h"
#include "espalier/executor/sharding/state_owners.h"

namespace espalier {

class Communicator;

/// The replicas of this process, which are some of all: each process of a job has as many. Whatever one of
/// them throws ends the others' step, too.
class Replicas {
 public:
  /// Throws UnsupportedError for devices that cannot work together, DeviceError where there is no such one.
  /// `world` is where the processes of a job meet; empty if this one is alone.
  Replicas(const std::vector<Device>& devices, Launch launch, std::shared_ptr<Communicator> world);
  ~Replicas();
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  /// Whether there are none in truth: plans can be made, and leaves stay where they are.
  bool simulated() const { return devices_[0].type == DeviceType::simulated; }
  /// Of this process; simulated ones are alike, so that one stands for all.
  size_t size() const { return sessions_.size(); }
  /// Of all processes together.
  int all() const { return all_; }
  Session& operator[](size_t i) const { return *sessions_[i]; }
  Session& first() const { return *sessions_[0]; }
  /// The rows of replica i of this process, or of one of its micro-batches.
  BatchShard shard(size_t i, int micro_batch = 0, int micro_batches = 1) const;
  /// Whether what they exchange takes its way while others compute, so that it is worth sending early.
  bool overlaps() const { return overlaps_; }
  /// Where the processes meet; null for one alone.
  const std::shared_ptr<Communicator>& world() const { return world_; }

  /// Gives each replica memory for the leaves, in this order, and for the states that it owns; owners may be
  /// null.
  void add_leaves(const std::vector<Variable>& leaves, const StateOwners* owners);

  /// Calls `f(i)` for each replica of this process, at once, on the cores that are its share. With one
  /// replica that is the calling thread. Rethrows what a replica threw; then all have ended.
  void run(FunctionRef<void(size_t)> f);
  /// The same, one after the other.
  void run_in_turn(FunctionRef<void(size_t)> f);

  // Of all sessions.
  void begin_after_eager();
  void finish_before_eager();
  void update_leaves();
  void unbind_leaves();
  void mark_assigned(std::span<const size_t> slots);
  void forget_losses();
  /// The first replica's, which are those of the whole batch. Throws what steps of any could not throw.
  void take_losses(std::vector<double>& losses);
  /// Throws if what GPUs have exchanged so far is not right, since one of them was gone: all replicas must
  /// ask at once.
  void confirm();

 private:
  void reconnect();

  std::vector<Device> devices_;
  std::shared_ptr<Communicator> world_;
  int all_ = 1;
  bool overlaps_ = false;
  std::vector<std::shared_ptr<Communicator>> communicators_;  // one for each replica; none for one alone
  std::vector<std::unique_ptr<Session>> sessions_;
  std::unique_ptr<ThreadTeam> team_;  // if there are several here
};

}  // namespace espalier
