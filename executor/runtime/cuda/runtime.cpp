#include "espalier/executor/runtime/cuda/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <utility>

#include "espalier/core/cuda/copy.h"
#include "espalier/core/cuda/profiler_range.h"
#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/ops/matmul/cuda/measuring.h"

namespace espalier::cu {

namespace {

/// Returns true for pinned memory, from which copies are asynchronous; the caller waits before it reuses it.
bool is_pinned(const void* address) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, address), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeHost;
}

}  // namespace

CudaRuntime::CudaRuntime(std::shared_ptr<const PlanData> plan, CudaSession& session, BatchShard shard)
    : Runtime(std::move(plan), session, shard), session_(session) {
  const StreamScope scope(session_.stream());
  const MeasuringScope measuring;  // measures products, since they run in every step
  try {
    for (Call& call : calls_) {
      call.kernel.random_base = session_.random_base();
      bind(call);
    }
  } catch (...) {
    calls_.clear();  // releases memory on this stream, behind the kernels that were launched with it
    throw;
  }
  if (const Tensor& result = this->loss(); !result.contiguous())
    loss_ = Tensor(result.shape(), result.dtype(), result.device());
  for (const size_t output : this->plan()->recorded) {
    const Tensor& value = this->result(output);
    recorded_.push_back(value.contiguous() ? Tensor() : Tensor(value.shape(), value.dtype(), value.device()));
  }
  plan_segments();
}

CudaRuntime::~CudaRuntime() {
  const DeviceScope device(session_.device().index, std::nothrow);
  (void)cudaStreamSynchronize(session_.stream());
  drop_graphs();
}

void CudaRuntime::drop_graphs() noexcept {
  for (Segment& segment : segments_)
    if (segment.graph) (void)cudaGraphExecDestroy(std::exchange(segment.graph, nullptr));
}

void CudaRuntime::plan_segments() {
  // As few segments as possible, or with Launch::segments at least four.
  const size_t longest =
      session_.launch() == Launch::segments ? std::max<size_t>(1, positions() / 4) : positions();
  size_t begin = 0;
  const auto close = [&](size_t end) {
    if (end > begin) segments_.push_back({begin, end, false});
    begin = end;
  };
  for (size_t p = 0; p < positions(); ++p) {
    if (p > 0 && p <= calls_.size() && !calls_[p - 1].bound->can_be_captured()) {
      close(p);
      segments_.push_back({p, p + 1, true});
      begin = p + 1;
    } else if (p + 1 - begin == longest) {
      close(p + 1);
    }
  }
  close(positions());
}

void CudaRuntime::load(const Feed& feed, std::span<const Tensor> batch) {
  const DeviceScope device(session_.device().index);
  const StreamScope scope(session_.stream());
  Staging& staging = staging_[&feed];
  const int turn = staging.turn ^= 1;
  std::vector<Tensor>& there = staging.columns[turn];
  Stream& copies = session_.copy_stream();
  copies.wait(staging.read[turn]);
  SmallVector<Tensor, 4> sources;  // the copies read these
  bool all_pinned = true;
  each_source(feed, [&](size_t column, Tensor& value) {
    check_column(feed, batch[column], value);
    if (batch[column].device().type != DeviceType::cpu || batch[column].bytes() == 0) return;
    if (there.size() <= column) there.resize(column + 1);
    if (!there[column].defined()) {
      there[column] = Tensor(value.shape(), value.dtype(), session_.device());
      session_.begin_after_eager();  // its memory may have been in eager use
    }
    sources.push_back(batch[column].contiguous_copy());
    const Tensor& from = sources.back();
    all_pinned &= is_pinned(from.address());
    check(cudaMemcpyAsync(there[column].address(), from.address(), from.bytes(), cudaMemcpyHostToDevice,
                          copies.get()),
          "cudaMemcpyAsync");
  });
  staging.filled[turn].record(copies.get());
  session_.batch_loading(feed);
  session_.main_stream().wait(staging.filled[turn]);
  if (!all_pinned) staging.filled[turn].synchronize();  // the caller may overwrite pageable memory at once
  each_source(feed, [&](size_t column, Tensor& value) {
    const bool staged =
        column < there.size() && there[column].defined() && batch[column].device().type == DeviceType::cpu;
    copy_elements(staged ? there[column] : batch[column], value);
  });
  staging.read[turn].record(session_.stream());
}

