// How a GPU is given the kernels of a step.
#pragma once
#include <cstdint>

namespace espalier {

/// Each way computes the same; the first is the fastest. Where a kernel cannot be part of a graph (an
/// operation of the user's own runs on the host), `graph` becomes `segments` around it, and the plan says so.
enum class Launch : uint8_t {
  graph,     ///< all of them as one CUDA graph
  segments,  ///< several graphs, one after another
  stream,    ///< one by one
};

}  // namespace espalier
