// Rows of several tensors as one, and back: what a Deferred puts between batches.
#include <cstring>
#include <map>
#include <optional>

#include "espalier/core/countable.h"
#include "espalier/core/deferred/batch.h"
#include "espalier/core/error.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

struct RowPair {
  int64_t from, to;
};
bool is_row(int64_t number, int64_t rows) { return number >= 0 && number < rows; }
using RowPairs = std::vector<RowPair>;
using RowPairsPtr = std::shared_ptr<const RowPairs>;

std::vector<int64_t> flat(const std::vector<RowPairsPtr>& lists) {
  std::vector<int64_t> numbers;
  for (const RowPairsPtr& pairs : lists) {
    numbers.push_back(static_cast<int64_t>(pairs->size()));
    for (const RowPair& pair : *pairs) numbers.insert(numbers.end(), {pair.from, pair.to});
  }
  return numbers;
}

/// How many rows ahead of its use one is fetched: rows are read in no order that a processor could guess.
constexpr size_t prefetch_distance = 4;
void prefetch_row(const void* row, size_t bytes) {
  constexpr size_t line = 64, most = 16 * line;
  for (size_t at = 0; at < std::min(bytes, most); at += line)
    __builtin_prefetch(static_cast<const char*>(row) + at);
}

Shape shape_of_row(const Shape& x) { return Shape(Dims(x.begin() + 1, x.end())); }

/// Zeros in the shape of input 0, which is only read for it; to row pairs[i].to of these, row pairs[i].from
/// of a further input is added. If it `adds`, these rows are added to input 0 itself. Rows have
/// `row_elements` elements, whatever the axes of the inputs are.
class PutRowsLike : public Op {
 public:
  PutRowsLike(std::vector<RowPairsPtr> pairs, int64_t row_elements, bool adds)
      : Op({.linearity = Linearity::together,
            .deferred = !adds,
            .reads = adds ? InputSet::all() : InputSet::all_but(0),
            .in_place = adds ? InputSet::only(0) : InputSet::none(),
            .gradient_reads = InputSet::none()}),
        pairs_(std::move(pairs)),
        row_elements_(row_elements),
        adds_(adds) {}
  std::string_view name() const override { return "put_rows_like"; }
  Attributes attributes() const override {
    return {{"pairs", flat(pairs_)}, {"row_elements", row_elements_}, {"adds", adds_}};
  }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Numbers>(*in[0], name());
    for (size_t i = 1; i < in.size(); ++i) check_same_dtype(*in[0], *in[i], name());
    if (in.size() != pairs_.size() + 1 || in[0]->shape.elements() != rows_in(*in[0]) * row_elements_)
      throw ShapeError(fmt::format("put_rows_like: {} inputs for {} lists of rows of {} elements of {}",
                                   in.size(), pairs_.size(), row_elements_, in[0]->shape.str()));
    const int64_t rows = rows_in(*in[0]);
    for (size_t k = 0; row_elements_ && k < pairs_.size(); ++k)
      for (const RowPair& pair : *pairs_[k])
        if (!is_row(pair.to, rows) || !is_row(pair.from, rows_in(*in[k + 1])))
          throw IndexError(fmt::format("put_rows_like: row {} of {} in place of row {} of {}", pair.from,
                                       in[k + 1]->shape.str(), pair.to, in[0]->shape.str()));
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    if (row_elements_ == 0) return;
    visit(out.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Numbers::accepts<T>) {
        T* const to = static_cast<T*>(out.address());
        const int64_t n = row_elements_;
        std::vector<bool> written(static_cast<size_t>(out.elements() / n), adds_);
        if (adds_ && call.inputs[0]->address() != out.address()) copy_elements(*call.inputs[0], out);
        for (size_t k = 0; k < pairs_.size(); ++k) {
          const auto [x, step] = rows_of(*call.inputs[k + 1]);
          const T* const from = static_cast<const T*>(x.address());
          const RowPairs& pairs = *pairs_[k];
          for (size_t i = 0; i < pairs.size(); ++i) {
            if (i + prefetch_distance < pairs.size())
              prefetch_row(from + pairs[i + prefetch_distance].from * step,
                           static_cast<size_t>(n) * sizeof(T));
            const RowPair& pair = pairs[i];
            T* const sum = to + pair.to * n;
            const T* const added = from + pair.from * step;
            if (written[static_cast<size_t>(pair.to)])
              detail::binary_row<scalar::Add, T, T>(n, sum, sum, 1, added, 1);
            else
              std::memcpy(sum, added, static_cast<size_t>(n) * sizeof(T));
            written[static_cast<size_t>(pair.to)] = true;
          }
        }
        for (size_t row = 0; row < written.size(); ++row)
          if (!written[row]) std::fill_n(to + static_cast<int64_t>(row) * n, n, T{});
      }
    });
  }
  Gradients gradient(const GradientRule& rule) const override {
    Gradients result(rule.inputs());
    if (adds_) result[0] = rule.output_gradient();
    for (size_t k = 0; k < pairs_.size(); ++k) {
      if (!rule.wants(k + 1)) continue;
      auto back = std::make_shared<RowPairs>();
      for (const RowPair& pair : *pairs_[k]) back->push_back({pair.to, pair.from});
      result[k + 1] = put(rule.input(k + 1), {std::move(back)}, {&rule.output_gradient(), 1}, row_elements_);
    }
    return result;
  }

  static Variable put(const Variable& like, std::vector<RowPairsPtr> pairs, std::span<const Variable> values,
                      int64_t row_elements, bool adds = false) {
    SmallVector<const Variable*, 8> inputs{&like};
    for (const Variable& v : values) inputs.push_back(&v);
    return apply(std::make_shared<PutRowsLike>(std::move(pairs), row_elements, adds),
                 {inputs.data(), inputs.size()}, std::source_location::current(), adds);
  }
  const std::vector<RowPairsPtr>& pairs() const { return pairs_; }
  int64_t row_elements() const { return row_elements_; }

 private:
  int64_t rows_in(const Spec& x) const { return row_elements_ ? x.shape.elements() / row_elements_ : 0; }
  /// The rows of a tensor, copied unless their elements are adjacent, and the distance of two.
  std::pair<Tensor, int64_t> rows_of(const Tensor& x) const {
    const Layout simple = collapsed(x.layout());
    const Dims &sizes = simple.shape.dims(), &strides = simple.strides;
    if (sizes.size() == 2 && sizes[1] == row_elements_ && strides[1] == 1) return {x, strides[0]};
    return {x.contiguous_copy(), row_elements_};
  }

  std::vector<RowPairsPtr> pairs_;
  int64_t row_elements_;
  bool adds_;
};

