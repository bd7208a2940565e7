#include "espalier/executor/communicators/cuda/communicator_devices.h"

#include <fmt/format.h>

#include <optional>
#include <set>

#include "espalier/core/cuda/runtime.h"
#include "espalier/core/error.h"
#include "espalier/executor/communicators/cuda/gradient_sync.h"
#include "espalier/executor/communicators/cuda/rank_kernels.h"
#include "espalier/executor/communicators/rendezvous.h"

namespace espalier {
namespace {

using Kind = Collective::Kind;

struct DeviceGroup {
  // Of a rank, for the others: written before a phase and read after it.
  struct Place {
    std::optional<cu::Event> ready;  // behind it the rank's tensors may be used
    std::optional<cu::Event> done;   // behind it the rank uses no tensors of others
    bool launched = false;           // its kernel was launched, and `done` recorded
  };

  explicit DeviceGroup(size_t size)
      : rendezvous(static_cast<int>(size), 2), places(size), from(size), to(size) {}

  Rendezvous rendezvous;
  std::vector<Place> places;
  std::vector<const void*> from;  // by rank, see RankBuffers
  std::vector<void*> to;
};

class DeviceCommunicator final : public Communicator {
 public:
  DeviceCommunicator(std::shared_ptr<DeviceGroup> group, int rank, int size, Device device)
      : Communicator(rank, size), group_(std::move(group)), device_(device) {}
  ~DeviceCommunicator() override { group_->rendezvous.leave(rank()); }

  void fail(const std::string& reason) noexcept override { group_->rendezvous.fail(reason); }

 private:
  bool run(const Collective& call, const RankBuffers& own) override;
  Device device() const override { return device_; }

  void launch(const Collective& call);
  void wait_for(std::optional<cu::Event> DeviceGroup::Place::*event, cudaStream_t stream);

