// NanFinder: which kernel of a step made the first value that is not finite.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "espalier/core/function_ref.h"
#include "espalier/executor/plan/plan_data.h"
#include "espalier/executor/runtime/loop_trail.h"

namespace espalier {

/// Reads the outputs of each kernel behind it, before others write over them. If a step yields NaN or
/// infinity, it goes back from there through operands that have them, to the kernel whose operands have none.
/// A NaN that is made of infinities was made by the kernel that has no NaN among its operands; which kernel
/// made the infinity is told as well. A loop that gives such values is run once more, and gone through step
/// by step. Infinities that no result comes from, such as those of a mask, are no fault.
class NanFinder {
 public:
  /// `values` are the tensors of all nodes, and `written` the memory of the leaves that a step writes.
  NanFinder(const PlanData& plan, const std::vector<SmallVector<Tensor, 1>>& values,
            std::vector<Tensor> written);

  /// Calls `kernels`, which runs the step and calls `before` and `after` for each node that has a kernel. If
  /// that throws, or a result is not finite, the written leaves have their values from before. Throws
  /// NumericError.
  void run(FunctionRef<void()> kernels);
  void before(uint32_t node) const;
  void after(uint32_t node);

 private:
  static const char* text_of(Content content);
  /// The value that another is a view of, or that is assigned to it; itself, if it is neither.
  ValueRef source_of(ValueRef value) const;
  Content of(ValueRef value) const {
    const ValueRef source = source_of(value);
    return contents_[source.node][source.output];
  }
  void begin();
  void check_results() const;
  /// The value from which the NaN or infinity in `value` comes.
  ValueRef origin_of(ValueRef value) const;
  /// The same in the steps of a loop that has made a value. Nothing for other nodes.
  std::optional<LoopTrail::Origin> origin_in_loop(ValueRef value) const;
  std::string describe(ValueRef origin) const;
  std::string describe(const LoopTrail::Origin& origin, const GraphNode& loop) const;
  /// Where the infinity comes from, if the value of that origin is a NaN made of one; else empty.
  std::string infinity_behind(ValueRef origin) const;
  [[noreturn]] void fail(const std::string& what, ValueRef value) const;

  const PlanData& plan_;
  const std::vector<SmallVector<Tensor, 1>>& values_;
  std::vector<Tensor> written_, before_;
  std::vector<std::vector<Content>> contents_;
  std::map<uint32_t, LoopTrail>
      loops_;  // of this step, by their nodes: those that have not given numbers alone
};

}  // namespace espalier
