// Recurrent networks: as one op over all steps where Espalier has their cell, else unrolled.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "espalier/nn/onnx/translate.h"
#include "espalier/ops/recurrent/recurrence.h"
#include "espalier/ops/recurrent/sequence_checks.h"

namespace espalier::onnx {

namespace {

using Activation = std::function<Variable(const Variable&)>;

Activation activation_named(const FileNode& node, const std::string& name, std::optional<double> alpha,
                            std::optional<double> beta) {
  if (name == "Tanh") return [](const Variable& x) { return tanh(x); };
  if (name == "Sigmoid") return [](const Variable& x) { return sigmoid(x); };
  if (name == "Relu") return [](const Variable& x) { return relu(x); };
  if (name == "Softsign") return [](const Variable& x) { return softsign(x); };
  if (name == "Softplus") return [](const Variable& x) { return softplus(x); };
  if (name == "LeakyRelu") return [a = alpha.value_or(0.01)](const Variable& x) { return leaky_relu(x, a); };
  if (name == "ThresholdedRelu")
    return [a = alpha.value_or(1)](const Variable& x) { return threshold(x, a, 0); };
  if (name == "Elu") return [a = alpha.value_or(1)](const Variable& x) { return elu(x, a); };
  if (name == "HardSigmoid")
    return [a = alpha.value_or(0.2), b = beta.value_or(0.5)](const Variable& x) {
      return clamp(x * a + b, 0, 1);
    };
  if (name == "Affine")
    return [a = alpha.value_or(1), b = beta.value_or(0)](const Variable& x) { return x * a + b; };
  if (name == "ScaledTanh")
    return [a = alpha.value_or(1), b = beta.value_or(1)](const Variable& x) { return tanh(x * b) * a; };
  node.refuse(fmt::format("the activation '{}' is not supported", name));
}

/// What the three kinds of networks share.
struct Network {
  int64_t gates = 0, hidden = 0, directions = 1;
  std::string direction;
  bool batch_first = false;
  std::optional<double> clip;
  std::vector<std::string> names;  ///< of the activations, direction by direction
  std::vector<Activation> activations;
  Variable x;  ///< [steps, batch, in]

