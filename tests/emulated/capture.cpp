// Stream capture and graphs.
#include <algorithm>
#include <queue>

#include "runtime.h"

namespace emulated {

cudaError_t Runtime::invalidate(const std::shared_ptr<Capture>& capture, cudaError_t error) {
  capture->invalidated = true;
  return error;
}

cudaError_t Runtime::forbid_in_capture() {
  // Which captures forbid a call depends on the modes of the capture and of the thread.
  if (this_thread.mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  for (const auto& capture : captures) {
    const bool own =
        capture->thread == std::this_thread::get_id() && capture->mode != cudaStreamCaptureModeRelaxed;
    const bool of_all =
        capture->mode == cudaStreamCaptureModeGlobal && this_thread.mode == cudaStreamCaptureModeGlobal;
    if (own || of_all) error = invalidate(capture, cudaErrorStreamCaptureUnsupported);
  }
  return error;
}

namespace {

void leave(Runtime& r, const std::shared_ptr<Capture>& capture) {
  for (CUstream_st* stream : capture->streams) {
    stream->capture = nullptr;
    stream->frontier.clear();
  }
  std::erase(r.captures, capture);
}

/// Returns true if every node of a stream precedes the end of the capture's first stream.
bool joined(const Capture& capture) {
  std::vector<bool> before_end(capture.graph->nodes.size());
  std::vector<size_t> open = capture.origin->frontier;
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    if (before_end[node]) continue;
    before_end[node] = true;
    const auto& after = capture.graph->nodes[node].after;
    open.insert(open.end(), after.begin(), after.end());
  }
  return std::all_of(capture.streams.begin(), capture.streams.end(), [&](const CUstream_st* stream) {
    return std::all_of(stream->frontier.begin(), stream->frontier.end(),
                       [&](size_t node) { return before_end[node]; });
  });
}

/// A topological order far from the order of the capture: always the latest node that is ready.
std::vector<Node> ordered(const std::vector<Node>& nodes) {
  std::vector<size_t> missing(nodes.size());
  std::vector<std::vector<size_t>> next(nodes.size());
  std::priority_queue<size_t> ready;
  for (size_t i = 0; i < nodes.size(); ++i) {
    missing[i] = nodes[i].after.size();
    for (const size_t before : nodes[i].after) next[before].push_back(i);
    if (missing[i] == 0) ready.push(i);
  }
  std::vector<Node> result;
  while (!ready.empty()) {
    const size_t node = ready.top();
    ready.pop();
    result.push_back(nodes[node]);
    for (const size_t i : next[node])
      if (--missing[i] == 0) ready.push(i);
  }
  return result;
}

std::shared_ptr<CUgraph_st> graph_of(Runtime& r, cudaGraph_t handle) {
  const auto it = r.graphs.find(handle);
  return it == r.graphs.end() ? nullptr : it->second;
}

}  // namespace
}  // namespace emulated

