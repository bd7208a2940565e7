#include "espalier/executor/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "espalier/core/error.h"
#include "espalier/executor/communicator.h"
#include "espalier/executor/communicator_nested.h"
#include "espalier/executor/communicator_threads.h"
#include "espalier/executor/cuda/communicator_devices.h"
#include "espalier/executor/cuda/communicator_nccl.h"
#include "espalier/executor/cuda/exchange.h"

namespace espalier {

Replicas::Replicas(const std::vector<Device>& devices, Launch launch, std::shared_ptr<Communicator> world)
    : devices_(devices), world_(std::move(world)) {
  for (const Device& device : devices)
    if (device.type != devices[0].type)
      throw UnsupportedError(fmt::format("get_executor: replicas on {} and {} do not go together",
                                         devices[0].str(), device.str()));
  all_ = static_cast<int>(devices.size()) * (world_ ? world_->size() : 1);
  for (const Device& device : devices) {
    sessions_.push_back(make_session(device, launch));
    if (simulated()) break;
    if (size() > 1) sessions_.back()->leaves.follow();
  }
  // Threads of one process compute and exchange on the same cores; others have something to wait for.
  overlaps_ = world_ || devices[0].type != DeviceType::cpu;
  if (all_ == 1 || simulated()) return;
  communicators_ = meet();
  for (size_t i = 0; i < size(); ++i) sessions_[i]->exchange = make_exchange(i);
  if (size() > 1) team_ = std::make_unique<ThreadTeam>(size(), devices[0].type == DeviceType::cpu);
}

Replicas::~Replicas() = default;

data::RowShare Replicas::share(size_t i, int part, int parts) const {
  const int before = world_ ? world_->rank() * static_cast<int>(size()) : 0;
  return {(before + static_cast<int>(i)) * parts + part, all_ * parts};
}

/// NCCL where it takes these devices, since it knows the links between them; it takes no two ranks on one.
std::vector<std::shared_ptr<Communicator>> Replicas::meet_on_gpus() const {
  if (world_) {
    if (size() > 1)
      throw UnsupportedError(fmt::format(
          "get_executor: {} GPUs in each of {} processes; one process for each GPU is what goes together",
          size(), world_->size()));
    return {make_nccl_communicator(world_, devices_[0])};
  }
  const std::set<Device> different(devices_.begin(), devices_.end());
  if (different.size() == devices_.size()) try {
      return make_nccl_group(devices_);
    } catch (const UnsupportedError&) {  // there is no NCCL, and no need of it where GPUs reach each other
    }
  return make_device_group(devices_);
}

std::vector<std::shared_ptr<Communicator>> Replicas::meet() const {
  if (devices_[0].type == DeviceType::cuda) return meet_on_gpus();
  if (!world_) return make_thread_group(static_cast<int>(size()));
  if (size() == 1) return {world_};
  return make_nested_group(static_cast<int>(size()), world_);
}

std::unique_ptr<Exchange> Replicas::make_exchange(size_t i) const {
  // A process with one GPU captures its whole step; threads meet on the host, between graphs.
  if (devices_[0].type == DeviceType::cuda)
    return make_cuda_exchange(communicators_[i], devices_[i], world_ != nullptr);
  return world_ ? make_exchange_beside(communicators_[i]) : make_exchange_at_end(communicators_[i]);
}

/// After a failure none of the old communicators works any more.
void Replicas::meet_again() {
  communicators_ = meet();
  for (size_t i = 0; i < size(); ++i) sessions_[i]->exchange->connect(communicators_[i]);
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
    // What is still on its way ends soon, since all know that it failed; until then it has the communicator.
    for (const auto& session : sessions_) session->exchange->forget();
    if (!world_) meet_again();
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

void Replicas::enter() {
  for (const auto& session : sessions_) session->enter();
}
void Replicas::leave() {
  for (const auto& session : sessions_) session->leave();
}
void Replicas::update_leaves() {
  first().update_leaves();
  for (size_t i = 1; i < size(); ++i) {
    sessions_[i]->leaves.renew(first().leaves.copied());
    sessions_[i]->update_leaves();
  }
}
void Replicas::unbind_leaves() { first().leaves.unbind(); }

void Replicas::mark_assigned(std::span<const size_t> slots) {
  for (const auto& session : sessions_) session->leaves.mark_assigned(slots);
}

void Replicas::forget_losses() {
  for (const auto& session : sessions_) {
    session->forget_losses();
    if (session->exchange) session->exchange->forget();
  }
}

void Replicas::confirm() {
  if (devices_[0].type != DeviceType::cuda || communicators_.empty()) return;
  run([&](size_t i) { communicators_[i]->barrier(); });
}

void Replicas::take_losses(std::vector<double>& losses) {
  if (size() == 1 || devices_[0].type == DeviceType::cpu) return first().take_losses(losses);
  // What one device has asked of the others it may be waiting for: all are waited for at once.
  run([&](size_t i) {
    std::vector<double> none;
    sessions_[i]->take_losses(i == 0 ? losses : none);
  });
}

}  // namespace espalier
