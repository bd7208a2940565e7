#include "testing.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "deferred_copies.h"
#include "empty_operands.h"
#include "espalier/core/autograd.h"
#include "espalier/core/backends.h"
#include "espalier/core/check_gradient.h"
#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/gradient_rule.h"
#include "espalier/core/random.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "remade_ops.h"

namespace espalier::testing {

void each_index(const Shape& shape, const std::function<void(const Index&)>& f) {
  if (shape.elements() == 0) return;
  Index index(shape.rank(), 0);
  for (;;) {
    f(index);
    size_t axis = shape.rank();
    while (axis > 0 && ++index[axis - 1] == shape.dims()[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

Array::Array(const Tensor& tensor) : shape(tensor.shape()) {
  const Tensor plain = tensor.to(cpu()).to(float64).contiguous_copy();
  values.assign(plain.span<double>().begin(), plain.span<double>().end());
}

Array::Array(Shape s, const std::function<double(const Index&)>& element) : shape(std::move(s)) {
  each_index(shape, [&](const Index& index) { values.push_back(element(index)); });
}

double Array::operator()(const Index& index) const {
  size_t at = 0;
  for (size_t i = 0; i < shape.rank(); ++i) {
    const int64_t size = shape.dims()[i], k = index[index.size() - shape.rank() + i];
    at = at * static_cast<size_t>(size) + static_cast<size_t>(size == 1 ? 0 : k);
  }
  return values.at(at);
}

Shape both(const Shape& a, const Shape& b) {
  std::vector<int64_t> sizes(std::max(a.rank(), b.rank()), 1);
  for (const Shape* shape : {&a, &b})
    for (size_t i = 1; i <= shape->rank(); ++i)
      if (const int64_t size = shape->dims()[shape->rank() - i]; size != 1) sizes[sizes.size() - i] = size;
  return sizes;
}

Reference elementwise(double (*f)(double)) {
  return [f](const std::vector<Array>& in) {
    return Array(in[0].shape, [&](const Index& i) { return f(in[0](i)); });
  };
}

Reference elementwise(double (*f)(double, double)) {
  return [f](const std::vector<Array>& in) {
    return Array(both(in[0].shape, in[1].shape), [&](const Index& i) { return f(in[0](i), in[1](i)); });
  };
}

Tensor numbers(const Shape& shape, double low, double high, uint64_t which) {
  Tensor result(shape, float64);
  fill_uniform(RandomStream{2026, which}, result.data<double>(), result.elements(), low, high);
  return result;
}

Tensor laid_out_in_reverse(const Tensor& x) {
  Dims order;
  for (size_t i = x.rank(); i-- > 0;) order.push_back(static_cast<int64_t>(i));
  const Tensor reversed = transpose(x, Axes(order)).value().clone();
  return transpose(reversed, Axes(order)).value();
}

Tensor sliced_from_larger(const Tensor& x) {
  Shape larger = x.shape();
  for (int64_t& size : larger.dims()) size += 2;
  Tensor result = zeros(larger, x.dtype()).to(x.device());
  for (size_t i = 0; i < x.rank(); ++i)
    result = result.slice(static_cast<int64_t>(i), 1, 1 + x.shape().dims()[i]);
  copy_elements(x, result);
  return result;
}

double difference(const Array& a, const Tensor& tensor) {
  const Array b(tensor);
  if (!(a.shape == b.shape)) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    const double x = a.values[i], y = b.values[i];
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    const double error = std::abs(x - y) / (1 + std::max(std::abs(x), std::abs(y)));
    largest = std::isnan(error) ? INFINITY : std::max(largest, error);
  }
  return largest;
}

double difference(const Tensor& a, const Tensor& b) { return difference(Array(a), b); }

std::string here(std::source_location where) {
  return std::filesystem::path(where.file_name()).filename().string() + ":" + std::to_string(where.line());
}

namespace {

/// The identity. Its gradient reads no value, and it counts its evaluations.
struct Probe : Op {
  Probe() : Op({.gradient_reads = InputSet::none()}) {}
  std::string_view name() const override { return "probe"; }
  Specs infer(const InputSpecs& in) const override { return {*in[0]}; }
  void run_cpu(const KernelCall& call) const override {
    ++runs;
    copy_elements(*call.inputs[0], *call.outputs[0]);
  }
  Gradients gradient(const GradientRule& rule) const override { return {rule.output_gradient()}; }
  static inline int runs = 0;
};

std::vector<Tensor> in_dtype(std::vector<Tensor> inputs, DType dtype) {
  for (Tensor& x : inputs)
    if (is_real(x.dtype())) x = x.to(dtype);
  return inputs;
}

Tensor eager(const OpCase& c, const std::vector<Tensor>& inputs) {
  Variables x;
  for (const Tensor& input : inputs) x.emplace_back(input);
  return c.op(x).value();
}

Array expected(const OpCase& c, const std::vector<Tensor>& inputs) {
  std::vector<Array> arrays;
  for (const Tensor& input : inputs) arrays.emplace_back(input);
  return c.reference(arrays);
}

bool is_differentiable(const OpCase& c, size_t i) {
  if (c.order == 0 || !is_real(c.inputs[i].dtype())) return false;
  return c.differentiable.empty() ||
         std::find(c.differentiable.begin(), c.differentiable.end(), i) != c.differentiable.end();
}

void check_forward(const OpCase& c, const std::vector<Tensor>& inputs, double tolerance) {
  const Array reference = expected(c, inputs);
  const Tensor plain = eager(c, inputs);
  BOOST_TEST(plain.shape() == reference.shape);
  BOOST_TEST(difference(reference, plain) <= tolerance);

  const VectorLevel before = vector_level();
  for (const VectorLevel level : {VectorLevel::baseline, VectorLevel::avx2, VectorLevel::avx512}) {
    set_vector_level(level);
    BOOST_TEST(difference(reference, eager(c, inputs)) <= tolerance);
  }
  set_vector_level(before);

  // All inputs strided, and each one alone.
  for (const auto strided : {laid_out_in_reverse, sliced_from_larger})
    for (size_t which = 0; which <= inputs.size(); ++which) {
      std::vector<Tensor> other = inputs;
      for (size_t i = 0; i < inputs.size(); ++i)
        if (which == inputs.size() || which == i) other[i] = strided(inputs[i]);
      BOOST_TEST(difference(reference, eager(c, other)) <= tolerance);
    }
  // The first slice along an axis, broadcast by a stride of 0.
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t axis = 0; axis < inputs[i].rank(); ++axis) {
      const Shape& shape = inputs[i].shape();
      if (shape.dims()[axis] < 2) continue;
      std::vector<Tensor> other = inputs;
      other[i] = broadcast_to(inputs[i].slice(static_cast<int64_t>(axis), 0, 1), shape).value();
      BOOST_TEST(difference(expected(c, other), eager(c, other)) <= tolerance);
    }
}

void check_derivatives(const OpCase& c) {
  std::vector<Tensor> points;
  for (size_t i = 0; i < c.inputs.size(); ++i)
    if (is_differentiable(c, i)) points.push_back(c.inputs[i]);
  const auto f = [&](const Variables& x) {
    Variables all;
    size_t next = 0;
    for (size_t i = 0; i < c.inputs.size(); ++i)
      all.push_back(is_differentiable(c, i) ? x[next++] : Variable(c.inputs[i]));
    return c.op(all);
  };
  const CheckResult result = check_gradient(f, points, {.order = c.order, .tolerance = 2e-6});
  BOOST_TEST(result.passed, result.message);
}

/// Values that the rule reads must be declared: undeclared values have been released and would be computed
/// again.
void check_needs(const OpCase& c) {
  Variables leaves, inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    leaves.push_back(is_differentiable(c, i) ? variable(c.inputs[i]) : Variable(c.inputs[i]));
    inputs.push_back(is_differentiable(c, i) ? apply(shared_op<Probe>(), {&leaves.back()}, {})
                                             : leaves.back());
  }
  const Variable y = sum(c.op(inputs));
  inputs.clear();
  const int before = Probe::runs;
  for (size_t i = 0; i < leaves.size(); ++i)
    if (is_differentiable(c, i)) (void)y.gradient(leaves[i]).value();
  BOOST_TEST(Probe::runs == before);
}

void check_inference_plan(const OpCase& c, const std::vector<Tensor>& inputs, double tolerance) {
  Variables x;
  Feeds feeds;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = "x" + std::to_string(i);
    x.push_back(placeholder(name, inputs[i].shape(), inputs[i].dtype()));
    feeds.emplace_back(name, inputs[i]);
  }
  const Executor executor = c.op(x).get_executor({.mode = Mode::inference});
  const Tensor first = executor.run(feeds);
  BOOST_TEST(difference(expected(c, inputs), first) <= tolerance);
  BOOST_TEST(difference(first, executor.run(feeds)) == 0);
  for (size_t i = 0; i < inputs.size(); ++i) feeds[i].second = laid_out_in_reverse(inputs[i]);
  BOOST_TEST(difference(first, executor.run(feeds)) == 0);
}

void check_training_plan(const OpCase& c, const std::vector<Tensor>& inputs, double tolerance) {
  const auto grow = [&](Variables& parameters) {
    Variables x;
    for (size_t i = 0; i < inputs.size(); ++i) {
      x.push_back(is_differentiable(c, i) ? parameter(inputs[i].clone()) : Variable(inputs[i]));
      if (is_differentiable(c, i)) parameters.push_back(x.back());
    }
    const Variable y = c.op(x);
    return sum(y * numbers(y.shape(), 0.5, 1.5, 77).to(y.dtype()));
  };
  Variables by_hand, frozen;
  const Variable loss = grow(by_hand);
  const double loss_before = loss.item();
  loss.update(optim::Sgd(0.1));
  const Executor executor = grow(frozen).get_executor({.mode = Mode::training, .optimizer = optim::Sgd(0.1)});
  const History history = executor.execute({.epochs = 1, .progress = false});
  BOOST_TEST(std::abs(history.epochs[0].loss_sum - loss_before) <=
             10 * tolerance * (1 + std::abs(loss_before)));
  for (size_t i = 0; i < by_hand.size(); ++i)
    BOOST_TEST(difference(by_hand[i].value(), frozen[i].value()) <= tolerance);
}

/// 16-bit inputs give the rounded results of the same numbers in wider types.
void check_halves(const OpCase& c, bool any_gradient) {
  for (const DType dtype : {float16, bfloat16}) {
    BOOST_TEST_CONTEXT("in " << name(dtype)) {
      const double unit = dtype == float16 ? 0x1p-11 : 0x1p-8;  // half a unit in the last place of 1
      const double tolerance = c.roundings * unit + c.tolerance32;
      const std::vector<Tensor> inputs = in_dtype(c.inputs, dtype);
      const Array reference = expected(c, inputs);
      const Tensor plain = eager(c, inputs);
      BOOST_TEST((plain.dtype() == dtype || !is_real(plain.dtype())));
      BOOST_TEST(difference(reference, plain) <= tolerance);
      for (const auto strided : {laid_out_in_reverse, sliced_from_larger}) {
        std::vector<Tensor> other;
        for (const Tensor& input : inputs) other.push_back(strided(input));
        BOOST_TEST(difference(reference, eager(c, other)) <= tolerance);
      }
      check_inference_plan(c, inputs, tolerance);
      if (any_gradient) check_training_plan(c, inputs, 4 * tolerance);
    }
  }
}

std::vector<Tensor> on(Device device, std::vector<Tensor> inputs) {
  for (Tensor& x : inputs) x = x.to(device);
  return inputs;
}

/// Steps of gradient descent on the device, eager and by a plan, have the result of a step on the CPU.
void check_training_on(const OpCase& c, Device device, const std::vector<Tensor>& inputs, double tolerance) {
  const auto grow = [&](Variables& parameters, Device where) {
    Variables x;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor input = inputs[i].clone().to(where);
      x.push_back(is_differentiable(c, i) ? parameter(input) : Variable(input));
      if (is_differentiable(c, i)) parameters.push_back(x.back());
    }
    const Variable y = c.op(x);
    return sum(y * numbers(y.shape(), 0.5, 1.5, 77).to(y.dtype()).to(where));
  };
  Variables here, there, frozen, sent;
  const Variable loss = grow(here, cpu());
  loss.update(optim::Sgd(0.1));
  grow(there, device).update(optim::Sgd(0.1));
  const optim::Sgd sgd(0.1);
  grow(frozen, device).get_executor({.mode = Mode::training, .optimizer = sgd}).execute({.progress = false});
  const Variable on_cpu = grow(sent, cpu());
  const Executor executor =
      on_cpu.get_executor({.mode = Mode::training, .optimizer = sgd, .devices = {device}});
  executor.execute({.progress = false});
  for (size_t i = 0; i < here.size(); ++i) {
    const Tensor expected = here[i].value();
    BOOST_TEST(there[i].value().device() == device);
    BOOST_TEST(difference(expected, there[i].value()) <= tolerance);
    BOOST_TEST(difference(expected, frozen[i].value()) <= tolerance);
    BOOST_TEST(sent[i].value().device() == cpu());
    BOOST_TEST(difference(expected, sent[i].value()) <= tolerance);
  }
}

void check_on_gpu(const OpCase& c, Device device, DType dtype, double tolerance, bool any_gradient) {
  const std::vector<Tensor> inputs = in_dtype(c.inputs, dtype);
  const Array reference = expected(c, inputs);
  const std::vector<Tensor> there = on(device, inputs);
  const Tensor plain = eager(c, there);
  BOOST_TEST(plain.device() == device);
  BOOST_TEST(difference(reference, plain) <= tolerance);
  for (const auto strided : {laid_out_in_reverse, sliced_from_larger}) {
    std::vector<Tensor> other;
    for (const Tensor& input : there) other.push_back(strided(input));
    BOOST_TEST(difference(reference, eager(c, other)) <= tolerance);
  }
  for (size_t i = 0; i < there.size(); ++i)
    for (size_t axis = 0; axis < there[i].rank(); ++axis) {
      const Shape& shape = there[i].shape();
      if (shape.dims()[axis] < 2) continue;
      std::vector<Tensor> repeated = inputs, other = there;
      repeated[i] = broadcast_to(inputs[i].slice(static_cast<int64_t>(axis), 0, 1), shape).value();
      other[i] = broadcast_to(there[i].slice(static_cast<int64_t>(axis), 0, 1), shape).value();
      BOOST_TEST(difference(expected(c, repeated), eager(c, other)) <= tolerance);
    }

  Variables x;
  Feeds feeds;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = "x" + std::to_string(i);
    x.push_back(placeholder(name, inputs[i].shape(), inputs[i].dtype()));
    feeds.emplace_back(name, inputs[i]);
  }
  const Executor executor = c.op(x).get_executor({.mode = Mode::inference, .devices = {device}});
  for (int run = 0; run < 3; ++run)  // single kernels, capture, and launch of the graph
    BOOST_TEST(difference(reference, executor.run(feeds)) <= tolerance);
  if (any_gradient) check_training_on(c, device, inputs, 4 * tolerance);
}

}  // namespace

