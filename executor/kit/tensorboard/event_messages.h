// The messages of event files, as TensorBoard reads them (tensorboard/compat/proto/*.proto and
// tensorboard/plugins/hparams/*.proto).
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "espalier/executor/kit/tensorboard/protobuf.h"
#include "espalier/executor/kit/tensorboard/summary_writer.h"

namespace espalier {

/// Seconds since 1970.
double wall_time();

/// A Summary.Value without its content.
ProtobufMessage summary_value(const std::string& tag);
/// An Event that has a Summary with one value.
ProtobufMessage summary_event(const ProtobufMessage& value, int64_t step);
ProtobufMessage version_event();
/// A HistogramProto. Throws DataError without a finite element.
ProtobufMessage histogram_message(const Tensor& values);
/// A GraphDef of the nodes below `root`.
ProtobufMessage graph_message(const Variable& root);

using HyperParameters = std::vector<std::pair<std::string, HyperParameter>>;
/// Values of a Summary for the plugin of hyper-parameters.
ProtobufMessage experiment_value(const HyperParameters& values, const std::vector<std::string>& metrics);
ProtobufMessage session_start_value(const HyperParameters& values);
ProtobufMessage session_end_value();

}  // namespace espalier
