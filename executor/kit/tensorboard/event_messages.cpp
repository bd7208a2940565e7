#include "espalier/executor/kit/tensorboard/event_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <string_view>

#include "espalier/core/error.h"
#include "espalier/core/tree.h"

namespace espalier {

namespace {

/// A Summary.Value of the plugin "hparams", whose data are HParamsPluginData with one field.
ProtobufMessage hparams_value(const char* tag, uint32_t field, const ProtobufMessage& content) {
  ProtobufMessage data, plugin, metadata;
  data.add_integer(1, 0).add_message(field, content);
  plugin.add_text(1, "hparams").add_message(2, data);
  metadata.add_message(1, plugin);
  return summary_value(tag).add_message(9, metadata);
}

/// A google.protobuf.Value.
ProtobufMessage value_message(const HyperParameter& value) {
  ProtobufMessage message;
  if (const double* number = std::get_if<double>(&value)) return message.add_double(2, *number);
  if (const std::string* text = std::get_if<std::string>(&value)) return message.add_text(3, *text);
  return message.add_integer(4, std::get<bool>(value));
}

/// hparams.DataType
int64_t data_type(const HyperParameter& value) {
  if (std::holds_alternative<double>(value)) return 3;
  return std::holds_alternative<std::string>(value) ? 1 : 2;
}

ProtobufMessage shape_message(const Shape& shape) {
  ProtobufMessage message;
  for (const int64_t size : shape) {
    const bool open = size > 0 && size % nominal_size == 0;
    message.add_message(2, ProtobufMessage().add_integer(1, open ? -1 : size));
  }
  return message;
}

/// tensorflow.DataType
int64_t tensorflow_type(DType dtype) {
  switch (dtype) {
    case DType::float32: return 1;
    case DType::float64: return 2;
    case DType::int32: return 3;
    case DType::uint8: return 4;
    case DType::int16: return 5;
    case DType::int8: return 6;
    case DType::int64: return 9;
    case DType::boolean: return 10;
    case DType::bfloat16: return 14;
    case DType::float16: return 19;
  }
  return 0;
}

void add_attribute(ProtobufMessage& node, std::string_view name, const ProtobufMessage& value) {
  node.add_message(5, ProtobufMessage().add_text(1, name).add_message(2, value));
}

ProtobufMessage node_message(const Node& node, const std::map<const Node*, std::string>& names) {
  ProtobufMessage message, shapes, line;
  message.add_text(1, names.at(&node)).add_text(2, node.op().name());
  for (const Edge& input : node.inputs) {
    std::string from = names.at(input.node());
    if (input.output() > 0) from += fmt::format(":{}", input.output());
    message.add_text(3, from);
  }
  for (const Output& output : node.outputs) shapes.add_message(7, shape_message(output.spec.shape));
  add_attribute(message, "_output_shapes", ProtobufMessage().add_message(1, shapes));
  if (!node.outputs.empty())
    add_attribute(message, "dtype",
                  ProtobufMessage().add_integer(6, tensorflow_type(node.outputs[0].spec.dtype)));
  const std::string_view file = node.where.file_name();
  const std::string at = fmt::format("{}:{}", file.substr(file.rfind('/') + 1), node.where.line());
  add_attribute(message, "line", ProtobufMessage().add_text(2, at));
  return message;
}

}  // namespace

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

ProtobufMessage summary_value(const std::string& tag) { return ProtobufMessage().add_text(1, tag); }

ProtobufMessage summary_event(const ProtobufMessage& value, int64_t step) {
  ProtobufMessage event;
  return event.add_double(1, wall_time())
      .add_integer(2, step)
      .add_message(5, ProtobufMessage().add_message(1, value));
}

ProtobufMessage version_event() {
  return ProtobufMessage().add_double(1, wall_time()).add_text(3, "brain.Event:2");
}

ProtobufMessage histogram_message(const Tensor& values) {
  const Tensor here = values.to(cpu()).to(float64).contiguous_copy();
  double low = INFINITY, high = -INFINITY, sum = 0, squares = 0;
  int64_t count = 0;
  for (const double x : here.span<double>()) {
    if (!std::isfinite(x)) continue;
    low = std::min(low, x);
    high = std::max(high, x);
    sum += x;
    squares += x * x;
    ++count;
  }
  if (count == 0) throw DataError("a histogram needs an element that is finite");
  constexpr size_t most = 64;
  const size_t n = high > low ? most : 1;
  std::vector<double> limits, counts(n);
  // Halves, since the difference of the two may be too large for a double.
  const double width = high / static_cast<double>(n) - low / static_cast<double>(n);
  for (size_t i = 1; i < n; ++i) limits.push_back(low + width * static_cast<double>(i));
  limits.push_back(high);
  for (const double x : here.span<double>())
    if (std::isfinite(x))
      ++counts[static_cast<size_t>(std::lower_bound(limits.begin(), limits.end() - 1, x) - limits.begin())];
  ProtobufMessage message;
  return message.add_double(1, low)
      .add_double(2, high)
      .add_double(3, static_cast<double>(count))
      .add_double(4, sum)
      .add_double(5, squares)
      .add_doubles(6, limits)
      .add_doubles(7, counts);
}

ProtobufMessage graph_message(const Variable& root) {
  const std::vector<Node*> nodes = nodes_below(TreeWalk(root.node()));
  std::map<const Node*, std::string> names;
  std::map<std::string, int> taken;
  for (const Node* node : nodes) {
    std::string name(node->op().name());
    // TensorFlow's names have letters, digits and a few signs, and slashes make groups.
    for (char& c : name)
      if (!(std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-')) c = '_';
    if (name.empty() || !std::isalnum(static_cast<unsigned char>(name[0]))) name = "n" + name;
    const int number = taken[name]++;
    names.emplace(node, number ? fmt::format("{}_{}", name, number) : name);
  }
  ProtobufMessage graph;
  for (const Node* node : nodes) graph.add_message(1, node_message(*node, names));
  return graph.add_message(4, ProtobufMessage().add_integer(1, 22));  // a version that readers know
}

ProtobufMessage experiment_value(const HyperParameters& values, const std::vector<std::string>& metrics) {
  ProtobufMessage experiment;
  experiment.add_double(3, wall_time());
  for (const auto& [name, value] : values)
    experiment.add_message(4, ProtobufMessage().add_text(1, name).add_integer(4, data_type(value)));
  for (const std::string& tag : metrics)
    experiment.add_message(5, ProtobufMessage().add_message(1, ProtobufMessage().add_text(2, tag)));
  return hparams_value("_hparams_/experiment", 2, experiment);
}

ProtobufMessage session_start_value(const HyperParameters& values) {
  ProtobufMessage start;
  for (const auto& [name, value] : values)
    start.add_message(1, ProtobufMessage().add_text(1, name).add_message(2, value_message(value)));
  start.add_double(5, wall_time());
  return hparams_value("_hparams_/session_start_info", 3, start);
}

ProtobufMessage session_end_value() {
  constexpr int64_t success = 1;
  return hparams_value("_hparams_/session_end_info", 4,
                       ProtobufMessage().add_integer(1, success).add_double(2, wall_time()));
}

}  // namespace espalier
