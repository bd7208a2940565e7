// Which Espalier this is.
#pragma once

namespace espalier {

/// "0.1.0": what files that depend on the library's inside are marked with.
extern const char* const version;

}  // namespace espalier