  bool backwards(int64_t d) const { return direction == "reverse" || d == 1; }
};

Network network_of(FileNode& node, int64_t gates, const std::vector<std::string>& defaults) {
  Network net;
  net.gates = gates;
  net.batch_first = node.integer("layout", 0) != 0;
  net.direction = node.text("direction", "forward");
  if (net.direction != "forward" && net.direction != "reverse" && net.direction != "bidirectional")
    node.fail(fmt::format("there is no direction '{}'", net.direction));
  net.directions = net.direction == "bidirectional" ? 2 : 1;
  if (node.has("clip")) net.clip = node.real("clip", 0);
  net.x = net.batch_first ? swapaxes(node[0], 0, 1) : node[0];
  if (net.x.rank() != 3 || node[1].rank() != 3 || node[2].rank() != 3)
    node.fail("its input and weights have other axes");
  net.hidden = node[2].shape()[2];
  if (node.integer("hidden_size", net.hidden) != net.hidden || node[1].shape()[0] != net.directions ||
      node[1].shape()[1] != gates * net.hidden || node[2].shape()[1] != gates * net.hidden)
    node.fail(fmt::format("its weights {} and {} are not those of its hidden_size and direction",
                          node[1].shape().str(), node[2].shape().str()));
  std::vector<std::string>& names = net.names;
  names = node.texts("activations");
  if (names.empty())
    for (int64_t d = 0; d < net.directions; ++d) names.insert(names.end(), defaults.begin(), defaults.end());
  if (names.size() != defaults.size() * static_cast<size_t>(net.directions))
    node.fail("it names another number of activations");
  const std::vector<double> alphas = node.reals("activation_alpha"), betas = node.reals("activation_beta");
  size_t alpha = 0, beta = 0;  // the lists have numbers for those activations that take them
  for (const std::string& name : names) {
    const bool has_beta = name == "HardSigmoid" || name == "Affine" || name == "ScaledTanh";
    const bool has_alpha = has_beta || name == "LeakyRelu" || name == "ThresholdedRelu" || name == "Elu";
    const auto next = [](const std::vector<double>& list, size_t& at, bool wanted) {
      return wanted && at < list.size() ? std::optional(list[at++]) : std::nullopt;
    };
    const auto a = next(alphas, alpha, has_alpha), b = next(betas, beta, has_beta);
    net.activations.push_back(activation_named(node, name, a, b));
  }
  return net;
}

Variable at(const Variable& x, int64_t i) { return squeeze(slice(x, 0, i, i + 1), 0); }
/// Part `i` of the last axis, of that width.
Variable part(const Variable& x, int64_t i, int64_t width) {
  return slice(x, -1, i * width, (i + 1) * width);
}

/// The initial state of a direction: that of the file, or zeros for each row of the batch.
Variable initial_state(FileNode& node, const Network& net, size_t input, int64_t d) {
  if (node.has(input)) return at(net.batch_first ? swapaxes(node[input], 0, 1) : node[input], d);
  const Variable row = zeros_like(slice(at(net.x, 0), -1, 0, 1));  // [batch, 1]
  node.check_constant({1, net.hidden}, net.x.dtype());
  return row + Variable(zeros({1, net.hidden}, net.x.dtype()));
}

/// x · Wᵀ of all steps, and the bias of the input: [steps, batch, gates · hidden].
Variable input_products(FileNode& node, const Network& net, int64_t d) {
  const Variable y = matmul(net.x, transpose(at(node[1], d)));
  return node.has(3) ? y + slice(at(node[3], d), 0, 0, net.gates * net.hidden) : y;
}

struct States {
  Variable h, c;
};

/// [steps, directions, batch, hidden] and [directions, batch, hidden] of what each direction made.
Outputs joined(const Network& net, const std::vector<Variable>& sequences,
               const std::vector<Variable>& last_h, const std::vector<Variable>& last_c) {
  const Variable y = stack(sequences, 1), h = stack(last_h, 0),
                 c = last_c.empty() ? Variable() : stack(last_c, 0);
  if (!net.batch_first) return {y, h, c};
  return {permute(y, {2, 0, 1, 3}), swapaxes(h, 0, 1), c.defined() ? swapaxes(c, 0, 1) : c};
}

/// Rows of weights or of a bias in the order of `gates_of`: an LSTM of a file has i, o, f, c, a GRU z, r, h.
Variable in_order(const Network& net, const Variable& rows, RecurrentCell cell) {
  if (gates_of(cell) == 1) return rows;
  const std::vector<int64_t> order =
      cell == RecurrentCell::lstm ? std::vector<int64_t>{0, 2, 3, 1} : std::vector<int64_t>{1, 0, 2};
  std::vector<Variable> parts;
  for (const int64_t i : order) parts.push_back(slice(rows, 0, i * net.hidden, (i + 1) * net.hidden));
  return concat(parts, 0);
}

/// All directions as recurrences of these cells, over any number of steps.
Outputs over_steps(FileNode& node, const Network& net, const std::vector<RecurrentCell>& cells) {
  const Variable x = checked_steps(net.x, node.type());
  const Variable lengths = node.has(4) ? checked_lengths(node[4], x, node.type()) : Variable();
  const int64_t rows = net.gates * net.hidden;
  std::vector<Variable> sequences, last_h, last_c;
  for (int64_t d = 0; d < net.directions; ++d) {
    const RecurrentCell cell = cells[static_cast<size_t>(d)];
    const auto weights = [&](size_t input) { return in_order(net, at(node[input], d), cell); };
    RecurrenceInputs in{matmul(x, transpose(weights(1))), weights(2), {}};
    if (node.has(3)) {
      in.bias_ih = in_order(net, slice(at(node[3], d), 0, 0, rows), cell);
      in.bias_hh = in_order(net, slice(at(node[3], d), 0, rows, open_end), cell);
    }
    const auto state = [&](size_t input) {
      if (node.has(input)) return initial_state(node, net, input, d);
      return zeros_like(slice(at(in.x, 0), 1, 0, net.hidden));
    };
    in.h = state(5);
    if (cell == RecurrentCell::lstm) in.c = state(6);
    in.lengths = lengths;
    const RecurrenceOutputs made = recurrence(in, {cell, net.backwards(d)});
    sequences.push_back(made.h);
    last_h.push_back(made.last_h);
    if (made.last_c.defined()) last_c.push_back(made.last_c);
  }
  return joined(net, sequences, last_h, last_c);
}

/// Whether all activations have these names, in each direction, and nothing is clipped.
bool has_activations(const Network& net, const std::vector<std::string>& names) {
  for (size_t i = 0; i < net.names.size(); ++i)
    if (net.names[i] != names[i % names.size()]) return false;
  return !net.clip;
}

/// Unrolls all directions: `step` makes the next state of the products of a step and the state before it.
template <class Step>
Outputs unrolled(FileNode& node, const Network& net, bool cells, Step&& step) {
  if (is_open_axis(net.x, 0))
    node.refuse(
        "its axis of time is open, and it has settings that Espalier's layers do not have; give that axis "
        "a size (LoadOptions::sizes)");
  const int64_t count = net.x.shape()[0];
  if (count < 1) node.fail("it has no steps");
  node.check_steps(count);
  const Variable lengths = node.has(4) ? unsqueeze(cast(node[4], int64), 1) : Variable();
  std::vector<Variable> sequences, last_h, last_c;
  for (int64_t d = 0; d < net.directions; ++d) {
    States state{initial_state(node, net, 5, d), cells ? initial_state(node, net, 6, d) : Variable()};
    const Variable inputs = input_products(node, net, d), recurrent = transpose(at(node[2], d));
    const Variable bias =
        node.has(3) ? slice(at(node[3], d), 0, net.gates * net.hidden, open_end) : Variable();
    std::vector<Variable> steps(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t t = net.backwards(d) ? count - 1 - i : i;
      States next = step(at(inputs, t), state, recurrent, bias, d);
      Variable shown = next.h;
      if (lengths.defined()) {  // behind the end of a sequence its state stays, and the output is 0
        const Variable inside = greater(lengths, t);
        shown = where(inside, next.h, zeros_like(next.h));
        next.h = where(inside, next.h, state.h);
        if (cells) next.c = where(inside, next.c, state.c);
      }
      steps[static_cast<size_t>(t)] = shown;
      state = next;
    }
    sequences.push_back(stack(steps, 0));
    last_h.push_back(state.h);
    if (cells) last_c.push_back(state.c);
  }
  return joined(net, sequences, last_h, last_c);
}

Variable clipped(const Network& net, const Variable& x) {
  return net.clip ? clamp(x, -*net.clip, *net.clip) : x;
}

Outputs simple(FileNode& node) {
  const Network net = network_of(node, 1, {"Tanh"});
  std::vector<RecurrentCell> cells;
  for (const std::string& name : net.names)
    if (!net.clip && (name == "Tanh" || name == "Relu"))
      cells.push_back(name == "Tanh" ? RecurrentCell::tanh : RecurrentCell::relu);
  if (cells.size() == net.names.size()) return over_steps(node, net, cells);
  return unrolled(
      node, net, false,
      [&](const Variable& x, const States& s, const Variable& r, const Variable& bias, int64_t d) {
        Variable y = x + matmul(s.h, r);
        if (bias.defined()) y = y + bias;
        return States{net.activations[static_cast<size_t>(d)](clipped(net, y)), {}};
      });
}

/// Gates in the order i, o, f, c; peepholes in the order i, o, f. Hochreiter and Schmidhuber, Long short-term
/// memory, 1997.
Outputs long_memory(FileNode& node) {
  const Network net = network_of(node, 4, {"Sigmoid", "Tanh", "Tanh"});
  const bool coupled = node.integer("input_forget", 0) != 0;
  if (!coupled && !node.has(7) && has_activations(net, {"Sigmoid", "Tanh", "Tanh"}))
    return over_steps(node, net, {RecurrentCell::lstm, RecurrentCell::lstm});
  return unrolled(
      node, net, true,
      [&](const Variable& x, const States& s, const Variable& r, const Variable& bias, int64_t d) {
        const Activation* f = &net.activations[static_cast<size_t>(3 * d)];
        Variable gates = x + matmul(s.h, r);
        if (bias.defined()) gates = gates + bias;
        const auto gate = [&](int64_t i) { return part(gates, i, net.hidden); };
        const auto peephole = [&](int64_t i, const Variable& c) {
          return node.has(7) ? part(at(node[7], d), i, net.hidden) * c : zeros_like(c);
        };
        const bool peeps = node.has(7);
        const Variable in = f[0](clipped(net, peeps ? gate(0) + peephole(0, s.c) : gate(0)));
        const Variable forget =
            coupled ? 1 - in : f[0](clipped(net, peeps ? gate(2) + peephole(2, s.c) : gate(2)));
        const Variable c = forget * s.c + in * f[1](clipped(net, gate(3)));
        const Variable out = f[0](clipped(net, peeps ? gate(1) + peephole(1, c) : gate(1)));
        return States{out * f[2](c), c};
      });
}

/// Gates in the order z, r, h. Cho et al., Learning phrase representations using RNN encoder-decoder, 2014.
Outputs gated(FileNode& node) {
  const Network net = network_of(node, 3, {"Sigmoid", "Tanh"});
  const bool linear = node.integer("linear_before_reset", 0) != 0;
  if (linear && has_activations(net, {"Sigmoid", "Tanh"}))
    return over_steps(node, net, {RecurrentCell::gru, RecurrentCell::gru});
  return unrolled(
      node, net, false,
      [&](const Variable& x, const States& s, const Variable& r, const Variable& bias, int64_t d) {
        const Activation* f = &net.activations[static_cast<size_t>(2 * d)];
        const auto weights = [&](int64_t i) { return part(r, i, net.hidden); };
        const auto biased = [&](const Variable& y, int64_t i) {
          return bias.defined() ? y + part(bias, i, net.hidden) : y;
        };
        const auto gate = [&](int64_t i) {
          return f[0](clipped(net, biased(part(x, i, net.hidden) + matmul(s.h, weights(i)), i)));
        };
        const Variable z = gate(0), reset = gate(1), own = part(x, 2, net.hidden);
        const Variable h = linear ? own + reset * biased(matmul(s.h, weights(2)), 2)
                                  : biased(own + matmul(reset * s.h, weights(2)), 2);
        return States{(1 - z) * f[1](clipped(net, h)) + z * s.h, {}};
      });
}

}  // namespace

void add_recurrent(Registry& all) {
  all.add("RNN", 7, simple);
  all.add("LSTM", 7, long_memory);
  all.add("GRU", 7, gated);
}

}  // namespace espalier::onnx
