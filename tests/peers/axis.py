"""Operations along axes: reductions, cumulative ones, order, and elements chosen by indices or conditions."""
import torch
import torch.nn.functional as F

from draw import ALL, INTEGERS, NUMBERS, REALS
from operation import Operation

FLOATS = (torch.float32, torch.float64)


def all_axes(x, axes):
    """Espalier's empty list of axes are all axes."""
    return list(axes) or list(range(x.dim()))


def reduction(name, function, low=-3.0, high=3.0, dtypes=REALS, attributes=lambda d: {}, least=0, **options):
    def draw(d):
        shape = d.shape(1 if least else 0)
        if least:
            shape = [max(least, size) for size in shape]
        return [d.tensor(shape, low, high)], {"axes": d.axes(len(shape)), "keep_dims": d.flag(), **attributes(d)}

    def reduced(x, axes, keep_dims, **attributes):
        return function(x, all_axes(x, axes), keep_dims, **attributes)

    return Operation(name, draw, reduced, dtypes, special=True, **options)


def one_by_one(function):
    """PyTorch's reductions that take one axis, over several ones."""
    def reduced(x, axes, keep_dims):
        for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
            x = function(x, axis, keep_dims)
        return x if axes else function(x.reshape(1), 0, False)

    return reduced


def along(name, function, low=-3.0, high=3.0, dtypes=REALS, attributes=lambda d, shape: {}, least=0, distinct=False,
          long=True, **options):
    def draw(d):
        shape = d.shape(1, long=long)
        axis = d.axis(len(shape))
        shape[axis] = max(least, shape[axis])
        x = d.distinct(shape) if distinct and d.dtype.is_floating_point else d.tensor(shape, low, high)
        return [x], {"axis": axis, **attributes(d, shape[axis])}

    return Operation(name, draw, function, dtypes, special=True, **options)


def sum_of(x, axes, keep_dims):
    return torch.sum(x, axes, keep_dims, dtype=x.dtype) if axes else x.clone()


def extreme(function):
    def reduced(x, axes, keep_dims):
        return function(x, axes, keep_dims) if axes else x.clone()

    return reduced


