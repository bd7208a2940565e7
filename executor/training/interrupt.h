// Ctrl-C while a run goes on: the run ends after its step, and the host's own handler is back then.
#pragma once
#include <cstdint>

namespace espalier {

/// While it lives, the first SIGINT is noted instead of delivered, and the host's handler is put back at
/// once: the next SIGINT is the host's. Several may live at a time, in one thread or in many; each that lived
/// when the signal came knows of it, and the last to go leaves the handler that the first one found. Should
/// the host set another handler meanwhile, that one stays.
class Interrupt {
 public:
  /// Does nothing unless `wanted`.
  explicit Interrupt(bool wanted);
  ~Interrupt() { close(); }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const;
  /// Ends it, and says whether a signal came until then: what comes later goes to the host.
  bool close();

 private:
  bool open_ = false;
  bool came_ = false;
  uint32_t before_ = 0;
};

}  // namespace espalier