std::vector<Device> gpus_to_test() {
  const std::vector<Device> all = all_gpus();
  return {all.begin(), all.begin() + std::min<std::ptrdiff_t>(1, std::ssize(all))};
}

/// Every backend of this build has kernels for the ops of the case that need one.
void check_kernels(const OpCase& c) {
  Variables inputs;
  for (const Tensor& input : c.inputs) inputs.emplace_back(input);
  const Variable result = c.op(inputs);
  std::vector<const Node*> todo{result.node()};
  while (!todo.empty()) {
    const Node* node = todo.back();
    todo.pop_back();
    for (const Edge& input : node->inputs) todo.push_back(input.node());
    if (node->is_leaf()) continue;
    for (const auto& [type, backend] : backends())
      BOOST_TEST((node->op().runs_everywhere() || backend.kernels.has(node->op())),
                 "there is no kernel for " << node->op().name());
  }
}

/// The ops of the case and of its gradients can be made again from what they say of themselves.
void check_attributes(const OpCase& c) {
  BuildContext now = build_context();
  now.lazy = now.without_activations = true;
  const BuildScope scope(now);
  Variables inputs, parameters;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    inputs.push_back(is_differentiable(c, i) ? parameter(c.inputs[i]) : Variable(c.inputs[i]));
    if (is_differentiable(c, i)) parameters.push_back(inputs.back());
  }
  Variables roots{c.op(inputs)};
  if (!parameters.empty())
    for (const auto& [parameter, gradient] : new_parameter_gradients(sum(roots[0])))
      roots.push_back(gradient);
  BOOST_TEST(check_remade(freeze(roots, {}, {}, false)).empty());
}

