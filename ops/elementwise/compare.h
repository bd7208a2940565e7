// The op behind where().
#pragma once
#include "espalier/core/op.h"

namespace espalier {

OpPtr where_op();

}  // namespace espalier
