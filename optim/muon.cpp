#include "espalier/optim/muon.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/rule.h"
#include "espalier/optim/trust_ratio.h"

namespace espalier::optim {

namespace {

/// Near UVᵀ of the matrix x = UΣVᵀ: its singular values become numbers around 1.
Variable orthogonalized(const Variable& matrix, int64_t iterations, double epsilon) {
  const bool high = matrix.shape()[0] > matrix.shape()[1];  // the smaller of xxᵀ and xᵀx
  Variable x = high ? transpose(matrix) : matrix;
  x = x / maximum(norm_of(x), epsilon);
  for (int64_t i = 0; i < iterations; ++i) {
    const Variable gram = matmul(x, transpose(x));
    x = x * 3.4445 + matmul(gram * -4.775 + matmul(gram, gram) * 2.0315, x);
  }
  return high ? transpose(x) : x;
}

class MuonRule : public BuiltInRule {
 public:
  explicit MuonRule(const MuonOptions& o) : o_(o) {}
  std::string_view name() const override { return "Muon"; }

  void update(ParameterUpdate& step) const override {
    const Variable &p = step.parameter(), &g = step.gradient();
    if (p.rank() < 2)
      throw Error(fmt::format(
          "Muon: the parameter{} of shape {} is not a matrix; optim::Groups give such ones "
          "to another optimizer",
          p.node()->is_leaf() ? fmt::format(" '{}'", p.node()->op().name()) : "", p.shape().str()));
    const Variable m = step.state("momentum"), lr = step.setting("lr");
    const Variable m1 = m * o_.momentum + g * (1 - o_.momentum);
    const Variable u = o_.nesterov ? g * (1 - o_.momentum) + m1 * o_.momentum : m1;
    const int64_t rows = p.shape()[0], columns = rows > 0 ? p.shape().elements() / rows : 0;
    const Variable direction =
        reshape(orthogonalized(reshape(u, {rows, columns}), o_.iterations, o_.epsilon), p.shape());
    const auto height = static_cast<double>(rows), width = static_cast<double>(columns);
    const double factor = o_.rate == MuonRate::original ? std::sqrt(std::max(1.0, height / width))
                                                        : 0.2 * std::sqrt(std::max(height, width));
    step.assign(m, m1);
    step.assign(p, (o_.weight_decay > 0 ? p * (1.0 - lr * o_.weight_decay) : p) - lr * factor * direction);
  }

 private:
  MuonOptions o_;
};

}  // namespace

Muon::Muon(const MuonOptions& o, std::source_location where)
    : Optimizer(std::make_shared<MuonRule>(o), {{"lr", o.lr}}, common_options(o), where) {
  SettingChecks("Muon", where)
      .not_negative("lr", o.lr)
      .below_one("momentum", o.momentum)
      .not_negative("weight_decay", o.weight_decay)
      .check(o.iterations >= 1 && o.iterations <= 100, "iterations", static_cast<double>(o.iterations))
      .positive("epsilon", o.epsilon);
}

}  // namespace espalier::optim
