// Losses.
#include "bridge.h"

namespace peers {
namespace {

using namespace espalier;

template <Variable (*F)(const Operand&, const Operand&, const LossOptions&)>
Outputs weighted(const Case& c) {
  return F(c[0], c[1], {.weights = c.optional(2), .reduction = c.reduction()});
}

template <Variable (*F)(const Operand&, const Operand&, const CrossEntropyOptions&)>
Outputs labelled(const Case& c) {
  CrossEntropyOptions options{.class_weights = c.optional(2), .reduction = c.reduction()};
  if (c.has("ignored")) options.ignored_label = c.integer("ignored");
  if (c.has("smoothing")) options.label_smoothing = c.real("smoothing");
  return F(c[0], c[1], options);
}

/// The distance with a name; none is that which the loss has by itself.
std::function<Variable(const Variable&, const Variable&)> distance(const std::string& name) {
  if (name == "manhattan") return [](const Variable& a, const Variable& b) { return sum(abs(a - b), -1); };
  if (name == "cosine")
    return [](const Variable& a, const Variable& b) { return 1.0 - cosine_similarity(a, b, -1); };
  return {};
}

}  // namespace

std::vector<Row> loss_rows() {
  return {
      {"mean_squared_error", [](const Case& c) -> Outputs { return mean_squared_error(c[0], c[1]); }},
      {"mean_squared_error_options", weighted<mean_squared_error>},
      {"mean_absolute_error", weighted<mean_absolute_error>},
      {"binary_cross_entropy", weighted<binary_cross_entropy>},
      {"soft_margin_loss", weighted<soft_margin_loss>},
      {"softmax_cross_entropy", labelled<softmax_cross_entropy>},
      {"nll_loss", labelled<nll_loss>},
      {"smooth_l1_loss",
       [](const Case& c) -> Outputs {
         return smooth_l1_loss(c[0], c[1], {.beta = c.real("beta"), .reduction = c.reduction()});
       }},
      {"huber_loss",
       [](const Case& c) -> Outputs {
         return huber_loss(c[0], c[1], {.delta = c.real("delta"), .reduction = c.reduction()});
       }},
      {"binary_cross_entropy_with_logits",
       [](const Case& c) -> Outputs {
         return binary_cross_entropy_with_logits(
             c[0], c[1],
             {.positive_weights = c.optional(2), .weights = c.optional(3), .reduction = c.reduction()});
       }},
      {"kl_div",
       [](const Case& c) -> Outputs {
         return kl_div(c[0], c[1],
                       {.log_target = c.flag("log_target"),
                        .batch_mean = c.flag("batch_mean"),
                        .reduction = c.reduction()});
       }},
      {"poisson_nll_loss",
       [](const Case& c) -> Outputs {
         return poisson_nll_loss(
             c[0], c[1],
             {.log_input = c.flag("log_input"), .full = c.flag("full"), .reduction = c.reduction()});
       }},
      {"gaussian_nll_loss",
       [](const Case& c) -> Outputs {
         return gaussian_nll_loss(c[0], c[1], c[2], {.full = c.flag("full"), .reduction = c.reduction()});
       }},
      {"hinge_embedding_loss",
       [](const Case& c) -> Outputs {
         return hinge_embedding_loss(c[0], c[1], {.margin = c.real("margin"), .reduction = c.reduction()});
       }},
      {"margin_ranking_loss",
       [](const Case& c) -> Outputs {
         return margin_ranking_loss(c[0], c[1], c[2],
                                    {.margin = c.real("margin"), .reduction = c.reduction()});
       }},
      {"cosine_embedding_loss",
       [](const Case& c) -> Outputs {
         return cosine_embedding_loss(c[0], c[1], c[2],
                                      {.margin = c.real("margin"), .reduction = c.reduction()});
       }},
      {"triplet_margin_loss",
       [](const Case& c) -> Outputs {
         return triplet_margin_loss(c[0], c[1], c[2],
                                    {.margin = c.real("margin"),
                                     .p = c.real("p"),
                                     .swap = c.flag("swap"),
                                     .reduction = c.reduction()});
       }},
      {"triplet_margin_with_distance_loss",
       [](const Case& c) -> Outputs {
         return triplet_margin_with_distance_loss(c[0], c[1], c[2],
                                                  {.distance = distance(c.text("distance")),
                                                   .margin = c.real("margin"),
                                                   .swap = c.flag("swap"),
                                                   .reduction = c.reduction()});
       }},
      {"multi_margin_loss",
       [](const Case& c) -> Outputs {
         return multi_margin_loss(c[0], c[1],
                                  {.margin = c.real("margin"),
                                   .power = static_cast<int>(c.integer("power")),
                                   .class_weights = c.optional(2),
                                   .reduction = c.reduction()});
       }},
      {"multilabel_margin_loss",
       [](const Case& c) -> Outputs {
         return multilabel_margin_loss(c[0], c[1], {.reduction = c.reduction()});
       }},
      {"ctc_loss",
       [](const Case& c) -> Outputs {
         return ctc_loss(log_softmax(c[0], 2), c[1], c[2], c[3],
                         {.blank = c.integer("blank"),
                          .reduction = c.reduction(),
                          .zero_infinity = c.flag("zero_infinity")});
       }},
      {"multilabel_soft_margin_loss",
       [](const Case& c) -> Outputs {
         return multilabel_soft_margin_loss(c[0], c[1],
                                            {.class_weights = c.optional(2), .reduction = c.reduction()});
       }},
  };
}

}  // namespace peers
