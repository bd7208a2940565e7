// FindNan: the operation that makes a NaN or infinity, eagerly.
#pragma once

namespace espalier {

/// While it lives, an operation that this thread computes eagerly, forward or backward, throws NumericError
/// if it makes an infinity of finite operands, or a NaN of operands that are none; the elements of a
/// pointwise operation are looked at one by one. The message has its name and line. It counts where values
/// are computed, not where they are written: a Deferred computes several operations in one, whose operands,
/// but for pointwise ones, are looked at as a whole. Results and operands of every operation are read, on a
/// GPU after waiting for them, so steps take several times as long. Infinities that a program writes down
/// itself, as those of a mask or of full_like, are operands. Executors have ExecutorOptions::find_nan.
class FindNan {
 public:
  FindNan();
  ~FindNan();
  FindNan(const FindNan&) = delete;
  FindNan& operator=(const FindNan&) = delete;

 private:
  bool before_;
};

}  // namespace espalier
