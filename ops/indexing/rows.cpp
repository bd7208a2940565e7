#include "espalier/ops/indexing/rows.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "espalier/core/cpu/prefetch.h"
#include "espalier/core/op_names.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/indexing/indices.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"
#include "espalier/ops/views/axis_views.h"

namespace espalier {

namespace {

Shape rows_of_table(const Shape& table, int64_t count) {
  Dims dims{count};
  dims.append(table.begin() + 1, table.end());
  return Shape(std::move(dims));
}

void check_table(const Spec& table, std::string_view op) {
  if (table.shape.rank() == 0) throw ShapeError(fmt::format("{}: a scalar has no rows", op));
}
void check_rows(const Spec& rows, std::string_view op) {
  if (rows.dtype != DType::int64 || rows.shape.rank() != 1)
    throw TypeError(fmt::format("{}: rows are a vector of int64, not {} of shape {}", op,
                                espalier::name(rows.dtype), rows.shape.str()));
}

/// The positions of each index in a list, in their order.
class PositionsByRow {
 public:
  /// Indices outside `size` are left out.
  template <class At>
  PositionsByRow(At at, int64_t count, int64_t size) : next_(static_cast<size_t>(count), none) {
    const auto slots = std::bit_ceil(static_cast<size_t>(2 * count + 1));
    std::vector<int64_t> table(slots, none);  // numbers of rows, by hashes of the rows
    for (auto* list : {&rows, &first_, &last_}) list->reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = at(i);
      if (row < 0 || row >= size) continue;
      size_t slot = static_cast<size_t>(row) * 0x9E3779B97F4A7C15u >> 20 & (slots - 1);
      while (table[slot] != none && rows[static_cast<size_t>(table[slot])] != row)
        slot = (slot + 1) & (slots - 1);
      if (table[slot] == none) {
        table[slot] = static_cast<int64_t>(rows.size());
        rows.push_back(row);
        first_.push_back(i);
        last_.push_back(i);
      } else {
        int64_t& last = last_[static_cast<size_t>(table[slot])];
        next_[static_cast<size_t>(last)] = i;
        last = i;
      }
    }
  }

  /// Calls f(position) for each position of rows[k].
  template <class F>
  void each(size_t k, F&& f) const {
    for (int64_t i = first_[k]; i != none; i = next_[static_cast<size_t>(i)]) f(i);
  }

  std::vector<int64_t> rows;  ///< each once, in the order of their first positions

 private:
  static constexpr int64_t none = -1;
  std::vector<int64_t> next_, first_, last_;
};

/// Adds up the rows of `x` that have one index: inputs x, indices and a table for its shape; outputs the
/// values and the rows of a RowGradient. Indices outside are ignored: gather has refused them.
struct SumRows : Op {
  explicit SumRows(bool in_place = false)
      : Op({.takes_any_values = true,
            .reads = InputSet::first(2),
            .in_place = in_place ? InputSet::only(0) : InputSet::none()}) {}
  std::string_view name() const override { return "sum_rows"; }
  bool equals(const Op& other) const override { return dynamic_cast<const SumRows*>(&other) != nullptr; }
  Specs infer(const InputSpecs& in) const override {
    check_indices(*in[1], name());
    check_dtype<Numbers>(*in[0], name());
    check_table(*in[2], name());
    const int64_t count = in[1]->shape.elements();
    Specs specs;
    specs.push_back({in[0]->dtype, rows_of_table(in[2]->shape, count)});
    specs.push_back({DType::int64, Shape{count}});
    if (specs[0].shape.elements() != in[0]->shape.elements())
      throw ShapeError(fmt::format("sum_rows: {} values cannot be rows of a table {} at indices {}",
                                   in[0]->shape.str(), in[2]->shape.str(), in[1]->shape.str()));
    return specs;
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor &values = *call.outputs[0], &rows = *call.outputs[1];
    const int64_t size = call.inputs[2]->shape().dims()[0], count = rows.elements();
    if (count == 0) return;
    const int64_t inner = values.elements() / count;
    const Tensor x = call.inputs[0]->contiguous_copy(), indices = call.inputs[1]->contiguous_copy();
    const PositionsByRow positions = [&] {
      if (indices.dtype() == DType::int32) return positions_of<int32_t>(indices, size);
      return positions_of<int64_t>(indices, size);
    }();
    auto* row = static_cast<int64_t*>(rows.address());
    std::fill(std::copy(positions.rows.begin(), positions.rows.end(), row), row + count, size);
    visit(values.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Numbers::accepts<T>) {
        const T* from = static_cast<const T*>(x.address());
        T* to = static_cast<T*>(values.address());
        const auto used = static_cast<int64_t>(positions.rows.size());
        if (from == to) return add_in_place(positions, to, count, inner);
        parallel_for(count, std::max<int64_t>(1, detail::grain / std::max<int64_t>(inner, 1)),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t k = begin; k < std::min(end, used); ++k) {
                         T* sum = to + k * inner;
                         bool first = true;
                         positions.each(static_cast<size_t>(k), [&](int64_t i) {
                           if (std::exchange(first, false))
                             std::copy_n(from + i * inner, inner, sum);
                           else
                             detail::binary_row<scalar::Add, T, T>(inner, sum, sum, 1, from + i * inner, 1);
                         });
                       }
                       if (end > used) std::fill(to + std::max(begin, used) * inner, to + end * inner, T{});
                     });
      }
    });
  }

 private:
  /// Positions of a row are not before that of its sum, and those before it belong to rows before: each sum
  /// is written over terms that have been read. Threads share the columns.
  template <class T>
  static void add_in_place(const PositionsByRow& positions, T* values, int64_t count, int64_t inner) {
    const auto used = static_cast<int64_t>(positions.rows.size());
    if (used == count) return;
    parallel_for(inner, std::max<int64_t>(1, detail::grain / count), [&](int64_t begin, int64_t end) {
      for (int64_t k = 0; k < count; ++k) {
        T* const sum = values + k * inner + begin;
        if (k >= used) {
          std::fill_n(sum, end - begin, T{});
          continue;
        }
        bool first = true;
        positions.each(static_cast<size_t>(k), [&](int64_t i) {
          const T* const term = values + i * inner + begin;
          if (!std::exchange(first, false))
            detail::binary_row<scalar::Add, T, T>(end - begin, sum, sum, 1, term, 1);
          else if (i != k)
            std::copy_n(term, end - begin, sum);
        });
      }
    });
  }
  template <class I>
  static PositionsByRow positions_of(const Tensor& indices, int64_t size) {
    const I* list = static_cast<const I*>(indices.address());
    return PositionsByRow([=](int64_t i) { return list[i] < 0 ? list[i] + size : int64_t{list[i]}; },
                          indices.elements(), size);
  }
};

