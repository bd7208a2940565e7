// Hardware and Network: a machine on paper, as plans are held against it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace espalier {

/// One device. Rates are the highest there are; what is reached of them stands beside them.
struct Hardware {
  std::string name = {};
  double float32 = 0;  ///< FLOP/s, of products and of all else; a multiplication and an addition count two
  double float64 = 0;  ///< FLOP/s of products in float64
  double tf32 = 0;     ///< FLOP/s of products in float32 that may drop digits
  double half = 0;     ///< FLOP/s of products in float16 and bfloat16
  double product_share = 1;    ///< what products reach of these rates, 0 to 1
  double bandwidth = 0;        ///< of the memory, in bytes/s
  double bandwidth_share = 1;  ///< what kernels reach of it, 0 to 1
  double launch = 0;           ///< what each kernel takes beyond its work, in seconds
  double memory = 0;           ///< in bytes; 0: not known
};

/// How devices are connected: those of a node to each other, nodes to each other, and so on.
struct Network {
  struct Level {
    std::string name = {};
    /// How many units of the level before are connected by it; of the first level, devices. The last level
    /// may have 0: as many as there are.
    int64_t size = 0;
    /// What one device can send to it while it receives as much, in bytes/s. Where devices share a port, the
    /// part of each.
    double bandwidth = 0;
    double bandwidth_share = 1;  ///< what is reached of it, 0 to 1
    double latency = 0;          ///< of one message, in seconds
  };
  std::string name = {};
  std::vector<Level> levels = {};  ///< the nearest first
};

/// Seconds until the sums of `bytes` over `replicas` devices are on all of them.
///
/// At each level g units take part (as many as fit; at the last, all that are left), b is what each device
/// has to add up there, B what a device reaches of its bandwidth, and α the latency. Two ways, of which the
/// faster one counts at each level by itself:
/// - a ring of each device with those in its place in the other units. They reduce and scatter, the next
/// level
///   adds up b/g in the same way, and they gather: 2(g−1)·(α + b/(gB)). (Thakur, Rabenseifner, Gropp,
///   "Optimization of Collective Communication Operations in MPICH", 2005; Patarasuk, Yuan, "Bandwidth
///   optimal all-reduce algorithms for clusters of workstations", 2009.)
/// - two trees in a pipeline, up and down again, around the next level, which adds up b:
///   2(⌈log2 g⌉·α + b/B). (Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast,
///   reduction and scan", 2009; what filling the pipeline takes is left out.)
///
/// Nodes which are not full count as full. Throws Error if the network has no place for so many.
double all_reduce_seconds(const Network& network, double bytes, int64_t replicas);

/// Machines whose numbers are on data sheets, and others that were measured.
namespace presets {

Hardware h100();  ///< NVIDIA H100 SXM, 80 GB
Hardware h200();  ///< NVIDIA H200 SXM, 141 GB
/// A processor that was measured: FLOP/s of products, bytes/s, seconds for each kernel, bytes.
Hardware measured_cpu(double flops, double bandwidth, double launch = 0, double memory = 0);

Network nvlink();  ///< nodes of 8 GPUs by NVLink; 400 Gb/s of InfiniBand for each GPU between them
Network ethernet(double bits_per_second);  ///< nodes of 8 GPUs by NVLink; one port for each node between them

}  // namespace presets

}  // namespace espalier
