// bench_gpu_machine ceilings|products|floor ... [rounds]: the limits of the machine, without Espalier.
//   ceilings     copying within its memory; graphs of kernels which do nothing, one after another
//   products     the matrix products of a step, each by the fastest algorithm of cuBLASLt
//   floor NODES  lower bounds for a step of the MLP in a graph of NODES nodes: an empty graph of that size,
//                and the products. Also the products and empty kernels as one graph
#include <cstdint>
#include <cstring>
#include <memory>

#include "../products.h"
#include "gpu_task.h"
#include "kernels.h"
#include "lt.h"

namespace {

using bench::check;

double empty_graph(const bench::Stream& stream, int nodes, int rounds) {
  const bench::Graph graph(stream, [&] {
    for (int i = 0; i < nodes; ++i) bench::launch_empty(stream);
  });
  return graph.seconds(rounds, 2000);
}

void ceilings(int rounds) {
  const bench::Stream stream;
  {
    constexpr size_t bytes = size_t{2} << 30;
    constexpr int copies = 10;
    const bench::Memory from(bytes), to(bytes);
    bench::fill_random(from, 4, 1, stream);
    const double seconds = bench::median_seconds(rounds, [&] {
      for (int i = 0; i < copies; ++i)
        check(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream),
              "cudaMemcpyAsync");
      stream.wait();
    });
    bench::report("machine_copy_gb_per_s", 2e-9 * bytes * copies / seconds);
  }
  bench::launch_empty(stream);
  for (const int nodes : {1, 5, 10, 20})
    bench::report("machine_empty_graph_" + std::to_string(nodes) + "_us",
                  empty_graph(stream, nodes, rounds) * 1e6);
}

void products_of(const std::string& workload, std::span<const bench::Product> products) {
  constexpr std::pair<bench::Numbers, const char*> kinds[] = {{bench::Numbers::float32, "float32"},
                                                              {bench::Numbers::tf32, "tf32"},
                                                              {bench::Numbers::bfloat16, "bf16"}};
  const bench::Stream stream;
  for (const auto& [numbers, name] : kinds) {
    double seconds = 0, operations = 0;
    for (const bench::Product& product : products) {
      const bench::LtGemm gemm(product, numbers, stream);
      std::printf("# %-9s %-9s %-7s %4d x %5d x %5d x %5d  %9.2f us  %7.1f TFLOP/s\n", workload.c_str(),
                  product.name, name, product.batch, product.m, product.n, product.k, gemm.seconds() * 1e6,
                  gemm.operations() / gemm.seconds() * 1e-12);
      seconds += gemm.seconds(), operations += gemm.operations();
    }
    bench::report(workload + "_products_" + name + "_us", seconds * 1e6);
    bench::report(workload + "_products_" + name + "_tflops", operations / seconds * 1e-12);
  }
}

void floor_of_mlp(int nodes, int rounds) {
  const bench::Stream stream;
  std::vector<std::unique_ptr<bench::LtGemm>> products;
  for (const bench::Product& product : bench::kMlpProducts)
    products.push_back(std::make_unique<bench::LtGemm>(product, bench::Numbers::float32, stream));
  double alone = 0;
  for (const auto& product : products) alone += product->seconds();
  bench::launch_empty(stream);
  bench::report("mlp_floor_us", (empty_graph(stream, nodes, rounds) + alone) * 1e6);
  const bench::Graph together(stream, [&] {
    for (const auto& product : products) product->launch();
    for (int i = static_cast<int>(products.size()); i < nodes; ++i) bench::launch_empty(stream);
  });
  bench::report("mlp_floor_one_graph_us", together.seconds(rounds, 2000) * 1e6);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string what = argc > 1 ? argv[1] : "";
  const int rounds = bench::rounds(argc - 1, argv + 1);
  if (what == "ceilings") {
    ceilings(rounds);
  } else if (what == "products") {
    products_of("mlp", bench::kMlpProducts);
    products_of("gpt_small", bench::kGptProducts);
    products_of("gpt_large", bench::gpt_products(gpu_task::kGptLarge));
  } else if (const int nodes = argc > 2 ? std::atoi(argv[2]) : 0; what == "floor" && nodes > 0) {
    floor_of_mlp(nodes, bench::rounds(argc - 2, argv + 2));
  } else {
    std::fputs("usage: bench_gpu_machine ceilings|products|floor NODES [rounds]\n", stderr);
    return 2;
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_gpu_machine: %s\n", error.what());
  return 1;
}
