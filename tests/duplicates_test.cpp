// What plans for GPUs compute again instead of storing it. Needs no GPU: graphs are run on the CPU.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <random>
#include <set>

#include "espalier/executor/fused/fused_op.h"
#include "espalier/executor/graph/views.h"
#include "espalier/executor/passes/duplicates.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// Calls a kernel of the CPU; one that takes no 16-bit operands computes in float32.
std::vector<esp::Tensor> call(const esp::Op& op, const std::vector<esp::Tensor>& inputs,
                              const esp::Specs& outputs) {
  const auto computed = [&](esp::DType dtype) {
    return !op.traits().takes_halves && esp::is_half(dtype) ? esp::float32 : dtype;
  };
  std::vector<esp::Tensor> operands, results;
  for (const esp::Tensor& in : inputs)
    operands.push_back(in.defined() ? in.to(computed(in.dtype())) : esp::Tensor());
  for (const esp::Spec& spec : outputs) results.emplace_back(spec.shape, computed(spec.dtype));
  esp::KernelCall kernel;
  for (const esp::Tensor& in : operands) kernel.inputs.push_back(&in);
  for (esp::Tensor& out : results) kernel.outputs.push_back(&out);
  op.run_cpu(kernel);
  for (size_t k = 0; k < outputs.size(); ++k) results[k] = results[k].to(outputs[k].dtype);
  return results;
}

/// The outputs of a program, by one kernel for each instruction.
std::vector<esp::Tensor> interpret(const esp::Program& program, const std::vector<esp::Tensor>& inputs) {
  const int64_t row = program.row ? program.row : program.elements, rows = program.elements / row;
  std::vector<esp::Tensor> values;
  for (const esp::Instruction& n : program.instructions) {
    const bool maps = n.kind == esp::Instruction::Kind::map;
    std::vector<esp::Tensor> operands;
    for (const esp::Argument& argument : n.arguments) {
      esp::Tensor t;
      if (argument.from == esp::Argument::From::constant) {
        const auto& constant = program.constants[argument.index];
        t = esp::full({1, 1}, constant.value, constant.dtype);
      } else if (argument.from == esp::Argument::From::value) {
        t = values[argument.index];
      } else {
        const esp::Tensor& in = inputs[argument.index];
        t = in.elements() == 1
                ? in
                : esp::Tensor(in.storage(), esp::broadcast_layout(in.layout(), n.shape), in.dtype())
                      .contiguous_copy();
      }
      const int64_t elements = t.elements();
      if (!maps)
        t = t.reshape(n.shape);
      else
        t = t.reshape(elements == program.elements ? esp::Shape{rows, row}
                      : elements == 1              ? esp::Shape{1, 1}
                                                   : esp::Shape{rows, elements / rows});
      operands.push_back(t);
    }
    esp::Shape out = n.shape;
    if (maps) {
      out = {1, 1};
      for (const esp::Tensor& t : operands)
        for (size_t axis = 0; axis < 2; ++axis)
          out.dims()[axis] = std::max(out.dims()[axis], t.shape().dims()[axis]);
    } else if (n.kind != esp::Instruction::Kind::whole_row) {
      out = {n.kind == esp::Instruction::Kind::fold_row   ? rows
             : n.kind == esp::Instruction::Kind::fold_all ? 1
                                                          : n.period};
      const esp::Fold fold = n.fold;
      const Variable x = operands[0].reshape(
          n.kind == esp::Instruction::Kind::fold_row   ? esp::Shape{rows, row}
          : n.kind == esp::Instruction::Kind::fold_all ? esp::Shape{1, program.elements}
                                                       : esp::Shape{program.elements / n.period, n.period});
      const int64_t axis = n.kind == esp::Instruction::Kind::fold_column ? 0 : 1;
      values.push_back((fold == esp::Fold::sum    ? esp::sum(x, axis)
                        : fold == esp::Fold::mean ? esp::mean(x, axis)
                        : fold == esp::Fold::max  ? esp::max(x, axis)
                                                  : esp::min(x, axis))
                           .value());
      continue;
    }
    values.push_back(call(*n.op, operands, {{n.dtype, out}})[0]);
  }
  std::vector<esp::Tensor> outputs;
  for (const uint32_t output : program.outputs) outputs.push_back(values[output]);
  return outputs;
}