  std::shared_ptr<DeviceGroup> group_;
  Device device_;
};

void DeviceCommunicator::wait_for(std::optional<cu::Event> DeviceGroup::Place::*event, cudaStream_t stream) {
  for (size_t other = 0; other < group_->places.size(); ++other)
    if (static_cast<int>(other) != rank() && group_->places[other].*event)
      cu::check(cudaStreamWaitEvent(stream, (group_->places[other].*event)->get(), 0),
                "letting a stream wait for an event");
}

// Two phases on the host, as between threads on the CPU. By the first, every rank has recorded an event
// behind which its tensors may be used; by the second, one behind which it uses no tensors of others. An
// event is recorded anew only after all streams have begun to wait for it, which the next phase ensures.
bool DeviceCommunicator::run(const Collective& call, const RankBuffers& own) {
  const cu::DeviceScope scope(device_.index);
  const cudaStream_t stream = cu::current_stream();
  cudaStreamCaptureStatus capturing{};
  cu::check(cudaStreamIsCapturing(stream, &capturing), "asking whether a stream is captured");
  if (capturing != cudaStreamCaptureStatusNone)
    throw UnsupportedError(fmt::format(
        "{}: ranks of a device group meet on the host, which a CUDA graph does not have", call.str()));

  const auto me = static_cast<size_t>(rank());
  DeviceGroup::Place& place = group_->places[me];
  if (!place.ready) place.ready.emplace();
  if (!place.done) place.done.emplace();
  place.ready->record(stream);
  group_->from[me] = own.from;
  group_->to[me] = own.to;
  const bool stop_requested = group_->rendezvous.begin(rank(), call, timeout(), blocking_wait());
  place.launched = false;

  // After an error the other ranks still wait for what was launched, and learn of it in the second phase.
  std::exception_ptr error;
  try {
    wait_for(&DeviceGroup::Place::ready, stream);
    launch(call);
  } catch (...) {
    error = std::current_exception();
  }
  try {
    place.done->record(stream);
    place.launched = !error;
  } catch (...) {
    if (!error) error = std::current_exception();
  }
  if (error) abort(error);
  group_->rendezvous.arrive_and_wait(rank(), 2, blocking_wait());
  wait_for(&DeviceGroup::Place::done, stream);
  if (error) std::rethrow_exception(error);
  for (const DeviceGroup::Place& other : group_->places)
    if (!other.launched)
      throw CommunicatorError(fmt::format("{}: {}", call.str(), group_->rendezvous.reason()));
  return stop_requested;
}

void DeviceCommunicator::launch(const Collective& call) {
  if (call.kind == Kind::reduce)
    return cu::reduce_ranks(reduction_by_rank(call, rank(), group_->from, group_->to));
  if (call.kind == Kind::barrier) return;
  // Each rank copies its range to the others; or a chunk of the root's, so that the root's link does not
  // carry all copies.
  const bool broadcast = call.root >= 0;
  const auto [begin, count] = broadcast ? chunk(call.elements, size(), rank()) : call.range(rank());
  const auto element = static_cast<int64_t>(size_of(call.spec.dtype));
  const auto source = static_cast<size_t>(broadcast ? call.root : rank());
  const char* const from = static_cast<const char*>(group_->from[source]) + (broadcast ? begin * element : 0);
  std::vector<void*> copies;
  for (void* whole : group_->to)
    if (char* const to = static_cast<char*>(whole) + begin * element; to != from) copies.push_back(to);
  cu::copy_to_ranks(from, copies, static_cast<size_t>(count * element));
}

/// Enables access of one device to the memory of another.
void reach(Device self, Device other) {
  const cu::DeviceScope scope(self.index);
  int can = 0;
  cu::check(cudaDeviceCanAccessPeer(&can, self.index, other.index), "asking what a device can reach");
  if (!can)
    throw UnsupportedError(
        fmt::format("make_device_group: {} does not reach the memory of {}; replicas on "
                    "these need NCCL (make_nccl_group)",
                    self.str(), other.str()));
  const cudaError_t status = cudaDeviceEnablePeerAccess(other.index, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {
    (void)cudaGetLastError();
    return;
  }
  if (status == cudaErrorTooManyPeers) {
    (void)cudaGetLastError();
    throw UnsupportedError(
        fmt::format("make_device_group: {} reaches as many devices as it can, and not {}; replicas on these "
                    "need NCCL (make_nccl_group)",
                    self.str(), other.str()));
  }
  cu::check(status, "letting a device reach another's memory");
}

}  // namespace

CommunicatorGroup make_device_group(const std::vector<Device>& devices) {
  if (devices.empty()) throw Error("make_device_group: without devices there are no ranks");
  if (devices.size() > cu::most_ranks)
    throw UnsupportedError(
        fmt::format("make_device_group: {} ranks, and there can be {}", devices.size(), cu::most_ranks));
  for (const Device& device : devices) {
    if (device.type != DeviceType::cuda)
      throw DeviceError(fmt::format("make_device_group: {} is no GPU", device.str()));
    (void)backend(device);  // throws where there is none
  }
  const auto by_index = [](Device a, Device b) { return a.index < b.index; };
  const std::set<Device, decltype(by_index)> different(devices.begin(), devices.end(), by_index);
  for (const Device& self : different)
    for (const Device& other : different)
      if (self != other) reach(self, other);

  const auto group = std::make_shared<DeviceGroup>(devices.size());
  const int size = static_cast<int>(devices.size());
  CommunicatorGroup ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(
        std::make_shared<DeviceCommunicator>(group, rank, size, devices[static_cast<size_t>(rank)]));
  return ranks;
}

void add_cuda_groups(GroupMakers& makers) {
  GroupMaker& maker = makers[DeviceType::cuda];
  maker.in_process = {make_device_group};
  maker.in_job = [](const std::vector<Device>&, std::shared_ptr<Communicator>) -> CommunicatorGroup {
    throw UnsupportedError(
        "make_group: GPUs of several processes need NCCL; this build of Espalier has no NCCL");
  };
  maker.gradient_sync = make_cuda_gradient_sync;
}

}  // namespace espalier
