"""Differences that are meant, each with its reason. A row: operations, when it holds, the reason. Where certain
elements are the cause, a row holds only if the results are the same as soon as others are in their place."""
import torch

CLAMPS = ("clamp", "clamp_min", "clamp_max", "clamp_numbers")
CORNERS = ("celu", "elu", "selu", "prelu", "leaky_relu", "softplus", "hardswish", "hardsigmoid", "huber_loss", "smooth_l1_loss")
DEVIATIONS = ("std", "layer_norm", "batch_norm", "batch_norm_training", "group_norm", "instance_norm", "instance_norm_training")
INFINITY = float("inf")


def special(case, stage, text, library):
    return case.draw.special


def caused_by(elements, instead, stage_from=0, which=None):
    """By elements for which elements(x, case) holds, of all real inputs or of `which`: the results are the same if
    they are `instead`, a number or a function of x and the case."""
    def holds(case, stage, text, library):
        if stage < stage_from:
            return False
        inputs = list(case.inputs)
        for i, x in enumerate(inputs):
            if x.is_floating_point() and which in (None, i):
                other = instead(x, case) if callable(instead) else torch.full_like(x, instead)
                inputs[i] = torch.where(elements(x, case), other, x)
        if all(new is x or new.equal(x) for new, x in zip(inputs, case.inputs)):
            return False
        return case.with_inputs(inputs).check(library)[0] == "same"

    return holds


def caused_by_rounding(stage_from):
    """The same inputs as float64 give the same results."""
    def holds(case, stage, text, library):
        wide = [x.double() if x.is_floating_point() else x for x in case.inputs]
        return stage >= stage_from and case.draw.dtype != torch.float64 and case.with_inputs(wide).check(library)[0] == "same"

    return holds


def equal_to(number):
    return lambda x, case: x == number


def at_corner(stage_from):
    return lambda case, stage, text, library: stage >= stage_from and (case.draw.coarse or case.draw.dtype.itemsize == 2)


def empty(case, stage, text, library):
    return any(x.numel() == 0 for x in case.inputs)


def peer_is_nan(case, stage, text, library):
    return text.endswith("PyTorch nan")


def peer_overflows(case, stage, text, library):
    return case.draw.dtype.itemsize == 2 and text.endswith(("inf", "nan"))


def power_below_1(case, stage, text, library):
    return case.attributes["p"] < 1 and caused_by(equal_to(0), 0.5, 1)(case, stage, text, library)


def overflowing_product(case, stage, text, library):
    below_1 = caused_by(lambda x, case: x.abs() > 1, lambda x, case: x.clamp(-1, 1), 2)
    return text.endswith(("inf", "nan")) and below_1(case, stage, text, library)


def no_labels(case, stage, text, library):
    return stage >= 1 and "is nan" in text


def vectors_of_one(case, stage, text, library):
    """A second derivative that is a difference of equal numbers."""
    of_last_axis = case.attributes.get("distance", "euclidean" if "swap" in case.attributes else None)
    last = of_last_axis in ("cosine", "euclidean") or case.operation.name == "cosine_embedding_loss"
    axis = -1 if last else case.attributes.get("axis")
    return stage == 2 and axis is not None and case.inputs[0].size(axis) == 1


def on_an_edge(case, stage, text, library):
    """The place of an element is a whole number, which PyTorch's float32 may miss."""
    scales, sizes = case.attributes.get("scale"), case.inputs[0].shape[2:]
    if not scales or not case.attributes["mode"].startswith("nearest"):
        return False
    half = 0.5 if case.attributes["mode"] == "nearest-exact" else 0
    places = [(i + half) / scale for size, scale in zip(sizes, scales if len(scales) > 1 else scales * len(sizes))
              for i in range(int(size * scale))]
    return any(place > 0 and abs(place - round(place)) < 1e-5 for place in places)


def copied_axis(case, stage, text, library):
    """An axis gets as long, or twice as long, by another scale."""
    scale, sizes = case.attributes.get("scale") or [], case.inputs[0].shape[2:]
    copies = (1, 2) if case.attributes["mode"] == "nearest" else (1,)
    each = zip(sizes, scale * (len(sizes) if len(scale) == 1 else 1))
    return any(by not in copies and int(size * by) in [n * size for n in copies] for size, by in each)


def spread(x, case):
    """No two elements, nor differences of them, are equal."""
    return x + torch.rand(x.shape, generator=case.draw.generator, dtype=torch.float64).to(x.dtype)


def equal_elements(stage_from):
    return caused_by(lambda x, case: torch.ones_like(x, dtype=torch.bool), spread, stage_from)


