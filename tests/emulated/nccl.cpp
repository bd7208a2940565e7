// An NCCL whose ranks are threads of one process, each with its own emulated device. Like NCCL, it is a
// separate library; it uses the emulated runtime of the program that opens it. A collective is a host
// function in the stream, which waits, like a kernel of NCCL, until all ranks have entered it or it is
// aborted.
#include "nccl.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "espalier/core/half.h"

namespace {

enum class Kind { all_reduce, reduce, reduce_scatter, all_gather, broadcast };

struct Call {
  Kind kind;
  const void* from;
  void* to;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;

  bool matches(const Call& other) const {
    return kind == other.kind && count == other.count && type == other.type && op == other.op &&
           root == other.root;
  }
};

// All ranks that were created with one unique id.
struct Clique {
  std::vector<ncclComm*> ranks;
  std::map<uint64_t, std::vector<const Call*>> under_way;  // by number: the call of each rank
  std::map<uint64_t, int> to_leave;
};

std::mutex mutex;
std::condition_variable changed;
std::map<std::string, std::shared_ptr<Clique>> cliques;
ncclResult_t set_error = ncclSuccess;
int live = 0, aborted = 0, destroyed = 0;
thread_local bool in_group = false;

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0, device = 0;
  std::atomic<bool> aborted{false};
  uint64_t executed = 0;  // collectives that the device has begun
  bool asked = false;     // with work pending: the first query returns "in progress"
  bool finalizes = false, gone = false;
  cudaStream_t stream = nullptr;
  std::vector<Call> waiting;  // not enqueued yet: one call, or those of a group
};

namespace {

// Calls are never freed, since streams and captured graphs refer to them.
struct Launched {
  ncclComm* comm;
  Call call;
};
std::deque<Launched>& launched() {
  static auto* all = new std::deque<Launched>;
  return *all;
}
std::deque<ncclComm>& comms() {
  static auto* all = new std::deque<ncclComm>;
  return *all;
}

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}

template <class T>
void reduce(const std::vector<const Call*>& calls, size_t first, size_t count, ncclRedOp_t op, T* to) {
  using C = espalier::compute_t<T>;
  for (size_t i = 0; i < count; ++i) {
    const auto value = [&](size_t rank) {
      return static_cast<C>(static_cast<const T*>(calls[rank]->from)[first + i]);
    };
    C sum = value(0);
    for (size_t rank = 1; rank < calls.size(); ++rank) {
      const C next = value(rank);
      if (op == ncclMax)
        sum = std::max(sum, next);
      else if (op == ncclMin)
        sum = std::min(sum, next);
      else
        sum = static_cast<C>(sum + next);
    }
    if (op == ncclAvg) sum = static_cast<C>(sum / static_cast<C>(calls.size()));
    to[i] = static_cast<T>(sum);
  }
}

void reduce(const std::vector<const Call*>& calls, size_t first, size_t count, void* to) {
  const Call& call = *calls[0];
  switch (call.type) {
    case ncclFloat16: return reduce(calls, first, count, call.op, static_cast<espalier::Float16*>(to));
    case ncclBfloat16: return reduce(calls, first, count, call.op, static_cast<espalier::BFloat16*>(to));
    case ncclFloat32: return reduce(calls, first, count, call.op, static_cast<float*>(to));
    case ncclFloat64: return reduce(calls, first, count, call.op, static_cast<double*>(to));
    case ncclInt32: return reduce(calls, first, count, call.op, static_cast<int*>(to));
    default: return reduce(calls, first, count, call.op, static_cast<int64_t*>(to));
  }
}

// The last rank to arrive computes for all ranks. It reads all inputs before it writes any output.
void compute(const std::vector<const Call*>& calls) {
  const Call& call = *calls[0];
  const size_t bytes = call.count * size_of(call.type);
  std::vector<std::vector<char>> results;
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    std::vector<char>& result = results.emplace_back();
    switch (call.kind) {
      case Kind::all_reduce:
      case Kind::reduce_scatter:
        result.resize(bytes);
        reduce(calls, call.kind == Kind::all_reduce ? 0 : rank * call.count, call.count, result.data());
        break;
      case Kind::all_gather:
        for (const Call* other : calls) {
          const char* part = static_cast<const char*>(other->from);
          result.insert(result.end(), part, part + bytes);
        }
        break;
      case Kind::reduce:
        if (static_cast<int>(rank) != call.root) break;
        result.resize(bytes);
        reduce(calls, 0, call.count, result.data());
        break;
      case Kind::broadcast:
        result.resize(bytes);
        std::memcpy(result.data(), calls[static_cast<size_t>(call.root)]->from, bytes);
        break;
    }
  }
  for (size_t rank = 0; rank < calls.size(); ++rank)
    std::memcpy(calls[rank]->to, results[rank].data(), results[rank].size());
}

