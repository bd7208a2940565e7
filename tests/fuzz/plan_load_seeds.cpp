// Writes plan files of small nets, for the fuzzer to begin with: fuzz_plan_load_seeds <folder>.
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "espalier/core/deferred/batch.h"
#include "espalier/espalier.h"
#include "espalier/ops/recurrent/memory_cell.h"

using namespace espalier;

namespace {

struct Net {
  std::string name;
  Shape x;
  std::function<Variable(const Variable&)> outputs;
};

Variable weight(const Shape& shape) { return parameter(randn(shape), "w"); }
Variable indices(const std::vector<int64_t>& list) {
  return Variable(tensor_from(list, {static_cast<int64_t>(list.size())}));
}

/// Ops that a Deferred puts between batches.
Variable of_rows(const Variable& x) {
  const Variable more = weight({2, 3});
  const OpPtr op = stack_rows_op({{0, 1}, {1, 0}, {0, 0}, {1, 1}});
  const Variable* const sources[] = {&x, &more};
  const Variable rows = stack_rows(op, sources);
  return row_range(rows, 3, -1, 3) + row_of(rows, 1);
}
Variable of_cells(const Variable& x) {
  const MemoryCellForm form{.width = 2, .memories = 1, .blocks = {0, 1, 2, 3, 0, 1, 2, 3}};
  const Variable sums[] = {x, weight({8})}, memories[] = {weight({3, 2})};
  const MemoryStates states = memory_cell(form, sums, memories);
  return states.h + states.c;
}

std::vector<Net> all_nets() {
  std::vector<Net> all;
  const auto add = [&](const char* name, const Shape& x, std::function<Variable(const Variable&)> outputs) {
    all.push_back({name, x, std::move(outputs)});
  };
  add("mlp", {4, 3},
      nn::Sequential{nn::Dense(3, 5), nn::Relu(), nn::Dropout(0.3), nn::LayerNorm(), nn::Dense(2)});
  add("convolution", {2, 1, 6, 6},
      nn::Sequential{nn::Conv2d(2, {.kernel = 3}), nn::BatchNorm(), nn::MaxPool2d({.kernel = 2}),
                     nn::Flatten(), nn::Dense(2)});
  add("transposed", {1, 2, 3, 3}, [](const Variable& x) {
    return avg_pool(conv_transpose(x, weight({2, 1, 2, 2}), {.stride = 2}), {.kernel = 2, .padding = 1});
  });
  add("lstm", {3, 2, 4}, [net = nn::Lstm(4, 2)](const Variable& x) { return net(x).outputs; });
  add("gru", {3, 2, 4}, [net = nn::Gru(4, 2)](const Variable& x) { return net(x).outputs; });
  add("lengths", {3, 2, 4}, [net = nn::Lstm(4, 2)](const Variable& x) {
    return net(x, nn::Lengths(std::vector<int64_t>{3, 1})).outputs;
  });
  add("attention", {1, 2, 3, 4}, [](const Variable& x) {
    return scaled_dot_product_attention(x, x * weight({4}), x, {.mask = weight({3, 3}), .dropout = 0.2});
  });
  add("weights of attention", {1, 2, 3, 4}, [](const Variable& x) {
    const auto both = scaled_dot_product_attention_and_weights(x, x * weight({4}), x, {.causal = true});
    return sum(both.y) + sum(both.weights);
  });
  add("systems", {3, 3}, [](const Variable& x) {
    const Variable a = matmul(x + weight({3, 3}), transpose(x)) + Variable(eye(3)) * 9.0;
    return solve(a, weight({3, 2})) * det(a) + sum(cholesky(matmul(a, transpose(a))));
  });
  add("indices", {4, 3}, [](const Variable& x) {
    const Variable table = weight({5, 3}), rows = gather(table, indices({0, 4, 4, 1})) * x;
    return scatter_add(rows, indices({1, 0}), slice(rows, 0, 0, 2)) + slice(table, 0, 0, 4) +
           cumsum(concat({slice(x, 1, 1, 3), slice(rows, 1, 0, 1)}, 1), 0);
  });
  add("positions", {4, 4}, [](const Variable& x) {
    const Variable y = x * weight({4, 4});
    return sum(diagonal(y)) + sum(slice(y, 0, 0, 4, 3)) + sum(sort(y, 1).values) +
           pick(y, indices({0, 1, 2, 3})) + sum(pad(y, {{1, 1}}, {.mode = PadMode::reflect}));
  });
  add("regions", {1, 1, 4, 4}, [](const Variable& x) {
    const Variable boxes(full({1, 4}, 2.0)), images = indices({0});
    return roi_align(x * weight({4, 4}), boxes, images, {.size = 2}) +
           roi_align(x, boxes, images, {.size = 2, .largest = true}) +
           roi_pool(x, boxes, images, {.size = 2});
  });
  add("labels", {4, 2, 3}, [](const Variable& x) {
    return ctc_loss(log_softmax(x * weight({3}), -1), Variable(full({2, 1}, 1.0).to(int64)), indices({4, 3}),
                    indices({1, 1}));
  });
  add("loop", {4, 2, 3}, [](const Variable& x) {
    const Variable w = weight({3, 3});
    const ScanStep step = [w](const auto& h, const auto& in) -> ScanResult {
      const Variable next = tanh(matmul(h[0], w) + in[0]);
      return {{next}, {dropout(next, 0.3)}};
    };
    const ScanResult run = scan(step, {zeros({2, 3})}, {x}, {.segment = 2});
    return run.state[0] + sum(run.outputs[0], 0);
  });
  add("rows", {2, 3}, of_rows);
  add("cells", {3, 8}, of_cells);
  return all;
}

void write(const std::filesystem::path& folder, const Net& net) {
  const Variable x = placeholder("x", net.x), y = net.outputs(x);
  y.get_executor({.mode = Mode::inference}).save(folder / (net.name + " inference"));
  mean(square(y)).get_executor({.optimizer = optim::Adam(0.1)}).save(folder / (net.name + " training"));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "fuzz_plan_load_seeds <folder>\n";
    return 1;
  }
  std::filesystem::create_directories(argv[1]);
  seed(1);
  for (const Net& net : all_nets()) write(argv[1], net);
}
