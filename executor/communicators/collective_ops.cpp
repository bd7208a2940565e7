#include "espalier/executor/communicators/collective_ops.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/gradient_rule.h"
#include "espalier/executor/communicators/distributed.h"
#include "espalier/ops/ops.h"

namespace espalier {
namespace {

using Ranks = std::shared_ptr<Communicator>;

class CollectiveOp : public Op {
 public:
  explicit CollectiveOp(Ranks ranks, InputSet in_place = InputSet::none())
      : Op({.effect = Effect::communicates,
            .runs_on_host = true,
            .reads = InputSet::only(0),
            .in_place = in_place,
            .gradient_reads = InputSet::none()}),
        ranks_(std::move(ranks)) {}
  Attributes attributes() const override { return {{"ranks", int64_t{ranks_->size()}}}; }
  bool equals(const Op& other) const override { return this == &other; }

 protected:
  static CallSite line_of(const KernelCall& call) { return call.where ? *call.where : CallSite(); }
  Gradients of(Variable gradient) const { return {std::move(gradient)}; }
  Variable call(OpPtr op, const GradientRule& rule) const {
    return apply(std::move(op), {&rule.output_gradient()}, rule.where());
  }

  Ranks ranks_;
};

// The result has the shape of the input: a copy of it, on which the collective works in place.
class InPlaceCollective : public CollectiveOp {
 public:
  explicit InPlaceCollective(Ranks ranks) : CollectiveOp(std::move(ranks), InputSet::only(0)) {}
  Specs infer(const InputSpecs& in) const override { return {*in[0]}; }
  void run_cpu(const KernelCall& call) const override {
    Tensor& values = *call.outputs[0];
    if (call.inputs[0]->address() != values.address()) copy_elements(*call.inputs[0], values);
    perform(values, line_of(call));
  }

 protected:
  virtual void perform(Tensor& values, const std::source_location& where) const = 0;
};

class AllReduce final : public InPlaceCollective {
 public:
  AllReduce(Ranks ranks, Reduction reduction) : InPlaceCollective(std::move(ranks)), reduction_(reduction) {}
  std::string_view name() const override { return "all_reduce"; }
  Attributes attributes() const override {
    return {{"ranks", int64_t{ranks_->size()}}, {"reduction", std::string(espalier::name(reduction_))}};
  }
  Specs infer(const InputSpecs& in) const override {
    if (in[0]->dtype == boolean) throw TypeError("all_reduce: bools cannot be reduced");
    if (is_small_integer(in[0]->dtype)) detail::throw_small_integers(name(), *in[0]);
    if (reduction_ == Reduction::mean && !is_real(in[0]->dtype))
      throw TypeError(fmt::format("all_reduce: the mean is for reals, not {}", espalier::name(in[0]->dtype)));
    return {*in[0]};
  }
  // The results of all ranks depend on each operand.
  Gradients gradient(const GradientRule& rule) const override {
    if (reduction_ != Reduction::sum && reduction_ != Reduction::mean)
      throw UnsupportedError(fmt::format("all_reduce by {} has no gradient; those by sum and mean have",
                                         espalier::name(reduction_)));
    return of(call(std::make_shared<AllReduce>(ranks_, reduction_), rule));
  }

