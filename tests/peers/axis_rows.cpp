// Operations along axes: reductions, cumulative ones, order, and elements chosen by indices or conditions.
#include "bridge.h"

namespace peers {
namespace {

using namespace espalier;

template <Variable (*F)(const Operand&, const Axes&, bool)>
Outputs reduced(const Case& c) {
  return F(c[0], c.axes(), c.flag("keep_dims"));
}

template <Variable (*F)(const Operand&, int64_t)>
Outputs along(const Case& c) {
  return F(c[0], c.integer("axis"));
}

template <ValuesAndIndices (*F)(const Operand&, int64_t)>
Outputs both_along(const Case& c) {
  return F(c[0], c.integer("axis"));
}

}  // namespace

std::vector<Row> axis_rows() {
  return {
      {"sum", reduced<sum>},
      {"mean", reduced<mean>},
      {"max", reduced<max>},
      {"min", reduced<min>},
      {"prod", reduced<prod>},
      {"any", reduced<any>},
      {"all", reduced<all>},
      {"count_nonzero", reduced<count_nonzero>},
      {"logsumexp", reduced<logsumexp>},
      {"nansum", reduced<nansum>},
      {"nanmean", reduced<nanmean>},
      {"var",
       [](const Case& c) -> Outputs {
         return var(c[0], c.axes(), {c.real("correction"), c.flag("keep_dims")});
       }},
      {"std",
       [](const Case& c) -> Outputs {
         return espalier::std(c[0], c.axes(), {c.real("correction"), c.flag("keep_dims")});
       }},
      {"norm",
       [](const Case& c) -> Outputs {
         return norm(c[0], c.axes(), {c.real("p"), c.flag("keep_dims")});
       }},
      {"argmax", along<argmax>},
      {"argmin", along<argmin>},
      {"softmax", along<softmax>},
      {"log_softmax", along<log_softmax>},
      {"glu", along<glu>},
      {"hardmax", along<hardmax>},
      {"cumsum", along<cumsum>},
      {"cumprod", along<cumprod>},
      {"logcumsumexp", along<logcumsumexp>},
      {"cummax", both_along<cummax>},
      {"cummin", both_along<cummin>},
      {"layer_norm",
       [](const Case& c) -> Outputs { return layer_norm(c[0], c[1], c[2], c.real("epsilon")); }},
      {"mean_variance_normalization",
       [](const Case& c) -> Outputs {
         return mean_variance_normalization(c[0], c.axes(), c.real("epsilon"));
       }},
      {"normalize",
       [](const Case& c) -> Outputs {
         return normalize(c[0], {.p = c.real("p"), .axis = c.integer("axis"), .epsilon = c.real("epsilon")});
       }},
      {"local_response_norm",
       [](const Case& c) -> Outputs {
         return local_response_norm(
             c[0],
             {.size = c.integer("size"), .alpha = c.real("alpha"), .beta = c.real("beta"), .k = c.real("k")});
       }},
      {"sort", [](const Case& c) -> Outputs { return sort(c[0], c.integer("axis"), c.flag("descending")); }},
      {"argsort",
       [](const Case& c) -> Outputs { return argsort(c[0], c.integer("axis"), c.flag("descending")); }},
      {"topk",
       [](const Case& c) -> Outputs {
         return topk(c[0], c.integer("k"), c.integer("axis"), c.flag("largest")).values;
       }},
      {"kthvalue",
       [](const Case& c) -> Outputs {
         return kthvalue(c[0], c.integer("k"), c.integer("axis"), c.flag("keep_dims")).values;
       }},
      {"median_axis",
       [](const Case& c) -> Outputs { return median(c[0], c.integer("axis"), c.flag("keep_dims")).values; }},
      {"quantile_axis",
       [](const Case& c) -> Outputs {
         const std::string& mode = c.text("mode");
         using enum QuantileInterpolation;
         return quantile(c[0], c.real("q"), c.integer("axis"), c.flag("keep_dims"),
                         mode == "lower"      ? lower
                         : mode == "higher"   ? higher
                         : mode == "midpoint" ? midpoint
                         : mode == "nearest"  ? nearest
                                              : linear);
       }},
      {"quantile", [](const Case& c) -> Outputs { return quantile(c[0], c.real("q")); }},
      {"nanquantile",
       [](const Case& c) -> Outputs {
         return nanquantile(c[0], c.real("q"), c.integer("axis"), c.flag("keep_dims"));
       }},
      {"median", [](const Case& c) -> Outputs { return median(c[0]); }},
      {"searchsorted", [](const Case& c) -> Outputs { return searchsorted(c[0], c[1], c.flag("right")); }},
      {"unique",
       [](const Case& c) -> Outputs {
         const UniqueElements u = unique(c[0], {.inverse = true, .counts = true});
         return {u.values, u.inverse, u.counts};
       }},
      {"bincount",
       [](const Case& c) -> Outputs {
         return bincount(c[0], {.weights = c.optional(1), .min_length = c.integer("min_length")});
       }},
      {"histogram",
       [](const Case& c) -> Outputs {
         return histogram(c[0], c.integer("bins"), c.real("low"), c.real("high"));
       }},
      {"gather", [](const Case& c) -> Outputs { return gather(c[0], c[1], c.integer("axis")); }},
      {"pick", [](const Case& c) -> Outputs { return pick(c[0], c[1]); }},
      {"one_hot", [](const Case& c) -> Outputs { return one_hot(c[0], c.integer("classes"), int64); }},
      {"take_along_axis",
       [](const Case& c) -> Outputs { return take_along_axis(c[0], c[1], c.integer("axis")); }},
      {"put_along_axis",
       [](const Case& c) -> Outputs { return put_along_axis(c[0], c[1], c[2], c.integer("axis")); }},
      {"add_along_axis",
       [](const Case& c) -> Outputs { return add_along_axis(c[0], c[1], c[2], c.integer("axis")); }},
      {"scatter", [](const Case& c) -> Outputs { return scatter(c[0], c[1], c[2], c.integer("axis")); }},
      {"scatter_add",
       [](const Case& c) -> Outputs { return scatter_add(c[0], c[1], c[2], c.integer("axis")); }},
      {"max_along_axis",
       [](const Case& c) -> Outputs { return max_along_axis(c[0], c[1], c[2], c.integer("axis")); }},
      {"min_along_axis",
       [](const Case& c) -> Outputs { return min_along_axis(c[0], c[1], c[2], c.integer("axis")); }},
      {"scatter_max",
       [](const Case& c) -> Outputs { return scatter_max(c[0], c[1], c[2], c.integer("axis")); }},
      {"scatter_min",
       [](const Case& c) -> Outputs { return scatter_min(c[0], c[1], c[2], c.integer("axis")); }},
      {"diff", [](const Case& c) -> Outputs { return diff(c[0], c.integer("n"), c.integer("axis")); }},
      {"trapezoid",
       [](const Case& c) -> Outputs { return trapezoid(c[0], c.real("dx"), c.integer("axis")); }},
      {"trapezoid_at", [](const Case& c) -> Outputs { return trapezoid(c[0], c[1], c.integer("axis")); }},
      {"cov", [](const Case& c) -> Outputs { return cov(c[0], {.correction = c.real("correction")}); }},
      {"masked_scatter", [](const Case& c) -> Outputs { return masked_scatter(c[0], c[1], c[2]); }},
      {"masked_select", [](const Case& c) -> Outputs { return masked_select(c[0], c[1]); }},
      {"nonzero", [](const Case& c) -> Outputs { return nonzero(c[0]); }},
  };
}

}  // namespace peers
