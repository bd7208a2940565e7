#include "espalier/ops/functions/triplet_losses.h"

#include <string>
#include <string_view>

#include "espalier/ops/functions/distance.h"
#include "espalier/ops/losses/loss_terms.h"
#include "espalier/ops/ops.h"

namespace espalier {

Variable triplet_margin_with_distance_loss(const Operand& anchor, const Operand& positive,
                                           const Operand& negative, const TripletDistanceOptions& options) {
  constexpr std::string_view name = "triplet_margin_with_distance_loss";
  return detail::loss_of(name, anchor, positive, [&](const Variable& a, const Variable& p) {
    const Variable n = widened(detail::paired(name, anchor.variable(), negative.defined(name)));
    const auto distance = [&](const Variable& x, const Variable& y) {
      const Variable d = options.distance ? options.distance(x, y) : pairwise_distance(x, y);
      if (!d.defined()) throw Error(std::string(name) + ": the distance function returns no Variable");
      return d;
    };
    Variable away = distance(a, n);
    if (options.swap) away = minimum(away, distance(p, n));
    return detail::weighted(name, relu(distance(a, p) - away + options.margin), options.weights,
                            options.reduction);
  });
}

}  // namespace espalier
