// Kernels that read and write elements at indices along one axis: take_along_axis, put_along_axis, scatter
// and take_last.
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/cuda/words.cuh"
#include "espalier/ops/indexing/chosen.h"
#include "espalier/ops/indexing/cuda/chosen_places.cuh"

namespace espalier::cu {

namespace {

template <class W>
__global__ void __launch_bounds__(threads_in_block)
    take_along(const W* __restrict__ in, W* __restrict__ out, const __grid_constant__ ChosenPlaces chosen,
               int64_t n) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) out[i] = in[chosen.place(i).element];
}

/// Writes into `last`, for each place, 1 + the number of the last index that names it.
__global__ void __launch_bounds__(threads_in_block)
    find_last(unsigned int* __restrict__ last, const __grid_constant__ ChosenPlaces chosen, int64_t n) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const ChosenPlaces::Place at = chosen.place(i);
    atomicMax(&last[at.line], static_cast<unsigned int>(at.number) + 1);
  }
}

template <class W>
__global__ void __launch_bounds__(threads_in_block)
    put_last(const W* __restrict__ values, const __grid_constant__ StridedWalk steps, W* __restrict__ out,
             const unsigned int* __restrict__ last, const __grid_constant__ ChosenPlaces chosen, int64_t n) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const ChosenPlaces::Place at = chosen.place(i);
    if (last[at.line] == static_cast<unsigned int>(at.number) + 1) out[at.element] = values[steps.offset(i)];
  }
}

template <class W>
__global__ void __launch_bounds__(threads_in_block)
    take_last_of(const W* __restrict__ in, W* __restrict__ out, const unsigned int* __restrict__ last,
                 const __grid_constant__ ChosenPlaces chosen, int64_t n) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const ChosenPlaces::Place at = chosen.place(i);
    const bool is_last = last[at.line] == static_cast<unsigned int>(at.number) + 1;
    out[i] = is_last ? in[at.element] : W(0);
  }
}

/// Calls `f(TypeTag<W>{})` with an unsigned type of the dtype's size.
template <class F>
void visit_moved_elements(DType dtype, F&& f) {
  visit_words(static_cast<int64_t>(size_of(dtype)), [&]<class W>(TypeTag<W> tag) {
    if constexpr (sizeof(W) <= 8) f(tag);
  });
}

Bound bind_take_along_axis(const Op& op, const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  const Tensor &x = *call.inputs[0], &list = *call.inputs[1];
  const Chosen form{attribute<int64_t>(op, "axis"), true};
  const int64_t n = out.elements();
  const size_t axis = resolve_axis(form.axis, x.rank(), op.name());
  if (n == 0 || x.elements() == 0) return bind_look(call, list, x.shape().dims()[axis], op.name(), true);
  ContiguousInput from(x);
  const ChosenPlaces chosen = chosen_places(call, form, x.shape(), list, out.shape(), op.name());
  Bound result;
  visit_moved_elements(out.dtype(), [&]<class W>(TypeTag<W>) {
    result = bound([=, to = static_cast<W*>(out.address()), from = std::move(from)](RandomStream) mutable {
      from.refresh();
      launch(take_along<W>, grid_for(n), static_cast<const W*>(from.address()), to, chosen, n);
    });
  });
  return result;
}

/// For each place the number of the last index that names it. Among whole slices the list decides, once for
/// all lines.
class LastIndices {
 public:
  LastIndices(const ChosenPlaces& places, const Tensor& list, int64_t elements, int64_t chosen,
              std::string_view op)
      : marking_(places), count_(chosen) {
    if (places.count >= int64_t{0xffffffff})
      throw UnsupportedError(std::string(op) + ": " + std::to_string(places.count) +
                             " indices along an axis are too many for a GPU");
    if (!places.along) {
      marking_.steps = StridedWalk(collapsed(list.layout()));
      marking_.inner = 1;
      count_ = list.elements();
    }
    marks_ = Tensor({places.along ? elements : places.size}, int32, list.device());
  }
  const unsigned int* find() {
    zero_elements(marks_);
    auto* marks = static_cast<unsigned int*>(marks_.address());
    launch(find_last, grid_for(count_), marks, marking_, count_);
    return marks;
  }

 private:
  ChosenPlaces marking_;
  int64_t count_;
  Tensor marks_;
};

Chosen form_of(const Op& op) { return {attribute<int64_t>(op, "axis"), attribute<bool>(op, "along")}; }

Bound bind_put(const Op& op, const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  const Tensor &x = *call.inputs[0], &list = *call.inputs[1], &values = *call.inputs[2];
  const Chosen form = form_of(op);
  const int64_t n = values.elements();
  const bool in_place = out.address() == x.address();
  if (n == 0 || out.elements() == 0) {
    const size_t axis = resolve_axis(form.axis, x.rank(), op.name());
    Bound look = bind_look(call, list, x.shape().dims()[axis], op.name(), true);
    return bound([=, from = &x, to = &out, look = std::move(look)](RandomStream random) {
      if (!in_place) copy_elements(*from, *to);
      look->run(random);
    });
  }
  const ChosenPlaces chosen = chosen_places(call, form, x.shape(), list, values.shape(), op.name());
  LastIndices last(chosen, list, out.elements(), n, op.name());
  const StridedWalk steps(collapsed(values.layout()));
  Bound result;
  visit_moved_elements(out.dtype(), [&]<class W>(TypeTag<W>) {
    result = bound([=, from = &x, to = &out, put = static_cast<const W*>(values.address()),
                    last = std::move(last)](RandomStream) mutable {
      if (!in_place) copy_elements(*from, *to);
      launch(put_last<W>, grid_for(n), put, steps, static_cast<W*>(to->address()), last.find(), chosen, n);
    });
  });
  return result;
}

Bound bind_take_last(const Op& op, const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  const Tensor &x = *call.inputs[0], &list = *call.inputs[1];
  const Chosen form = form_of(op);
  const char* function = form.along ? "put_along_axis" : "scatter";  // that the user called, for errors
  const int64_t n = out.elements();
  const size_t axis = resolve_axis(form.axis, x.rank(), op.name());
  if (n == 0 || x.elements() == 0) return bind_look(call, list, x.shape().dims()[axis], function, true);
  ContiguousInput from(x);
  const ChosenPlaces chosen = chosen_places(call, form, x.shape(), list, out.shape(), function);
  LastIndices last(chosen, list, x.elements(), n, op.name());
  Bound result;
  visit_moved_elements(out.dtype(), [&]<class W>(TypeTag<W>) {
    result = bound([=, to = static_cast<W*>(out.address()), from = std::move(from),
                    last = std::move(last)](RandomStream) mutable {
      from.refresh();
      launch(take_last_of<W>, grid_for(n), static_cast<const W*>(from.address()), to, last.find(), chosen, n);
    });
  });
  return result;
}

}  // namespace

void add_along_axis_kernels(KernelRegistry& kernels) {
  kernels.add("take_along_axis", bind_take_along_axis);
  kernels.add("put_along_axis", bind_put);
  kernels.add("scatter", bind_put);
  kernels.add("take_last", bind_take_last);
}

}  // namespace espalier::cu
