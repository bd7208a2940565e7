"""Losses."""
import torch
import torch.nn.functional as F

from draw import REALS
from operation import Operation

REDUCTIONS = ("mean", "sum", "none")


def pairs(name, function, prediction=(-3.0, 3.0), target=(-3.0, 3.0), attributes=lambda d: {}, weighted=False,
          **options):
    """A prediction and a target of one shape."""
    def draw(d):
        shape = d.shape()
        inputs = [d.tensor(shape, *prediction), d.tensor(shape, *target)]
        if weighted and d.chance(0.3):
            inputs.append(d.tensor(d.broadcast(shape), 0.1, 2))
        return inputs, {**attributes(d), "reduction": d.choice(REDUCTIONS)}

    return Operation(name, draw, function, REALS, **options)


def reduce(losses, reduction):
    return losses.mean() if reduction == "mean" else losses.sum() if reduction == "sum" else losses


def weighted(function):
    """The weights of a loss, without PyTorch's own argument, which is not differentiable."""
    def loss(x, y, weights=None, reduction="mean"):
        losses = function(x, y, reduction="none")
        return reduce(losses if weights is None else losses * weights, reduction)

    return loss


def signs(d, shape):
    return d.integers(shape, 0, 1, torch.int64).mul(2).sub(1).to(d.dtype)


def signed(name, function, attributes=lambda d: {}, **options):
    """A prediction, and targets of -1 or 1, which get no gradient."""
    def draw(d):
        shape = d.shape()
        return [d.tensor(shape), signs(d, shape)], {**attributes(d), "reduction": d.choice(REDUCTIONS)}

    return Operation(name, draw, lambda x, y, **a: function(x, y.detach(), **a), REALS, constant=(1,), **options)


def labelled(name, function, low=-3.0, high=3.0, smoothing=False):
    def draw(d):
        leading, classes = d.shape(0, 3, zero=0), d.integer(2, 6)
        labels = d.integers(leading, 0, classes - 1)
        attributes = {"reduction": d.choice(REDUCTIONS)}
        if d.chance(0.3) and labels.numel():
            attributes["ignored"] = int(labels.reshape(-1)[0])
        if smoothing and d.flag():
            attributes["smoothing"] = d.real(0, 0.9)
        weights = [d.tensor([classes], 0.1, 2)] if d.chance(0.4) else []
        return [d.tensor(leading + [classes], low, high), labels] + weights, attributes

    def loss(x, labels, weights=None, reduction="mean", ignored=-100, smoothing=None):
        options = {} if smoothing is None else {"label_smoothing": smoothing}
        if weights is not None:
            weights = weights.detach()
        losses = function(x.reshape(-1, x.size(-1)), labels.long().reshape(-1), weights, ignore_index=ignored,
                          reduction=reduction, **options)
        return losses.reshape(labels.shape) if reduction == "none" else losses

    return Operation(name, draw, loss, REALS, constant=(2,))


def draw_gaussian(d):
    shape = d.shape(1)
    return [d.tensor(shape), d.tensor(shape), d.tensor(shape, 0.2, 3)], {"full": d.flag(), "reduction": d.choice(REDUCTIONS)}


def draw_with_logits(d):
    shape = d.shape(1)
    inputs = [d.tensor(shape), d.tensor(shape, 0, 1)]
    if d.flag():
        inputs.append(d.tensor(shape[-1:], 0.2, 3))
    return inputs, {"reduction": d.choice(REDUCTIONS)}


def with_logits(x, y, positive=None, reduction="mean"):
    return F.binary_cross_entropy_with_logits(x, y, pos_weight=positive, reduction=reduction)


def draw_kl(d):
    shape = d.shape(1, zero=0)
    log_target = d.flag()
    batch_mean = d.chance(0.3)
    target = d.tensor(shape, -3, 0) if log_target else d.tensor(shape, 0.1, 1)
    return [d.tensor(shape, -3, 0), target], {"log_target": log_target, "batch_mean": batch_mean,
                                              "reduction": "mean" if batch_mean else d.choice(REDUCTIONS)}


def kl_div(x, y, log_target, batch_mean, reduction):
    return F.kl_div(x, y, reduction="batchmean" if batch_mean else reduction, log_target=log_target)


def draw_ranking(d):
    shape = d.shape()
    return [d.tensor(shape), d.tensor(shape), signs(d, shape)], {"margin": d.choice((0.0, 0.5)), "reduction": d.choice(REDUCTIONS)}


def draw_embedding(d):
    n, width = d.integer(1, 5), d.integer(1, 6)
    return [d.tensor([n, width], 0.2, 2), d.tensor([n, width], -2, 2), signs(d, [n])], {"margin": d.choice((0.0, 0.4)), "reduction": d.choice(REDUCTIONS)}


def draw_triplet(d):
    shape = d.shape(2, 3, zero=0)
    return [d.tensor(shape) for _ in range(3)], {"margin": d.real(0.2, 2), "p": d.choice((1.0, 2.0, 3.0)),
                                                 "swap": d.flag(), "reduction": d.choice(REDUCTIONS)}


DISTANCES = {"manhattan": lambda a, b: (a - b).abs().sum(-1),
             "cosine": lambda a, b: 1 - F.cosine_similarity(a, b, -1), "pairwise": None}


def draw_triplet_with_distance(d):
    inputs, attributes = draw_triplet(d)
    attributes["distance"] = d.choice(tuple(DISTANCES))
    del attributes["p"]
    return inputs, attributes