bool CudaRuntime::show(const Feed& feed, const Feed& shown, int64_t epoch, int64_t step) {
  const DeviceScope device(session_.device().index);
  const StreamScope scope(session_.stream());
  ResidentFeed* resident = session_.resident(shown);
  if (!resident) return false;
  if (resident->epoch != epoch) {
    shown.order(epoch, resident->rows);
    check(cudaMemcpyAsync(resident->order.address(), resident->rows.data(), resident->order.bytes(),
                          cudaMemcpyHostToDevice, session_.stream()),
          "cudaMemcpyAsync");
    session_.main_stream().synchronize();  // the next epoch overwrites the source of the copy
    resident->epoch = epoch;
  }
  const int64_t first = step * resident->batch_rows;
  if (resident->next != first) {
    put_bytes(resident->cursor.address(), &first, sizeof first);
    resident->next = first;
  }
  for (const Shown& known : shown_)
    if (known.feed == resident) return true;
  Shown added{resident, {}};
  added.batch.order = static_cast<const int64_t*>(resident->order.address());
  added.batch.cursor = static_cast<const int64_t*>(resident->cursor.address());
  added.batch.rows = shown.rows(step);
  each_source(feed, [&](size_t column, Tensor& value) {
    const Tensor& from = resident->columns[column];
    const int64_t all = from.shape()[0];
    added.batch.columns[added.batch.count++] = {static_cast<const char*>(from.address()),
                                                static_cast<char*>(value.address()),
                                                all ? static_cast<int64_t>(from.bytes()) / all : 0};
  });
  shown_.push_back(added);
  drop_graphs();  // they were captured without this feed
  return true;
}

void CudaRuntime::launch(size_t position) {
  if (position == 0) {
    for (const Shown& shown : shown_) show_batch(shown.batch);
  } else if (position <= calls_.size()) {
    Call& call = calls_[position - 1];
    const ProfilerRange range(call.op->name());
    located(*call.where, [&] { call.bound->run(call.kernel.random); });
  } else {
    const Tensor& result = this->loss();
    if (loss_.defined()) copy_elements(result, loss_);
    StepEnd end{};
    end.state = session_.state();
    end.numbers = plan()->numbers();
    end.losses = session_.losses(end.numbers);
    end.kept = losses_kept(end.numbers);
    end.streams = random_nodes();
    for (const Shown& shown : shown_) {
      end.cursors[end.feeds] = static_cast<int64_t*>(shown.feed->cursor.address());
      end.rows[end.feeds++] = shown.batch.rows;
    }
    int64_t position = 1;
    for (size_t i = 0; i < recorded_.size(); ++i) {
      const Tensor& value = this->result(plan()->recorded[i]);
      if (recorded_[i].defined()) copy_elements(value, recorded_[i]);
      record_elements(recorded_[i].defined() ? recorded_[i] : value, position, end);
      position += value.elements();
    }
    end_step(loss_.defined() ? loss_ : result, end);
  }
}

void CudaRuntime::launch_all(size_t begin, size_t end) {
  for (size_t p = begin; p < end; ++p) launch(p);
}