namespace {

/// Everything that needs no GPU.
void check_on_cpu(const OpCase& c, const std::vector<size_t>& differentiable, bool real) {
  const bool any = !differentiable.empty();
  for (const DType dtype : {float64, float32}) {
    if (dtype == float32 && !real) continue;
    BOOST_TEST_CONTEXT("in " << name(dtype)) {
      const double tolerance = dtype == float64 ? c.tolerance : c.tolerance32;
      const std::vector<Tensor> inputs = in_dtype(c.inputs, dtype);
      check_forward(c, inputs, tolerance);
      check_inference_plan(c, inputs, tolerance);
      if (any) check_training_plan(c, inputs, tolerance);
    }
  }
  if (real && c.roundings) check_halves(c, any);
  check_deferred(c, differentiable, cpu(), 100 * c.tolerance);
  check_empty_operands(c, differentiable, cpu());
  if (!any) return;
  check_derivatives(c);
  check_needs(c);
}

}  // namespace

void check_op(const OpCase& c) {
  BOOST_TEST_CONTEXT(c.name << (c.inputs.empty() ? "" : " of shape " + c.inputs[0].shape().str())) {
    check_kernels(c);
    check_attributes(c);
    bool real = false;
    std::vector<size_t> differentiable;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      real |= is_real(c.inputs[i].dtype());
      if (is_differentiable(c, i)) differentiable.push_back(i);
    }
    if (!another_program_tests_cpu) check_on_cpu(c, differentiable, real);
    for (const Device device : gpus_to_test()) {
      check_deferred(c, differentiable, device, 100 * c.tolerance);
      check_empty_operands(c, differentiable, device);
    }
    for (const Device device : gpus_to_test())
      for (const DType dtype : {float64, float32, float16, bfloat16}) {
        const bool half = dtype == float16 || dtype == bfloat16;
        if (dtype != float64 && (!real || (half && !c.roundings))) continue;
        BOOST_TEST_CONTEXT("on " << device << " in " << name(dtype)) {
          const double unit = dtype == float16 ? 0x1p-11 : dtype == bfloat16 ? 0x1p-8 : 0;
          check_on_gpu(c, device, dtype, dtype == float64 ? c.tolerance : c.tolerance32 + c.roundings * unit,
                       !differentiable.empty());
        }
      }
  }
}

}  // namespace espalier::testing
