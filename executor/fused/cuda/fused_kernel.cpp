// Fused programs on a GPU: their kernels are written, compiled at run time, and launched.
#include <algorithm>
#include <cstring>
#include <map>

#include "espalier/core/cuda/launch.h"
#include "espalier/core/cuda/nvrtc.h"
#include "espalier/executor/fused/codegen/fused_source.h"
#include "espalier/executor/fused/cuda/kernels.h"
#include "espalier/executor/fused/fused_op.h"

namespace espalier::cu {

namespace {

using Fields = std::vector<uint64_t>;

uint64_t field(const void* address) { return reinterpret_cast<uintptr_t>(address); }
uint64_t field(int64_t number) { return static_cast<uint64_t>(number); }

FusedTensor described(const Tensor& tensor) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.address());
  const int64_t alignment = address % 16 == 0 ? 16 : static_cast<int64_t>(address & (~address + 1));
  return {tensor.dtype(), tensor.layout(), alignment};
}

bool overlaps(const Tensor& in, const Tensor& out) {
  if (in.storage().get() != out.storage().get() || in.elements() == 0) return false;
  int64_t last = 0;
  for (size_t i = 0; i < in.rank(); ++i)
    last += (in.shape().dims()[i] - 1) * std::max<int64_t>(in.strides()[i], 0);
  const auto* begin = static_cast<const char*>(in.address());
  const char* end = begin + static_cast<size_t>(last + 1) * size_of(in.dtype());
  const auto* to = static_cast<const char*>(out.address());
  return begin < to + out.bytes() && to < end;
}

/// The tensors of one program, out of those of a call.
struct Operands {
  std::span<const Tensor* const> inputs;
  std::span<Tensor* const> outputs;

  FusedTensors describe() const {
    FusedTensors tensors;
    for (const Tensor* in : inputs)
      tensors.inputs.push_back(in->defined() ? described(*in) : FusedTensor{in->dtype(), in->layout()});
    for (const Tensor* out : outputs) tensors.outputs.push_back(described(*out));
    for (const Tensor* in : inputs)
      for (const Tensor* out : outputs) tensors.in_place |= in->defined() && overlaps(*in, *out);
    return tensors;
  }
};

/// The first fields of a kernel's arguments.
Fields fields_of(const FusedSource& source, const Operands& operands) {
  Fields fields;
  for (const uint32_t i : source.inputs) fields.push_back(field(operands.inputs[i]->address()));
  for (const Tensor* out : operands.outputs) fields.push_back(field(out->address()));
  fields.push_back(field(source.flat ? source.columns : source.rows));
  return fields;
}

Tensor bytes_on(Device device, int64_t bytes) {
  return Tensor({std::max<int64_t>(bytes, 1)}, DType::boolean, device);
}

/// A table in device memory.
template <class T>
Tensor uploaded(const std::vector<T>& table, Device device) {
  Tensor host({static_cast<int64_t>(table.size() * sizeof(T))}, DType::boolean);
  std::memcpy(host.address(), table.data(), host.bytes());
  return host.to(device);
}

class BoundFused : public BoundKernel {
 public:
  BoundFused(const FusedSource& source, int64_t blocks, Fields fields, std::vector<Tensor> memory)
      : kernel_(compiled_kernel(source.text, source.name.c_str())),
        blocks_(blocks),
        threads_(source.threads),
        fields_(std::move(fields)),
        memory_(std::move(memory)) {
    // Loads the kernel now, since it cannot be loaded while a graph is captured.
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, kernel_), "cudaFuncGetAttributes");
  }

  void run(RandomStream) override {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks_));
    config.blockDim = dim3(static_cast<unsigned>(threads_));
    config.stream = current_stream();
    void* arguments[] = {fields_.data()};
    check(cudaLaunchKernelExC(&config, kernel_, arguments), "the launch of a fused kernel");
  }

 private:
  cudaKernel_t kernel_;
  int64_t blocks_, threads_;
  Fields fields_;
  std::vector<Tensor> memory_;  // what the fields point to, beside inputs and outputs
};

Bound bind_one(const Operands& operands, const Program& program) {
  if (program.elements == 0) return bound([](RandomStream) {});
  const FusedSource source = fused_source(program, operands.describe());
  const FusedLaunch launch = source.launch(limits().multiprocessors);
  Fields fields = fields_of(source, operands);
  std::vector<Tensor> memory;
  if (source.has_finals()) {
    const Device device = operands.outputs[0]->device();
    const auto add = [&](int64_t bytes) {
      memory.push_back(bytes_on(device, bytes));
      fields.push_back(field(memory.back().address()));
    };
    for (const int64_t bytes : source.column_bytes) add(launch.chunks * source.width * bytes);
    add(launch.blocks * source.totals * static_cast<int64_t>(sizeof(double)));
    add(launch.counters * static_cast<int64_t>(sizeof(unsigned)));
    zero_elements(memory.back());
    fields.push_back(field(launch.stage));
  }
  return std::make_unique<BoundFused>(source, launch.blocks, std::move(fields), std::move(memory));
}

/// Members of a group that share a kernel.
struct Alike {
  FusedSource source;
  FusedTensors tensors;  // of the first
  std::vector<Fields> members;
  std::vector<int64_t> tiles;  // of each

