// Products, distances, systems of equations and decompositions. What is not unique is returned as what is:
// products of factors, and absolute values of vectors.
#include "bridge.h"

namespace peers {

std::vector<Row> matrix_rows() {
  using namespace espalier;
  return {
      {"matmul", static_cast<Binary>(matmul)},
      {"outer", static_cast<Binary>(outer)},
      {"dot", static_cast<Binary>(dot)},
      {"inner", static_cast<Binary>(inner)},
      {"kron", static_cast<Binary>(kron)},
      {"einsum", [](const Case& c) -> Outputs { return einsum(c.text("equation"), c.inputs()); }},
      {"vecdot", [](const Case& c) -> Outputs { return vecdot(c[0], c[1], c.integer("axis")); }},
      {"cross", [](const Case& c) -> Outputs { return cross(c[0], c[1], c.integer("axis")); }},
      {"tensordot", [](const Case& c) -> Outputs { return tensordot(c[0], c[1], c.integer("axes")); }},
      {"tensordot_pairs",
       [](const Case& c) -> Outputs { return tensordot(c[0], c[1], c.axes("axes_a"), c.axes("axes_b")); }},
      {"bilinear", [](const Case& c) -> Outputs { return bilinear(c[0], c[1], c[2], c.optional(3)); }},
      {"cosine_similarity",
       [](const Case& c) -> Outputs {
         return cosine_similarity(c[0], c[1], c.integer("axis"), c.real("epsilon"));
       }},
      {"pairwise_distance",
       [](const Case& c) -> Outputs {
         return pairwise_distance(
             c[0], c[1], {.p = c.real("p"), .epsilon = c.real("epsilon"), .keep_dims = c.flag("keep_dims")});
       }},
      {"linear", [](const Case& c) -> Outputs { return linear(c[0], c[1], c.optional(2)); }},
      {"pdist", [](const Case& c) -> Outputs { return pdist(c[0], c.real("p")); }},
      {"cdist", [](const Case& c) -> Outputs { return cdist(c[0], c[1], c.real("p")); }},
      {"solve", static_cast<Binary>(solve)},
      {"triangular_solve",
       [](const Case& c) -> Outputs {
         return triangular_solve(c[0], c[1],
                                 {.upper = c.flag("upper"),
                                  .transposed = c.flag("transposed"),
                                  .unit_diagonal = c.flag("unit_diagonal")});
       }},
      {"inverse", static_cast<Unary>(inverse)},
      {"matrix_power", [](const Case& c) -> Outputs { return matrix_power(c[0], c.integer("n")); }},
      {"det", static_cast<Unary>(det)},
      {"slogdet",
       [](const Case& c) -> Outputs {
         const LogDeterminant d = slogdet(c[0]);
         return {d.sign, d.log_abs};
       }},
      {"cholesky_solve",
       [](const Case& c) -> Outputs { return cholesky_solve(c[0], c[1], c.flag("upper")); }},
      {"block_diag", [](const Case& c) -> Outputs { return block_diag(c.inputs()); }},
      {"cholesky", [](const Case& c) -> Outputs { return cholesky(c[0], c.flag("upper")); }},
      {"qr",
       [](const Case& c) -> Outputs {
         const QrFactors f = qr(c[0]);
         return {abs(f.q), abs(f.r)};
       }},
      {"svd",
       [](const Case& c) -> Outputs {
         const SvdFactors f = svd(c[0]);
         return {abs(f.u), f.s, abs(f.vt)};
       }},
      {"svdvals", static_cast<Unary>(svdvals)},
      {"eigh",
       [](const Case& c) -> Outputs {
         const EighFactors f = eigh(c[0]);
         return {f.values, abs(f.vectors)};
       }},
      {"eigvalsh", static_cast<Unary>(eigvalsh)},
      {"lstsq", static_cast<Binary>(lstsq)},
      {"pinv", [](const Case& c) -> Outputs { return pinv(c[0]); }},
      {"matrix_rank", [](const Case& c) -> Outputs { return matrix_rank(c[0]); }},
  };
}

}  // namespace peers