using namespace emulated;

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return api("cudaStreamBeginCapture", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    const auto stream = r.stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (handle == nullptr || handle == cudaStreamLegacy) return cudaErrorStreamCaptureUnsupported;
    if (stream->capture) return cudaErrorIllegalState;
    if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed)
      return cudaErrorInvalidValue;
    auto capture = std::make_shared<Capture>();
    capture->graph = std::make_shared<CUgraph_st>();
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->origin = stream.get();
    capture->id = r.next_capture++;
    capture->streams = {stream.get()};
    stream->capture = capture;
    stream->frontier.clear();
    r.captures.push_back(capture);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return api("cudaStreamEndCapture", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    *graph = nullptr;
    const auto stream = r.stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    const std::shared_ptr<Capture> capture = stream->capture;
    if (!capture) return cudaErrorIllegalState;
    if (capture->origin != stream.get()) return r.invalidate(capture, cudaErrorStreamCaptureUnmatched);
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
      return cudaErrorStreamCaptureWrongThread;
    const bool complete = joined(*capture);
    leave(r, capture);
    if (capture->invalidated) return cudaErrorStreamCaptureInvalidated;
    if (!complete)
      return r.complain(cudaErrorStreamCaptureUnjoined,
                        "a stream joined a capture, and the first one does not wait for it");
    *graph = capture->graph.get();
    r.graphs[*graph] = capture->graph;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                                     size_t* count) {
  return api("cudaStreamGetCaptureInfo", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    const auto stream = r.stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (dependencies != nullptr || edges != nullptr || count != nullptr) return cudaErrorNotSupported;
    *status = !stream->capture               ? cudaStreamCaptureStatusNone
              : stream->capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                             : cudaStreamCaptureStatusActive;
    if (stream->capture && id != nullptr) *id = stream->capture->id;
    if (stream->capture && graph != nullptr) *graph = stream->capture->graph.get();
    return cudaSuccess;
  });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(stream, status);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, this_thread.mode);
  return cudaSuccess;
}

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
  return api("cudaGraphCreate", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    if (flags != 0) return cudaErrorInvalidValue;
    auto made = std::make_shared<CUgraph_st>();
    *graph = made.get();
    r.graphs[*graph] = std::move(made);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return api("cudaGraphDestroy", Needs::Context, [&](Runtime& r, Call&) {
    return r.graphs.erase(graph) > 0 ? cudaSuccess : cudaErrorInvalidValue;
  });
}
cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, size_t* count) {
  return api("cudaGraphGetNodes", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    const auto graph = graph_of(r, handle);
    if (!graph || count == nullptr) return cudaErrorInvalidValue;
    while (graph->handles.size() < graph->nodes.size())
      graph->handles.push_back({graph.get(), graph->handles.size()});
    if (nodes != nullptr)
      for (size_t i = 0; i < *count; ++i) nodes[i] = i < graph->nodes.size() ? &graph->handles[i] : nullptr;
    *count = nodes != nullptr ? std::min(*count, graph->nodes.size()) : graph->nodes.size();
    return cudaSuccess;
  });
}
cudaError_t cudaGraphGetEdges(cudaGraph_t handle, cudaGraphNode_t* from, cudaGraphNode_t* to,
                              cudaGraphEdgeData* edges, size_t* count) {
  return api("cudaGraphGetEdges", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    const auto graph = graph_of(r, handle);
    if (!graph || count == nullptr || edges != nullptr) return cudaErrorInvalidValue;
    while (graph->handles.size() < graph->nodes.size())
      graph->handles.push_back({graph.get(), graph->handles.size()});
    size_t written = 0, all = 0;
    for (size_t i = 0; i < graph->nodes.size(); ++i) {
      for (const size_t before : graph->nodes[i].after) {
        ++all;
        if (from == nullptr || to == nullptr || written == *count) continue;
        from[written] = &graph->handles[before];
        to[written++] = &graph->handles[i];
      }
    }
    *count = from != nullptr && to != nullptr ? written : all;
    return cudaSuccess;
  });
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return api("cudaGraphNodeGetType", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    if (node == nullptr || !graph_of(r, node->graph)) return cudaErrorInvalidValue;
    *type = node->graph->nodes[node->number].task.type;
    return cudaSuccess;
  });
}
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t, const char*, unsigned) {
  return api("cudaGraphDebugDotPrint", Needs::HealthyDevice,
             [](Runtime&, Call&) { return cudaErrorNotSupported; });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t handle, unsigned long long flags) {
  return api("cudaGraphInstantiate", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    const auto graph = graph_of(r, handle);
    if (!graph || executable == nullptr || flags != 0) return cudaErrorInvalidValue;
    *executable = new CUgraphExec_st{std::make_shared<const std::vector<Node>>(ordered(graph->nodes)), {}};
    r.executables.insert(*executable);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t handle,
                                cudaGraphExecUpdateResultInfo* result) {
  return api("cudaGraphExecUpdate", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    const auto graph = graph_of(r, handle);
    if (!graph || !r.executables.contains(executable) || result == nullptr) return cudaErrorInvalidValue;
    const std::vector<Node> nodes = ordered(graph->nodes);
    const std::vector<Node>& old = *executable->nodes;
    *result = {cudaGraphExecUpdateSuccess, nullptr, nullptr};
    if (nodes.size() != old.size()) result->result = cudaGraphExecUpdateErrorTopologyChanged;
    for (size_t i = 0; i < nodes.size() && result->result == cudaGraphExecUpdateSuccess; ++i) {
      if (nodes[i].after != old[i].after) result->result = cudaGraphExecUpdateErrorTopologyChanged;
      if (nodes[i].task.type != old[i].task.type) result->result = cudaGraphExecUpdateErrorNodeTypeChanged;
    }
    if (result->result != cudaGraphExecUpdateSuccess) return cudaErrorGraphExecUpdateFailure;
    executable->nodes = std::make_shared<const std::vector<Node>>(nodes);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  return api("cudaGraphUpload", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    return r.executables.contains(executable) && r.stream(stream) ? cudaSuccess : cudaErrorInvalidValue;
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  return api("cudaGraphLaunch", Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    const auto stream = r.stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (!r.executables.contains(executable)) return cudaErrorInvalidValue;
    if (stream->capture) return r.invalidate(stream->capture, cudaErrorStreamCaptureUnsupported);
    ++r.counters.graph_launches;
    r.counters.nodes_in_last_graph = executable->nodes->size();
    const auto nodes = executable->nodes;
    // Launches of one executable graph do not overlap.
    r.wait_for(call, stream, executable->last);
    for (const Node& node : *nodes) {
      const cudaError_t error = r.enqueue(call, stream, node.task);
      if (error != cudaSuccess) return error;
    }
    executable->last = {stream, stream->enqueued};
    return cudaSuccess;
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return api("cudaGraphExecDestroy", Needs::Context, [&](Runtime& r, Call&) {
    if (r.executables.erase(executable) == 0) return cudaErrorInvalidValue;
    delete executable;
    return cudaSuccess;
  });
}
