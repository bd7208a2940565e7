// Handles SIGINT (Ctrl-C) during a run, which then ends after its step.
#pragma once
#include <cstdint>

namespace espalier {

/// During its lifetime the first SIGINT is recorded instead of delivered, and the program's own handler is
/// restored at once for the next one. Several objects may exist at a time, in one thread or in many: a signal
/// is recorded in all of them, and the last to be destroyed restores the handler that the first one found. A
/// handler that the program sets meanwhile stays.
class Interrupt {
 public:
  /// Does nothing unless `wanted`.
  explicit Interrupt(bool wanted);
  ~Interrupt() { close(); }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const;
  /// Ends the handling, and returns whether a signal came before. Later signals go to the program's handler.
  bool close();

 private:
  bool open_ = false;
  bool came_ = false;
  uint32_t before_ = 0;
};

}  // namespace espalier