struct SumRowsInPlace : SumRows {
  SumRowsInPlace() : SumRows(true) {}
};

/// Calls `copy(row, position, within)` for rows of one size of the table at `table`; `within` says whether
/// the row is in it.
template <class F>
void each_row_of(const char* table, const Tensor& rows, int64_t size, int64_t bytes, F&& copy) {
  const Tensor flat = rows.contiguous_copy();
  const auto* row = static_cast<const int64_t*>(flat.address());
  constexpr int64_t grain = 256 * 1024;  // bytes, at least, for each thread
  parallel_for(flat.elements(), std::max<int64_t>(1, grain / std::max<int64_t>(bytes, 1)),
               [&](int64_t begin, int64_t end) {
                 const auto within = [=](int64_t k) { return row[k] >= 0 && row[k] < size; };
                 const int64_t ahead = rows_ahead(bytes);
                 for (int64_t k = begin; k < end; ++k) {
                   if (k + ahead < end && within(k + ahead))
                     prefetch_row(table + row[k + ahead] * bytes, bytes);
                   copy(row[k], k, within(k));
                 }
               });
}

int64_t row_bytes(const Tensor& table) {
  const int64_t rows = table.shape().dims()[0];
  return rows == 0 ? 0 : table.elements() / rows * static_cast<int64_t>(size_of(table.dtype()));
}

