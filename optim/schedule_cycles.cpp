// Schedules that rise and fall.
#include <cmath>
#include <numbers>

#include "espalier/ops/ops.h"
#include "espalier/optim/schedule_checks.h"

namespace espalier::optim {

namespace {

/// From `from` to `to` along half a cosine or a line, as `way` goes from 0 to 1.
Variable annealed(Annealing annealing, double from, double to, const Variable& way) {
  if (annealing == Annealing::linear) return from + (to - from) * way;
  return to + (from - to) / 2 * (1.0 + cos(way * std::numbers::pi));
}

/// step - floor(step / length) · length
Variable rest_of(const Variable& step, double length) { return step - floor(step / length) * length; }

}  // namespace

Schedule cosine_restarts(const CosineRestartOptions& o, std::source_location where) {
  check_steps("cosine_restarts", "steps", o.steps, 1, where);
  check_setting(std::isfinite(o.multiplier) && o.multiplier >= 1, "cosine_restarts", "multiplier",
                o.multiplier, where);
  check_factor("cosine_restarts", "last", o.last, where);
  return [o](const Variable& step) {
    const auto first = static_cast<double>(o.steps), m = o.multiplier;
    if (m == 1) return annealed(Annealing::cosine, 1, o.last, rest_of(step, first) / first);
    // Descent n begins at step first · (mⁿ − 1) / (m − 1). The half keeps rounding from a descent too early.
    const Variable n = floor(log((step + 0.5) * ((m - 1) / first) + 1.0) / std::log(m));
    const Variable size = power(m, n);
    const Variable begin = first * (size - 1.0) / (m - 1);
    const Variable way = maximum(step - begin, 0.0) / (first * size);
    return annealed(Annealing::cosine, 1, o.last, way);
  };
}

namespace {

/// A factor that goes from `first` to `top` while the rate of a cycle rises, back to `first` or `last`, and
/// to `last`.
Schedule cycle(std::string_view function, const OneCycleOptions& o, double first, double top_factor,
               double last, const std::source_location& where) {
  check_steps(function, "steps", o.steps, 2, where);
  check_setting(o.rise > 0 && o.rise < (o.three_phases ? 0.5 : 1), function, "rise", o.rise, where);
  const double top = o.rise * static_cast<double>(o.steps) - 1;
  check_setting(top > 0, function, "steps", static_cast<double>(o.steps), where);
  return [=](const Variable& step) -> Variable {
    const double end = static_cast<double>(o.steps) - 1;
    const auto part = [&](double from, double to, double begin, double stop) {
      return annealed(o.annealing, from, to, minimum((step - begin) / (stop - begin), 1.0));
    };
    const Variable rise = part(first, top_factor, 0, top);
    if (!o.three_phases)
      return espalier::where(less_equal(step, top), rise, part(top_factor, last, top, end));
    const double low = 2 * o.rise * static_cast<double>(o.steps) - 2;
    const Variable fall = espalier::where(less_equal(step, low), part(top_factor, first, top, low),
                                          part(first, last, low, end));
    return espalier::where(less_equal(step, top), rise, fall);
  };
}

}  // namespace

Schedule one_cycle(const OneCycleOptions& o, std::source_location where) {
  check_factor("one_cycle", "first", o.first, where);
  check_factor("one_cycle", "last", o.last, where);
  return cycle("one_cycle", o, o.first, 1, o.last, where);
}

Schedule one_cycle_momentum(const OneCycleOptions& o, double low, std::source_location where) {
  check_factor("one_cycle_momentum", "low", low, where);
  check_setting(low <= 1, "one_cycle_momentum", "low", low, where);
  return cycle("one_cycle_momentum", o, 1, low, 1, where);
}

Schedule cyclical(const CyclicalOptions& o, std::source_location where) {
  check_factor("cyclical", "low", o.low, where);
  check_setting(o.low <= 1, "cyclical", "low", o.low, where);
  check_steps("cyclical", "up", o.up, 1, where);
  check_steps("cyclical", "down", o.down, 0, where);
  check_factor("cyclical", "decay", o.decay, where);
  return [o](const Variable& step) {
    const auto up = static_cast<double>(o.up), down = o.down > 0 ? static_cast<double>(o.down) : up;
    const Variable at = rest_of(step, up + down);
    Variable height = (1 - o.low) * espalier::where(less_equal(at, up), at / up, (up + down - at) / down);
    if (o.shape == CycleShape::halving) height = height * power(0.5, floor(step / (up + down)));
    if (o.shape == CycleShape::exponential) height = height * power(o.decay, step);
    return o.low + height;
  };
}

Schedule warm_up(const WarmUpOptions& o, std::source_location where) {
  check_steps("warm_up", "steps", o.steps, 1, where);
  check_factor("warm_up", "first", o.first, where);
  return [o](const Variable& step) {
    return o.first + (1 - o.first) * minimum(step / static_cast<double>(o.steps), 1.0);
  };
}

}  // namespace espalier::optim
