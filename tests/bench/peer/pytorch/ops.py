"""Times single operations of Espalier and of PyTorch, on one thread, in turns: ops.py PROGRAM [turns] [operation...]
where PROGRAM is bench_ops. A turn of one follows a turn of the other, so that other load meets both; times are those of
the processor. Prints the median of each, and how many times as long PyTorch takes."""
import os
import statistics
import subprocess
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch.nn.functional as F

SIZES = {4096: 200, 1 << 24: 1}  # elements, and calls in a turn

# The operands' range, if it is not this one.
RANGE = (-3.0, 3.0)
UNIT, POSITIVE, ABOVE_ONE = (-0.99, 0.99), (0.1, 4.0), (1.01, 4.0)


class Operands:
    def __init__(self, n, low, high):
        self.a, self.b = (torch.rand(n) * (high - low) + low for _ in range(2))
        self.rows = self.a.view(-1, 64)
        self.mask = torch.rand(n) < 0.5
        self.indices = torch.randint(0, n, (n,))
        self.row_places = torch.randint(0, 64, (n // 64, 64))
        self.integers = torch.randint(-10**9, 10**9, (n,))
        self.divisors = torch.randint(1, 1001, (n,))
        self.classes = torch.randint(0, 1000, (n,))
        self.labels = torch.randint(0, 64, (n // 64,))
        self.images = self.a.view(-1, 4, 32, 32)
        self.half, self.brain = self.a.half(), self.a.bfloat16()
        self.sorted = self.a.sort().values


def elementwise(function, *interval):
    return (lambda o: function(o.a)), interval or RANGE


def two(function, *interval):
    return (lambda o: function(o.a, o.b)), interval or RANGE


OPERATIONS = {
    name: elementwise(getattr(torch, name))
    for name in ("abs", "asinh", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "floor", "frac",
                 "isnan", "negative", "reciprocal", "relu", "round", "sigmoid", "sign", "sin", "sinh", "square", "tan", "tanh",
                 "trunc", "isinf", "isfinite", "sinc", "isposinf", "isneginf")
} | {
    name: elementwise(getattr(torch, name), *POSITIVE)
    for name in ("digamma", "lgamma", "log", "log10", "log1p", "log2", "rsqrt", "sqrt")
} | {
    name: elementwise(getattr(torch, name), *UNIT) for name in ("acos", "asin", "atanh", "erfinv")
} | {
    name: elementwise(getattr(F, name))
    for name in ("gelu", "hardswish", "mish", "silu", "selu", "softsign", "softplus", "elu", "relu6", "hardsigmoid",
                 "tanhshrink", "leaky_relu", "hardtanh", "softshrink", "hardshrink")
} | {
    name: two(function)
    for name, function in (("add", torch.add), ("multiply", torch.mul), ("divide", torch.div), ("maximum", torch.maximum),
                           ("atan2", torch.atan2), ("hypot", torch.hypot), ("fmod", torch.fmod),
                           ("remainder", torch.remainder), ("logaddexp", torch.logaddexp), ("less", torch.lt),
                           ("equal", torch.eq), ("floor_divide", torch.floor_divide), ("subtract", torch.sub),
                           ("minimum", torch.minimum), ("not_equal", torch.ne), ("greater_equal", torch.ge), ("heaviside", torch.heaviside),
                           ("greater", torch.gt), ("less_equal", torch.le), ("isclose", torch.isclose))
} | {
    "acosh": elementwise(torch.acosh, *ABOVE_ONE),
    "log_sigmoid": elementwise(F.logsigmoid),
    "polygamma_1": elementwise(lambda a: torch.polygamma(1, a), *POSITIVE),
    "polygamma_2": elementwise(lambda a: torch.polygamma(2, a), *POSITIVE),
    "polygamma_3": elementwise(lambda a: torch.polygamma(3, a), *POSITIVE),
    "power": two(torch.pow, *POSITIVE),
    "xlogy": two(torch.xlogy, *POSITIVE),
    "power_half": elementwise(lambda a: a.pow(0.7), *POSITIVE),
} | {
    name: (function, RANGE)
    for name, function in {
        "where": lambda o: torch.where(o.mask, o.a, o.b),
        "clamp": lambda o: torch.clamp(o.a, -1.0, 1.0),
        "lerp": lambda o: torch.lerp(o.a, o.b, 0.3),
        "cube": lambda o: o.a**3,
        "celu": lambda o: F.celu(o.a, 0.7),
        "prelu": lambda o: F.prelu(o.rows, o.rows[0]),
        "threshold": lambda o: F.threshold(o.a, 0.1, 2),
        "glu": lambda o: F.glu(o.rows),
        "nan_to_num": lambda o: o.a.nan_to_num(),
        "masked_fill": lambda o: o.a.masked_fill(o.mask, 1.5),
        "logical_not": lambda o: o.mask.logical_not(),
        "logical_xor": lambda o: torch.logical_xor(o.mask, o.mask),
        "add_scalar": lambda o: o.a + 1.5,
        "power_3": lambda o: o.a.pow(3.0),
        "add_row": lambda o: o.rows + o.rows[0],
        "add_column": lambda o: o.rows + o.rows[:, :1],
        "multiply_strided": lambda o: o.rows[:, :32] * o.rows[:, 32:],
        "add_int64": lambda o: o.integers + o.divisors,
        "floor_divide_int64": lambda o: o.integers // o.divisors,
        "remainder_int64": lambda o: o.integers % o.divisors,
        "bitwise_and": lambda o: o.integers & o.divisors,
        "bitwise_not": lambda o: ~o.integers,
        "add_bfloat16": lambda o: o.brain + o.brain,
        "exp_bfloat16": lambda o: o.brain.exp(),
        "add_float16": lambda o: o.half + o.half,
        "cast_float64": lambda o: o.a.double(),
        "cast_int64": lambda o: o.a.long(),
        "cast_float16": lambda o: o.a.half(),
        "cast_bfloat16": lambda o: o.a.bfloat16(),
        "cast_of_float16": lambda o: o.half.float(),
        "cast_of_bfloat16": lambda o: o.brain.float(),
        "cast_of_int64": lambda o: o.integers.float(),
        "cast_of_bool": lambda o: o.mask.float(),
        "min": lambda o: o.a.amin(),
        "argmin": lambda o: o.a.argmin(),
        "all": lambda o: o.mask.all(),
        "mean_rows": lambda o: o.rows.mean(-1),
        "mean_columns": lambda o: o.rows.mean(0),
        "max_columns": lambda o: o.rows.amax(0),
        "prod_rows": lambda o: o.rows.prod(-1),
        "std_rows": lambda o: o.rows.std(-1),
        "var_columns": lambda o: o.rows.var(0),
        "logsumexp": lambda o: o.a.logsumexp(0),
        "norm_infinity": lambda o: torch.linalg.vector_norm(o.a, float("inf")),
        "sum_int64": lambda o: o.divisors.sum(),
        "sum_bfloat16": lambda o: o.brain.sum(),
        "sum_of_images": lambda o: o.images.sum((0, 2, 3)),
        "cumprod": lambda o: o.a.cumprod(0),
        "cumsum_columns": lambda o: o.rows.cumsum(0),
        "logcumsumexp_rows": lambda o: o.rows.logcumsumexp(-1),
        "layer_norm": lambda o: F.layer_norm(o.rows, (64,), o.rows[0], o.rows[1]),
        "normalize": lambda o: F.normalize(o.rows, dim=-1),
        "mean_squared_error": lambda o: F.mse_loss(o.a, o.b),
        "smooth_l1": lambda o: F.smooth_l1_loss(o.a, o.b),
        "huber": lambda o: F.huber_loss(o.a, o.b),
        "cross_entropy": lambda o: F.cross_entropy(o.rows, o.labels),
        "cosine_similarity": lambda o: F.cosine_similarity(o.rows, o.rows.flip(0), -1),
        "dot": lambda o: o.a.dot(o.b),
        "matrix_vector": lambda o: o.rows @ o.a[:64],
        "outer": lambda o: torch.outer(o.a[:len(o.a) // 64], o.b[:64]),
        "kron": lambda o: torch.kron(o.rows[:len(o.rows) // 4], o.a.view(-1, 2)[:2]),
        "cross": lambda o: torch.linalg.cross(o.a[:len(o.a) // 3 * 3].view(-1, 3), o.b[:len(o.a) // 3 * 3].view(-1, 3)),
        "cdist": lambda o: torch.cdist(o.rows, o.rows[:16]),
        "sort_descending": lambda o: torch.sort(o.a, stable=True, descending=True).values,
        "sort_columns": lambda o: torch.sort(o.rows, dim=0, stable=True).values,
        "argsort_rows": lambda o: o.rows.argsort(stable=True),
        "triu": lambda o: o.rows.triu(),
        "stack": lambda o: torch.stack((o.a, o.b)),
        "stack_last": lambda o: torch.stack((o.a, o.b), -1),
        "concat_last": lambda o: torch.cat((o.rows, o.rows), -1),
        "transpose": lambda o: o.rows.t().contiguous(),
        "channels_last": lambda o: o.images.permute(0, 2, 3, 1).contiguous(),
        "every_second": lambda o: o.a[::2].contiguous(),
        "tile": lambda o: o.rows.tile((1, 2)),
        "diagonal": lambda o: o.images.diagonal(0, 2, 3).contiguous(),
        "one_hot": lambda o: F.one_hot(o.labels, 64).float(),
        "unfold": lambda o: F.unfold(o.images, 3, padding=1),
        "pixel_shuffle": lambda o: F.pixel_shuffle(o.images, 2),
        "pad_images": lambda o: F.pad(o.images, (1, 1, 1, 1), mode="reflect"),
        "gather_columns": lambda o: o.rows.index_select(1, o.labels[:64]),
        "index_add_rows": lambda o: o.rows.index_add(0, o.labels, o.rows),
        "random_uniform": lambda o: torch.rand_like(o.a),
        "random_normal": lambda o: torch.randn_like(o.a),
        "random_integers": lambda o: torch.randint_like(o.a, 0, 1000, dtype=torch.int64),
        "bernoulli": lambda o: torch.bernoulli(o.a.abs() * 0.3),
        "dropout": lambda o: F.dropout(o.a, 0.3, True),
        "random_permutation": lambda o: torch.randperm(len(o.a)),
        "arange": lambda o: torch.arange(len(o.a), dtype=torch.float32),
        "full": lambda o: torch.full_like(o.a, 1.5),
        "sum": lambda o: o.a.sum(),
        "sum_rows": lambda o: o.rows.sum(-1),
        "sum_columns": lambda o: o.rows.sum(0),
        "mean": lambda o: o.a.mean(),
        "max": lambda o: o.a.amax(),
        "max_rows": lambda o: o.rows.amax(-1),
        "prod": lambda o: o.a.prod(),
        "var": lambda o: o.a.var(),
        "var_rows": lambda o: o.rows.var(-1),
        "std": lambda o: o.a.std(),
        "norm": lambda o: torch.linalg.vector_norm(o.a),
        "norm_rows": lambda o: torch.linalg.vector_norm(o.rows, dim=-1),
        "norm_1": lambda o: torch.linalg.vector_norm(o.a, 1),
        "logsumexp_rows": lambda o: o.rows.logsumexp(-1),
        "softmax": lambda o: o.rows.softmax(-1),
        "log_softmax": lambda o: o.rows.log_softmax(-1),
        "argmax": lambda o: o.a.argmax(),
        "argmax_rows": lambda o: o.rows.argmax(-1),
        "argmax_columns": lambda o: o.rows.argmax(0),
        "any": lambda o: o.a.any(),
        "count_nonzero": lambda o: o.a.count_nonzero(),
        "nansum": lambda o: o.a.nansum(),
        "cumsum": lambda o: o.a.cumsum(0),
        "cumsum_rows": lambda o: o.rows.cumsum(-1),
        "cumprod_rows": lambda o: o.rows.cumprod(-1),
        "cummax_rows": lambda o: o.rows.cummax(-1).values,
        "sort": lambda o: o.a.sort(stable=True).values,
        "sort_rows": lambda o: o.rows.sort(stable=True).values,
        "sort_int64": lambda o: o.integers.sort(stable=True).values,
        "argsort": lambda o: o.a.argsort(stable=True),
        "topk": lambda o: o.a.topk(10).values,
        "topk_rows": lambda o: o.rows.topk(5).values,
        "kthvalue": lambda o: o.a.kthvalue(len(o.a) // 3).values,
        "median": lambda o: o.a.median(),
        "median_rows": lambda o: o.rows.median(-1).values,
        "unique": lambda o: torch.unique(o.a),
        "unique_classes": lambda o: torch.unique(o.classes),
        "searchsorted": lambda o: torch.searchsorted(o.sorted, o.b),
        "bincount": lambda o: torch.bincount(o.classes),
        "histogram": lambda o: torch.histc(o.a, 100, -3, 3),
        "gather": lambda o: o.a.index_select(0, o.indices),
        "gather_rows": lambda o: o.rows.index_select(0, o.row_places[:, 0]),
        "take_along_axis": lambda o: o.rows.gather(-1, o.row_places),
        "put_along_axis": lambda o: o.rows.scatter(-1, o.row_places, o.rows),
        "add_along_axis": lambda o: o.rows.scatter_add(-1, o.row_places, o.rows),
        "scatter_add": lambda o: o.a.index_add(0, o.indices, o.b),
        "masked_select": lambda o: o.a.masked_select(o.mask),
        "nonzero": lambda o: o.mask.nonzero(),
        "flip": lambda o: o.a.flip(0),
        "roll": lambda o: o.a.roll(5, 0),
        "concat": lambda o: torch.cat((o.a, o.b)),
        "pad": lambda o: F.pad(o.rows, (1, 1)),
        "tril": lambda o: o.rows.tril(),
        "clamp_min": lambda o: o.a.clamp_min(-1.0),
        "clamp_max": lambda o: o.a.clamp_max(1.0),
        "gelu_tanh": lambda o: F.gelu(o.a, approximate="tanh"),
        "rrelu": lambda o: F.rrelu(o.a, training=True),
        "logical_and": lambda o: o.mask.logical_and(o.mask),
        "logical_or": lambda o: o.mask.logical_or(o.mask),
        "bitwise_or": lambda o: o.integers | o.divisors,
        "bitwise_xor": lambda o: o.integers ^ o.divisors,
        "bitwise_left_shift": lambda o: o.row_places << o.row_places,
        "bitwise_right_shift": lambda o: o.row_places >> o.row_places,
        "nanmean": lambda o: o.a.nanmean(),
        "nanmean_rows": lambda o: o.rows.nanmean(-1),
        "trace": lambda o: o.images.diagonal(0, 2, 3).sum(-1),
        "cov": lambda o: o.rows.t().cov(),
        "cummin_rows": lambda o: o.rows.cummin(-1).values,
        "quantile": lambda o: o.a.quantile(0.3),
        "quantile_rows": lambda o: o.rows.quantile(0.3, -1),
        "max_along_axis": lambda o: o.rows.scatter_reduce(-1, o.row_places, o.rows, "amax"),
        "min_along_axis": lambda o: o.rows.scatter_reduce(-1, o.row_places, o.rows, "amin"),
        "scatter": lambda o: o.a.index_copy(0, o.indices, o.b),
        "scatter_max": lambda o: o.a.index_reduce(0, o.indices, o.b, "amax"),
        "scatter_min": lambda o: o.a.index_reduce(0, o.indices, o.b, "amin"),
        "scatter_nd": lambda o: o.a.index_put((o.indices,), o.b),
        "scatter_nd_add": lambda o: o.a.index_put((o.indices,), o.b, accumulate=True),
        "masked_scatter": lambda o: o.a.masked_scatter(o.mask, o.b),
        "repeat_interleave": lambda o: o.a.repeat_interleave(2),
    }.items()
}


def ours(program, name, size, interval, calls):
    program.stdin.write(f"{name} {size} {interval[0]} {interval[1]} {calls}\n")
    program.stdin.flush()
    return float(program.stdout.readline())


def theirs(function, operands, calls):
    start = time.process_time()
    for _ in range(calls):
        function(operands)
    return (time.process_time() - start) / calls


def main():
    torch.set_num_threads(1)
    program = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    turns = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    names = sys.argv[3:] or sorted(OPERATIONS, key=lambda name: OPERATIONS[name][1])
    print("| operation | elements | Espalier, µs | PyTorch, µs | ratio |\n| --- | --- | --- | --- | --- |")
    ratios = []
    with torch.inference_mode():
        for size, calls in SIZES.items():
            drawn, operands = None, None
            for name in names:
                function, interval = OPERATIONS[name]
                if interval != drawn:
                    operands, drawn = Operands(size, *interval), interval
                pairs = [(ours(program, name, size, interval, calls), theirs(function, operands, calls))
                         for _ in range(turns + 1)][1:]
                ratio = statistics.median(b / a for a, b in pairs)
                ratios.append(ratio)
                mine, other = (statistics.median(side) * 1e6 for side in zip(*pairs))
                print(f"| {name} | {size} | {mine:.1f} | {other:.1f} | {ratio:.2f} |", flush=True)
    slow = sum(ratio < 0.9 for ratio in ratios)
    print(f"\n{len(ratios)} ratios: median {statistics.median(ratios):.2f}, {slow} below 0.9")


if __name__ == "__main__":
    main()
