#include "espalier/executor/communicators/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "espalier/core/error.h"
#include "espalier/core/op.h"

namespace espalier {
namespace {

using Kind = Collective::Kind;

void check_parts(const Collective& call, const Tensor& part, const Tensor& values, int ranks) {
  if (part.dtype() != values.dtype())
    throw TypeError(
        fmt::format("{}: parts of {} do not make {}", call.str(), name(part.dtype()), name(values.dtype())));
  if (values.elements() % ranks != 0 || values.elements() / ranks != part.elements())
    throw ShapeError(fmt::format("{}: {} ranks' parts of shape {} do not make the shape {}", call.str(),
                                 ranks, part.shape().str(), values.shape().str()));
}

void check_weights(const Collective& call, int ranks) {
  if (!is_real(call.spec.dtype)) throw TypeError(fmt::format("{}: weights are for reals", call.str()));
  if (call.weights.size() != static_cast<size_t>(ranks))
    throw ShapeError(
        fmt::format("{}: there are {} weights for {} ranks", call.str(), call.weights.size(), ranks));
  // In the type of the multiplication.
  const auto finite = [&](double weight) {
    return std::isfinite(call.spec.dtype == float64 ? weight : static_cast<float>(weight));
  };
  for (const double weight : call.weights)
    if (!finite(weight) || weight < 0)
      throw Error(fmt::format("{}: {} is no weight; they are finite, and not negative", call.str(), weight));
}

void check_bounds(const Collective& call, int ranks) {
  const auto& bounds = call.bounds;
  if (bounds.size() != static_cast<size_t>(ranks) + 1 || bounds.front() != 0 ||
      bounds.back() != call.spec.shape.elements() || !std::ranges::is_sorted(bounds))
    throw ShapeError(fmt::format("{}: these are no bounds of the parts of {} ranks", call.str(), ranks));
}

}  // namespace

double Communicator::default_timeout() {
  const char* text = std::getenv("ESPALIER_COLLECTIVE_TIMEOUT");
  if (!text || !*text) return 60;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (*end || !(seconds > 0))
    throw Error(fmt::format("ESPALIER_COLLECTIVE_TIMEOUT is a number of seconds, not \"{}\"", text));
  return seconds;
}

Communicator::Communicator(int rank, int size) : rank_(rank), size_(size), timeout_(default_timeout()) {}

void Communicator::set_timeout(double seconds) {
  if (!(seconds > 0)) throw Error(fmt::format("set_timeout: {} is not a number of seconds to wait", seconds));
  timeout_ = seconds;
}

// An error of this rank's own fails the group; a CommunicatorError is known to all.
template <class F>
void Communicator::guarded(F&& f) {
  try {
    f();
  } catch (const CommunicatorError&) {
    throw;
  } catch (...) {
    abort(std::current_exception());
    throw;
  }
}

// Assigns each member, so that the vectors keep their memory.
Collective& Communicator::describe(std::string_view name, Kind kind, const Tensor* input,
                                   const CallSite& where) {
  call_.name = name;
  call_.kind = kind;
  call_.reduction = Reduction::sum;
  call_.spec = input ? input->spec() : Spec();
  call_.weights.clear();
  call_.bounds.clear();
  call_.custom_bounds = false;
  call_.root = -1;
  call_.stop_requested = stop_request_.load();
  call_.where = where;
  call_.parent = 0;
  call_.parent_text.clear();
  return call_;
}

void Communicator::check(const Tensor* input, const Tensor* output) const {
  for (const Tensor* tensor : {input, output}) {
    if (!tensor) continue;
    if (!tensor->defined()) throw TypeError(fmt::format("{}: the tensor is undefined", call_.str()));
    if (tensor->device().type != device().type)
      throw DeviceError(
          fmt::format("{}: this communicator does not reach {}", call_.str(), tensor->device().str()));
    if (device().type != DeviceType::cpu && tensor->device() != device())
      throw DeviceError(fmt::format("{}: rank {} of this communicator is on {}, and the tensor on {}",
                                    call_.str(), rank(), device().str(), tensor->device().str()));
    if (!tensor->contiguous())
      throw ShapeError(fmt::format("{}: a view of shape {} has gaps; take a clone() of it first", call_.str(),
                                   tensor->shape().str()));
  }
  if (call_.kind == Kind::reduce && call_.spec.dtype == boolean)
    throw TypeError(fmt::format("{}: bools cannot be reduced", call_.str()));
  if (call_.kind == Kind::reduce && is_small_integer(call_.spec.dtype))
    detail::throw_small_integers(call_.str(), call_.spec);
  if (call_.reduction == Reduction::mean && !is_real(call_.spec.dtype))
    throw TypeError(fmt::format("{}: the mean is for reals", call_.str()));
}

void Communicator::perform(const Tensor* input, Tensor* output) {
  RankBuffers own{input, output};
  if (input) {
    call_.elements = call_.kind == Kind::reduce ? input->elements() : output->elements();
    // A tensor that holds the whole has this rank's range in its place.
    const auto offset = [&](const Tensor& tensor) {
      return tensor.elements() == call_.elements
                 ? static_cast<size_t>(call_.range(rank_).begin) * size_of(tensor.dtype())
                 : 0;
    };
    own.from = static_cast<const char*>(input->address());
    own.to = static_cast<char*>(output->address());
    if (call_.kind == Kind::reduce) own.to += offset(*output);
    if (call_.kind == Kind::gather) own.from += offset(*input);
  }
  stop_requested_.store(run(call_, own));
}

void Communicator::forward(Communicator& other, const Collective& call, const Tensor* input, Tensor* output) {
  other.guarded([&] {
    other.call_ = call;
    other.call_.stop_requested = other.stop_request_.load();
    other.check(input, output);
    other.perform(input, output);
  });
}

// The public collectives.

void Communicator::all_reduce(Tensor& values, Reduction reduction, const CallSite& where) {
  guarded([&] {
    describe("all_reduce", Kind::reduce, &values, where).reduction = reduction;
    check(&values, &values);
    perform(&values, &values);
  });
}

void Communicator::all_reduce_weighted(Tensor& values, std::span<const double> weights,
                                       const CallSite& where) {
  guarded([&] {
    Collective& call = describe("all_reduce_weighted", Kind::reduce, &values, where);
    call.weights.assign(weights.begin(), weights.end());
    check(&values, &values);
    check_weights(call, size_);
    perform(&values, &values);
  });
}

void Communicator::reduce_scatter(const Tensor& values, Tensor& part, Reduction reduction,
                                  const CallSite& where) {
  guarded([&] {
    Collective& call = describe("reduce_scatter", Kind::reduce, &values, where);
    call.reduction = reduction;
    check(&values, &part);
    check_parts(call, part, values, size_);
    for (int64_t r = 0; r <= size_; ++r) call.bounds.push_back(r * part.elements());
    perform(&values, &part);
  });
}

void Communicator::all_gather(const Tensor& part, Tensor& values, const CallSite& where) {
  guarded([&] {
    Collective& call = describe("all_gather", Kind::gather, &part, where);
    check(&part, &values);
    check_parts(call, part, values, size_);
    for (int64_t r = 0; r <= size_; ++r) call.bounds.push_back(r * part.elements());
    perform(&part, &values);
  });
}

void Communicator::reduce_parts(Tensor& values, std::span<const int64_t> bounds,
                                std::span<const double> weights, const CallSite& where) {
  guarded([&] {
    Collective& call = describe("reduce_parts", Kind::reduce, &values, where);
    call.weights.assign(weights.begin(), weights.end());
    call.bounds.assign(bounds.begin(), bounds.end());
    call.custom_bounds = true;
    check(&values, &values);
    check_weights(call, size_);
    check_bounds(call, size_);
    perform(&values, &values);
  });
}

void Communicator::gather_parts(Tensor& values, std::span<const int64_t> bounds, const CallSite& where) {
  guarded([&] {
    Collective& call = describe("gather_parts", Kind::gather, &values, where);
    call.bounds.assign(bounds.begin(), bounds.end());
    call.custom_bounds = true;
    check(&values, &values);
    check_bounds(call, size_);
    perform(&values, &values);
  });
}

void Communicator::broadcast(Tensor& values, int root, const CallSite& where) {
  guarded([&] {
    Collective& call = describe("broadcast", Kind::gather, &values, where);
    call.root = root;
    check(&values, &values);
    if (root < 0 || root >= size_) throw IndexError(fmt::format("{}: there are {} ranks", call.str(), size_));
    for (int r = 0; r <= size_; ++r) call.bounds.push_back(r > root ? values.elements() : 0);
    perform(&values, &values);
  });
}

void Communicator::barrier(const CallSite& where) {
  guarded([&] {
    describe("barrier", Kind::barrier, nullptr, where);
    perform(nullptr, nullptr);
  });
}

void Communicator::abort(std::exception_ptr error) noexcept {
  try {
    fail(fmt::format("rank {} failed: {}", rank(), message_of(error)));
  } catch (...) {  // no memory for the message; the other ranks time out
  }
}

std::string message_of(const std::exception_ptr& error) noexcept {
  try {
    try {
      if (!error) return "it gave no reason";
      std::rethrow_exception(error);
    } catch (const std::exception& exception) {
      return exception.what();
    } catch (...) {
      return "an exception that is no std::exception";
    }
  } catch (...) {  // no memory for a message
    return {};
  }
}

}  // namespace espalier
