// OpRegistry: how ops are made again from their names and attributes.
#pragma once
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

/// The attributes that an op is made from. Each call takes one: throws Error if it is missing or out of
/// range, TypeError if it is of another type.
class AttributeReader {
 public:
  AttributeReader(std::string_view op, const Attributes& attributes) : op_(op), attributes_(attributes) {}

  bool flag(std::string_view name) { return take<bool>(name, "a bool"); }
  /// `older` for the attributes of a version that did not have it yet.
  bool flag(std::string_view name, bool older) { return has(name) ? flag(name) : older; }
  int64_t integer(std::string_view name, int64_t least = std::numeric_limits<int64_t>::min());
  double real(std::string_view name) { return take<double>(name, "a real number"); }
  Dims integers(std::string_view name);
  Shape shape(std::string_view name) { return Shape(integers(name)); }
  const std::string& text(std::string_view name) { return take<std::string>(name, "a text"); }
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

class OpRegistry {
 public:
  using Maker = std::function<OpPtr(AttributeReader&)>;

  /// Ops without attributes.
  template <class... T>
  void add() {
    (add(shared_op<T>()->name(), [](AttributeReader&) { return shared_op<T>(); }), ...);
  }
  /// Throws Error if there is an op of that name already.
  void add(std::string_view name, Maker maker);
  /// An op that cannot be made from its attributes, since it has `state` beside them.
  void add_unsupported(std::string_view name, std::string_view state);

  OpPtr make(std::string_view name, const Attributes& attributes) const;

 private:
  std::map<std::string, Maker, std::less<>> makers_;
};

/// All ops. Defined high (executor/op_registry.cpp), for ops come from every folder.
OpRegistry make_op_registry();

void add_transfer_op(OpRegistry& ops);

}  // namespace espalier