def cancelling(case, stage, text, library):
    """Sums of multiples of a number may be 0 up to rounding."""
    return case.draw.coarse and equal_elements(1)(case, stage, text, library)


def largest_difference(case, stage, text, library):
    return case.attributes["p"] == INFINITY and equal_elements(1)(case, stage, text, library)


KNOWN = [
    (CLAMPS, at_corner(1), "the gradient at a bound goes to x, as up to PyTorch 2.14; later it goes to none or is halved"),
    (("pairwise_distance",), caused_by_rounding(2), "second derivatives of the distance of vectors of one element are 0 up to rounding"),
    (("recurrent_relu",), caused_by_rounding(1), "rounding decides on which side of the corner a sum near 0 is"),
    (("recurrent_relu",), cancelling, "rounding decides on which side of the corner a sum near 0 is"),
    (("isclose", "allclose"), caused_by_rounding(0), "rounding decides whether a difference at its bound is within it"),
    (CORNERS, at_corner(2), "second derivatives at a corner are those of the other side"),
    (("cdist", "pdist"), largest_difference, "where several differences are the largest, the gradient is divided among them"),
    (("gelu", "gelu_tanh", "silu", "mish", "hardswish"), caused_by(equal_to(-INFINITY), 0.5), "the limit at -inf is 0, where PyTorch has NaN"),
    (("sign",), caused_by(lambda x, case: x.isnan(), 0.5), "the sign of NaN is NaN, as in NumPy"),
    (("polygamma",), special, "the limit at infinity is 0, where PyTorch has NaN; at poles of two signs there is NaN"),
    (("power_number",), caused_by(equal_to(-INFINITY), 0.5), "the root of -inf is inf, as in C"),
    (("std", "norm"), caused_by(lambda x, case: x.abs() > 1e18, 0.5), "squares overflow, as in NumPy"),
    (DEVIATIONS, equal_elements(0), "equal elements differ from their mean by rounding, which is divided by a deviation of 0 or √ε"),
    (("sum", "mean", "nansum", "nanmean"), caused_by(lambda x, case: x.abs() > 1e18, 0.5), "what is left of huge numbers that cancel depends on the order of additions"),
    (("cast",), special, "NaN becomes 0 and what is out of range the nearest integer, where PyTorch leaves it undefined"),
    (("norm",), power_below_1, "for p < 1 the gradient is 0 where an element is 0"),
    (("prod", "cumprod"), peer_overflows, "16-bit products are accumulated in a wider type, in which they do not overflow"),
    (("prod", "cumprod"), overflowing_product, "of what overflows, second derivatives are infinite or NaN"),
    (("power",), caused_by(equal_to(0), 2, 2, which=1), "PyTorch's mixed derivative at the exponent 0 is 0; it is 1 / x"),
    (("poisson_nll_loss",), peer_is_nan, "Stirling's approximation has a gradient of 0 for targets up to 1"),
    (("cosine_similarity", "cosine_embedding_loss", "triplet_margin_loss", "triplet_margin_with_distance_loss", "normalize"), vectors_of_one,
     "second derivatives of the direction of a vector of one element are 0 up to rounding"),
    (("cosine_similarity", "triplet_margin_with_distance_loss", "norm", "normalize"), caused_by(equal_to(0), 0.5, 2), "second derivatives where an element or a norm is 0"),
    (("solve",), lambda case, stage, text, library: "shape" in text, "b is a vector only where it has one axis; PyTorch also takes batches of vectors"),
    (("softmax_cross_entropy", "nll_loss"), no_labels, "the mean of no labels is NaN, and so is its gradient"),
    (("pixel_unshuffle", "pixel_shuffle", "channel_shuffle"), empty, "PyTorch leaves the shape of empty tensors as it is"),
    (("max_pool_with_indices", "adaptive_max_pool_with_indices"), caused_by(lambda x, case: x.isnan(), 0.5), "of several NaN the first is the largest; PyTorch takes the last"),
    (("conv_chain",), equal_elements(1), "of elements that are equal up to rounding either is the largest"),
    (("interpolate",), on_an_edge, "the nearest of a whole number is computed in float32 by PyTorch"),
    (("interpolate",), copied_axis, "PyTorch's CPU kernels copy an axis that a scale makes as long as it was, or the nearest of twice that"),
]


def reason(case, stage, text, library):
    """Why a difference is meant, or None."""
    for names, holds, why in KNOWN:
        if case.may_be_known and case.operation.name in names and holds(case, stage, text, library):
            return why
    return None
