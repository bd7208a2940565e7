#include "espalier/executor/replicas/replicas.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/executor/communicators/groups.h"

namespace espalier {

void check_devices(const std::vector<Device>& devices) {
  for (const Device& device : devices)
    if (device.type != devices[0].type)
      throw UnsupportedError(fmt::format("get_executor: replicas on {} and {} do not go together",
                                         devices[0].str(), device.str()));
  for (const Device& device : devices) (void)backend(device);
}

Replicas::Replicas(const std::vector<Device>& devices, Launch launch, std::shared_ptr<Communicator> world)
    : devices_(devices), world_(std::move(world)) {
  all_ = static_cast<int>(devices.size()) * (world_ ? world_->size() : 1);
  for (const Device& device : devices) {
    sessions_.push_back(make_session(device, launch));
    if (size() > 1) sessions_.back()->leaves.follow();
  }
  if (all_ == 1) return;
  communicators_ = make_group(devices_, world_);
  for (size_t i = 0; i < size(); ++i)
    sessions_[i]->gradient_sync = make_gradient_sync(communicators_[i], devices_[i], world_ != nullptr);
  if (size() > 1) team_ = std::make_unique<ThreadTeam>(size(), devices[0].type == DeviceType::cpu);
}

Replicas::~Replicas() = default;

BatchShard Replicas::shard(size_t i, int micro_batch, int micro_batches) const {
  const int before = world_ ? world_->rank() * static_cast<int>(size()) : 0;
  return {before + static_cast<int>(i), all_, micro_batch, micro_batches};
}

void Replicas::add_leaves(const std::vector<Variable>& leaves, const std::set<const Node*>& written,
                          const StateOwners* owners, bool in_order) {
  using Keeping = ParameterArena::Keeping;
  const int first = shard(0).replica, here = static_cast<int>(size());
  const auto keeping_of = [&](const Variable& leaf, int replica) {
    const int owner = owners ? owners->of(leaf.node()) : -1;
    if (owner < 0 || is_parameter(leaf.node()->op())) return Keeping::shared;
    if (owner == replica) return Keeping::alone;
    const bool in_other_process = owner < first || owner >= first + here;
    return in_other_process && replica == first ? Keeping::away : Keeping::nowhere;
  };
  using Order = ParameterArena::Order;
  for (int i = 0; i < here; ++i) {
    ParameterArena& arena = sessions_[static_cast<size_t>(i)]->leaves;
    arena.arrange(owners ? Order::needed : in_order ? Order::preferred : Order::any);
    for (const Variable& leaf : leaves) arena.add(leaf, keeping_of(leaf, first + i));
  }
  use_.add(leaves, written);
}

/// Makes a new group: after a failure the old one cannot be used any more.
void Replicas::reconnect() {
  communicators_ = make_group(devices_, world_);
  for (size_t i = 0; i < size(); ++i) sessions_[i]->gradient_sync->connect(communicators_[i]);
}

void Replicas::run(FunctionRef<void(size_t)> f) {
  if (all_ == 1) return f(0);
  const auto one = [&](size_t i) {
    try {
      f(i);
    } catch (...) {
      communicators_[i]->abort(std::current_exception());
      throw;
    }
  };
  try {
    team_ ? team_->run(one) : one(0);
  } catch (...) {
    // Transfers under way use the old communicators until they end, which is soon because of the failure.
    for (const auto& session : sessions_) session->gradient_sync->forget();
    if (!world_) reconnect();
    throw;
  }
}

void Replicas::run_in_turn(FunctionRef<void(size_t)> f) {
  if (!team_) return run(f);
  for (size_t turn = 0; turn < size(); ++turn)
    team_->run([&](size_t i) {
      if (i == turn) f(i);
    });
}

void Replicas::begin_after_eager() {
  for (const auto& session : sessions_) session->begin_after_eager();
}
void Replicas::finish_before_eager() {
  for (const auto& session : sessions_) session->finish_before_eager();
}
void Replicas::update_leaves() {
  // Another executor may have stepped in the memory of the first one, which the others do not share.
  if (std::ranges::all_of(sessions_, [](const auto& session) { return session->leaves.is_current(); }))
    return;
  const LeafScope scope(use_, LeafUse::Access::alone);
  first().update_leaves();
  for (size_t i = 1; i < size(); ++i) {
    sessions_[i]->leaves.renew(first().leaves.copied());
    sessions_[i]->update_leaves();
  }
}
void Replicas::use_leaves(bool writes, FunctionRef<void()> f) {
  for (;; update_leaves()) {
    const LeafScope scope(use_, writes ? LeafUse::Access::step : LeafUse::Access::read);
    // Another thread may have assigned leaves since they were updated.
    if (!writes && size() == 1 && !first().leaves.is_current()) continue;
    const bool ordered = use_.has_conflicts();  // a device may be behind the host
    if (ordered) first().begin_after_eager();
    f();
    if (ordered) first().finish_before_eager();
    return;
  }
}

void Replicas::mark_assigned(std::span<const size_t> slots) {
  for (const auto& session : sessions_) session->leaves.mark_assigned(slots);
}

void Replicas::forget_losses() {
  for (const auto& session : sessions_) {
    session->forget_losses();
    if (session->gradient_sync) session->gradient_sync->forget();
  }
}

void Replicas::confirm() {
  if (devices_[0].type != DeviceType::cuda || communicators_.empty()) return;
  run([&](size_t i) { communicators_[i]->barrier(); });
}

void Replicas::take_losses(std::vector<double>& losses) {
  if (size() == 1 || devices_[0].type == DeviceType::cpu) return first().take_losses(losses);
  // A device may be waiting for the others, so the host waits for all of them at once.
  run([&](size_t i) {
    std::vector<double> none;
    sessions_[i]->take_losses(i == 0 ? losses : none);
  });
}

}  // namespace espalier