/// The positions as a tensor on the device of `like`.
Variable positions(const RowPairs& pairs, int64_t RowPair::*which, const Variable& like) {
  std::vector<int64_t> numbers;
  for (const RowPair& pair : pairs) numbers.push_back(pair.*which);
  const auto count = static_cast<int64_t>(numbers.size());
  return Variable(tensor_from(numbers, {count}).to(like.device()));
}

/// The rows `to` of a source: where they follow each other, the source itself or a view of it.
Variable taken_rows(const Variable& source, const RowPairs& pairs) {
  const int64_t begin = pairs.front().to, count = std::ssize(pairs);
  for (int64_t i = 0; i < count; ++i)
    if (pairs[static_cast<size_t>(i)].to != begin + i)
      return gather(source, positions(pairs, &RowPair::to, source), 0);
  return begin == 0 && count == source.shape().dims()[0] ? source : row_range(source, begin, 1, count);
}

/// Zeros in the shape of `like`, with rows of `values` put in.
Variable put_pairs(const Variable& values, const Variable& like, RowPairsPtr pairs) {
  const Shape row = shape_of_row(like.shape());
  if (like.device().type == DeviceType::cpu)
    return PutRowsLike::put(like, {std::move(pairs)}, {&values, 1}, row.elements());
  const Shape& given = values.shape();  // a row, or several
  Dims dims{1};
  for (size_t axis = 0; axis + row.rank() < given.rank(); ++axis) dims[0] *= given.dims()[axis];
  dims.append(row.begin(), row.end());
  const Variable rows = values.reshape(Shape(std::move(dims)));
  const Variable taken = gather(rows, positions(*pairs, &RowPair::from, like), 0);
  return scatter_add_like(taken, positions(*pairs, &RowPair::to, like), like, 0, "stack_rows");
}

