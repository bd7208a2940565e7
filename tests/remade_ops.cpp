#include "remade_ops.h"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstring>

#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/core/op_registry.h"
#include "plan_ops.h"
#include "testing.h"

namespace espalier::testing {

namespace {

/// Ops that no tree has, only the graphs that passes make.
bool is_made_by_passes(std::string_view name) {
  constexpr std::string_view names[] = {"join",        "keep",          "shape",         "store",
                                        "write_state", "matmul_update", "rounded_matmul"};
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

/// The values of a graph, of which each node is computed by itself.
class Values {
 public:
  explicit Values(const Graph& graph) : graph_(graph), of_(graph.nodes.size()) {}

  std::vector<Tensor> run(const Op& op, uint32_t i) const {
    const GraphNode& n = graph_.nodes[i];
    KernelCall call;
    for (const ValueRef& input : n.inputs) call.inputs.push_back(&of_[input.node][input.output]);
    std::vector<Tensor> results;
    for (const Spec& spec : n.outputs) results.push_back(zeros(spec.shape, spec.dtype));
    for (Tensor& result : results) call.outputs.push_back(&result);
    call.random = {7, i};
    backend(cpu()).run(op, call);
    return results;
  }
  void set(uint32_t i, std::vector<Tensor> values) { of_[i] = std::move(values); }

 private:
  const Graph& graph_;
  std::vector<std::vector<Tensor>> of_;
};

bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (size_t k = 0; k < a.size(); ++k)
    if (std::memcmp(a[k].address(), b[k].address(), a[k].bytes()) != 0) return false;
  return a.size() == b.size();
}

/// What a node without a kernel shows: a leaf, a source, an assignment.
std::vector<Tensor> given(const GraphNode& n, uint32_t i) {
  if (n.is_constant()) return {n.constant->to(cpu())};
  if (n.leaf.defined()) return {n.leaf.value().to(cpu())};
  std::vector<Tensor> values;
  for (const Spec& spec : n.outputs)
    values.push_back(is_real(spec.dtype) ? numbers(spec.shape, 0.1, 0.9, i).to(spec.dtype)
                                         : zeros(spec.shape, spec.dtype));
  return values;
}

}  // namespace

std::vector<std::string> check_remade(const Graph& graph) {
  std::vector<std::string> refused;
  Values values(graph);
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) BOOST_TEST_CONTEXT(graph.nodes[i].op->name()) {
      const GraphNode& n = graph.nodes[i];
      const bool computes = !n.op->is_leaf() && !n.op->feed() && !n.op->has_side_effects();
      values.set(i, computes ? values.run(*n.op, i) : given(n, i));
      if (n.leaf.defined() || n.is_constant()) continue;  // a name of the user's, or none
      OpPtr again;
      try {
        again = make_op(n.op->name(), n.op->attributes());
      } catch (const UnsupportedError&) {
        refused.emplace_back(n.op->name());
        continue;
      }
      if (takes_inputs(n.op->name(), n.inputs.size())) check_listed(*n.op);
      // In a graph these have other inputs than in a tree.
      const bool other_inputs = n.op->name() == "in_train_phase" || n.op->name() == "with_assignment";
      if (!other_inputs && !n.op->feed() && !is_made_by_passes(n.op->name()))
        BOOST_TEST(takes_inputs(n.op->name(), n.inputs.size()),
                   "its registration names another number of inputs");
      BOOST_TEST(again->equals(*n.op));
      BOOST_TEST(n.op->equals(*again));
      BOOST_TEST(again->name() == n.op->name());
      BOOST_TEST((again->attributes() == n.op->attributes()));
      GraphNode other = n;
      other.op = again;
      BOOST_TEST((infer_outputs(graph, other) == n.outputs));
      if (computes) BOOST_TEST(same_bits(values.run(*again, i), values.run(*n.op, i)));
    }
  return refused;
}

}  // namespace espalier::testing
