#include "espalier/executor/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "espalier/core/error.h"

namespace espalier {
namespace {

using Kind = Collective::Kind;

bool reduces(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::all_reduce_weighted || kind == Kind::reduce_scatter ||
         kind == Kind::reduce_parts;
}

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
  // In the type that it is multiplied in.
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

void Communicator::check(const Collective& call, const Tensor* from, const Tensor* to) const {
  for (const Tensor* tensor : {from, to}) {
    if (!tensor) continue;
    if (!tensor->defined()) throw TypeError(fmt::format("{}: the tensor is undefined", call.str()));
    if (tensor->device().type != device_type())
      throw DeviceError(
          fmt::format("{}: this communicator does not reach {}", call.str(), tensor->device().str()));
    if (!tensor->contiguous())
      throw ShapeError(fmt::format("{}: a view of shape {} has gaps; take a clone() of it first", call.str(),
                                   tensor->shape().str()));
  }
  if (reduces(call.kind) && call.spec.dtype == boolean)
    throw TypeError(fmt::format("{}: bools cannot be reduced", call.str()));
  if (call.reduction == Reduction::mean && !is_real(call.spec.dtype))
    throw TypeError(fmt::format("{}: the mean is for reals", call.str()));
  if (call.kind == Kind::reduce_scatter) check_parts(call, *to, *from, size_);
  if (call.kind == Kind::all_gather) check_parts(call, *from, *to, size_);
  if (call.kind == Kind::all_reduce_weighted || call.kind == Kind::reduce_parts) check_weights(call, size_);
  if (call.kind == Kind::reduce_parts || call.kind == Kind::gather_parts) check_bounds(call, size_);
  if (call.root < 0 || call.root >= size_)
    throw IndexError(fmt::format("{}: there are {} ranks", call.str(), size_));
}

void Communicator::call(Kind kind, Reduction reduction, int root, const Tensor* from, Tensor* to, Where where,
                        std::span<const double> weights, const Collective* whole,
                        std::span<const int64_t> bounds) {
  try {
    call_.kind = kind;
    call_.reduction = reduction;
    call_.root = root;
    call_.spec = from ? from->spec() : Spec();
    call_.weights.assign(weights.begin(), weights.end());
    call_.bounds.assign(bounds.begin(), bounds.end());
    call_.raised = mark_.load();
    call_.where = where;
    call_.whole = whole ? whole->hash() : 0;
    call_.whole_text = whole ? whole->str() : std::string();
    check(call_, from, to);
    raised_.store(run(call_, from, to));
  } catch (const CommunicatorError&) {
    throw;  // the others know
  } catch (...) {
    abort(std::current_exception());
    throw;
  }
}

void Communicator::all_reduce(Tensor& values, Reduction reduction, Where where) {
  call(Kind::all_reduce, reduction, 0, &values, &values, where);
}
void Communicator::all_reduce_weighted(Tensor& values, std::span<const double> weights, Where where) {
  call(Kind::all_reduce_weighted, Reduction::sum, 0, &values, &values, where, weights);
}
void Communicator::reduce_scatter(const Tensor& values, Tensor& part, Reduction reduction, Where where) {
  call(Kind::reduce_scatter, reduction, 0, &values, &part, where);
}
void Communicator::all_gather(const Tensor& part, Tensor& values, Where where) {
  call(Kind::all_gather, Reduction::sum, 0, &part, &values, where);
}
void Communicator::reduce_parts(Tensor& values, std::span<const int64_t> bounds,
                                std::span<const double> weights, Where where) {
  call(Kind::reduce_parts, Reduction::sum, 0, &values, &values, where, weights, nullptr, bounds);
}
void Communicator::gather_parts(Tensor& values, std::span<const int64_t> bounds, Where where) {
  call(Kind::gather_parts, Reduction::sum, 0, &values, &values, where, {}, nullptr, bounds);
}
void Communicator::broadcast(Tensor& values, int root, Where where) {
  call(Kind::broadcast, Reduction::sum, root, &values, &values, where);
}
void Communicator::barrier(Where where) { call(Kind::barrier, Reduction::sum, 0, nullptr, nullptr, where); }

void Communicator::call_part(Communicator& other, const Collective& whole, Kind kind, Reduction reduction,
                             int root, const Tensor* from, Tensor* to, std::span<const double> weights,
                             std::span<const int64_t> bounds) {
  other.call(kind, reduction, root, from, to, whole.where, weights, &whole, bounds);
}

void Communicator::abort(std::exception_ptr error) noexcept {
  try {
    fail(fmt::format("rank {} failed: {}", rank(), message_of(error)));
  } catch (...) {  // no memory for the message; the others find out when their time is over
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
