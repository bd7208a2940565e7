#include "espalier/executor/c_export/function.h"

#include <algorithm>
#include <cmath>

#include "espalier/core/error.h"

namespace espalier::c_export {

std::string_view c_type(DType dtype) {
  switch (dtype) {
    case DType::float32: return "float";
    case DType::float64: return "double";
    case DType::int32: return "int32_t";
    case DType::int64: return "int64_t";
    case DType::boolean: return "unsigned char";
    default: break;
  }
  throw UnsupportedError(fmt::format(
      "export_c: {} has no place in C code; it takes float32, float64, int32, int64 and bool", name(dtype)));
}

std::string literal(double value, DType dtype) {
  const bool single = dtype == DType::float32;
  if (!is_real(dtype)) {
    if (dtype == DType::boolean) return value != 0 ? "1" : "0";
    return dtype == DType::int32 ? fmt::format("{}", static_cast<int32_t>(value))
                                 : fmt::format("INT64_C({})", static_cast<int64_t>(value));
  }
  if (std::isnan(value)) return single ? "NAN" : "(double)NAN";
  if (std::isinf(value))
    return fmt::format("{}{}", value < 0 ? "-" : "", single ? "INFINITY" : "(double)INFINITY");
  std::string text =
      single ? fmt::format("{:.9g}", static_cast<float>(value)) : fmt::format("{:.17g}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return single ? text + 'f' : text;
}

std::string in_comment(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '/' && !safe.empty() && safe.back() == '*') safe += ' ';
    if (c == '*' && !safe.empty() && safe.back() == '/') safe += ' ';
    safe += static_cast<unsigned char>(c) < ' ' || c == '\\' || c == '?' ? '_' : c;
  }
  return safe;
}

void Helpers::add(const std::string& name, const std::string& text) {
  if (known_.insert(name).second) text_ += text + "\n";
}

Axes join_axes(const Shape& shape, const std::vector<Dims>& strides) {
  Axes axes;
  axes.strides.resize(strides.size());
  for (size_t i = 0; i < shape.rank(); ++i) {
    const int64_t size = shape.dims()[i];
    if (size == 1) continue;
    const bool joins = !axes.sizes.empty() && [&] {
      for (size_t k = 0; k < strides.size(); ++k)
        if (axes.strides[k].back() != strides[k][i] * size) return false;
      return true;
    }();
    if (joins)
      axes.sizes.back() *= size;
    else
      axes.sizes.push_back(size);
    for (size_t k = 0; k < strides.size(); ++k)
      if (joins)
        axes.strides[k].back() = strides[k][i];
      else
        axes.strides[k].push_back(strides[k][i]);
  }
  if (!axes.sizes.empty()) return axes;
  axes.sizes.push_back(1);
  for (Dims& each : axes.strides) each.push_back(0);
  return axes;
}

std::string position(const Dims& strides, std::string_view prefix) {
  std::string text;
  for (size_t i = 0; i < strides.size(); ++i) {
    if (strides[i] == 0) continue;
    if (!text.empty()) text += " + ";
    text += fmt::format("{}{}", prefix, i);
    if (strides[i] != 1) text += fmt::format(" * {}", strides[i]);
  }
  return text.empty() ? "0" : text;
}

std::optional<size_t> Function::written_over(size_t k) const {
  const Operand& input = inputs_[k];
  if (input.place.in == Place::In::nowhere) return std::nullopt;
  for (size_t j = 0; j < outputs_.size(); ++j)
    if (outputs_[j].place.in == input.place.in && outputs_[j].place.index == input.place.index &&
        outputs_[j].address == input.address && outputs_[j].spec.dtype == input.spec.dtype)
      return j;
  return std::nullopt;
}

std::string Function::in(size_t k) {
  if (inputs_[k].address.empty()) refuse(fmt::format("input {} has no value", k));
  if (const auto output = written_over(k)) return out(*output);
  read_.insert(k);
  return fmt::format("x{}", k);
}

std::string Function::out(size_t k) {
  written_.insert(k);
  return fmt::format("y{}", k);
}

