#include "espalier/core/op_registry.h"

#include <fmt/format.h>

#include <charconv>

#include "espalier/core/error.h"

namespace espalier {

bool AttributeReader::has(std::string_view name) const {
  for (const auto& attribute : attributes_)
    if (attribute.first == name) return true;
  return false;
}

const AttributeValue& AttributeReader::find(std::string_view name) {
  for (size_t i = 0; i < attributes_.size(); ++i)
    if (attributes_[i].first == name) {
      taken_ |= uint64_t{1} << (i < 63 ? i : 63);
      return attributes_[i].second;
    }
  throw Error(fmt::format("{}: the attribute '{}' is missing", op_, name));
}

void AttributeReader::wrong_type(std::string_view name, std::string_view type) const {
  throw TypeError(fmt::format("{}: the attribute '{}' is not {}", op_, name, type));
}

void AttributeReader::refuse(std::string_view name) const {
  for (const auto& attribute : attributes_)
    if (attribute.first == name)
      throw Error(fmt::format("{}: the attribute {} is out of range", op_, to_string({attribute})));
  throw Error(fmt::format("{}: the attribute '{}' is out of range", op_, name));
}

int64_t AttributeReader::integer(std::string_view name, int64_t least) {
  const auto value = take<int64_t>(name, "an integer");
  if (value < least) refuse(name);
  return value;
}

Dims AttributeReader::integers(std::string_view name) {
  const auto& values = take<std::vector<int64_t>>(name, "a list of integers");
  return Dims(values.begin(), values.end());
}

DType AttributeReader::dtype(std::string_view name) {
  const std::string& value = text(name);
  for (const DType dtype : all_dtypes)
    if (espalier::name(dtype) == value) return dtype;
  refuse(name);
}

Device AttributeReader::device(std::string_view name) {
  const std::string& value = text(name);
  for (Device device : {Device{DeviceType::cpu}, Device{DeviceType::cuda}}) {
    const std::string zero = device.str();
    const size_t colon = zero.find(':') + 1;
    if (value.compare(0, colon, zero, 0, colon) != 0) continue;
    const char* end = value.data() + value.size();
    const auto [stop, failed] = std::from_chars(value.data() + colon, end, device.index);
    if (failed == std::errc() && stop == end && device.index >= 0) return device;
  }
  refuse(name);
}

void AttributeReader::finish() const {
  for (size_t i = 0; i < attributes_.size(); ++i)
    if (!((taken_ >> (i < 63 ? i : 63)) & 1))
      throw Error(
          fmt::format("{}: it has no attribute '{}', or has it only once", op_, attributes_[i].first));
}

void OpRegistry::add(std::string_view name, Arity inputs, Maker maker) {
  if (!ops_.emplace(std::string(name), Known{inputs, std::move(maker)}).second)
    throw Error(fmt::format("there are two ops '{}'", name));
}

void OpRegistry::add_unsupported(std::string_view name, std::string_view state) {
  add(name, Arity::passes_only(),
      [op = std::string(name), state = std::string(state)](AttributeReader&) -> OpPtr {
        throw UnsupportedError(fmt::format(
            "{}: this op cannot be made from its attributes, since it has {} beside them", op, state));
      });
}

OpPtr OpRegistry::make(std::string_view name, const Attributes& attributes) const {
  for (const auto& attribute : attributes)
    if (attribute.first == "custom_op")
      throw UnsupportedError(fmt::format(
          "{}: a custom_op cannot be made from its attributes, since it has functions beside them", name));
  const auto known = ops_.find(name);
  if (known == ops_.end())
    throw Error(fmt::format("there is no op '{}'; leaves are not made by their names", name));
  AttributeReader reader(name, attributes);
  OpPtr op = known->second.maker(reader);
  reader.finish();
  return op;
}

bool OpRegistry::takes_inputs(std::string_view name, size_t inputs) const {
  const auto known = ops_.find(name);
  return known != ops_.end() && known->second.inputs.contains(inputs);
}

namespace {

const OpRegistry& all_ops() {
  static const OpRegistry* const all = new OpRegistry(make_op_registry());
  return *all;
}

}  // namespace

OpPtr make_op(std::string_view name, const Attributes& attributes) {
  return all_ops().make(name, attributes);
}

bool takes_inputs(std::string_view op, size_t inputs) { return all_ops().takes_inputs(op, inputs); }

OpPtr with_attribute(const Op& op, std::string_view name, AttributeValue value) {
  Attributes attributes = op.attributes();
  for (auto& [known, old] : attributes)
    if (known == name) old = std::move(value);
  return make_op(op.name(), attributes);
}

}  // namespace espalier
