// The order of axes [batch, sizes…, channels] in place of [batch, channels, sizes…].
#pragma once
#include "espalier/core/op.h"

namespace espalier {

/// The place of an axis of [batch, channels, sizes…] in [batch, sizes…, channels].
int64_t channels_last_axis(size_t axis, size_t rank);
Shape with_channels_last(const Shape& shape);
/// The other way round.
Shape with_channels_second(const Shape& shape);

/// Of an op that works along the axis that its attribute `axis` names, alike at each place of all others.
/// Empty unless the inputs in `moved` have the rank of the output.
ChannelsLastOp along_axis_with_channels_last(const Op& op, const InputSpecs& inputs, const Spec& output,
                                             InputSet moved = InputSet::all());

}  // namespace espalier
