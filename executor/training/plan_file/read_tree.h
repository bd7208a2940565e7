// The tree of a plan file, made again node by node.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <source_location>
#include <vector>

#include "espalier/core/node.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/training/plan_file/plan_file.h"
#include "espalier/executor/training/plan_file/text.h"
#include "espalier/ops/loop/loop_body.h"

namespace espalier {

/// The feeds of a tree that is made again.
class LoadedFeeds {
 public:
  LoadedFeeds(const PlanText& in, const std::vector<SavedFeed>& saved,
              const std::vector<data::Distributor>& data);

  /// A node of its own for each place in the tree, so that its age is that of the saved one.
  Variable source(int64_t feed, int64_t output, const std::source_location& where) const;

 private:
  const PlanText& in_;
  std::vector<std::vector<Variable>> feeds_;
};

/// The tensors of a file, each of which belongs to one leaf or to the run.
class ListedTensors {
 public:
  ListedTensors(const PlanText& in, const std::vector<Tensor>& tensors)
      : in_(in), tensors_(tensors), taken_(tensors.size()) {}

  const Tensor& take(const nlohmann::json& number);
  /// The constant of a tensor: one leaf, wherever the tree and the steps of its loops read it.
  Variable constant(const nlohmann::json& number, const std::source_location& where);

 private:
  size_t index(const nlohmann::json& number) const;

  const PlanText& in_;
  const std::vector<Tensor>& tensors_;
  std::vector<bool> taken_;
  std::map<size_t, Variable> constants_;
};

/// Makes the nodes of a file, one after the other. Each reads only nodes before it.
class TreeReader {
 public:
  TreeReader(const PlanText& in, ListedTensors& tensors, const LoadedFeeds& feeds,
             const std::source_location& where)
      : in_(in), tensors_(tensors), feeds_(&feeds), where_(where) {}

  /// The steps of loops, which are trees over operands. Each runs only loops before it.
  void read_loops(const nlohmann::json& loops);
  void read(const nlohmann::json& nodes);

  /// An output of a node, for one that reads it or as a result of the tree.
  Variable value(const nlohmann::json& node, const nlohmann::json& output) const;
  Variable value(const nlohmann::json& pair) const;
  /// An assignment of the step.
  Variable update(const nlohmann::json& pair) const;

 private:
  /// Of the step of a loop.
  TreeReader(const TreeReader& tree, std::vector<Variable> operands)
      : in_(tree.in_),
        tensors_(tree.tensors_),
        feeds_(nullptr),
        where_(tree.where_),
        loops_(tree.loops_),
        made_(std::move(operands)) {}

  LoopBodyPtr loop_before(const nlohmann::json& number) const;
  LoopBodyPtr loop(const nlohmann::json& text) const;
  Variable make(const nlohmann::json& node) const;
  Variable leaf(const nlohmann::json& node) const;
  Variable applied(const nlohmann::json& node) const;
  OpPtr op_of(const nlohmann::json& node, const std::string& name, size_t inputs) const;
  OpPtr find_custom(const std::string& name) const;
  OpPtr find_loop(const nlohmann::json& node, const std::string& name) const;
  void check_assignment(const Op& op, const std::vector<Variable>& inputs) const;

  const PlanText& in_;
  ListedTensors& tensors_;
  const LoadedFeeds* feeds_;  // null in the step of a loop
  const CallSite where_;
  std::shared_ptr<std::vector<LoopBodyPtr>> loops_ = std::make_shared<std::vector<LoopBodyPtr>>();
  std::vector<Variable> made_;
};

}  // namespace espalier
