// Profiler: the times of some steps, kernel by kernel, for a report and for a trace file.
#pragma once
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/executor/plan_data.h"
#include "espalier/executor/profile.h"

namespace espalier {

/// What was measured of one plan, summed over its recorded steps, in seconds.
struct PlanTimes {
  int64_t steps = 0;
  double step = 0;            ///< whole steps, with everything below
  double wait = 0;            ///< waiting for batches
  double load = 0;            ///< copying them into the arena
  double kernels = 0;         ///< all kernels
  std::vector<double> nodes;  ///< each node's kernel; 0 where there is none
};

/// "forward", "backward" or "update".
std::string_view category(Tag tag);

/// Records while it is on. A step is recorded when it is complete; one that throws leaves nothing.
class Profiler {
 public:
  using Clock = std::chrono::steady_clock;
  /// Begin and end of each kernel in the order they run: one more than there are kernels.
  using Laps = std::vector<Clock::time_point>;

  Profiler() = default;
  /// Writes what a trace that was begun holds; here nobody can be told that this failed.
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// Forgets the times there are, and records from the next step on. Without a trace, only sums are kept.
  /// Writes a trace that is still being recorded. Throws FileError if a file cannot be made there.
  void start(const std::filesystem::path& trace, const ProfileOptions& options);
  bool on() const { return left_ > 0; }

  void begin_step();
  /// Runs `f`, which belongs to the step but is no kernel.
  template <class F>
  decltype(auto) timed(const char* name, F&& f) {
    const Timed scope{on() ? this : nullptr, name, on() ? Clock::now() : Clock::time_point()};
    return f();
  }
  /// Where the runtime shall put its times; null while nothing is recorded.
  Laps* laps() { return on() ? &laps_ : nullptr; }
  void end_step(const std::shared_ptr<const PlanData>& plan);
  /// Writes the trace once all its steps are recorded. Throws FileError.
  void write_if_done() {
    if (done_) finish();
  }
  /// Writes the trace with the steps there are, if there are any, and records no more. Throws FileError.
  void finish();

  /// What is known of a plan; null if none of its steps was recorded.
  const PlanTimes* times(const PlanData& plan) const;
  /// The plan with the most recorded steps; null if there are none.
  std::shared_ptr<const PlanData> busiest() const;

 private:
  struct Span {
    const char* name;
    Clock::time_point begin, end;
  };
  struct Step {
    std::shared_ptr<const PlanData> plan;
    Clock::time_point begin, end;
    std::vector<Span> spans;
    Laps laps;
  };
  struct Timed {
    Profiler* to;
    const char* name;
    Clock::time_point begin;
    ~Timed() {
      if (to) to->spans_.push_back({name, begin, Clock::now()});
    }
  };
  std::string trace() const;

  int64_t left_ = 0;   // steps to record still
  bool done_ = false;  // all recorded, the trace not yet written
  std::filesystem::path path_;
  Clock::time_point step_begin_;
  std::vector<Span> spans_;  // of this step
  Laps laps_;                // of this step
  std::vector<Step> steps_;  // for the trace
  std::map<std::shared_ptr<const PlanData>, PlanTimes> times_;
};

}  // namespace espalier
