#include "espalier/executor/communicators/groups.h"

#include <fmt/format.h>

#include "espalier/core/error.h"

namespace espalier {

void add_cpu_groups(GroupMakers& makers) {
  GroupMaker& maker = makers[DeviceType::cpu];
  maker.in_process = {
      [](const std::vector<Device>& devices) { return make_thread_group(static_cast<int>(devices.size())); }};
  maker.in_job = [](const std::vector<Device>& devices, std::shared_ptr<Communicator> world) {
    if (devices.size() == 1) return CommunicatorGroup{std::move(world)};
    return make_nested_group(static_cast<int>(devices.size()), std::move(world));
  };
  // Threads of one process compute and reduce on the same cores; only a job has something to overlap.
  maker.gradient_sync = [](std::shared_ptr<Communicator> communicator, Device, bool job) {
    return job ? make_overlapped_sync(std::move(communicator)) : make_deferred_sync(std::move(communicator));
  };
}

namespace {

const GroupMaker& maker_of(Device device) {
  static const GroupMakers all = make_group_makers();
  const auto maker = all.find(device.type);
  if (maker != all.end()) return maker->second;
  (void)backend(device);  // says why there is no such device
  throw DeviceError(fmt::format("there are no communicators for {}", device.str()));
}

}  // namespace

CommunicatorGroup make_group(const std::vector<Device>& devices, std::shared_ptr<Communicator> world) {
  if (devices.empty()) throw Error("make_group: without devices there are no ranks");
  for (const Device& device : devices)
    if (device.type != devices[0].type)
      throw UnsupportedError(fmt::format("make_group: {} and {} cannot form a group: they are of two types",
                                         devices[0].str(), device.str()));
  const GroupMaker& maker = maker_of(devices[0]);
  if (world) return maker.in_job(devices, std::move(world));
  for (size_t i = 0; i + 1 < maker.in_process.size(); ++i) try {
      return maker.in_process[i](devices);
    } catch (const UnsupportedError&) {  // the next one may take these devices
    }
  return maker.in_process.back()(devices);
}

std::unique_ptr<GradientSync> make_gradient_sync(std::shared_ptr<Communicator> communicator, Device device,
                                                 bool job) {
  return maker_of(device).gradient_sync(std::move(communicator), device, job);
}

}  // namespace espalier