/// The results of a graph, by one kernel for each op, of fused ones, too.
std::vector<esp::Tensor> run(const esp::Graph& graph) {
  std::vector<std::vector<esp::Tensor>> values(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const esp::GraphNode& n = graph.nodes[i];
    std::vector<esp::Tensor> inputs;
    for (const esp::ValueRef& input : n.inputs) inputs.push_back(values[input.node][input.output]);
    const auto view = n.op->is_view() ? n.op->view(inputs[0].layout(), n.outputs[0]) : std::nullopt;
    if (n.is_constant()) {
      values[i] = {*n.constant};
    } else if (n.op->is_leaf()) {
      // What stands for a shape has no value.
      values[i] = {n.leaf.defined() ? n.leaf.value() : esp::Tensor(n.outputs[0].shape, n.outputs[0].dtype)};
    } else if (view) {
      values[i] = {esp::Tensor(inputs[0].storage(), *view, inputs[0].dtype())};
    } else if (const auto* fused = dynamic_cast<const esp::FusedOp*>(n.op.get())) {
      values[i] = interpret(fused->program(), inputs);
      for (size_t k = 0; k < n.outputs.size(); ++k) values[i][k] = values[i][k].reshape(n.outputs[k].shape);
    } else {
      values[i] = call(*n.op, inputs, n.outputs);
    }
  }
  std::vector<esp::Tensor> results;
  for (const esp::ValueRef& result : graph.results) results.push_back(values[result.node][result.output]);
  return results;
}

esp::Graph frozen(const std::vector<Variable>& results) {
  esp::Graph graph = esp::freeze(results, {}, {}, false);
  graph.device = esp::DeviceType::cuda;
  esp::simplify(graph);
  esp::common_subexpressions(graph);
  return graph;
}

esp::Tensor leaf_values(const esp::Shape& shape, uint64_t which) {
  return numbers(shape, -1, 1, which).to(esp::float32);
}

/// A loss behind batch normalizations with a residual around one of them, and the gradients of its leaves.
std::vector<Variable> normalized_step(const esp::Shape& shape, esp::DType dtype, bool channels_last) {
  const size_t channel = channels_last ? shape.rank() - 1 : 1;
  const Variable x = esp::parameter(leaf_values(shape, 1).to(dtype), "x");
  std::vector<Variable> leaves{x};
  esp::Dims others, ones(shape.rank(), 1);
  for (size_t i = 0; i < shape.rank(); ++i)
    if (i != channel) others.push_back(static_cast<int64_t>(i));
  ones[channel] = shape.dims()[channel];
  const auto norm = [&](const Variable& given) {
    const Variable wide = esp::cast(given, esp::float32),
                   centered = wide - esp::mean(wide, esp::Axes(others), true);
    const Variable variance = esp::mean(esp::square(centered), esp::Axes(others), true);
    for (const uint64_t which : {2, 3})
      leaves.push_back(esp::parameter(leaf_values({ones[channel]}, which + leaves.size())));
    const auto along = [&](const Variable& v) { return esp::reshape(v, esp::Shape(ones)); };
    return centered * (along(leaves[leaves.size() - 2]) / esp::sqrt(variance + 1e-5)) + along(leaves.back());
  };
  // tanh and products with numbers stand for convolutions: they end what is cheap.
  const auto stored = [&](const Variable& v) { return esp::cast(esp::tanh(v * 1.5), dtype); };
  const Variable h = stored(esp::relu(norm(stored(x)))), y = esp::relu(norm(h) + esp::cast(x, esp::float32));
  const Variable loss = esp::sum(esp::square(esp::tanh(y)));
  std::vector<Variable> results{loss};
  for (const Variable& leaf : leaves) results.push_back(loss.gradient(leaf));
  return results;
}

