// Constant matrices of ones along diagonals, in the shape of others.
#include "espalier/core/op_registry.h"
#include "espalier/ops/linalg/linalg_ops.h"
#include "espalier/ops/linalg/matrix_op.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

class BandLike : public Op {
 public:
  BandLike(int64_t below, int64_t above, double diagonal)
      : Op({.takes_any_values = true,
            .reads = InputSet::none(),
            .gradient_reads = InputSet::none(),
            .passes_no_gradient = true}),
        below_(below),
        above_(above),
        diagonal_(diagonal) {}
  std::string_view name() const override { return "band_like"; }
  Attributes attributes() const override {
    return {{"below", below_}, {"above", above_}, {"diagonal", diagonal_}};
  }
  Specs infer(const InputSpecs& in) const override {
    check_matrix(*in[0], name(), false);
    return {{in[0]->dtype, {in[0]->shape[-2], in[0]->shape[-1]}}};
  }
  void run_cpu(const KernelCall& call) const override {
    const int64_t rows = call.outputs[0]->shape()[0], columns = call.outputs[0]->shape()[1];
    visit_matrix(call.outputs[0]->dtype(), [&]<class T>(TypeTag<T>) {
      T* out = detail::output<T>(call);
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) out[i * columns + j] = static_cast<T>(element(j - i));
    });
  }
  Gradients gradient(const GradientRule&) const override { return {Variable()}; }

 private:
  double element(int64_t above) const {
    if (above == 0) return diagonal_;
    const int64_t limit = above > 0 ? above_ : below_;
    return limit < 0 || std::abs(above) <= limit ? 1 : 0;
  }

  int64_t below_, above_;
  double diagonal_;
};

}  // namespace

Variable band_like(const Variable& x, int64_t below, int64_t above, double diagonal) {
  return apply(std::make_shared<BandLike>(below, above, diagonal), {&x}, std::source_location::current());
}

void add_band_op(OpRegistry& ops) {
  ops.add("band_like", 1, [](AttributeReader& a) {
    const int64_t below = a.integer("below"), above = a.integer("above");
    return std::make_shared<BandLike>(below, above, a.real("diagonal"));
  });
}

}  // namespace espalier
