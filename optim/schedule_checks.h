// What schedules check of their options.
#pragma once
#include <cmath>

#include "espalier/optim/optimizer.h"

namespace espalier::optim {

inline void check_factor(std::string_view schedule, std::string_view what, double factor,
                         const std::source_location& where) {
  check_setting(std::isfinite(factor) && factor >= 0, schedule, what, factor, where);
}
inline void check_steps(std::string_view schedule, std::string_view what, int64_t steps, int64_t least,
                        const std::source_location& where) {
  check_setting(steps >= least, schedule, what, static_cast<double>(steps), where);
}

}  // namespace espalier::optim
