// Plan: what get_executor made of a tree, to read.
#pragma once
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "espalier/executor/cost/cost_model.h"
#include "espalier/executor/plan/pass_report.h"

namespace espalier {

class Plan {
 public:
  explicit Plan(std::shared_ptr<const PlanData> data) : data_(std::move(data)) {}
  Plan(const Plan&) = default;  // and no moves: what is moved from stays valid
  Plan& operator=(const Plan&) = default;

  /// Kernels called in a step.
  int64_t steps() const;
  /// The arena that holds all intermediate values, the batch and the workspaces of kernels.
  int64_t arena_bytes() const;
  /// The most bytes in use at once: no arena can be smaller.
  int64_t largest_live_bytes() const;
  /// Parameters and optimizer states, of these only what one replica has if they are shared out.
  int64_t leaf_bytes() const;
  const std::vector<PassReport>& passes() const;

  /// What a step would cost on such a machine, on as many replicas as the plan was made for. Throws Error for
  /// inputs that make no sense, and if the network has no place for so many.
  Prediction predict(const CostInputs& inputs = presets::h100_nvlink()) const;
  /// The same on 1, 2, 4, … replicas, as far as `up_to`; in strong scaling only as long as each has a row.
  /// Throws Error too if the plan was made for one device: then nothing says what replicas would exchange.
  std::vector<Prediction> scaling(const CostInputs& inputs = presets::h100_nvlink(),
                                  Scaling how = Scaling::weak, int64_t up_to = 4096) const;

  /// Passes, steps with their buffers and source lines, memory.
  std::string str() const;
  /// The same graph for Graphviz.
  std::string dot() const;
  /// Writes a page of HTML, complete in one file, with the graph, steps, memory and passes, and for replicas
  /// what a step would cost on how many. Executor::report adds measured times. Throws FileError.
  void report(const std::filesystem::path& html,
              std::source_location where = std::source_location::current()) const;

 private:
  std::shared_ptr<const PlanData> data_;
};

std::ostream& operator<<(std::ostream& out, const Plan& plan);

}  // namespace espalier