std::string Function::dense(size_t k) {
  if (layout(k).contiguous()) return in(k);
  if (const auto known = dense_.find(k); known != dense_.end()) return known->second;
  const std::string from = in(k), to = scratch(input_shape(k).elements(), input_spec(k).dtype);
  const Axes axes = join_axes(input_shape(k), {layout(k).strides, Layout(input_shape(k)).strides});
  loops(axes, "c", axes.sizes.size());
  line(fmt::format("{}[{}] = {}[{}];", to, position(axes.strides[1], "c"), from,
                   position(axes.strides[0], "c")));
  close(axes.sizes.size());
  return dense_[k] = to;
}

std::string Function::scratch(int64_t elements, DType dtype) {
  scratch_.push_back({scratch_bytes_, dtype});
  scratch_bytes_ += (elements * static_cast<int64_t>(size_of(dtype)) + 15) / 16 * 16;
  return fmt::format("t{}", scratch_.size() - 1);
}

std::string Function::stream() {
  random_ = true;
  return "stream";
}

void Function::line(std::string_view text) {
  body_.append(static_cast<size_t>(2 * depth_), ' ');
  body_ += text;
  body_ += '\n';
}

void Function::open(std::string_view text) {
  line(fmt::format("{} {{", text));
  ++depth_;
}

void Function::close(size_t blocks) {
  for (; blocks > 0; --blocks) {
    --depth_;
    line("}");
  }
}

void Function::loop(std::string_view index, int64_t count) {
  open(fmt::format("for (long {0} = 0; {0} < {1}; ++{0})", index, count));
}

void Function::fill_with_zeros(std::string_view array, int64_t elements) {
  loop("i", elements);
  line(fmt::format("{}[i] = 0;", array));
  close();
}

void Function::loops(const Axes& axes, std::string_view prefix, size_t count) {
  for (size_t i = 0; i < count; ++i) loop(fmt::format("{}{}", prefix, i), axes.sizes[i]);
}

void Function::fail_if(std::string_view condition) {
  may_fail_ = true;
  line(fmt::format("if ({}) return 1;", condition));
}

void Function::refuse(std::string_view reason) const {
  UnsupportedError error(fmt::format("export_c: '{}' ({}): {}", op().name(), line_of(node_.where), reason));
  error.locate(node_.where);
  throw error;
}

void Function::only(std::initializer_list<DType> types) const {
  const auto check = [&](const Operand& operand) {
    if (!operand.address.empty() && std::ranges::count(types, operand.spec.dtype) == 0)
      refuse(fmt::format("there is no C code for {}", name(operand.spec.dtype)));
  };
  for (const Operand& input : inputs_) check(input);
  for (const Operand& output : outputs_) check(output);
}

std::string Function::parameters() const {
  std::string text;
  const auto add = [&](std::string_view parameter) {
    text += text.empty() ? "" : ", ";
    text += parameter;
  };
  for (const size_t k : written_) add(fmt::format("{} *restrict y{}", c_type(outputs_[k].spec.dtype), k));
  for (const size_t k : read_) add(fmt::format("const {} *restrict x{}", c_type(inputs_[k].spec.dtype), k));
  for (size_t k = 0; k < scratch_.size(); ++k)
    add(fmt::format("{} *restrict t{}", c_type(scratch_[k].dtype), k));
  if (random_) add("uint64_t stream");
  return fmt::format("({})", text.empty() ? "void" : text);
}

/// `address_of(scratch)`: an expression.
template <class F>
std::string Function::arguments_with(F&& address_of) const {
  std::vector<std::string> all;
  // What has no elements may lie where others do.
  const auto pointer = [](const Operand& operand) {
    return operand.spec.shape.elements() == 0 ? "0" : operand.address;
  };
  for (const size_t k : written_) all.push_back(pointer(outputs_[k]));
  for (const size_t k : read_) all.push_back(pointer(inputs_[k]));
  for (const Scratch& scratch : scratch_) all.push_back(address_of(scratch));
  if (random_) all.push_back(fmt::format("random_stream + {}", node_.stream));
  return fmt::format("{}", fmt::join(all, ", "));
}

std::string Function::arguments(int64_t scratch_begin) const {
  return arguments_with([&](const Scratch& scratch) {
    return fmt::format("AT({}, {})", c_type(scratch.dtype), scratch_begin + scratch.begin);
  });
}
std::string Function::arguments(std::string_view bytes) const {
  return arguments_with([&](const Scratch& scratch) {
    return fmt::format("({} *)(void *)({} + {})", c_type(scratch.dtype), bytes, scratch.begin);
  });
}

}  // namespace espalier::c_export
