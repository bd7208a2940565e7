// The exceptions of Espalier. Every message names the call, its shapes or values, and the source line.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "espalier/core/call_site.h"

namespace espalier {

/// The base of all errors. `what()` ends with the user's file and line once the failing call is known.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message), message_(message) {}

  const char* what() const noexcept override { return message_.c_str(); }

  /// Adds a source line, once: that of the user's call, if it comes from a library function that calls
  /// others, else `where`; and the name of that function, unless the text has it.
  void locate(const CallSite& where);
  /// Adds to the text, in front of the source line.
  void add(std::string_view text);

 private:
  std::string message_;
  bool located_ = false;
  uint32_t line_size_ = 0;  // of the line at the end, if it is there
};

/// Incompatible shapes, or axes that do not exist.
class ShapeError : public Error {
 public:
  using Error::Error;
};
/// Incompatible element types.
class TypeError : public Error {
 public:
  using Error::Error;
};
/// An index or label outside its range.
class IndexError : public Error {
 public:
  using Error::Error;
};
/// A device that does not exist, or tensors on different devices.
class DeviceError : public Error {
 public:
  using Error::Error;
};
/// Something that is meaningful, but which this backend or version cannot do.
class UnsupportedError : public Error {
 public:
  using Error::Error;
};
/// Data sets and feeds that cannot be used as asked.
class DataError : public Error {
 public:
  using Error::Error;
};
/// A file that cannot be read or written, or does not hold what it should.
class FileError : public Error {
 public:
  using Error::Error;
};
/// No memory on the device, or a memory budget that cannot be kept.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// A result that is not a number, where training cannot go on with it.
class NumericError : public Error {
 public:
  using Error::Error;
};

/// A matrix that is singular or not positive definite, or whose decomposition did not converge. The message
/// names its place in the batch.
class LinAlgError : public Error {
 public:
  using Error::Error;
};

/// A failed collective: a rank threw, died, timed out, or called another collective. The message names the
/// rank, the collective and the line of its call.
class CommunicatorError : public Error {
 public:
  using Error::Error;
};

/// Not an error: a feed has shown its last batch. It stands apart so that `catch (const Error&)` lets it
/// pass.
class EndOfData : public std::exception {
 public:
  const char* what() const noexcept override { return "end of data: the feed has shown its last batch"; }
};

/// Runs `f` and adds the user's line to an Error that it throws.
template <class F>
decltype(auto) located(const CallSite& where, F&& f) {
  try {
    return f();
  } catch (Error& error) {
    error.locate(where);
    throw;
  }
}

}  // namespace espalier