/// Bytes of the large outputs of kernels, and of the large operands that they read.
int64_t bytes_moved(const esp::Graph& graph, int64_t large) {
  const esp::Views views(graph);
  int64_t bytes = 0;
  for (const esp::GraphNode& n : graph.nodes) {
    if (n.op->is_view() || n.op->is_leaf()) continue;
    for (const esp::Spec& out : n.outputs)
      if (out.shape.elements() >= large) bytes += out.bytes();
    for (size_t k = 0; k < n.inputs.size(); ++k)
      if (const esp::Spec& in = graph.spec(views.value_of(n.inputs[k]));
          n.op->reads_elements(k) && in.shape.elements() >= large)
        bytes += in.bytes();
  }
  return bytes;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(duplicates)

BOOST_AUTO_TEST_CASE(parts_of_a_batch_normalization_store_nothing_for_each_other) {
  for (const auto& [dtype, channels_last, most] :
       {std::tuple{esp::bfloat16, true, 0.65}, {esp::float32, true, 0.8}, {esp::float32, false, 0.65}}) {
    const esp::Shape shape = channels_last ? esp::Shape{8, 16, 16, 64} : esp::Shape{8, 64, 16, 16};
    const std::vector<Variable> results = normalized_step(shape, dtype, channels_last);
    BOOST_TEST_CONTEXT(esp::name(dtype) << (channels_last ? ", channels last" : "")) {
      esp::Graph before = frozen(results), after = frozen(results);
      const std::vector<esp::Tensor> expected = run(before);
      before.device = esp::DeviceType::cpu;
      BOOST_TEST(!esp::split_reductions(before));
      BOOST_TEST(esp::split_reductions(after) == !channels_last);
      BOOST_TEST(!esp::split_reductions(after));
      esp::fuse_pointwise(before);
      esp::fuse_pointwise(after);
      esp::verify(after, "fuse_pointwise");
      const std::vector<esp::Tensor> values = run(after);
      for (size_t i = 0; i < values.size(); ++i)
        BOOST_TEST(difference(values[i], expected[i]) < 1e-3, "result " << i);
      const int64_t large = shape.elements(), now = bytes_moved(after, large),
                    then = bytes_moved(before, large);
      BOOST_TEST(static_cast<double>(now) < most * static_cast<double>(then), now << " of " << then << "\n"
                                                                                  << after.str());
    }
  }
}

/// A sum of 16-bit values that only the gradient reads again: keeping these for it takes as many bytes as the
/// sum of two of them, and more than that of three, although fewer would be moved.
/// Storing a value and reading it again moves it twice.
BOOST_AUTO_TEST_CASE(what_is_made_of_more_than_it_takes_to_store_is_stored) {
  const esp::Shape shape{256, 1024};
  for (const uint64_t sources : {1, 3}) BOOST_TEST_CONTEXT(sources << " sources") {
      Variable x = esp::parameter(leaf_values(shape, 0)) * 2.0;
      for (uint64_t i = 1; i < sources; ++i) x = x + esp::parameter(leaf_values(shape, i));
      esp::Graph graph = frozen({x - esp::mean(x)});
      const std::vector<esp::Tensor> expected = run(graph);
      esp::fuse_pointwise(graph);
      esp::verify(graph, "fuse_pointwise");
      BOOST_TEST(difference(run(graph)[0], expected[0]) < 1e-4);
      // The sources, for one of them once more; the result, and otherwise what is stored.
      BOOST_TEST(bytes_moved(graph, shape.elements()) == (sources == 1 ? 3 : 6) * 4 * shape.elements());
    }
}

BOOST_AUTO_TEST_CASE(no_more_is_kept_for_the_gradient) {
  // How many sums are computed again, of sums of so many terms.
  const auto copied = [](const std::vector<size_t>& counts) {
    const esp::Shape shape{32, 64};
    std::vector<Variable> sums, leaves, results{esp::zeros({})};
    for (uint64_t i = 0; i < 3; ++i) {
      const Variable leaf = esp::variable(leaf_values(shape, i).to(esp::bfloat16));
      const Variable term = esp::cast(esp::stop_gradient(esp::flip(leaf, 0)), esp::float32);
      sums.push_back(i ? sums.back() + term : term);
    }
    for (const size_t count : counts) {
      leaves.push_back(esp::parameter(leaf_values(shape, 9 + count), "w"));
      results[0] = results[0] + esp::square(esp::sum(esp::tanh(sums[count - 1] * leaves.back())));
    }
    for (const Variable& leaf : leaves) results.push_back(results[0].gradient(leaf));
    const esp::Graph graph = frozen(results);
    esp::Clustering clustering(graph);
    clustering.join();
    std::set<uint32_t> copies;
    for (const auto& nodes : esp::find_duplicates(graph, clustering))
      for (const uint32_t i : nodes)
        if (graph.nodes[i].op->name() == "add") copies.insert(i);
    return copies.size();
  };
  BOOST_TEST(copied({2}) == 1u);
  BOOST_TEST(copied({3}) == 0u);
  BOOST_TEST(copied({2, 3}) == 2u);  // what the first sum keeps is there for the second one
}

BOOST_AUTO_TEST_CASE(random_trees_compute_the_same) {
  size_t changed = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const esp::Shape shape{4, 6, 40};
    std::vector<Variable> values;
    for (uint64_t i = 0; i < 3; ++i) values.push_back(esp::parameter(leaf_values(shape, seed * 8 + i)));
    const Variable row = esp::parameter(leaf_values({40}, seed)),
                   column = esp::parameter(leaf_values({6, 1}, seed));
    const auto pick = [&] {
      return values[values.size() - 1 - random() % std::min<size_t>(values.size(), 4)];
    };
    for (int step = 0; step < 14; ++step) {
      const Variable x = pick(), y = pick();
      switch (random() % 9) {
        case 0: values.push_back(x * y); break;
        case 1: values.push_back(esp::relu(x - row)); break;
        case 2: values.push_back(x + column * 0.5); break;
        case 3: values.push_back(esp::square(x) * 0.5); break;
        case 4: values.push_back(x - esp::mean(y, {0, 1}, true)); break;
        case 5: values.push_back(x - esp::mean(x, {2}, true)); break;
        case 6: values.push_back(esp::softmax(x)); break;
        case 7: values.push_back(esp::cast(esp::cast(x, esp::bfloat16), esp::float32) + y); break;
        default:
          values.push_back(esp::transpose(esp::reshape(esp::transpose(x, {1, 0, 2}), {6, 4, 40}), {1, 0, 2}));
      }
    }
    const Variable loss =
        esp::sum(esp::tanh(values.back())) + esp::sum(esp::tanh(pick()) * 0.5) +
        (esp::sum(values[0]) + esp::sum(values[1]) + esp::sum(values[2]) + esp::sum(row) + esp::sum(column)) *
            0.25;
    std::vector<Variable> results{loss, values[values.size() - 2]};
    for (const Variable& leaf : {values[0], values[1], values[2], row, column})
      results.push_back(loss.gradient(leaf));
    esp::Graph before = frozen(results), after = frozen(results);
    const std::vector<esp::Tensor> expected = run(before);
    esp::Clustering clustering(before);
    clustering.join();
    const esp::Duplicates copies = esp::find_duplicates(before, clustering);
    changed += std::ranges::any_of(copies, [](const auto& nodes) { return !nodes.empty(); });
    BOOST_TEST_CONTEXT("seed " << seed) {
      esp::fuse_pointwise(after);
      esp::verify(after, "fuse_pointwise");
      const std::vector<esp::Tensor> got = run(after);
      for (size_t i = 0; i < got.size(); ++i)
        BOOST_TEST(difference(got[i], expected[i]) < 1e-4, "result " << i);
    }
  }
  BOOST_TEST(changed > 20u);
}

