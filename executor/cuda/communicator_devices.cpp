#include "espalier/executor/cuda/communicator_devices.h"

#include <fmt/format.h>

#include <optional>
#include <set>

#include "espalier/core/cuda/runtime.h"
#include "espalier/core/error.h"
#include "espalier/executor/cuda/rank_kernels.h"
#include "espalier/executor/thread_group.h"

namespace espalier {
namespace {

using Kind = Collective::Kind;

struct DeviceGroup {
  // What others need of a rank. It is written before a meeting and read after it.
  struct Place {
    std::optional<cu::Event> ready, done;  // its tensors may be used; it has used those of all
    bool launched = false;                 // that `done` was recorded
  };

  explicit DeviceGroup(size_t size) : group(static_cast<int>(size), 2), places(size), from(size), to(size) {}

  ThreadGroup group;
  std::vector<Place> places;
  std::vector<const void*> from;  // by rank: where the elements lie, and where they shall go
  std::vector<void*> to;
};

class DeviceCommunicator final : public Communicator {
 public:
  DeviceCommunicator(std::shared_ptr<DeviceGroup> group, int rank, int size, Device device)
      : Communicator(rank, size), group_(std::move(group)), device_(device) {}
  ~DeviceCommunicator() override { DeviceCommunicator::fail(fmt::format("rank {} has left", rank())); }

  void fail(const std::string& reason) noexcept override {
    try {
      group_->group.fail(reason);
    } catch (...) {  // no memory for the message; the others find out when their time is over
    }
  }

 private:
  bool run(const Collective& call, const Tensor* from, Tensor* to) override;
  DeviceType device_type() const override { return DeviceType::cuda; }

  void check_devices(const Collective& call, const Tensor* from, const Tensor* to) const;
  void launch(const Collective& call, const Tensor* from);
  void wait_for(std::optional<cu::Event> DeviceGroup::Place::*event, cudaStream_t stream);

  std::shared_ptr<DeviceGroup> group_;
  Device device_;
};

void DeviceCommunicator::check_devices(const Collective& call, const Tensor* from, const Tensor* to) const {
  for (const Tensor* tensor : {from, to})
    if (tensor && tensor->device() != device_)
      throw DeviceError(fmt::format("{}: rank {} of this communicator is on {}, and the tensor on {}",
                                    call.str(), rank(), device_.str(), tensor->device().str()));
}

void DeviceCommunicator::wait_for(std::optional<cu::Event> DeviceGroup::Place::*event, cudaStream_t stream) {
  for (size_t other = 0; other < group_->places.size(); ++other)
    if (static_cast<int>(other) != rank() && group_->places[other].*event)
      cu::check(cudaStreamWaitEvent(stream, (group_->places[other].*event)->get(), 0),
                "letting a stream wait for an event");
}

// Two meetings on the host, as threads on the CPU have them. By the first, every rank has recorded an event
// behind which its tensors may be used; by the second, one behind which it uses those of others no more.
// Events are recorded anew only when all have begun to wait for them: the next meeting comes after that.
bool DeviceCommunicator::run(const Collective& call, const Tensor* from, Tensor* to) {
  check_devices(call, from, to);
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
  group_->from[me] = from ? from->address() : nullptr;
  group_->to[me] = to ? to->address() : nullptr;
  const bool raised = group_->group.meet(rank(), call, timeout(), napping());
  place.launched = false;

  // Whoever fails here has the others wait for what it launched, and tells them at the second meeting.
  std::exception_ptr error;
  try {
    wait_for(&DeviceGroup::Place::ready, stream);
    if (call.kind != Kind::barrier) launch(call, from);
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
  group_->group.arrive(rank(), 2);
  group_->group.wait(rank(), 2, napping());
  wait_for(&DeviceGroup::Place::done, stream);
  if (error) std::rethrow_exception(error);
  for (const DeviceGroup::Place& other : group_->places)
    if (!other.launched) throw CommunicatorError(fmt::format("{}: {}", call.str(), group_->group.reason()));
  return raised;
}

void DeviceCommunicator::launch(const Collective& call, const Tensor* from) {
  const int64_t elements = call.spec.shape.elements();
  const auto me = static_cast<size_t>(rank());
  const int64_t share = share_begin(elements, size(), rank());
  const int64_t share_end = share_begin(elements, size(), rank() + 1);
  RankReduction reduction;
  reduction.reduction = call.reduction;
  reduction.dtype = call.spec.dtype;
  reduction.from = group_->from;
  reduction.weights = call.weights;
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::all_reduce_weighted:
      // Each rank reads and writes its share of everybody's elements, and nobody else touches that.
      reduction.to = group_->to;
      reduction.first = reduction.to_first = share;
      reduction.count = share_end - share;
      return cu::reduce_ranks(reduction);
    case Kind::reduce_scatter:
      reduction.to = {&group_->to[me], 1};
      reduction.count = elements / size();
      reduction.first = reduction.count * rank();
      return cu::reduce_ranks(reduction);
    case Kind::all_gather: {
      std::vector<void*> places;
      for (void* values : group_->to) places.push_back(static_cast<char*>(values) + from->bytes() * me);
      return cu::copy_to_ranks(from->address(), places, from->bytes());
    }
    case Kind::reduce_parts:
      // Of a rank's values others read what is not its own part, and nobody else writes.
      reduction.to = {&group_->to[me], 1};
      reduction.first = reduction.to_first = call.bounds[me];
      reduction.count = call.bounds[me + 1] - reduction.first;
      return cu::reduce_ranks(reduction);
    case Kind::gather_parts: {
      const size_t element = size_of(call.spec.dtype), begin = static_cast<size_t>(call.bounds[me]) * element;
      std::vector<void*> places;
      for (size_t other = 0; other < group_->to.size(); ++other)
        if (other != me) places.push_back(static_cast<char*>(group_->to[other]) + begin);
      return cu::copy_to_ranks(static_cast<const char*>(from->address()) + begin, places,
                               static_cast<size_t>(call.bounds[me + 1]) * element - begin);
    }
    case Kind::broadcast: {
      // Each rank hands on a share, so that not all is read through what connects the root.
      const auto bytes = static_cast<int64_t>(size_of(call.spec.dtype));
      std::vector<void*> places;
      for (int other = 0; other < size(); ++other)
        if (other != call.root)
          places.push_back(static_cast<char*>(group_->to[static_cast<size_t>(other)]) + share * bytes);
      const void* root =
          static_cast<const char*>(group_->from[static_cast<size_t>(call.root)]) + share * bytes;
      return cu::copy_to_ranks(root, places, static_cast<size_t>((share_end - share) * bytes));
    }
    case Kind::barrier: return;
  }
}

/// Lets the current device read and write the memory of another.
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
  if (status == cudaErrorPeerAccessAlreadyEnabled)
    (void)cudaGetLastError();
  else
    cu::check(status, "letting a device reach another's memory");
}

}  // namespace

std::vector<std::shared_ptr<Communicator>> make_device_group(const std::vector<Device>& devices) {
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
  std::vector<std::shared_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(
        std::make_shared<DeviceCommunicator>(group, rank, size, devices[static_cast<size_t>(rank)]));
  return ranks;
}

}  // namespace espalier