/// Rows of its inputs, stacked along a new first axis.
class StackRows : public Op {
 public:
  explicit StackRows(std::vector<RowPiece> pieces)
      : Op({.linearity = Linearity::together,
            .precision = OpPrecision::follows,
            .only_copies = true,
            .gradient_reads = InputSet::none()}),
        pieces_(std::move(pieces)) {
    uint32_t sources = 0;
    for (const RowPiece& piece : pieces_) sources = std::max(sources, piece.source + 1);
    std::vector<std::shared_ptr<RowPairs>> lists(sources);
    for (size_t i = 0; i < pieces_.size(); ++i) {
      auto& list = lists[pieces_[i].source];
      if (!list) list = std::make_shared<RowPairs>();
      list->push_back({static_cast<int64_t>(i), std::max(pieces_[i].row, 0)});
    }
    by_source_.assign(lists.begin(), lists.end());
    whole_.resize(sources);
    for (const RowPiece& piece : pieces_) whole_[piece.source] = piece.row < 0;
  }
  std::string_view name() const override { return "stack_rows"; }
  Attributes attributes() const override {
    std::vector<int64_t> sources, rows;
    for (const RowPiece& piece : pieces_) {
      sources.push_back(piece.source);
      rows.push_back(piece.row);
    }
    return {{"sources", std::move(sources)}, {"rows", std::move(rows)}};
  }
  Specs infer(const InputSpecs& in) const override {
    if (in.size() != by_source_.size())
      throw ShapeError(fmt::format("stack_rows: {} sources, not {}", by_source_.size(), in.size()));
    for (const RowPiece& piece : pieces_)
      if (const Shape& shape = in[piece.source]->shape;
          piece.row >= 0 && (shape.rank() == 0 || !is_row(piece.row, shape.dims()[0])))
        throw IndexError(fmt::format("stack_rows: {} has no row {}", shape.str(), piece.row));
    Dims dims{static_cast<int64_t>(pieces_.size())};
    const Shape &first = in[0]->shape, row = whole_[0] ? first : shape_of_row(first);
    for (size_t i = 0; i < in.size(); ++i) {
      check_same_dtype(*in[0], *in[i], name());
      const Shape& shape = in[i]->shape;
      if (!std::equal(shape.begin() + !whole_[i], shape.end(), row.begin(), row.end()))
        throw ShapeError(fmt::format("stack_rows: rows {} of {} and {} differ", i, shape.str(), row.str()));
    }
    dims.append(row.begin(), row.end());
    return {{in[0]->dtype, Shape(std::move(dims))}};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    if (out.device().type != DeviceType::cpu) return copy_rows(call);
    const size_t bytes = out.bytes() / pieces_.size();
    if (bytes == 0) return;
    SmallVector<Tensor, 8> in;
    for (const Tensor* x : call.inputs) in.push_back(x->contiguous_copy());
    const auto address_of = [&](const RowPiece& piece) {
      return static_cast<const char*>(in[piece.source].address()) +
             bytes * static_cast<size_t>(std::max(piece.row, 0));
    };
    char* to = static_cast<char*>(out.address());
    for (size_t i = 0; i < pieces_.size(); ++i, to += bytes) {
      if (i + prefetch_distance < pieces_.size())
        prefetch_row(address_of(pieces_[i + prefetch_distance]), bytes);
      std::memcpy(to, address_of(pieces_[i]), bytes);
    }
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable& g = rule.output_gradient();
    Gradients result(rule.inputs());
    for (size_t i = 0; i < result.size(); ++i) {
      if (!rule.wants(i)) continue;
      const Variable source = rule.input(i);
      if (!whole_[i])
        result[i] = put_pairs(g, source, by_source_[i]);
      else if (by_source_[i]->size() == 1)
        result[i] = row_of(g, by_source_[i]->front().from);
      else
        result[i] = sum(gather(g, positions(*by_source_[i], &RowPair::from, g), 0), 0);
    }
    return result;
  }

