#include "espalier/executor/cost/hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "espalier/core/error.h"
#include "espalier/ops/matmul/bfloat16_product.h"

namespace espalier {

namespace {

double seconds_from(const Network& network, size_t at, double bytes, int64_t units) {
  if (units <= 1) return 0;
  if (at == network.levels.size())
    throw Error(
        fmt::format("the network '{}' has no level for {} more groups of devices: set the size of its last "
                    "level to 0",
                    network.name, units));
  const Network::Level& level = network.levels[at];
  const int64_t here = level.size > 0 ? std::min(level.size, units) : units;
  const int64_t beyond = (units + here - 1) / here;
  const auto g = static_cast<double>(here);
  const double bandwidth = level.bandwidth * level.bandwidth_share;
  const double ring = 2 * (g - 1) * (level.latency + bytes / (g * bandwidth)) +
                      seconds_from(network, at + 1, bytes / g, beyond);
  const auto rounds = static_cast<double>(std::bit_width(static_cast<uint64_t>(here - 1)));  // ⌈log2 g⌉
  const double up_and_down = here > 1 ? 2 * (rounds * level.latency + bytes / bandwidth) : 0;
  const double tree = up_and_down + seconds_from(network, at + 1, bytes, beyond);
  return std::min(ring, tree);
}

}  // namespace

double internal::all_reduce_seconds(const Network& network, double bytes, int64_t replicas) {
  return seconds_from(network, 0, bytes, replicas);
}

namespace presets {

namespace {

// The fractions of peak rates that large products and streaming kernels reach, and the overhead of a kernel
// in a CUDA graph (launch, filling and draining the device): assumptions, not from a data sheet.
constexpr double product_share = 0.65, bandwidth_share = 0.8, launch = 2e-6;

// The fraction of a link's bandwidth that is reached: an assumption. 120 of 128 bytes in NCCL's protocol
// LL128 are data; the rest covers headers and devices that start late.
constexpr double link_share = 0.8;

// NVLink of the fourth generation, NVIDIA H100 data sheet: 900 GB/s, of both directions together.
// The latency of a step of a ring is from NCCL's cost model (src/graph/tuning.cc, ring, LL128): 1.9 µs.
Network::Level node_of_8() {
  return {
      .name = "NVLink", .size = 8, .bandwidth = 900e9 / 2, .bandwidth_share = link_share, .latency = 1.9e-6};
}

}  // namespace

// NVIDIA H100 Tensor Core GPU data sheet, H100 SXM: FP32 67 teraFLOPS; FP64 Tensor Core 67; TF32 989 and
// FP16, BF16 1,979, both with sparsity, so half of it here; 3.35 TB/s; 80 GB.
Hardware h100() {
  return {.name = "H100 SXM",
          .float32 = 67e12,
          .float64 = 67e12,
          .tf32 = 989e12 / 2,
          .half = 1979e12 / 2,
          .product_share = product_share,
          .bandwidth = 3.35e12,
          .bandwidth_share = bandwidth_share,
          .launch = launch,
          .memory = 80e9};
}

// NVIDIA H200 Tensor Core GPU data sheet, H200 SXM: the rates of the H100 SXM; 4.8 TB/s; 141 GB.
Hardware h200() {
  Hardware gpu = h100();
  gpu.name = "H200 SXM";
  gpu.bandwidth = 4.8e12;
  gpu.memory = 141e9;
  return gpu;
}

Hardware measured_cpu(double flops, double bandwidth, double launch, double memory) {
  return {.name = "a measured processor",
          .float32 = flops,
          .float64 = flops / 2,  // a vector holds half as many
          .tf32 = flops,         // CPUs have no TF32
          // Products of 16-bit types are computed in float32, or by vectors that hold twice as many.
          .half = has_bfloat16_products(DType::bfloat16) ? 2 * flops : flops,
          .bandwidth = bandwidth,
          .launch = launch,
          .memory = memory};
}

// Between nodes: NVIDIA DGX H100 data sheet, 8 ports of ConnectX-7 for 8 GPUs, 400 Gb/s of InfiniBand each.
// Latency from NCCL's cost model for a network (ring, LL128): 4 µs.
Network nvlink() {
  return {
      .name = "NVLink, InfiniBand 400 Gb/s",
      .levels = {
          node_of_8(),
          {.name = "InfiniBand", .bandwidth = 400e9 / 8, .bandwidth_share = link_share, .latency = 4e-6}}};
}

// The bits per second are the port's, in each direction (IEEE 802.3): 1/8 of it in bytes, and of that 1/8 for
// each GPU of the node. The latency of a message over TCP between two hosts is an assumption: 20 µs.
Network ethernet(double bits_per_second) {
  return {.name = fmt::format("NVLink, Ethernet {:g} Gb/s", bits_per_second * 1e-9),
          .levels = {node_of_8(),
                     {.name = "Ethernet",
                      .bandwidth = bits_per_second / 8 / 8,
                      .bandwidth_share = link_share,
                      .latency = 20e-6}}};
}

}  // namespace presets

}  // namespace espalier