BOOST_AUTO_TEST_CASE(sums_are_split_where_rows_are_long_enough) {
  const auto sums = [](const esp::Shape& shape, const esp::Axes& axes, esp::DType dtype = esp::float32) {
    esp::Graph graph = frozen({esp::sum(esp::parameter(leaf_values(shape, 1).to(dtype)), axes)});
    const std::vector<esp::Tensor> expected = run(graph);
    const bool changed = esp::split_reductions(graph);
    if (changed) BOOST_TEST(difference(run(graph)[0], expected[0]) < 1e-3);
    return changed;
  };
  BOOST_TEST(sums({4, 8, 32, 32}, {0, 2, 3}));
  BOOST_TEST(sums({4, 8, 32, 32}, {0, 3}));
  BOOST_TEST(sums({2, 2, 90, 100}, {0, 2, 3}));  // a row of the last axis alone: both are longer than a tile
  BOOST_TEST(!sums({4, 8, 32, 32}, {2, 3}));     // rows
  BOOST_TEST(!sums({4, 8, 32, 32}, {0, 1}));     // columns
  BOOST_TEST(!sums({4, 8, 32, 32}, {0, 1, 2, 3}));
  BOOST_TEST(!sums({4, 8, 32, 32}, {0, 2}));
  BOOST_TEST(!sums({64, 64, 3, 3}, {0, 2, 3}));
  BOOST_TEST(!sums({2, 2, 8, 8}, {0, 2, 3}));
  BOOST_TEST(!sums({4, 8, 32, 32}, {0, 2, 3}, esp::float16));
  esp::Graph graph = frozen({esp::sum(esp::parameter(leaf_values({4, 8, 32, 32}, 1)), {0, 2, 3})});
  graph.device = esp::DeviceType::cpu;
  BOOST_TEST(!esp::split_reductions(graph));
}

BOOST_AUTO_TEST_SUITE_END()
