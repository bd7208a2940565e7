// The message of a FileError.
#pragma once
#include <string>

#include "espalier/core/error.h"

namespace espalier::testing {

template <class F>
std::string file_error(F&& f) {
  try {
    f();
  } catch (const FileError& error) {
    return error.what();
  }
  return "it threw nothing";
}
inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace espalier::testing
