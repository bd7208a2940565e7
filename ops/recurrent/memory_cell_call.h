// The operands of the two ops of a memory cell, by their roles, for the kernels of all backends.
#pragma once
#include "espalier/core/op.h"
#include "espalier/core/scalar.h"
#include "espalier/ops/recurrent/memory_cell.h"

namespace espalier {

class OpRegistry;

void add_memory_cell_ops(OpRegistry& ops);

/// Which gradients of outputs `memory_cell_gradient` is given, bit by bit.
inline constexpr int64_t given_cell_h = 1, given_cell_c = 2;

/// `memory_cell` or `memory_cell_gradient`.
class MemoryCellOp : public Op {
 public:
  MemoryCellOp(MemoryCellForm form, int64_t given, const OpTraits& traits)
      : Op(traits), form_(std::move(form)), given_(given) {}
  const MemoryCellForm& form() const { return form_; }
  int64_t given() const { return given_; }  ///< 0 for `memory_cell`

 private:
  const MemoryCellForm form_;
  const int64_t given_;
};
inline const MemoryCellForm& memory_cell_form_of(const Op& op) {
  return static_cast<const MemoryCellOp&>(op).form();
}
/// Summands with the same blocks have one gradient: its number, and the first summand that has it.
int64_t gradient_of_summand(const MemoryCellForm& form, int64_t summand);
int64_t gradients_of_summands(const MemoryCellForm& form);
int64_t summand_of_gradient(const MemoryCellForm& form, int64_t gradient);

/// Rows at one distance; 0 repeats one.
template <class T>
struct CellRows {
  const T* first = nullptr;
  int64_t step = 0;
  ESPALIER_HD const T* row(int64_t b) const { return first + b * step; }
};

/// What both passes have. Operands are of type T; outputs are contiguous.
template <class T>
struct MemoryCellRows {
  static constexpr int most_memories = MemoryCellForm::most_memories, most_gates = 3 + most_memories,
                       most_summands = MemoryCellForm::most_summands;
  int64_t rows = 0, width = 0;
  int memories = 0, summands = 0;  ///< in the gradient: of these only those that differ in blocks
  int8_t blocks[most_summands][most_gates] = {};
  CellRows<T> memory[most_memories];
  ESPALIER_HD int gates() const { return 3 + memories; }
};
template <class T>
struct MemoryCellForward : MemoryCellRows<T> {
  CellRows<T> sums[MemoryCellRows<T>::most_summands];
  T *h = nullptr, *c = nullptr;
  T* gates_out = nullptr;  ///< null unless the values of the gates are kept
};
template <class T>
struct MemoryCellBackward : MemoryCellRows<T> {
  CellRows<T> gates_in, c, of_h, of_c;  ///< without `of_h` or `of_c` their `first` is null
  int8_t block_count[MemoryCellRows<T>::most_summands] = {};
  T* of_sums[MemoryCellRows<T>::most_summands] = {};
  T* of_memory[MemoryCellRows<T>::most_memories] = {};
};

/// The distance of the rows along the last axis, whose elements are adjacent; nothing if they have no single
/// one.
std::optional<int64_t> distance_of_rows(const Layout& layout);

namespace detail {

template <class T, class Address>
MemoryCellForward<T> memory_cell_forward(const Op& op, const KernelCall& call, Address& rows_of) {
  const MemoryCellForm& form = memory_cell_form_of(op);
  MemoryCellForward<T> made;
  made.width = form.width;
  made.rows = call.outputs[0]->elements() / form.width;
  made.memories = static_cast<int>(form.memories);
  made.summands = static_cast<int>(form.summands());
  size_t at = 0;
  for (int p = 0; p < made.summands; ++p) {
    for (int g = 0; g < made.gates(); ++g) made.blocks[p][g] = static_cast<int8_t>(form.block(p, g));
    made.sums[p] = rows_of(at++);
  }
  for (int k = 0; k < made.memories; ++k) made.memory[k] = rows_of(at++);
  const auto target = [&](size_t k) { return static_cast<T*>(call.outputs[k]->address()); };
  made.h = target(0), made.c = target(1);
  if (call.outputs.size() > 2) made.gates_out = target(2);
  return made;
}

template <class T, class Address>
MemoryCellBackward<T> memory_cell_backward(const Op& op, const KernelCall& call, Address& rows_of) {
  const MemoryCellForm& form = memory_cell_form_of(op);
  MemoryCellBackward<T> made;
  made.width = form.width;
  made.memories = static_cast<int>(form.memories);
  made.summands = static_cast<int>(gradients_of_summands(form));
  size_t at = static_cast<size_t>(form.summands()), out = 0;
  for (int k = 0; k < made.memories; ++k) made.memory[k] = rows_of(at++);
  made.rows = call.inputs[at]->elements() / form.width;
  made.c = rows_of(at++);
  made.gates_in = rows_of(at++);
  const int64_t given = static_cast<const MemoryCellOp&>(op).given();
  if (given & given_cell_h) made.of_h = rows_of(at++);
  if (given & given_cell_c) made.of_c = rows_of(at++);
  for (int p = 0; p < made.summands; ++p) {
    const int64_t summand = summand_of_gradient(form, p);
    for (int g = 0; g < made.gates(); ++g) made.blocks[p][g] = static_cast<int8_t>(form.block(summand, g));
    made.block_count[p] = static_cast<int8_t>(call.outputs[out]->shape()[-1] / form.width);
    made.of_sums[p] = static_cast<T*>(call.outputs[out++]->address());
  }
  for (int k = 0; k < made.memories; ++k) made.of_memory[k] = static_cast<T*>(call.outputs[out++]->address());
  return made;
}

}  // namespace detail
}  // namespace espalier
