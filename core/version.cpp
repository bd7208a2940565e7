#include "espalier/core/version.h"

namespace espalier {

const char* const version = ESPALIER_VERSION;

}  // namespace espalier