  /// The same, composed of ops that have kernels on every device.
  Variable composed(std::span<const Variable* const> sources) const {
    std::vector<Variable> parts;
    std::vector<int64_t> where(pieces_.size());
    int64_t next = 0;
    for (size_t i = 0; i < sources.size(); ++i) {
      const Variable& source = *sources[i];
      const RowPairs& pairs = *by_source_[i];
      if (whole_[i]) {
        parts.push_back(unsqueeze_axes(source, {0}));
        for (const RowPair& pair : pairs) where[static_cast<size_t>(pair.from)] = next;
        ++next;
      } else {
        parts.push_back(taken_rows(source, pairs));
        for (const RowPair& pair : pairs) where[static_cast<size_t>(pair.from)] = next++;
      }
    }
    const Variable all = parts.size() == 1 ? parts[0] : concat(parts, 0);
    bool in_order = next == static_cast<int64_t>(where.size());
    for (size_t i = 0; i < where.size(); ++i) in_order &= where[i] == static_cast<int64_t>(i);
    if (in_order) return all;
    const auto count = static_cast<int64_t>(where.size());
    return gather(all, Variable(tensor_from(where, {count}).to(all.device())), 0);
  }

 private:
  void copy_rows(const KernelCall& call) const {
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const Tensor& x = *call.inputs[pieces_[i].source];
      const auto at = static_cast<int64_t>(i);
      Tensor to = call.outputs[0]->slice(0, at, at + 1);
      const int64_t row = pieces_[i].row;
      copy_elements((row < 0 ? x : x.slice(0, row, row + 1)).reshape(to.shape()), to);
    }
  }

  std::vector<RowPiece> pieces_;
  std::vector<RowPairsPtr> by_source_;  // .from: rows of the output, .to: rows of the source
  std::vector<bool> whole_;
};

/// Rows from `begin` on, in steps; with `count` of -1, one row without its axis.
class RowRange : public Op {
 public:
  RowRange(int64_t begin, int64_t step, int64_t count)
      : Op({.kind = OpKind::view,
            .precision = OpPrecision::follows,
            .only_copies = true,
            .gradient_reads = InputSet::none()}),
        begin_(begin),
        step_(step),
        count_(count) {}
  std::string_view name() const override { return "row_range"; }
  Attributes attributes() const override { return {{"begin", begin_}, {"step", step_}, {"count", count_}}; }
  Specs infer(const InputSpecs& in) const override {
    Shape shape = in[0]->shape;
    int64_t last = 0;
    const bool counts = !__builtin_mul_overflow(std::max<int64_t>(count_, 1) - 1, step_, &last) &&
                        !__builtin_add_overflow(begin_, last, &last);
    if (!counts || shape.rank() == 0 || !is_row(begin_, shape[0]) || !is_row(last, shape[0]))
      throw IndexError(fmt::format("row_range: {} rows from {} on in steps of {} are not within {}", count_,
                                   begin_, step_, shape.str()));
    if (count_ < 0) return {{in[0]->dtype, shape_of_row(shape)}};
    shape.dims()[0] = count_;
    check_countable(shape, name());
    return {{in[0]->dtype, std::move(shape)}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor& in = *call.inputs[0];
    copy_elements(Tensor(in.storage(), *view(in.layout(), call.outputs[0]->spec()), in.dtype()),
                  *call.outputs[0]);
  }
  std::optional<Layout> view(const Layout& in, const Spec& out) const override {
    Layout layout;
    layout.shape = out.shape;
    layout.offset = in.offset + begin_ * in.strides[0];
    if (count_ >= 0) layout.strides.push_back(count_ > 1 ? in.strides[0] * step_ : in.strides[0]);
    layout.strides.append(in.strides.begin() + 1, in.strides.end());
    return layout;
  }
  Gradients gradient(const GradientRule& rule) const override {
    auto pairs = std::make_shared<RowPairs>();
    for (int64_t i = 0; i < std::max<int64_t>(count_, 1); ++i) pairs->push_back({i, begin_ + i * step_});
    return {put_pairs(rule.output_gradient(), rule.input(), std::move(pairs))};
  }

 private:
  int64_t begin_, step_, count_;
};

const PutRowsLike* as_put_rows(const Variable& v) {
  const Op& op = v.node()->op();
  return op.traits().deferred ? dynamic_cast<const PutRowsLike*>(&op) : nullptr;
}

/// The reverse of `flat`; nothing for numbers that it does not make.
std::optional<std::vector<RowPairsPtr>> pairs_from(const Dims& numbers) {
  std::vector<RowPairsPtr> lists;
  for (size_t at = 0; at < numbers.size();) {
    auto pairs = std::make_shared<RowPairs>();
    const int64_t count = numbers[at++];
    if (count < 0 || count > static_cast<int64_t>(numbers.size() - at) / 2) return std::nullopt;
    for (int64_t i = 0; i < count; ++i, at += 2) pairs->push_back({numbers[at], numbers[at + 1]});
    lists.push_back(std::move(pairs));
  }
  return lists;
}

}  // namespace