  void add(const Operands& operands, int64_t elements) {
    members.push_back(fields_of(source, operands));
    members.back().back() = field(elements);  // the source has the number of the first member
    tiles.push_back((elements + source.tile - 1) / source.tile);
  }
  bool has_dtypes_of(const FusedTensors& other) const {
    const auto same = [](const FusedTensor& a, const FusedTensor& b) { return a.dtype == b.dtype; };
    return std::ranges::equal(tensors.inputs, other.inputs, same) &&
           std::ranges::equal(tensors.outputs, other.outputs, same);
  }
};

Bound bind_alike(const Alike& alike, Device device) {
  constexpr int64_t blocks_for_each = 32, most_tiles = 8;
  int64_t all = 0;
  for (const int64_t tiles : alike.tiles) all += tiles;
  // More tiles in a block amortize its start, while enough blocks remain.
  const int64_t wanted = limits().multiprocessors * blocks_for_each;
  const int64_t each = std::clamp<int64_t>(all / wanted, 1, most_tiles);
  std::vector<FusedBlock> blocks;
  std::vector<size_t> first;  // block of each member
  for (size_t m = 0; m < alike.tiles.size(); ++m) {
    first.push_back(blocks.size());
    const int64_t count = (alike.tiles[m] + each - 1) / each;
    for (int64_t number = 0; number < count; ++number)
      blocks.push_back({static_cast<uint32_t>(m), static_cast<uint32_t>(number * each),
                        static_cast<uint32_t>(std::min((number + 1) * each, alike.tiles[m])),
                        static_cast<uint32_t>(number), static_cast<uint32_t>(count)});
  }
  const auto doubles = static_cast<size_t>(alike.source.totals);
  const bool meet = alike.source.has_finals() || alike.source.counts_reads;
  std::vector<Tensor> memory{
      uploaded(blocks, device),
      bytes_on(device, static_cast<int64_t>(meet ? blocks.size() * doubles * sizeof(double) : 0)),
      bytes_on(device, static_cast<int64_t>(meet ? 2 * alike.members.size() * sizeof(unsigned) : 0))};
  zero_elements(memory[2]);
  Fields table;
  for (size_t m = 0; m < alike.members.size(); ++m) {
    table.insert(table.end(), alike.members[m].begin(), alike.members[m].end());
    if (!meet) continue;
    table.push_back(field(static_cast<double*>(memory[1].address()) + first[m] * doubles));
    table.push_back(field(static_cast<unsigned*>(memory[2].address()) + 2 * m));
  }
  memory.push_back(uploaded(table, device));
  Fields fields{field(memory.back().address()), field(memory[0].address())};
  return std::make_unique<BoundFused>(alike.source, static_cast<int64_t>(blocks.size()), std::move(fields),
                                      std::move(memory));
}

}  // namespace

Bound bind_fused(const KernelCall& call, const Program& program) {
  return bind_one({{call.inputs.data(), call.inputs.size()}, {call.outputs.data(), call.outputs.size()}},
                  program);
}

namespace {

/// All members in one launch, where their programs are one text.
Bound bind_fused_group(const Op& op, const KernelCall& call) {
  const std::vector<FusedGroup::Member>& members = static_cast<const FusedGroup&>(op).members();
  std::vector<Operands> operands;
  size_t input = 0, output = 0;
  bool wide = false;
  for (const FusedGroup::Member& member : members) {
    operands.push_back(
        {{call.inputs.data() + input, member.inputs}, {call.outputs.data() + output, member.outputs}});
    input += member.inputs;
    output += member.outputs;
    wide |= member.op->program().elements >= int64_t{1} << 31;
  }
  std::vector<Bound> parts;
  std::map<std::string, Alike> kernels;
  std::vector<size_t> single;  // members of one element
  for (size_t m = 0; m < members.size(); ++m) {
    const Program& program = members[m].op->program();
    if (program.elements == 0) continue;
    if (program.elements == 1) {
      single.push_back(m);
      continue;
    }
    FusedTensors tensors = operands[m].describe();
    auto source = fused_group_source(program, tensors, wide);
    if (!source) {
      parts.push_back(bind_one(operands[m], program));
      continue;
    }
    Alike& alike = kernels[source->text];
    if (alike.members.empty()) {
      alike.source = std::move(*source);
      alike.tensors = std::move(tensors);
    }
    alike.add(operands[m], program.elements);
  }
  // Kernels read one element in the same way, whether its tensor is contiguous or repeats it.
  for (const size_t m : single) {
    FusedTensors tensors = operands[m].describe();
    auto fits = std::find_if(kernels.begin(), kernels.end(),
                             [&](const auto& k) { return k.second.has_dtypes_of(tensors); });
    if (fits == kernels.end()) {
      auto source = fused_group_source(members[m].op->program(), tensors, wide);
      if (!source) {
        parts.push_back(bind_one(operands[m], members[m].op->program()));
        continue;
      }
      fits = kernels.try_emplace(source->text).first;
      fits->second.source = std::move(*source);
      fits->second.tensors = std::move(tensors);
    }
    fits->second.add(operands[m], 1);
  }
  for (const auto& [text, alike] : kernels) parts.push_back(bind_alike(alike, call.outputs[0]->device()));
  if (parts.size() == 1) return std::move(parts[0]);
  return bound([parts = std::move(parts)](RandomStream random) {
    for (const Bound& part : parts) part->run(random);
  });
}

}  // namespace

void add_fused_kernels(KernelRegistry& kernels) {
  kernels.add("fused", [](const Op& op, const KernelCall& call) {
    return bind_fused(call, static_cast<const FusedOp&>(op).program());
  });
  kernels.add("fused_group", bind_fused_group);
}

}  // namespace espalier::cu