// A kernel of NCCL. Ranks with different calls wait forever.
void run(void* data) {
  const Launched& self = *static_cast<const Launched*>(data);
  ncclComm& comm = *self.comm;
  Clique& clique = *comm.clique;
  std::unique_lock lock(mutex);
  const uint64_t number = comm.executed++;
  auto& calls = clique.under_way[number];
  calls.resize(clique.ranks.size());
  calls[static_cast<size_t>(comm.rank)] = &self.call;
  const auto all_agree = [&] {
    return std::all_of(calls.begin(), calls.end(), [&](const Call* c) { return c && c->matches(self.call); });
  };
  if (all_agree() && !comm.aborted) {
    compute(calls);
    clique.to_leave[number] = static_cast<int>(calls.size());
    changed.notify_all();
  }
  changed.wait(lock, [&] { return clique.to_leave.contains(number) || comm.aborted; });
  if (clique.to_leave.contains(number) && --clique.to_leave[number] == 0) {
    clique.under_way.erase(number);
    clique.to_leave.erase(number);
  }
}

ncclResult_t later(ncclComm_t comm, const Call& call, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  if (!comm || comm->gone || (!in_group && !comm->waiting.empty())) return ncclInvalidUsage;
  comm->waiting.push_back(call);
  comm->stream = stream;
  comm->asked = false;
  return ncclInProgress;
}

ncclResult_t end(ncclComm_t comm, int& ended) {
  const std::lock_guard lock(mutex);
  if (!comm || comm->gone) return ncclInvalidArgument;
  comm->gone = true;
  comm->aborted = true;
  --live;
  ++ended;
  changed.notify_all();
  return ncclSuccess;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  const char* other = std::getenv("ESPALIER_EMULATED_NCCL_VERSION");
  *version = other ? std::atoi(other) : NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> next = 0;
  std::memset(id, 0, sizeof *id);
  const std::string name = "emulated " + std::to_string(++next);
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    case ncclInvalidUsage: return "invalid usage";
    default: return "internal error";
  }
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->magic != 0xcafebeef || config->size != sizeof *config || config->blocking != 0)
    return ncclInvalidArgument;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
  const std::lock_guard lock(mutex);
  auto& clique = cliques[std::string(id.internal)];
  if (!clique) clique = std::make_shared<Clique>();
  clique->ranks.resize(static_cast<size_t>(ranks));
  for (const ncclComm* other : clique->ranks)
    if (other && other->device == device) return ncclInvalidUsage;
  ncclComm& made = comms().emplace_back();
  made.clique = clique;
  made.rank = rank;
  made.device = device;
  clique->ranks[static_cast<size_t>(rank)] = &made;
  *comm = &made;
  ++live;
  return ncclInProgress;
}

// Pending calls are enqueued at the second query.
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  std::unique_lock lock(mutex);
  if (!comm || comm->gone) return ncclInvalidArgument;
  const auto& ranks = comm->clique->ranks;
  *error = set_error;
  if (set_error != ncclSuccess) return ncclSuccess;
  *error = ncclInProgress;
  if (std::find(ranks.begin(), ranks.end(), nullptr) != ranks.end()) return ncclSuccess;
  if (comm->finalizes) {  // ends when all ranks do
    const auto leaves = [](const ncclComm* rank) { return rank->finalizes || rank->gone; };
    if (std::all_of(ranks.begin(), ranks.end(), leaves)) *error = ncclSuccess;
    return ncclSuccess;
  }
  if (!comm->asked) {
    comm->asked = true;
    return ncclSuccess;
  }
  std::vector<Launched*> entries;
  for (const Call& call : std::exchange(comm->waiting, {}))
    entries.push_back(&launched().emplace_back(comm, call));
  const cudaStream_t stream = comm->stream;
  lock.unlock();
  cudaError_t status = cudaSuccess;
  if (!entries.empty())  // by another thread, as in NCCL: the one that asks may have chosen another device
    std::thread([&] {
      status = cudaSetDevice(comm->device);
      for (Launched* entry : entries)
        if (status == cudaSuccess) status = cudaLaunchHostFunc(stream, run, entry);
    }).join();
  *error = status == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::lock_guard lock(mutex);
  if (!comm || comm->gone || comm->finalizes) return ncclInvalidArgument;
  comm->finalizes = true;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return end(comm, destroyed); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return end(comm, aborted); }
ncclResult_t ncclGroupStart() {
  in_group = true;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  in_group = false;
  return ncclInProgress;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return later(comm, {Kind::all_reduce, from, to, count, type, op, 0}, stream);
}
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return later(comm, {Kind::reduce, from, to, count, type, op, root}, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return later(comm, {Kind::reduce_scatter, from, to, count, type, op, 0}, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return later(comm, {Kind::all_gather, from, to, count, type, ncclSum, 0}, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return later(comm, {Kind::broadcast, from, to, count, type, ncclSum, root}, stream);
}

void emulatedNcclSetError(ncclResult_t error) {
  const std::lock_guard lock(mutex);
  set_error = error;
}
void emulatedNcclCount(int* live_now, int* aborted_so_far, int* destroyed_so_far) {
  const std::lock_guard lock(mutex);
  *live_now = live;
  *aborted_so_far = aborted;
  *destroyed_so_far = destroyed;
}