struct TakeRows : Op {
  TakeRows() : Op({.takes_halves = true, .takes_any_values = true, .picks_from = InputSet::only(0)}) {}
  std::string_view name() const override { return "take_rows"; }
  Specs infer(const InputSpecs& in) const override {
    check_table(*in[0], name());
    check_rows(*in[1], name());
    return {{in[0]->dtype, rows_of_table(in[0]->shape, in[1]->shape.elements())}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor table = call.inputs[0]->contiguous_copy();
    const int64_t bytes = row_bytes(table);
    const char* from = static_cast<const char*>(table.address());
    char* to = static_cast<char*>(call.outputs[0]->address());
    if (bytes == 0) return;
    each_row_of(from, *call.inputs[1], table.shape().dims()[0], bytes,
                [=](int64_t row, int64_t position, bool within) {
                  if (within)
                    std::memcpy(to + position * bytes, from + row * bytes, static_cast<size_t>(bytes));
                  else
                    std::memset(to + position * bytes, 0, static_cast<size_t>(bytes));
                });
  }
};

/// Written over its table, it touches the rows alone.
struct PutRows : Op {
  PutRows()
      : Op({.takes_halves = true,
            .takes_any_values = true,
            .edits_input = true,
            .in_place = InputSet::only(0)}) {}
  std::string_view name() const override { return "put_rows"; }
  Specs infer(const InputSpecs& in) const override {
    check_table(*in[0], name());
    check_rows(*in[1], name());
    const Shape shape = rows_of_table(in[0]->shape, in[1]->shape.elements());
    if (!(in[2]->shape == shape) || in[2]->dtype != in[0]->dtype)
      throw ShapeError(fmt::format("put_rows: {} {} are not {} rows of a table of {} {}",
                                   espalier::name(in[2]->dtype), in[2]->shape.str(), in[1]->shape.elements(),
                                   espalier::name(in[0]->dtype), in[0]->shape.str()));
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    if (out.address() != call.inputs[0]->address()) copy_elements(*call.inputs[0], out);
    const Tensor values = call.inputs[2]->contiguous_copy();
    const int64_t bytes = row_bytes(out);
    const char* from = static_cast<const char*>(values.address());
    char* to = static_cast<char*>(out.address());
    if (bytes == 0) return;
    each_row_of(to, *call.inputs[1], out.shape().dims()[0], bytes,
                [=](int64_t row, int64_t position, bool within) {
                  if (within)
                    std::memcpy(to + row * bytes, from + position * bytes, static_cast<size_t>(bytes));
                });
  }
  NodeFlops cost(const NodeWork& work) const override {
    return {.elementwise = static_cast<double>(work.inputs[2]->shape.elements())};
  }
};

/// Of scatter_add_like: the values, the indices, and the table for its shape.
Variable operand(const Variable& v, size_t i) { return v.node()->inputs[i].variable(); }

/// What another such gradient does with its indices.
Variable scattered(const Variable& like, const Variable& values, const Variable& indices) {
  const Op& op = like.node()->op();
  return scatter_add_like(values, indices, operand(like, 2), 0, attribute<std::string>(op, "function"),
                          attribute<bool>(op, "from_end"));
}

}  // namespace

bool scatters_rows(const Op& op) {
  return op.traits().deferred && is_op(op, "scatter_add_like") && attribute<int64_t>(op, "axis") == 0;
}
bool is_row_gradient(const Variable& gradient) { return scatters_rows(gradient.node()->op()); }

bool has_few_rows(const Variable& gradient) {
  // Rows are added up, taken out and put back, where a table is written once.
  return is_row_gradient(gradient) &&
         2 * operand(gradient, 1).shape().elements() <= gradient.shape().dims()[0];
}

RowGradient row_gradient(const Variable& gradient) {
  const Variable values = operand(gradient, 0), indices = operand(gradient, 1), table = operand(gradient, 2);
  const Variable sums =
      apply(shared_op<SumRows>(), {&values, &indices, &table}, std::source_location::current());
  return {sums, Variable(sums.node(), 1)};
}

Variable scaled_row_gradient(const Variable& gradient, const Variable& factor) {
  return scattered(gradient, operand(gradient, 0) * factor, operand(gradient, 1));
}

Variable joined_row_gradients(std::span<const Variable> gradients) {
  std::vector<Variable> values, indices;
  for (const Variable& gradient : gradients) {
    const Variable index = operand(gradient, 1);
    // Merged without sizes: those of other axes may be the batch's.
    Dims groups = operand(gradient, 2).shape().dims();
    std::ranges::fill(groups, 1);
    groups[0] = static_cast<int64_t>(index.rank());
    values.push_back(index.rank() == 1 ? operand(gradient, 0) : merge_axes(operand(gradient, 0), groups));
    indices.push_back(reshape(index.dtype() == DType::int64 ? index : cast(index, DType::int64), {-1}));
  }
  // Each was read forward as its own function says; negative ones are for those that count from the end.
  const bool from_end = std::ranges::any_of(
      gradients, [](const Variable& gradient) { return attribute<bool>(gradient.node()->op(), "from_end"); });
  return scatter_add_like(concat(values, 0), concat(indices, 0), operand(gradients[0], 2), 0,
                          attribute<std::string>(gradients[0].node()->op(), "function"), from_end);
}

Variable take_rows(const Variable& table, const Variable& rows) {
  return apply(shared_op<TakeRows>(), {&table, &rows}, std::source_location::current());
}
Variable put_rows(const Variable& table, const Variable& rows, const Variable& values) {
  return apply(shared_op<PutRows>(), {&table, &rows, &values}, std::source_location::current());
}
bool sums_rows(const Op& op) {
  return &op == shared_op<SumRows>().get() || &op == shared_op<SumRowsInPlace>().get();
}
OpPtr sum_rows_in_place() { return shared_op<SumRowsInPlace>(); }
bool puts_rows(const Variable& v) { return &v.node()->op() == shared_op<PutRows>().get(); }

void add_row_ops(OpRegistry& ops) {
  ops.add<SumRows, PutRows>(3);
  ops.add<TakeRows>(2);
}

}  // namespace espalier
