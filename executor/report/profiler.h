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

#include "espalier/executor/plan/plan_data.h"
#include "espalier/executor/profile.h"

namespace espalier {

/// The times of one plan in seconds, summed over its recorded steps.
struct PlanTimes {
  int64_t steps = 0;
  double step = 0;            ///< whole steps, including all below
  double wait = 0;            ///< waiting for batches
  double load = 0;            ///< copying them into the arena
  double kernels = 0;         ///< all kernels
  std::vector<double> nodes;  ///< each node's kernel; 0 if it has none
};

/// "forward", "backward" or "update".
std::string_view category(Tag tag);

/// Records while it is on. Only complete steps are recorded; a step that throws is dropped.
class Profiler {
 public:
  using Clock = std::chrono::steady_clock;
  /// The begin of each kernel in order of execution, then the end of the last.
  using KernelTimestamps = std::vector<Clock::time_point>;

  Profiler() = default;
  /// Writes an unfinished trace. Errors are dropped, since a destructor cannot report them.
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// Writes an unfinished trace, clears all times, and records from the next step on; sums only, unless a
  /// trace is named. Throws FileError if that file cannot be created.
  void start(const std::filesystem::path& trace, const ProfileOptions& options);
  bool on() const { return left_ > 0; }

  void begin_step();
  /// Runs and times `f`, a part of the step that is not a kernel.
  template <class F>
  decltype(auto) timed(const char* name, F&& f) {
    const Timed scope{on() ? this : nullptr, name, on() ? Clock::now() : Clock::time_point()};
    return f();
  }
  /// The runtime's output for its times; null while nothing is recorded.
  KernelTimestamps* timestamps() { return on() ? &timestamps_ : nullptr; }
  void end_step(const std::shared_ptr<const PlanData>& plan);
  /// Writes the trace once all its steps are recorded. Throws FileError.
  void write_if_done() {
    if (done_) finish();
  }
  /// Stops, and writes the trace if it has any steps. Throws FileError.
  void finish();

  /// The times of a plan; null if none of its steps was recorded.
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
    KernelTimestamps timestamps;
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

  int64_t left_ = 0;   // steps yet to be recorded
  bool done_ = false;  // all recorded, the trace not yet written
  std::filesystem::path path_;
  Clock::time_point step_begin_;
  std::vector<Span> spans_;      // of this step
  KernelTimestamps timestamps_;  // of this step
  std::vector<Step> steps_;      // for the trace
  std::map<std::shared_ptr<const PlanData>, PlanTimes> times_;
};

}  // namespace espalier
