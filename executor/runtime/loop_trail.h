// LoopTrail: which operation in the steps of a loop made a value that is not finite.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "espalier/core/nan_check.h"
#include "espalier/core/op.h"
#include "espalier/ops/loop/loop_program.h"

namespace espalier {

class LoopTrail {
 public:
  struct Origin {
    std::optional<size_t> input = {};             ///< it comes from this input of the loop; else:
    std::string text = {};                        ///< the operation or constant, its line, and its step
    bool made = false;                            ///< the operation made it
    bool of_finite = false;                       ///< and all its operands are finite
    std::shared_ptr<const Origin> infinity = {};  ///< of an infinite operand that a NaN was made of
  };

  /// Whether an op is a loop whose steps can be looked at.
  static bool can_follow(const Op& op);
  /// Runs a call of a loop once more, over outputs of its own, and notes what each value of each step is.
  LoopTrail(const Op& loop, const KernelCall& call);

  /// Where an output has its NaN or infinity from. Nothing, if the steps have not shown it.
  std::optional<Origin> origin_of(size_t output, Content wanted) const;

 private:
  struct Step {
    int64_t number;
    std::vector<Content> contents;
    std::map<const Node*, LoopTrail> loops;  ///< in this step, which have given NaN or infinity
  };
  void note(const LoopProgram& program, int64_t step);
  void note_loop(const LoopProgram& program, const Node& loop, Step& step) const;
  Content of(size_t step, const Edge& value) const;
  std::optional<size_t> input_of(const Node* node) const;
  /// The first step in which a value is so.
  std::optional<size_t> first_step(const Edge& value, Content wanted) const;
  std::optional<Origin> walk(size_t step, Edge value) const;
  Origin made_in(size_t step, const Node& node, Content wanted) const;
  std::optional<Origin> made_in_loop(size_t step, const Node& node, const Origin& inside) const;
  std::string place_of(size_t step) const;

  CallSite where_;
  const LoopBody* body_ = nullptr;  // null as long as no step has run
  std::vector<const Node*> nodes_;
  std::map<const Node*, size_t> position_;  // in the contents of a step
  std::vector<Step> steps_;
};

}  // namespace espalier