def triplet_with_distance(a, b, c, distance, margin, swap, reduction):
    return F.triplet_margin_with_distance_loss(a, b, c, distance_function=DISTANCES[distance], margin=margin, swap=swap,
                                               reduction=reduction)


def draw_multi_margin(d):
    n, classes = d.integer(1, 5), d.integer(2, 6)
    weights = [d.tensor([classes], 0.1, 2)] if d.chance(0.4) else []
    return [d.tensor([n, classes]), d.integers([n], 0, classes - 1)] + weights, {
        "margin": d.real(0.2, 2), "power": d.integer(1, 2), "reduction": d.choice(REDUCTIONS)}


def multi_margin(x, y, weights=None, margin=1.0, power=1, reduction="mean"):
    return F.multi_margin_loss(x, y.long(), power, margin, weights if weights is None else weights.detach(),
                               reduction=reduction)


def draw_multilabel(d):
    n, classes = d.integer(1, 4), d.integer(1, 6)
    labels = torch.full([n, classes], -1)
    for row in labels:
        count = d.integer(0, classes)
        row[:count] = torch.tensor(d.order(classes)[:count], dtype=torch.int64)
    return [d.tensor([n, classes]), labels], {"reduction": d.choice(REDUCTIONS)}


def draw_multilabel_soft(d):
    n, classes = d.integer(1, 5), d.integer(1, 6)
    weights = [d.tensor([classes], 0.1, 2)] if d.flag() else []
    return [d.tensor([n, classes]), d.tensor([n, classes], 0, 1)] + weights, {"reduction": d.choice(REDUCTIONS)}


def multilabel_soft(x, y, weights=None, reduction="mean"):
    return F.multilabel_soft_margin_loss(x, y, weights, reduction=reduction)


def draw_ctc(d):
    steps, n, classes, labels = d.integer(1, 9), d.integer(1, 4), d.integer(2, 5), d.integer(0, 4)
    blank = d.integer(0, classes - 1)
    targets = d.integers([n, labels], 0, classes - 2)
    targets = targets + (targets >= blank).to(targets.dtype)
    counts = d.integers([n], 0, labels)
    if d.chance(0.3):  # behind each other
        targets = torch.cat([row[:count] for row, count in zip(targets, counts)])
    return [d.tensor([steps, n, classes]), targets, d.integers([n], 1, steps), counts], {
        "blank": blank, "zero_infinity": d.flag(), "reduction": d.choice(REDUCTIONS)}


def ctc(x, targets, steps, counts, blank, zero_infinity, reduction):
    return F.ctc_loss(x.log_softmax(2), targets.long(), steps.long(), counts.long(), blank, reduction, zero_infinity)


OPERATIONS = [
    Operation("mean_squared_error", lambda d: (lambda s: ([d.tensor(s), d.tensor(s)], {}))(d.shape()), F.mse_loss),
    pairs("mean_squared_error_options", weighted(F.mse_loss), weighted=True, of="mean_squared_error"),
    pairs("mean_absolute_error", weighted(F.l1_loss), weighted=True),
    pairs("binary_cross_entropy", weighted(F.binary_cross_entropy), (0.1, 0.9), (0.0, 1.0), weighted=True),
    signed("soft_margin_loss", F.soft_margin_loss),
    labelled("softmax_cross_entropy", F.cross_entropy, smoothing=True),
    labelled("nll_loss", F.nll_loss, -3, 0),
    pairs("smooth_l1_loss", lambda x, y, beta, reduction: F.smooth_l1_loss(x, y, beta=beta, reduction=reduction),
          attributes=lambda d: {"beta": d.real(0.3, 2)}),
    pairs("huber_loss", lambda x, y, delta, reduction: F.huber_loss(x, y, delta=delta, reduction=reduction),
          attributes=lambda d: {"delta": d.real(0.3, 2)}),
    Operation("binary_cross_entropy_with_logits", draw_with_logits, with_logits),
    Operation("kl_div", draw_kl, kl_div),
    pairs("poisson_nll_loss",
          lambda x, y, log_input, full, reduction: F.poisson_nll_loss(x, y, log_input, full, reduction=reduction),
          (0.2, 3), (0.0, 4.0), lambda d: {"log_input": d.flag(), "full": d.flag()}),
    Operation("gaussian_nll_loss", draw_gaussian,
              lambda x, y, v, full, reduction: F.gaussian_nll_loss(x, y, v, full, reduction=reduction)),
    signed("hinge_embedding_loss", F.hinge_embedding_loss, lambda d: {"margin": d.real(0.3, 2)}),
    Operation("margin_ranking_loss", draw_ranking,
              lambda a, b, y, margin, reduction: F.margin_ranking_loss(a, b, y, margin, reduction=reduction)),
    Operation("cosine_embedding_loss", draw_embedding,
              lambda a, b, y, margin, reduction: F.cosine_embedding_loss(a, b, y, margin, reduction=reduction), single=True),
    Operation("triplet_margin_loss", draw_triplet,
              lambda a, b, c, margin, p, swap, reduction: F.triplet_margin_loss(a, b, c, margin, p, swap=swap, reduction=reduction)),
    Operation("triplet_margin_with_distance_loss", draw_triplet_with_distance, triplet_with_distance),
    Operation("multi_margin_loss", draw_multi_margin, multi_margin, constant=(2,)),
    Operation("multilabel_margin_loss", draw_multilabel, lambda x, y, reduction: F.multilabel_margin_loss(x, y, reduction=reduction)),
    Operation("multilabel_soft_margin_loss", draw_multilabel_soft, multilabel_soft),
    Operation("ctc_loss", draw_ctc, ctc, (torch.float32, torch.float64), order=1),
]