OpPtr stack_rows_op(std::vector<RowPiece> pieces) { return std::make_shared<StackRows>(std::move(pieces)); }

Variable stack_rows(const OpPtr& op, std::span<const Variable* const> sources) {
  if (sources[0]->device().type != DeviceType::cpu)
    return static_cast<const StackRows&>(*op).composed(sources);
  return apply(op, sources, std::source_location::current());
}

Variable row_range(const Variable& x, int64_t begin, int64_t step, int64_t count) {
  return apply(std::make_shared<RowRange>(begin, step, count), {&x}, std::source_location::current());
}
Variable row_of(const Variable& x, int64_t row) { return row_range(x, row, 1, -1); }

Variable put_row_like(const Variable& x, const Variable& like, int64_t row) {
  return put_pairs(x, like, std::make_shared<RowPairs>(RowPairs{{0, row}}));
}

Variable put_rows_like(const Variable& x, const Variable& like, int64_t begin) {
  auto pairs = std::make_shared<RowPairs>();
  for (int64_t i = 0; i < x.shape().dims()[0]; ++i) pairs->push_back({i, begin + i});
  return put_pairs(x, like, std::move(pairs));
}

bool puts_rows_like(const Variable& gradient) { return as_put_rows(gradient) != nullptr; }

Variable joined_put_rows(std::span<const Variable> gradients, Variable sum) {
  std::vector<RowPairsPtr> pairs;
  std::vector<Variable> values;
  for (const Variable& gradient : gradients) {
    const PutRowsLike& op = *as_put_rows(gradient);
    pairs.insert(pairs.end(), op.pairs().begin(), op.pairs().end());
    const auto& inputs = gradient.node()->inputs;
    for (size_t i = 1; i < inputs.size(); ++i) values.push_back(inputs[i].variable());
  }
  const int64_t row_elements = as_put_rows(gradients[0])->row_elements();
  if (sum.defined()) return PutRowsLike::put(sum, std::move(pairs), values, row_elements, true);
  return PutRowsLike::put(gradients[0].node()->inputs[0].variable(), std::move(pairs), values, row_elements);
}

void add_stack_rows_ops(OpRegistry& ops) {
  ops.add("stack_rows", Arity::at_least(1), [](AttributeReader& a) {
    const Dims sources = a.integers("sources"), rows = a.integers("rows");
    if (sources.empty()) a.refuse("sources");
    if (sources.size() != rows.size()) a.refuse("rows");
    std::vector<RowPiece> pieces;
    std::map<int64_t, bool> whole;  // each source is taken as it is, or by rows
    for (size_t i = 0; i < sources.size(); ++i) {
      if (!is_row(sources[i], std::ssize(sources))) a.refuse("sources");
      if (rows[i] < -1 || rows[i] > INT32_MAX) a.refuse("rows");
      if (whole.emplace(sources[i], rows[i] < 0).first->second != (rows[i] < 0)) a.refuse("rows");
      pieces.push_back({static_cast<uint32_t>(sources[i]), static_cast<int32_t>(rows[i])});
    }
    if (whole.rbegin()->first + 1 != std::ssize(whole)) a.refuse("sources");
    return stack_rows_op(std::move(pieces));
  });
  ops.add("row_range", 1, [](AttributeReader& a) {
    const int64_t begin = a.integer("begin", 0), step = a.integer("step");
    return std::make_shared<RowRange>(begin, step, a.integer("count", -1));
  });
  ops.add("put_rows_like", Arity::at_least(1), [](AttributeReader& a) {
    auto pairs = pairs_from(a.integers("pairs"));
    if (!pairs) a.refuse("pairs");
    const int64_t row_elements = a.integer("row_elements", 0);
    return std::make_shared<PutRowsLike>(std::move(*pairs), row_elements, a.flag("adds", false));
  });
}

}  // namespace espalier
