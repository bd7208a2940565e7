#include "espalier/core/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <ostream>

#include "espalier/core/countable.h"
#include "espalier/core/error.h"
#include "espalier/core/open_note.h"
#include "espalier/core/open_sizes.h"

namespace espalier {

namespace {
[[noreturn]] void refuse_axis(int64_t axis, size_t rank, std::string_view op) {
  throw ShapeError(fmt::format("{}: there is no axis {} among {} axes", op, axis, rank));
}
}  // namespace

void Shape::refuse(int64_t axis) const { refuse_axis(axis, rank(), "shape"); }

void Shape::check_known(size_t axis) const {
  const auto is_open = [&](size_t at) { return (open_->axes >> at & 1) != 0; };
  size_t first = axis;
  if (axis == rank())
    for (first = 0; first < rank() && !is_open(first);) ++first;
  if (first == rank() || !is_open(first)) return;
  UnsupportedError error(fmt::format(
      "shape: the size of axis {} of {} is open (-1): each batch has its own, and a number made of it here "
      "would be that of no batch; axis_size, arange_like, zeros_like and full_like, expand_as, flatten, "
      "unflatten_like, and -1 in a shape take it from the batch",
      first, str()));
  error.locate(open_->where);
  throw error;
}

int64_t Shape::product() const {
  int64_t elements = 1;
  bool overflow = false, empty = false;
  for (int64_t size : dims_) {
    if (size < 0) throw ShapeError(fmt::format("a shape cannot have a negative size: {}", str()));
    if (size == 0)
      empty = true;
    else
      overflow |= __builtin_mul_overflow(elements, size, &elements);
  }
  if (empty) return 0;
  if (overflow) throw ShapeError(fmt::format("{} has more elements than 64 bits can count", str()));
  return elements;
}

void check_countable(const Shape& shape, std::string_view op) {
  try {
    (void)shape.elements();
  } catch (const ShapeError& e) {
    throw ShapeError(fmt::format("{}: {}", op, e.what()));
  }
}

namespace {
std::atomic<bool> shows_open_axes{false};
}
void show_open_axes() { shows_open_axes.store(true, std::memory_order_relaxed); }

std::string size_text(int64_t size) {
  const bool open = size > 0 && size % nominal_size == 0 && shows_open_axes.load(std::memory_order_relaxed);
  return std::to_string(open ? -1 : size);
}

std::string open_note(int64_t a, int64_t b) {
  const bool is_open = size_text(a) == "-1", other_is_open = size_text(b) == "-1";
  if (a == b || (!is_open && !other_is_open)) return "";
  if (is_open && other_is_open) return "; the sizes of open axes (-1) go together only if they are the same";
  const int64_t known = is_open ? b : a;
  return fmt::format(
      "; an open axis (-1) has no size before a batch comes: if it always has {0}, write {0} in "
      "the placeholder",
      known);
}

std::string open_note(const Shape& a, const Shape& b) {
  for (size_t i = 1; i <= std::min(a.rank(), b.rank()); ++i)
    if (const int64_t m = a.dims()[a.rank() - i], n = b.dims()[b.rank() - i]; m != n) return open_note(m, n);
  return "";
}

std::string Shape::str() const {
  std::string text = "[";
  for (size_t i = 0; i < rank(); ++i) {
    const bool open = open_ && (open_->axes >> i & 1) != 0;
    text += (i == 0 ? "" : ", ") + (open ? "-1" : size_text(dims_[i]));
  }
  return text + "]";
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.str(); }

Shape broadcast(const Shape& a, const Shape& b, std::string_view op) {
  if (a == b) return a;
  const size_t rank = std::max(a.rank(), b.rank());
  Dims dims(rank, 1);
  for (size_t i = 1; i <= rank; ++i) {
    const int64_t m = i <= a.rank() ? a.dims()[a.rank() - i] : 1;
    const int64_t n = i <= b.rank() ? b.dims()[b.rank() - i] : 1;
    if (m != n && m != 1 && n != 1)
      throw ShapeError(
          fmt::format("{}: shapes {} and {} do not go together: sizes {} and {} differ, and neither is 1{}",
                      op, a.str(), b.str(), size_text(m), size_text(n), open_note(m, n)));
    dims[rank - i] = m == 1 ? n : m;
  }
  return Shape(std::move(dims));
}

Shape resolve(const Shape& shape, int64_t elements, std::string_view op) {
  Shape result = shape;
  int64_t known = 1, open = -1;
  for (size_t i = 0; i < shape.rank(); ++i) {
    const int64_t size = shape.dims()[i];
    if (size == -1 && open < 0)
      open = static_cast<int64_t>(i);
    else if (size < 0 || __builtin_mul_overflow(known, size, &known))
      throw ShapeError(fmt::format("{}: {} is not a shape", op, shape.str()));
  }
  if (open >= 0 && known != 0 && elements % known == 0)
    result.dims()[static_cast<size_t>(open)] = elements / known;
  else if ((open >= 0 || known != elements) && size_text(elements) == "-1")
    throw ShapeError(fmt::format(
        "{}: the elements of an input with open axes (-1) cannot have the shape {}: how many they "
        "are is not known before a batch comes; write the sizes that are always the same in the "
        "placeholder",
        op, shape.str()));
  else if (open >= 0 || known != elements)
    throw ShapeError(fmt::format("{}: {} elements cannot have the shape {}", op, elements, shape.str()));
  return result;
}

size_t resolve_axis(int64_t axis, size_t rank, std::string_view op) {
  const int64_t n = static_cast<int64_t>(rank);
  if (axis < -n || axis >= n) refuse_axis(axis, rank, op);
  return static_cast<size_t>(axis < 0 ? axis + n : axis);
}

SmallVector<bool, 8> Axes::mask(size_t rank, std::string_view op) const {
  SmallVector<bool, 8> mask(rank, list_.empty());
  for (int64_t axis : list_) {
    bool& taken = mask[resolve_axis(axis, rank, op)];
    if (taken) throw ShapeError(fmt::format("{}: axis {} is named twice", op, axis));
    taken = true;
  }
  return mask;
}

Layout::Layout(Shape s) : shape(std::move(s)), strides(shape.rank(), 1) {
  int64_t stride = 1;
  for (size_t i = shape.rank(); i-- > 0;) {
    strides[i] = stride;
    // An overflow is for elements() to tell; until then the strides mean nothing.
    (void)__builtin_mul_overflow(stride, std::max<int64_t>(shape.dims()[i], 1), &stride);
  }
}

bool Layout::contiguous() const {
  int64_t stride = 1;
  for (size_t i = shape.rank(); i-- > 0;) {
    const int64_t size = shape.dims()[i];
    if (size == 0) return true;
    if (size != 1 && strides[i] != stride) return false;
    stride *= size;
  }
  return true;
}

bool reshape_layout(const Layout& from, const Shape& to, Layout& result) {
  result = Layout(to);
  result.offset = from.offset;
  if (from.contiguous()) return true;
  // Axes that follow each other evenly are one, and each such axis may be split. Axes of size 1 can be had
  // anywhere.
  const Layout whole = collapsed(from);
  size_t i = to.rank();
  for (size_t j = whole.shape.rank(); j-- > 0;) {
    int64_t inner = 1;
    for (; inner < whole.shape.dims()[j] && i > 0; --i) {
      result.strides[i - 1] = whole.strides[j] * inner;
      inner *= to.dims()[i - 1];
    }
    if (inner != whole.shape.dims()[j]) return false;
  }
  return true;
}

Layout collapsed(const Layout& layout) {
  Layout result;
  result.offset = layout.offset;
  Dims& sizes = result.shape.dims();
  for (size_t i = 0; i < layout.shape.rank(); ++i) {
    const int64_t size = layout.shape.dims()[i], stride = layout.strides[i];
    if (size == 1) continue;
    if (!sizes.empty() && result.strides.back() == stride * size) {
      sizes.back() *= size;
      result.strides.back() = stride;
    } else {
      sizes.push_back(size);
      result.strides.push_back(stride);
    }
  }
  return result;
}

Layout broadcast_layout(const Layout& from, const Shape& to) {
  Layout result;
  result.shape = to;
  result.offset = from.offset;
  result.strides = Dims(to.rank(), 0);
  const size_t extra = to.rank() - from.shape.rank();
  for (size_t i = 0; i < from.shape.rank(); ++i)
    if (from.shape.dims()[i] == to.dims()[extra + i]) result.strides[extra + i] = from.strides[i];
  return result;
}

}  // namespace espalier