def draw_even(d):
    shape = d.shape(1)
    axis = d.axis(len(shape))
    shape[axis] = 2 * max(1, shape[axis] // 2)
    return [d.tensor(shape)], {"axis": axis}


def draw_layer_norm(d):
    shape = d.shape(1)
    shape[-1] = max(2, shape[-1])
    return [d.tensor(shape), d.tensor(shape[-1:]), d.tensor(shape[-1:])], {"epsilon": d.choice((1e-5, 1e-3))}


def draw_standardize(d):
    """Elements that differ: their deviation is not 0."""
    shape = [max(2, size) for size in d.shape(1, 4)]
    return [d.distinct(shape)], {"axes": d.axes(len(shape)), "epsilon": d.choice((1e-9, 1e-3))}


def standardize(x, axes, epsilon):
    axes = all_axes(x, axes)
    return (x - x.mean(axes, True)) / (x.std(axes, correction=0, keepdim=True) + epsilon)


def hardmax(x, axis):
    return F.one_hot(x.argmax(axis), x.size(axis)).movedim(-1, axis).to(x.dtype)


def draw_normalize(d):
    shape = d.shape(1)
    return [d.tensor(shape, 0.1, 3)], {"p": d.choice((1.0, 2.0, 3.0)), "axis": d.axis(len(shape)), "epsilon": 1e-12}


def draw_local_response(d):
    shape = d.shape(3, 5, zero=0)
    return [d.tensor(shape)], {"size": d.integer(1, 6), "alpha": d.real(1e-4, 1), "beta": d.real(0.3, 1),
                               "k": d.real(0.5, 2)}


def draw_search(d):
    n, m = d.integer(1, 20), d.integer(0, 8)
    if d.flag():
        return [d.tensor([n]).sort().values, d.tensor(d.shape())], {"right": d.flag()}
    leading = d.shape(0, 3)
    return [d.tensor(leading + [n]).sort().values, d.tensor(leading + [m])], {"right": d.flag()}


def search(sorted, values, right):
    return torch.searchsorted(sorted.contiguous(), values.contiguous(), right=right)


def draw_bincount(d):
    x = d.integers([d.integer(0, 40)], 0, 12)
    return [x] + ([d.tensor(x.shape)] if d.flag() else []), {"min_length": d.choice((0, 5, 20))}


def bincount(x, weights=None, min_length=0):
    """By one_hot where there are weights, for PyTorch's bincount has no gradient."""
    if weights is None:
        return torch.bincount(x, minlength=min_length)
    length = max(min_length, int(x.max()) + 1 if x.numel() else 0)
    return torch.zeros(length, dtype=weights.dtype).index_add(0, x.long(), weights)


def draw_histogram(d):
    low = d.real(-3, 0)
    return [d.tensor(d.shape())], {"bins": d.integer(1, 9), "low": low, "high": low + d.real(0.5, 4)}


def histogram(x, bins, low, high):
    return torch.histc(x, bins, low, high).long()


def draw_gather(d):
    shape = [max(1, size) for size in d.shape(1, 4)]
    axis = d.axis(len(shape))
    return [d.tensor(shape), d.integers(d.shape(0, 2, long=False), -shape[axis], shape[axis] - 1)], {"axis": axis}


def gather(x, indices, axis):
    axis, size = axis % x.dim(), x.size(axis)
    flat = x.index_select(axis, (indices.long() % size).reshape(-1))
    return flat.reshape(x.shape[:axis] + indices.shape + x.shape[axis + 1:])


def draw_pick(d):
    shape = d.shape(1)
    shape[-1] = max(1, shape[-1])
    return [d.tensor(shape), d.integers(shape[:-1], 0, shape[-1] - 1)], {}


def draw_one_hot(d):
    classes = d.integer(1, 9)
    return [d.integers(d.shape(0, 4), 0, classes - 1)], {"classes": classes}


def draw_along(d, with_values=False, unique=False):
    shape = d.shape(1, 4, zero=0)
    axis = d.axis(len(shape))
    places = list(shape)
    count = shape[axis]
    if unique:  # where one place is named twice, PyTorch does not say which value stays
        indices = torch.argsort(torch.rand(places, generator=d.generator), axis)
        indices = indices.narrow(axis, 0, d.integer(1, count))
        places[axis] = indices.size(axis)
    else:
        places[axis] = d.integer(0, 6)
        indices = d.integers(places, -count, count - 1)
    inputs = [d.tensor(shape), indices]
    return inputs + ([d.tensor(d.broadcast(places))] if with_values else []), {"axis": axis}


def places_of(x, indices, axis):
    return indices.long() % x.size(axis)


def draw_slices(d, unique):
    shape = d.shape(1, 4, zero=0)
    axis = d.axis(len(shape))
    count = shape[axis]
    if unique:
        indices = torch.randperm(count, generator=d.generator)[:d.integer(1, count)]
    else:
        indices = d.integers([d.integer(0, 6)], -count, count - 1)
    values = list(shape)
    values[axis] = len(indices)
    return [d.tensor(shape), indices, d.tensor(values)], {"axis": axis}


def along_extreme(reduce):
    def computed(x, i, v, axis):
        return torch.scatter_reduce(x, axis, places_of(x, i, axis), v.expand(i.shape), reduce)

    return computed


def slices_extreme(reduce):
    """index_reduce has no second derivatives."""
    def computed(x, i, v, axis):
        sizes = [1] * x.dim()
        sizes[axis] = -1
        return torch.scatter_reduce(x, axis, (i.long() % max(1, x.size(axis))).reshape(sizes).expand(v.shape), v, reduce)

    return computed


def draw_trapezoid(d, places):
    shape = d.shape(1, zero=0)
    axis = d.axis(len(shape))
    if not places:
        return [d.tensor(shape)], {"axis": axis, "dx": d.choice((1.0, 0.5))}
    return [d.tensor(shape), d.tensor([shape[axis]] if d.flag() else shape)], {"axis": axis}


def draw_cov(d):
    variables, n = d.integer(2, 5), d.integer(3, 9)
    return [d.tensor([variables, n] if d.flag() else [n])], {"correction": d.choice((0.0, 1.0))}


def cov(x, correction):
    return torch.cov(x, correction=int(correction))


def draw_masked(d):
    shape = d.shape()
    return [d.tensor(shape), d.mask(d.broadcast(shape))], {}


def draw_masked_scatter(d):
    (x, mask), _ = draw_masked(d)
    return [x, mask, d.tensor([x.numel() + d.integer(0, 3)])], {}


def unique(x):
    return torch.unique(x, return_inverse=True, return_counts=True)


def draw_correction(d):
    return {"correction": d.choice((0.0, 1.0, 0.5))}


OPERATIONS = [
    reduction("sum", sum_of, dtypes=NUMBERS),
    reduction("mean", lambda x, axes, keep: torch.mean(x, axes, keep) if axes else x.clone()),
    reduction("max", extreme(torch.amax), dtypes=NUMBERS),
    reduction("min", extreme(torch.amin), dtypes=NUMBERS),
    reduction("prod", one_by_one(lambda x, axis, keep: torch.prod(x, axis, keep, dtype=x.dtype)), -2, 2, NUMBERS, loose=4),
    reduction("any", lambda x, axes, keep: torch.any(x, axes, keep) if axes else x != 0, -1, 1, ALL),
    reduction("all", lambda x, axes, keep: torch.all(x, axes, keep) if axes else x != 0, -1, 3, ALL),
    reduction("count_nonzero", lambda x, axes, keep: (x != 0).sum(axes, keep), -1, 1, ALL),
    reduction("logsumexp", lambda x, axes, keep: torch.logsumexp(x, axes, keep) if axes else x.clone()),
    reduction("nansum", lambda x, axes, keep: torch.nansum(x, axes, keep)),
    reduction("nanmean", lambda x, axes, keep: torch.nanmean(x, axes, keep)),
    reduction("var", lambda x, axes, keep, correction: torch.var(x, axes, correction=correction, keepdim=keep), attributes=draw_correction, least=2),
    reduction("std", lambda x, axes, keep, correction: torch.std(x, axes, correction=correction, keepdim=keep), attributes=draw_correction, least=2),
    reduction("norm", lambda x, axes, keep, p: torch.linalg.vector_norm(x, p, axes, keep),
              attributes=lambda d: {"p": d.choice((0.0, 1.0, 2.0, 3.0, 0.5, float("inf"), -float("inf")))}),
    along("argmax", lambda x, axis: torch.argmax(x, axis), dtypes=NUMBERS, least=1),
    along("argmin", lambda x, axis: torch.argmin(x, axis), dtypes=NUMBERS, least=1),
    along("softmax", lambda x, axis: torch.softmax(x, axis)),
    along("log_softmax", lambda x, axis: torch.log_softmax(x, axis)),
    along("hardmax", hardmax, least=1),
    along("cumsum", lambda x, axis: torch.cumsum(x, axis, dtype=x.dtype), dtypes=NUMBERS, loose=4),
    # PyTorch's second derivative of 1,000 elements takes more than 6 GB.
    along("cumprod", lambda x, axis: torch.cumprod(x, axis, dtype=x.dtype), -2, 2, NUMBERS, long=False, loose=4),
    along("logcumsumexp", lambda x, axis: torch.logcumsumexp(x, axis)),
    along("cummax", lambda x, axis: torch.cummax(x, axis), dtypes=FLOATS, distinct=True),
    along("cummin", lambda x, axis: torch.cummin(x, axis), dtypes=FLOATS, distinct=True),
    Operation("glu", draw_even, lambda x, axis: F.glu(x, axis)),
    Operation("layer_norm", draw_layer_norm, lambda x, g, b, epsilon: F.layer_norm(x, x.shape[-1:], g, b, epsilon), loose=4),
    Operation("mean_variance_normalization", draw_standardize, standardize, loose=4),
    Operation("normalize", draw_normalize, lambda x, p, axis, epsilon: F.normalize(x, p, axis, epsilon)),
    Operation("local_response_norm", draw_local_response,
              lambda x, size, alpha, beta, k: F.local_response_norm(x, size, alpha, beta, k)),
    along("sort", lambda x, axis, descending: torch.sort(x, dim=axis, descending=descending, stable=True),
          dtypes=ALL, attributes=lambda d, n: {"descending": d.flag()}),
    along("argsort", lambda x, axis, descending: torch.argsort(x, dim=axis, descending=descending, stable=True),
          dtypes=ALL, attributes=lambda d, n: {"descending": d.flag()}),
    # PyTorch's median of a repeated slice reads elements that are not there, so it gets a copy.
    along("topk", lambda x, axis, k, largest: torch.topk(x, k, axis, largest).values, dtypes=FLOATS + INTEGERS, distinct=True,
          attributes=lambda d, n: {"k": d.integer(0, n), "largest": d.flag()}),
    along("kthvalue", lambda x, axis, k, keep_dims: torch.kthvalue(x.contiguous(), k, axis, keep_dims).values, dtypes=FLOATS + INTEGERS,
          least=1, distinct=True, attributes=lambda d, n: {"k": d.integer(1, n), "keep_dims": d.flag()}),
    along("median_axis", lambda x, axis, keep_dims: torch.median(x.contiguous(), axis, keep_dims).values, dtypes=FLOATS + INTEGERS, least=1,
          distinct=True, attributes=lambda d, n: {"keep_dims": d.flag()}, of="median"),
    along("quantile_axis", lambda x, axis, q, keep_dims, mode: torch.quantile(x, q, axis, keep_dims, interpolation=mode),
          dtypes=FLOATS, least=1, distinct=True,
          attributes=lambda d, n: {"q": d.choice((0.0, 0.25, 0.375, 0.5, 1.0)), "keep_dims": d.flag(),
                                   "mode": d.choice(("linear", "lower", "higher", "midpoint", "nearest"))}, of="quantile"),
    Operation("quantile", lambda d: ([d.distinct([max(1, s) for s in d.shape()])], {"q": d.choice((0.1, 0.75))}),
              lambda x, q: torch.quantile(x, q), FLOATS),
    along("nanquantile", lambda x, axis, q, keep_dims: torch.nanquantile(x, q, axis, keep_dims), dtypes=FLOATS, least=1, distinct=True,
          attributes=lambda d, n: {"q": d.choice((0.0, 0.25, 0.4, 1.0)), "keep_dims": d.flag()}),
    Operation("median", lambda d: ([d.distinct([max(1, s) for s in d.shape()])], {}), torch.median, FLOATS),
    Operation("searchsorted", draw_search, search, NUMBERS),
    Operation("unique", lambda d: ([d.tensor(d.shape())], {}), unique, ALL, special=False),
    Operation("bincount", draw_bincount, bincount, (torch.float32, torch.float64)),
    Operation("histogram", draw_histogram, histogram, (torch.float32, torch.float64)),
    Operation("gather", draw_gather, gather, ALL),
    Operation("pick", draw_pick, lambda x, i: torch.gather(x, -1, i.long().unsqueeze(-1)).squeeze(-1), ALL),
    Operation("one_hot", draw_one_hot, lambda i, classes: F.one_hot(i.long(), classes)),
    Operation("take_along_axis", draw_along, lambda x, i, axis: torch.gather(x, axis, places_of(x, i, axis)), ALL),
    Operation("put_along_axis", lambda d: draw_along(d, True, True),
              lambda x, i, v, axis: torch.scatter(x, axis, places_of(x, i, axis), v.expand(i.shape)), ALL),
    Operation("add_along_axis", lambda d: draw_along(d, True),
              lambda x, i, v, axis: torch.scatter_add(x, axis, places_of(x, i, axis), v.expand(i.shape)), NUMBERS),
    Operation("scatter", lambda d: draw_slices(d, True), lambda x, i, v, axis: torch.index_copy(x, axis, i % x.size(axis), v), ALL),
    Operation("scatter_add", lambda d: draw_slices(d, False), lambda x, i, v, axis: torch.index_add(x, axis, i % x.size(axis), v), NUMBERS),
    Operation("max_along_axis", lambda d: draw_along(d, True), along_extreme("amax"), NUMBERS),
    Operation("min_along_axis", lambda d: draw_along(d, True), along_extreme("amin"), NUMBERS),
    Operation("scatter_max", lambda d: draw_slices(d, False), slices_extreme("amax"), NUMBERS),
    Operation("scatter_min", lambda d: draw_slices(d, False), slices_extreme("amin"), NUMBERS),
    along("diff", lambda x, axis, n: torch.diff(x, n, axis), dtypes=NUMBERS, attributes=lambda d, size: {"n": d.integer(0, 3)}),
    Operation("trapezoid", lambda d: draw_trapezoid(d, False), lambda y, axis, dx: torch.trapezoid(y, dx=dx, dim=axis)),
    Operation("trapezoid_at", lambda d: draw_trapezoid(d, True), lambda y, x, axis: torch.trapezoid(y, x, dim=axis), of="trapezoid"),
    Operation("cov", draw_cov, cov, loose=4),
    Operation("masked_scatter", draw_masked_scatter, torch.masked_scatter, ALL),
    Operation("masked_select", draw_masked, torch.masked_select, ALL),
    Operation("nonzero", lambda d: ([d.tensor(d.shape(), -1, 1)], {}), torch.nonzero, ALL, special=True),
]
