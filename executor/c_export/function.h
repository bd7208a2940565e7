// Function: the C function of one node of a plan, while an emitter writes it.
#pragma once
#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/executor/graph/graph.h"
#include "espalier/executor/plan/memory.h"

namespace espalier::c_export {

/// "float", "double", "int32_t", "int64_t", or "unsigned char" for bool. Throws UnsupportedError for others.
std::string_view c_type(DType dtype);
/// A number as a literal of that type, which a compiler reads as the same number.
std::string literal(double value, DType dtype);
/// Text in which a comment cannot end.
std::string in_comment(std::string_view text);

/// Functions that several others call, by name: each is written once, before its users.
class Helpers {
 public:
  /// Adds one if it is not there. Those that it calls come before it.
  void add(const std::string& name, const std::string& text);
  /// A name for a function or a table of the steps of scans, and what `write(name)` writes under it: the same
  /// name for equal texts. Nothing else of a file is called like that.
  template <class F>
  std::pair<std::string, std::string> name_for(std::string_view what, F&& write) {
    const auto [known, fresh] =
        names_.emplace(write(std::string(what)), fmt::format("{}_{}_of_steps", what, names_.size() + 1));
    return {known->second, write(known->second)};
  }
  const std::string& text() const { return text_; }

 private:
  std::set<std::string> known_;
  std::map<std::string, std::string> names_;  ///< by texts under another name
  std::string text_;
};

/// The axes over which several operands are walked together: as few as possible, and at least one.
struct Axes {
  Dims sizes;
  std::vector<Dims> strides;  ///< of each operand
};
Axes join_axes(const Shape& shape, const std::vector<Dims>& strides);

/// What stands for an operand where the function is called.
struct Operand {
  std::string address;  ///< an expression in C; empty for a value that is never read
  Spec spec;
  Layout layout;  ///< from that address on
  /// What it shares memory with: operands of the same place lie in one buffer.
  Place place = {};
};

/// Writes body and parameters. Parameters are named by their positions, so that nodes which compute the same
/// have equal texts.
class Function {
 public:
  Function(const GraphNode& node, std::vector<Operand> inputs, std::vector<Operand> outputs, Helpers& helpers)
      : node_(node), inputs_(std::move(inputs)), outputs_(std::move(outputs)), helpers_(helpers) {}

  const Op& op() const { return *node_.op; }
  size_t inputs() const { return inputs_.size(); }
  size_t outputs() const { return outputs_.size(); }
  const Spec& input_spec(size_t k) const { return inputs_[k].spec; }
  const Spec& output_spec(size_t k = 0) const { return outputs_[k].spec; }
  const Shape& input_shape(size_t k) const { return inputs_[k].spec.shape; }
  const Shape& output_shape(size_t k = 0) const { return outputs_[k].spec.shape; }
  const Layout& layout(size_t k) const { return inputs_[k].layout; }
  /// Whether an input is more than a shape.
  bool has_value(size_t k) const { return !inputs_[k].address.empty(); }

  /// The parameter that points to an operand; an input that is written over is the output.
  std::string in(size_t k);
  std::string out(size_t k = 0);
  /// Whether the body has asked for an input, or for the output that is written over it.
  bool reads(size_t k) const {
    const auto output = written_over(k);
    return output ? written_.count(*output) > 0 : read_.count(k) > 0;
  }
  /// An input without gaps: itself, or a copy in scratch memory that the body makes here.
  std::string dense(size_t k);
  /// A parameter that points to that many elements of memory which the function alone uses.
  std::string scratch(int64_t elements, DType dtype);
  /// The parameter that has the number of the random stream, an uint64_t, and that of the seed.
  std::string stream();

  /// A line of the body, indented as deep as it stands.
  void line(std::string_view text);
  /// A line that opens a block, and the end of so many of them.
  void open(std::string_view text);
  void close(size_t blocks = 1);
  /// for (long `index` = 0; …)
  void loop(std::string_view index, int64_t count);
  /// Sets the elements of an array to 0.
  void fill_with_zeros(std::string_view array, int64_t elements);
  /// Opens a loop for each axis, with indices of that prefix and a number.
  void loops(const Axes& axes, std::string_view prefix, size_t count);
  /// The body returns 1 if that condition holds: an index is outside.
  void fail_if(std::string_view condition);
  void need(const std::string& name, const std::string& text) { helpers_.add(name, text); }
  Helpers& helpers() { return helpers_; }

  /// Throws UnsupportedError with the op's name and the user's line.
  [[noreturn]] void refuse(std::string_view reason) const;
  /// Throws it unless all operands with elements are of these types.
  void only(std::initializer_list<DType> types) const;

  // What was written.
  bool may_fail() const { return may_fail_; }
  int64_t scratch_bytes() const { return scratch_bytes_; }
  /// "(float *restrict y0, const float *restrict x0)"
  std::string parameters() const;
  /// The arguments of a call; scratch memory begins at that byte of the arena, or where that expression, a
  /// pointer to bytes, points to.
  std::string arguments(int64_t scratch_begin) const;
  std::string arguments(std::string_view scratch) const;
  const std::string& body() const { return body_; }

 private:
  struct Scratch {
    int64_t begin;
    DType dtype;
  };
  template <class F>
  std::string arguments_with(F&& address_of) const;
  /// The output whose buffer an input is, if they lie alike.
  std::optional<size_t> written_over(size_t k) const;

  const GraphNode& node_;
  std::vector<Operand> inputs_, outputs_;
  Helpers& helpers_;
  std::string body_;
  int depth_ = 1;
  std::set<size_t> read_, written_;
  std::map<size_t, std::string> dense_;
  std::vector<Scratch> scratch_;
  int64_t scratch_bytes_ = 0;
  bool may_fail_ = false, random_ = false;
};

/// "i0 * 64 + i1": the position of an element; "0" for a scalar.
std::string position(const Dims& strides, std::string_view prefix);

/// Writes the body of a node's function.
using Emitter = void (*)(Function&);
/// The emitter of an op; null if there is none.
Emitter emitter_of(std::string_view op);
/// The ops that have an emitter, in alphabetical order.
std::vector<std::string> emitted_ops();

}  // namespace espalier::c_export
