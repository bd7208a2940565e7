// What the rules of the library, and the constructors of their optimizers, have in common.
#pragma once
#include <cmath>
#include <source_location>
#include <string_view>

#include "espalier/optim/optimizer.h"

namespace espalier::optim {

/// A rule of this library: what it computes carries the line where the parameter was made. What a user's rule
/// computes carries the lines in that.
class BuiltInRule : public UpdateRule {};

/// The options that an optimizer shares with all others.
template <class Options>
CommonOptions common_options(const Options& o) {
  CommonOptions common{.clip_norm = o.clip_norm, .clip_value = o.clip_value};
  common.maximize = o.maximize;
  if constexpr (requires { o.schedule; }) common.schedule = o.schedule;
  if constexpr (requires { o.sparse; }) common.sparse = o.sparse;
  return common;
}

/// Checks the settings of an optimizer. Throws Error that names optimizer, setting and value.
class SettingChecks {
 public:
  SettingChecks(std::string_view optimizer, const std::source_location& where)
      : optimizer_(optimizer), where_(where) {}
  const SettingChecks& not_negative(std::string_view setting, double value) const {
    return check(std::isfinite(value) && value >= 0, setting, value);
  }
  const SettingChecks& positive(std::string_view setting, double value) const {
    return check(std::isfinite(value) && value > 0, setting, value);
  }
  /// In [0, 1).
  const SettingChecks& below_one(std::string_view setting, double value) const {
    return check(value >= 0 && value < 1, setting, value);
  }
  const SettingChecks& check(bool valid, std::string_view setting, double value) const {
    check_setting(valid, optimizer_, setting, value, where_);
    return *this;
  }

 private:
  std::string_view optimizer_;
  std::source_location where_;
};

}  // namespace espalier::optim
