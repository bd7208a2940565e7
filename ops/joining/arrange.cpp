// Repetitions, parts and orders of axes, composed of views and of `concat`.
#include <algorithm>
#include <numeric>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/open_sizes.h"
#include "espalier/ops/functions/arrange.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/views/axis_views.h"

#include <fmt/format.h>

namespace espalier {

namespace {

void check_repeats(int64_t repeats, std::string_view function) {
  if (repeats < 0) throw ShapeError(fmt::format("{}: {} repetitions", function, repeats));
}

/// The order of axes that moves from[i] to to[i].
Dims moved_order(const Axes& from, const Axes& to, size_t rank, std::string_view function) {
  if (from.list().size() != to.list().size() || from.list().empty())
    throw ShapeError(
        fmt::format("{}: {} axes are to become {}", function, from.list().size(), to.list().size()));
  const auto is_source = from.mask(rank, function), is_target = to.mask(rank, function);
  Dims order(rank, 0), others;
  for (size_t i = 0; i < rank; ++i)
    if (!is_source[i]) others.push_back(static_cast<int64_t>(i));
  size_t next = 0;
  for (size_t i = 0; i < rank; ++i)
    if (!is_target[i]) order[i] = others[next++];
  for (size_t i = 0; i < from.list().size(); ++i)
    order[resolve_axis(to.list()[i], rank, function)] =
        static_cast<int64_t>(resolve_axis(from.list()[i], rank, function));
  return order;
}

std::vector<Variable> slices_of(const Operand& x, const std::vector<int64_t>& sizes, int64_t axis) {
  std::vector<Variable> parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    parts.push_back(slice(x.variable(), axis, begin, begin + size));
    begin += size;
  }
  return parts;
}

/// Throws UnsupportedError if an axis is open, so that nothing tells how many parts it has.
void need_known_size(const Variable& x, int64_t axis, std::string_view function) {
  (void)resolve_axis(axis, x.rank(), function);
  if (is_open_axis(x, axis))
    throw UnsupportedError(fmt::format(
        "{}: axis {} of {} is open, so the number of its parts is not known before a batch comes; write its "
        "size in the placeholder, or take parts whose number is known: chunk, slice",
        function, axis, x.shape().str()));
}

/// Sizes of parts of `size` that an axis is cut into; at least one.
std::vector<int64_t> equal_parts(int64_t whole, int64_t size) {
  std::vector<int64_t> sizes;
  do {
    sizes.push_back(std::min(size, whole));
    whole -= size;
  } while (whole > 0);
  return sizes;
}

}  // namespace

Variable tile(const Operand& x, const std::vector<int64_t>& repeats) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    Variable result = x.defined("tile");
    for (const int64_t times : repeats) check_repeats(times, "tile");
    Dims added;
    for (size_t i = result.rank(); i < repeats.size(); ++i)
      added.push_back(static_cast<int64_t>(i - result.rank()));
    result = unsqueeze_axes(result, added);
    const size_t rank = result.rank(), first = rank - repeats.size();
    Dims groups;
    for (size_t i = rank; i-- > 0;) {
      const int64_t times = i < first ? 1 : repeats[i - first];
      if (times != 1) result = repeat_on_axis(result, times, static_cast<int64_t>(i));
      groups.insert(0, times == 1 ? 1 : 2);
    }
    return result.rank() == rank ? result : merge_axes(result, groups);
  });
}

Variable repeat_interleave(const Operand& x, int64_t repeats, int64_t axis) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable& from = x.defined("repeat_interleave");
    check_repeats(repeats, "repeat_interleave");
    const size_t a = resolve_axis(axis, from.rank(), "repeat_interleave");
    Dims groups(from.rank(), 1);
    groups[a] = 2;
    return merge_axes(repeat_on_axis(from, repeats, static_cast<int64_t>(a) + 1), groups);
  });
}

std::vector<Variable> split(const Operand& x, int64_t size, int64_t axis) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Shape& shape = x.defined("split").shape();
    if (size < 1) throw Error(fmt::format("split: parts of {} slices", size));
    need_known_size(x.variable(), axis, "split");
    return slices_of(x, equal_parts(shape.dims()[resolve_axis(axis, shape.rank(), "split")], size), axis);
  });
}
std::vector<Variable> split(const Operand& x, const std::vector<int64_t>& sizes, int64_t axis) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Shape& shape = x.defined("split").shape();
    int64_t left = shape.dims()[resolve_axis(axis, shape.rank(), "split")];
    for (const int64_t size : sizes)
      if (size < 0 || (left -= size) < 0) break;
    if (left != 0 || std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 0; }))
      throw ShapeError(fmt::format("split: the sizes {} do not add up to axis {} of {}{}", Shape(sizes).str(),
                                   axis, shape.str(),
                                   is_open_axis(x.variable(), axis)
                                       ? ", which is open: write its size in the placeholder, or use slice"
                                       : ""));
    return slices_of(x, sizes, axis);
  });
}
namespace {

/// Whether the size of an axis may be another one in each step.
bool follows_batch(const Variable& x, int64_t axis) {
  const size_t along = resolve_axis(axis, x.rank(), "chunk");
  return x.node()->lazy && (along == 0 || is_open_axis(x, axis));
}

}  // namespace

