// Indices in C: read, checked, and counted from the start.
#pragma once
#include "espalier/executor/c_export/function.h"

namespace espalier::c_export {

/// Defines a long of that name from an index into an axis of `size`; the function returns 1 if it is outside.
/// Negative indices count from the end, if allowed.
inline void write_index(Function& f, std::string_view name, std::string_view index, int64_t size,
                        bool from_end) {
  f.line(fmt::format("const int64_t {}_given = {};", name, index));
  f.fail_if(fmt::format("{0}_given < {1} || {0}_given >= {2}", name, from_end ? -size : 0, size));
  f.line(from_end ? fmt::format("const long {0} = (long)({0}_given < 0 ? {0}_given + {1} : {0}_given);", name,
                                size)
                  : fmt::format("const long {0} = (long){0}_given;", name));
}

}  // namespace espalier::c_export
