// Sessions on devices that are not there: plans can be made and read, and nothing else.
#include "espalier/core/error.h"
#include "espalier/executor/runtime/session.h"

namespace espalier {

namespace {

class SimulatedSession : public Session {
 public:
  using Session::Session;
  void begin_after_eager() override { refuse(); }
  std::unique_ptr<Runtime> bind(std::shared_ptr<const PlanData>, BatchShard) override { refuse(); }
  void note_loss(const Runtime&) override {}
  void take_losses(std::vector<double>&) override {}
  void forget_losses() override {}

 private:
  /// With what the backend says, which is not there.
  [[noreturn]] void refuse() const {
    (void)backend(device());
    throw DeviceError(device().str() + " computes nothing");
  }
};

}  // namespace

std::unique_ptr<Session> make_simulated_session(Device device) {
  return std::make_unique<SimulatedSession>(device);
}

}  // namespace espalier
