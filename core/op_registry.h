// OpRegistry: how ops are made again from their names and attributes.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>

#include "espalier/core/op.h"

namespace espalier {

/// The op with that name and these attributes, as `Op::name` and `Op::attributes` gave them: it equals the op
/// that they are of. Throws UnsupportedError for an op that has state beside its attributes (leaves, sources,
/// custom ops, collectives, fused programs), TypeError for an attribute of another type, and Error for an
/// unknown name, and for an attribute that is missing, unknown or out of range. All name op and attribute.
OpPtr make_op(std::string_view name, const Attributes& attributes);

/// Whether nodes of a tree may have an op of that name with so many inputs.
bool takes_inputs(std::string_view op, size_t inputs);

/// The op with another value for one of its attributes.
OpPtr with_attribute(const Op& op, std::string_view name, AttributeValue value);

/// The attributes that an op is made from. Each call takes one: throws Error if it is missing or out of
/// range, TypeError if it is of another type.
class AttributeReader {
 public:
  AttributeReader(std::string_view op, const Attributes& attributes) : op_(op), attributes_(attributes) {}

  bool flag(std::string_view name) { return take<bool>(name, "a bool"); }
  /// `older`, here and below, for the attributes of a version that did not have it yet.
  bool flag(std::string_view name, bool older) { return has(name) ? flag(name) : older; }
  int64_t integer(std::string_view name, int64_t least = std::numeric_limits<int64_t>::min());
  double real(std::string_view name) { return take<double>(name, "a real number"); }
  Dims integers(std::string_view name);
  Shape shape(std::string_view name) { return Shape(integers(name)); }
  const std::string& text(std::string_view name) { return take<std::string>(name, "a text"); }
  std::string text(std::string_view name, std::string_view older) {
    return has(name) ? text(name) : std::string(older);
  }
  DType dtype(std::string_view name);
  Device device(std::string_view name);

  /// For an op that cannot have that value.
  [[noreturn]] void refuse(std::string_view name) const;
  /// Throws Error if there is an attribute that was not taken.
  void finish() const;

 private:
  bool has(std::string_view name) const;
  const AttributeValue& find(std::string_view name);
  template <class T>
  const T& take(std::string_view name, std::string_view type) {
    const AttributeValue& value = find(name);
    if (const T* known = std::get_if<T>(&value)) return *known;
    wrong_type(name, type);
  }
  [[noreturn]] void wrong_type(std::string_view name, std::string_view type) const;

  std::string_view op_;
  const Attributes& attributes_;
  uint64_t taken_ = 0;  // bit i: attribute i
};

/// How many inputs nodes of a tree may give an op. Inference of shapes relies on it: functions that users
/// call give an op its inputs, and a file might give others.
struct Arity {
  size_t least, most;

  constexpr Arity(size_t count) : least(count), most(count) {}
  constexpr Arity(size_t fewest, size_t largest) : least(fewest), most(largest) {}
  static constexpr Arity at_least(size_t count) { return {count, SIZE_MAX}; }
  /// Of ops that no tree has.
  static constexpr Arity passes_only() { return {1, 0}; }
  bool contains(size_t count) const { return least <= count && count <= most; }
};

class OpRegistry {
 public:
  using Maker = std::function<OpPtr(AttributeReader&)>;

  /// Ops without attributes, whose classes know their arity, as UnaryOp and BinaryOp do.
  template <class... T>
  void add() {
    (add<T>(T::arity), ...);
  }
  /// Ops without attributes.
  template <class... T>
  void add(Arity inputs) {
    (add(shared_op<T>()->name(), inputs, [](AttributeReader&) { return shared_op<T>(); }), ...);
  }
  /// Throws Error if there is an op of that name already.
  void add(std::string_view name, Arity inputs, Maker maker);
  /// An op that cannot be made from its attributes, since it has `state` beside them.
  void add_unsupported(std::string_view name, std::string_view state);

  OpPtr make(std::string_view name, const Attributes& attributes) const;
  bool takes_inputs(std::string_view name, size_t inputs) const;

 private:
  struct Known {
    Arity inputs;
    Maker maker;
  };
  std::map<std::string, Known, std::less<>> ops_;
};

/// All ops. Defined high (executor/op_registry.cpp), for ops come from every folder.
OpRegistry make_op_registry();

void add_transfer_op(OpRegistry& ops);

}  // namespace espalier