cudaGraph_t CudaRuntime::capture(size_t at, bool again) {
  const CaptureScope capturing;
  check(cudaStreamBeginCapture(session_.stream(), cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
  GradientSync& sync = *session_.gradient_sync;
  std::exception_ptr error;
  try {
    launch_all(segments_[at].begin, segments_[at].end);
    // A graph must end joined: an exchange of gradients goes on to the next segment, or ends before the host.
    for (; sync.is_open() && at + 1 < segments_.size() && !segments_[at + 1].on_host;
         segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(at) + 1)) {
      launch_all(segments_[at + 1].begin, segments_[at + 1].end);
      segments_[at].end = segments_[at + 1].end;
    }
    if (sync.is_open()) sync.finish();
  } catch (...) {
    error = std::current_exception();
  }
  cudaGraph_t graph = nullptr;
  const cudaError_t status = cudaStreamEndCapture(session_.stream(), &graph);
  if (status == cudaSuccess && !error) return graph;
  (void)cudaGetLastError();
  if (graph) (void)cudaGraphDestroy(graph);
  if (sync.is_open()) sync.forget();
  if (status == cudaErrorStreamCaptureInvalidated && !again) return nullptr;
  if (error) std::rethrow_exception(error);
  check(status, "cudaStreamEndCapture");
  return nullptr;
}

void CudaRuntime::capture() {
  size_t nodes = 0, graphs = 0, hosts = 0;
  for (size_t at = 0; at < segments_.size(); ++at) {
    hosts += segments_[at].on_host;
    if (segments_[at].on_host || segments_[at].graph) continue;
    cudaGraph_t graph = capture(at, false);
    // Another thread has synchronized the device, past `synchronize_device`.
    if (!graph) graph = capture(at, true);
    size_t count = 0;
    cudaError_t status = cudaGraphGetNodes(graph, nullptr, &count);
    if (status == cudaSuccess) status = cudaGraphInstantiate(&segments_[at].graph, graph, 0);
    (void)cudaGraphDestroy(graph);
    check(status, "cudaGraphInstantiate");
    nodes += count;
    ++graphs;
  }
  std::string text = graphs == 1 ? fmt::format("one CUDA graph of {} nodes", nodes)
                                 : fmt::format("{} CUDA graphs of {} nodes together", graphs, nodes);
  if (hosts) text += fmt::format(", around {} calls on the host", hosts);
  plan()->launch.set(text);
}

void CudaRuntime::run(uint64_t first_stream, KernelTimestamps* timestamps) {
  const DeviceScope device(session_.device().index);
  const StreamScope scope(session_.stream());
  const ProfilerRange range("step");
  if (random_nodes()) session_.set_random(generator().seed, first_stream);
  if (nan_finder_) {
    run_searching(timestamps);
  } else if (timestamps) {
    run_timed(*timestamps);
  } else if (session_.launch() == Launch::stream || runs_ == 0) {
    launch_all(0, positions());
    if (session_.launch() == Launch::stream && runs_ == 0) plan()->launch.set("single kernels");
  } else {
    const bool ready = std::all_of(segments_.begin(), segments_.end(),
                                   [](const Segment& s) { return s.on_host || s.graph; });
    if (!ready) capture();
    for (const Segment& segment : segments_) {
      if (segment.on_host)
        launch_all(segment.begin, segment.end);
      else
        check(cudaGraphLaunch(segment.graph, session_.stream()), "cudaGraphLaunch");
    }
  }
  ++runs_;
  session_.step_launched(random_nodes());
  for (const Shown& shown : shown_) shown.feed->next += shown.batch.rows;
}

void CudaRuntime::run_searching(KernelTimestamps* timestamps) {
  const auto lap = [&] {
    if (timestamps) timestamps->push_back(std::chrono::steady_clock::now());
  };
  launch(0);
  lap();
  nan_finder_->run([&] {
    for (size_t p = 1; p <= calls_.size(); ++p) {
      nan_finder_->before(calls_[p - 1].node);
      launch(p);
      nan_finder_->after(calls_[p - 1].node);  // waits for the kernel
      lap();
    }
  });
  launch(positions() - 1);
}

void CudaRuntime::run_timed(KernelTimestamps& timestamps) {
  std::vector<Event> events;
  const auto lap = [&] {
    events.emplace_back(true);
    events.back().record(session_.stream());
  };
  launch(0);
  lap();
  for (size_t p = 1; p <= calls_.size(); ++p) {
    launch(p);
    lap();
  }
  launch(positions() - 1);
  events.back().synchronize();
  const auto end = std::chrono::steady_clock::now();
  for (const Event& event : events) {
    const double before_end = events.back().milliseconds_since(event);
    timestamps.push_back(end - std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                   std::chrono::duration<double, std::milli>(before_end)));
  }
}

}  // namespace espalier::cu
