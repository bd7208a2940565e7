// Hardware and Network: the machine of a prediction.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace espalier {

/// One device. Rates are peak rates; the fractions beside them say what is reached.
struct Hardware {
  std::string name = {};
  double float32 = 0;          ///< FLOP/s of products and all else; a fused multiply-add counts two
  double float64 = 0;          ///< FLOP/s of products in float64
  double tf32 = 0;             ///< FLOP/s of float32 products in TF32
  double half = 0;             ///< FLOP/s of products in float16 and bfloat16
  double product_share = 1;    ///< fraction of these rates that products reach, 0 to 1
  double bandwidth = 0;        ///< of the memory, in bytes/s
  double bandwidth_share = 1;  ///< fraction that kernels reach, 0 to 1
  double launch = 0;           ///< overhead of each kernel, in seconds
  double memory = 0;           ///< in bytes; 0: unknown
};

/// The hierarchy of connections: between the devices of a node, between nodes, and so on.
struct Network {
  struct Level {
    std::string name = {};
    /// The number of units of the previous level, or of devices, that it connects. 0 in the last level:
    /// any number.
    int64_t size = 0;
    /// Bytes/s that one device can send while it receives at the same rate. Devices that share a port get a
    /// fraction each.
    double bandwidth = 0;
    double bandwidth_share = 1;  ///< fraction that is reached, 0 to 1
    double latency = 0;          ///< of one message, in seconds
  };
  std::string name = {};
  std::vector<Level> levels = {};  ///< the nearest first
};

namespace internal {

/// Seconds of an all-reduce of `bytes` over `replicas` devices.
///
/// Each level connects g units (as many as fit; the last level, all remaining units). b is the number of
/// bytes that each device adds up at this level, B the bandwidth that a device reaches, and α the latency.
/// Each level uses the faster of two algorithms:
/// - rings of the devices at the same position in each unit: a reduce-scatter, the next level with b/g, and
///   an all-gather take 2(g−1)·(α + b/(gB)). (Thakur, Rabenseifner, Gropp, "Optimization of Collective
///   Communication Operations in MPICH", 2005; Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for
///   clusters of workstations", 2009.)
/// - two pipelined trees, up and down, around the next level with b: 2(⌈log2 g⌉·α + b/B). (Sanders, Speck,
///   Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009; the time to fill
///   the pipeline is left out.)
///
/// Partly filled nodes count as full. Throws Error if the network has too few places.
double all_reduce_seconds(const Network& network, double bytes, int64_t replicas);

}  // namespace internal

/// Machines from data sheets, and measured ones.
namespace presets {

Hardware h100();  ///< NVIDIA H100 SXM, 80 GB
Hardware h200();  ///< NVIDIA H200 SXM, 141 GB
/// A measured processor: FLOP/s of products, bytes/s, seconds of overhead for each kernel, bytes.
Hardware measured_cpu(double flops, double bandwidth, double launch = 0, double memory = 0);

Network nvlink();  ///< nodes of 8 GPUs with NVLink; 400 Gb/s of InfiniBand for each GPU between nodes
Network ethernet(
    double bits_per_second);  ///< nodes of 8 GPUs with NVLink; one port of each node between nodes

}  // namespace presets

}  // namespace espalier
