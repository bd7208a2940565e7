// A build without NCCL.
#include "espalier/core/error.h"
#include "espalier/executor/cuda/communicator_nccl.h"

namespace espalier {
namespace {

[[noreturn]] void none(const char* what) {
  throw UnsupportedError(std::string(what) + ": this build of Espalier has no NCCL");
}

}  // namespace

std::vector<std::shared_ptr<Communicator>> make_nccl_group(const std::vector<Device>&) {
  none("make_nccl_group");
}
std::shared_ptr<Communicator> make_nccl_communicator(std::shared_ptr<Communicator>, Device) {
  none("make_nccl_communicator");
}

}  // namespace espalier
