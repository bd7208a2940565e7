// CallSite: a line of the user's, and the library function that is called there.
#pragma once
#include <source_location>
#include <string>
#include <string_view>

namespace espalier {

struct CallSite : std::source_location {
  CallSite() = default;
  CallSite(const std::source_location& line, const char* called_function = nullptr)
      : std::source_location(line), function(called_function) {}

  /// The name of the function as users write it: "stack", "BatchNorm", "PackedSequence::pad". Empty if it is
  /// not known, or one that users do not call.
  std::string_view called() const;

  /// The end of a message about what happened there: " (in stack, net.cpp:12)", without the function where
  /// the message has its name. `line` is "net.cpp:12".
  std::string place(std::string_view message, std::string_view line) const;

  /// A literal: the name, or the signature as std::source_location has it.
  const char* function = nullptr;
};

}  // namespace espalier
