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

/// The same of an optimizer with another setting that has a schedule. Constant ones are numbers in the rule.
template <class Options>
CommonOptions common_options(const Options& o, std::string_view setting, const Schedule& schedule) {
  CommonOptions common = common_options(o);
  if (!schedule.is_constant()) common.schedules.emplace(setting, schedule);
  return common;
}
/// The settings of an optimizer: the learning rate, and another one if that has a schedule.
inline std::vector<std::pair<std::string_view, double>> settings_with(double lr, std::string_view setting,
                                                                      double value,
                                                                      const Schedule& schedule) {
  if (schedule.is_constant()) return {{"lr", lr}};
  return {{"lr", lr}, {setting, value}};
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