 private:
  void perform(Tensor& values, const std::source_location& where) const override {
    ranks_->all_reduce(values, reduction_, where);
  }
  Reduction reduction_;
};

class AllGather final : public CollectiveOp {
 public:
  using CollectiveOp::CollectiveOp;
  std::string_view name() const override { return "all_gather"; }
  Specs infer(const InputSpecs& in) const override {
    Spec spec = *in[0];
    if (spec.shape.rank() == 0) throw ShapeError("all_gather: a scalar has no first axis");
    spec.shape.dims()[0] *= ranks_->size();
    return {spec};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor part = call.inputs[0]->contiguous() ? *call.inputs[0] : call.inputs[0]->contiguous_copy();
    ranks_->all_gather(part, *call.outputs[0], line_of(call));
  }
  Gradients gradient(const GradientRule& rule) const override;
};

class ReduceScatter final : public CollectiveOp {
 public:
  using CollectiveOp::CollectiveOp;
  std::string_view name() const override { return "reduce_scatter"; }
  Specs infer(const InputSpecs& in) const override {
    Spec spec = *in[0];
    if (spec.dtype == boolean) throw TypeError("reduce_scatter: bools cannot be reduced");
    if (is_small_integer(spec.dtype)) detail::throw_small_integers(name(), spec);
    if (spec.shape.rank() == 0 || spec.shape.dims()[0] % ranks_->size() != 0)
      throw ShapeError(fmt::format("reduce_scatter: the first axis of {} cannot be cut into {} equal parts",
                                   spec.shape.str(), ranks_->size()));
    spec.shape.dims()[0] /= ranks_->size();
    return {spec};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor all = call.inputs[0]->contiguous() ? *call.inputs[0] : call.inputs[0]->contiguous_copy();
    ranks_->reduce_scatter(all, *call.outputs[0], Reduction::sum, line_of(call));
  }
  Gradients gradient(const GradientRule& rule) const override {
    return of(call(std::make_shared<AllGather>(ranks_), rule));
  }
};

Gradients AllGather::gradient(const GradientRule& rule) const {
  return of(call(std::make_shared<ReduceScatter>(ranks_), rule));
}

class Broadcast final : public InPlaceCollective {
 public:
  Broadcast(Ranks ranks, int root) : InPlaceCollective(std::move(ranks)), root_(root) {}
  std::string_view name() const override { return "broadcast"; }
  Attributes attributes() const override {
    return {{"ranks", int64_t{ranks_->size()}}, {"root", int64_t{root_}}};
  }
  Gradients gradient(const GradientRule& rule) const override;

 private:
  void perform(Tensor& values, const std::source_location& where) const override {
    ranks_->broadcast(values, root_, where);
  }
  int root_;
};

/// The sum over all ranks on one of them, and 0 on the others.
class SumAtRoot final : public InPlaceCollective {
 public:
  SumAtRoot(Ranks ranks, int root) : InPlaceCollective(std::move(ranks)), root_(root) {}
  std::string_view name() const override { return "sum_at_root"; }
  Attributes attributes() const override {
    return {{"ranks", int64_t{ranks_->size()}}, {"root", int64_t{root_}}};
  }
  Gradients gradient(const GradientRule& rule) const override {
    return of(call(std::make_shared<Broadcast>(ranks_, root_), rule));
  }

 private:
  void perform(Tensor& values, const std::source_location& where) const override {
    ranks_->all_reduce(values, Reduction::sum, where);
    if (ranks_->rank() != root_) zero_elements(values);
  }
  int root_;
};

Gradients Broadcast::gradient(const GradientRule& rule) const {
  return of(call(std::make_shared<SumAtRoot>(ranks_, root_), rule));
}

template <class T, class... Arguments>
Variable collective(const Operand& x, Ranks ranks, Arguments... arguments) {
  const CallScope scope(x.where(), "");
  if (!ranks) ranks = distributed::world(x.where());
  return apply(std::make_shared<T>(std::move(ranks), arguments...), {&x.variable()}, x.where());
}

}  // namespace

namespace distributed {

Variable all_reduce(const Operand& x, Reduction reduction, Ranks communicator) {
  return collective<AllReduce>(x, std::move(communicator), reduction);
}
Variable all_gather(const Operand& x, Ranks communicator) {
  return collective<AllGather>(x, std::move(communicator));
}
Variable reduce_scatter(const Operand& x, Ranks communicator) {
  return collective<ReduceScatter>(x, std::move(communicator));
}
Variable broadcast(const Operand& x, int root, Ranks communicator) {
  if (!communicator) communicator = world(x.where());
  if (root < 0 || root >= communicator->size())
    located(x.where(), [&] {
      throw IndexError(fmt::format("broadcast: rank {} is none of the {} ranks", root, communicator->size()));
    });
  return collective<Broadcast>(x, std::move(communicator), root);
}

}  // namespace distributed
}  // namespace espalier