std::vector<Variable> chunk(const Operand& x, int64_t parts, int64_t axis) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Shape& shape = x.defined("chunk").shape();
    if (parts < 1) throw Error(fmt::format("chunk: {} parts", parts));
    const auto along = static_cast<int64_t>(resolve_axis(axis, shape.rank(), "chunk"));
    const int64_t size = shape.dims()[static_cast<size_t>(along)];
    if (follows_batch(x.variable(), axis) && size > 0 && size % parts == 0)
      return unbind(unflatten(x.variable(), along, {parts, -1}), along);
    if (is_open_axis(x.variable(), axis))
      throw UnsupportedError(
          fmt::format("chunk: axis {} of {} is open, and can be cut only into 2, 4 or another number of "
                      "parts that divides {}, not into {}; write its size in the placeholder, or take slices",
                      axis, shape.str(), nominal_size, parts));
    return slices_of(x, equal_parts(size, std::max<int64_t>(1, size / parts + (size % parts != 0))), axis);
  });
}
std::vector<Variable> unbind(const Operand& x, int64_t axis) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Shape& shape = x.defined("unbind").shape();
    const size_t a = resolve_axis(axis, shape.rank(), "unbind");
    need_known_size(x.variable(), axis, "unbind");
    const std::vector<int64_t> ones(static_cast<size_t>(shape.dims()[a]), 1);
    std::vector<Variable> slices = slices_of(x, ones, axis);
    for (Variable& v : slices) v = squeeze(v, static_cast<int64_t>(a));
    return slices;
  });
}

std::vector<Variable> meshgrid(const std::vector<Variable>& variables, MeshIndexing indexing,
                               std::source_location where) {
  const CallScope scope(where);
  return located(where, [&] {
    const auto rank = static_cast<int64_t>(variables.size());
    std::vector<Variable> lines;
    for (int64_t i = 0; i < rank; ++i) {
      const Variable& v = variables[static_cast<size_t>(i)];
      if (!v.defined()) throw Error("meshgrid: an operand is an undefined Variable");
      if (v.rank() > 1)
        throw ShapeError(fmt::format("meshgrid: takes vectors, not the shape {}", v.shape().str()));
      const bool swapped = indexing == MeshIndexing::xy && i < 2 && rank > 1;
      Dims others;
      for (int64_t axis = 0; axis < rank; ++axis)
        if (axis != (swapped ? 1 - i : i) || v.rank() == 0) others.push_back(axis);
      lines.push_back(unsqueeze_axes(v, others));
    }
    return broadcast_tensors(lines, where);
  });
}

Variable permute(const Operand& x, const Axes& order) {
  const CallScope scope(x.where());
  return transpose(x, order);
}
Variable movedim(const Operand& x, const Axes& from, const Axes& to) {
  const Variable& v = x.defined("movedim");
  return transpose(x, Axes(located(x.where(), [&] { return moved_order(from, to, v.rank(), "movedim"); })));
}
Variable swapaxes(const Operand& x, int64_t first, int64_t second) {
  const Variable& v = x.defined("swapaxes");
  Dims order(v.rank(), 0);
  std::iota(order.begin(), order.end(), int64_t{0});
  located(x.where(), [&] {
    std::swap(order[resolve_axis(first, v.rank(), "swapaxes")],
              order[resolve_axis(second, v.rank(), "swapaxes")]);
  });
  return transpose(x, Axes(std::move(order)));
}

Variable atleast_1d(const Operand& x) {
  return x.defined("atleast_1d").rank() == 0 ? unsqueeze(x, 0) : x.variable();
}
Variable atleast_2d(const Operand& x) {
  const size_t rank = x.defined("atleast_2d").rank();
  return rank == 0 ? unsqueeze_axes(x, Dims{0, 1}) : rank == 1 ? unsqueeze(x, 0) : x.variable();
}
Variable atleast_3d(const Operand& x) {
  const size_t rank = x.defined("atleast_3d").rank();
  if (rank == 0) return unsqueeze_axes(x, Dims{0, 1, 2});
  if (rank == 1) return unsqueeze_axes(x, Dims{0, 2});
  return rank == 2 ? unsqueeze(x, 2) : x.variable();
}

}  // namespace espalier
