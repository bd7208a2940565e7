// Session: what the plans of one executor share on their device, and how losses come back from it.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "espalier/executor/launch.h"
#include "espalier/executor/runtime/runtime.h"
#include "espalier/executor/sharding/batch_shard.h"
#include "espalier/executor/sharding/bucket_kernels.h"

namespace espalier {

class Session {
 public:
  explicit Session(Device device) : leaves(device), device_(device) {}
  virtual ~Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Device device() const { return device_; }
  /// Binds a plan to memory, for these rows of each batch. All leaves have been added and bound.
  virtual std::unique_ptr<Runtime> bind(std::shared_ptr<const PlanData> plan, BatchShard shard) = 0;
  /// What runs next sees what was written eagerly before; what is written eagerly next sees what has run.
  virtual void begin_after_eager() {}
  virtual void finish_before_eager() {}
  /// Lets the next step see leaves that were given another value.
  void update_leaves() {
    if (leaves.bind()) begin_after_eager();
  }
  /// A batch that can be loaded without a further copy on the host.
  virtual Tensor new_batch(const Shape& shape, DType dtype) { return Tensor(shape, dtype); }
  /// Waits until the batches of a feed that were loaded may be written again.
  virtual void release_batches(const Feed& /*feed*/) {}

  /// Keeps the loss of the step that a plan has just taken: the sum of all elements of its loss, and behind
  /// it the elements of the outputs that are recorded, of which all plans have as many.
  virtual void note_loss(const Runtime& runtime) = 0;
  /// Appends what was noted since the last call, in order. It may have to wait for it, and throws what the
  /// kernels of those steps could not throw.
  virtual void take_losses(std::vector<double>& losses) = 0;
  /// Lets go of them, after a run that failed.
  virtual void forget_losses() = 0;
  /// Whether losses cost no waiting, or there is no room for more of them.
  virtual bool losses_due() const { return true; }

  ParameterArena leaves;
  Tensor arena;  ///< of all plans, of which one runs at a time
  KeptLeafValues kept{leaves};
  /// How it adds up with other replicas, for plans that do.
  std::unique_ptr<GradientSync> gradient_sync = make_local_sync();
  Accumulators accumulators;

 private:
  Device device_;
};

/// Makes a session on a device of one type.
using SessionMaker = std::unique_ptr<Session> (*)(Device device, Launch launch);
using SessionMakers = std::map<DeviceType, SessionMaker>;
/// Those of all backends in this build. Defined in executor/backends.cpp.
SessionMakers make_session_makers();
/// A session on a CPU or a GPU. Throws DeviceError where there is no such device.
std::unique_ptr<Session> make_session(Device device, Launch launch);
std::unique_ptr<Session> make_cpu_session(Device device, Launch launch);
std::unique_ptr<Session> make_cuda_session(Device device, Launch launch);

}  // namespace espalier
