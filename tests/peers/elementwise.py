"""Operations on single elements."""
import torch
import torch.nn.functional as F

from draw import ALL, INTEGERS, NUMBERS, REALS
from operation import Operation

BOOL = (torch.bool,)


def unary(name, function, low=-3.0, high=3.0, dtypes=REALS, **options):
    def draw(d):
        return [d.tensor(d.shape(), low, high)], {}

    return Operation(name, draw, function, dtypes, elementwise=True, special=True, **options)


def binary(name, function, first=(-3.0, 3.0), second=None, dtypes=REALS, **options):
    def draw(d):
        a, b = d.pair()
        return [d.tensor(a, *first), d.tensor(b, *(second or first))], {}

    return Operation(name, draw, function, dtypes, elementwise=True, special=True, **options)


def ternary(name, function, dtypes=REALS, mask=None, **options):
    """Three operands that are broadcast; the one at `mask` is bool."""
    def draw(d):
        shape = d.shape()
        shapes = [d.broadcast(shape) for _ in range(3)]
        shapes[d.integer(0, 2)] = shape
        return [d.mask(s) if i == mask else d.tensor(s) for i, s in enumerate(shapes)], {}

    return Operation(name, draw, function, dtypes, elementwise=True, special=True, **options)


def with_numbers(name, function, numbers, low=-3.0, high=3.0, dtypes=REALS, **options):
    """One operand, and attributes that `numbers(d)` draws."""
    def draw(d):
        return [d.tensor(d.shape(), low, high)], numbers(d)

    return Operation(name, draw, function, dtypes, elementwise=True, special=True, **options)


def both(function):
    """For what PyTorch has for reals only: integers stay as they are."""
    return lambda x: function(x) if x.dtype.is_floating_point else x.clone()


def never(x):
    return torch.zeros_like(x, dtype=torch.bool)


def integer_division(function):
    """Espalier's convention, an integer divided by zero gives 0, where PyTorch throws."""
    def divide(a, b):
        if a.dtype.is_floating_point:
            return function(a, b)
        return torch.where(b == 0, 0, function(a, torch.where(b == 0, 1, b)))

    return divide


def shift(function, empty):
    """PyTorch leaves shifts by less than 0 or by all bits undefined."""
    def shifted(a, n):
        valid = (n >= 0) & (n < 8 * a.dtype.itemsize)
        return torch.where(valid, function(a, torch.where(valid, n, 0)), empty(a))

    return shifted


def draw_clamp(d):
    low = d.real(-2, 1)
    return {"low": low, "high": low + d.real(0, 2)}


def draw_bounds(d):
    shape = d.shape()
    x = d.tensor(shape)
    low = d.tensor(d.broadcast(shape), -2, 0)
    return [x, low, d.tensor(d.broadcast(shape), 0, 2)], {}


def draw_nan_to_num(d):
    if d.flag():
        return {"nan": d.choice((0.0, 1.5))}
    return {"nan": 0.5, "infinity": 3.0, "negative_infinity": -4.0}


def draw_close(d):
    a, b = d.pair()
    x = d.tensor(a)
    y = x + d.tensor(a, -1e-3, 1e-3, special=False) if d.flag() else d.tensor(b)
    return [x, y.to(x.dtype)], {"relative": d.choice((1e-5, 1e-2)), "absolute": d.choice((1e-8, 1e-3)),
                                "equal_nan": d.flag()}


def draw_prelu(d):
    shape = d.shape(0, 4)
    channels = shape[1] if len(shape) > 1 else shape[0] if shape else 1
    return [d.tensor(shape), d.tensor([d.choice((1, channels))], 0, 1)], {}


def draw_shift(d):
    a, b = d.pair()
    return [d.tensor(a, -1000, 1000), d.integers(b, -2, 66, d.dtype)], {}


def draw_cast(d):
    return {"to": str(d.choice(ALL)).removeprefix("torch.")}


OPERATIONS = [
    unary("tanh", torch.tanh),
    unary("sigmoid", torch.sigmoid),
    unary("relu", torch.relu),
    unary("gelu", F.gelu),
    unary("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), of="gelu"),
    unary("silu", F.silu),
    unary("mish", F.mish),
    unary("log_sigmoid", F.logsigmoid),
    unary("softsign", F.softsign),
    unary("tanhshrink", F.tanhshrink),
    unary("selu", F.selu),
    unary("relu6", F.relu6, -2, 8),
    unary("hardsigmoid", F.hardsigmoid, -5, 5, single=True),
    unary("hardswish", F.hardswish, -5, 5),
    unary("negative", torch.neg, dtypes=NUMBERS),
    unary("abs", torch.abs, dtypes=NUMBERS),
    unary("sign", torch.sign, dtypes=NUMBERS),
    unary("square", torch.square, dtypes=NUMBERS),
    unary("sqrt", torch.sqrt, 0.1, 4),
    unary("exp", torch.exp),
    unary("log", torch.log, 0.1, 4),
    unary("erf", torch.erf),
    unary("sin", torch.sin, -20, 20),
    unary("cos", torch.cos, -20, 20),
    unary("floor", torch.floor, dtypes=NUMBERS),
    unary("ceil", torch.ceil, dtypes=NUMBERS),
    unary("round", torch.round, dtypes=NUMBERS),
    unary("trunc", torch.trunc, dtypes=NUMBERS),
    unary("frac", torch.frac),
    unary("rsqrt", torch.rsqrt, 0.1, 4),
    unary("reciprocal", torch.reciprocal, 0.2, 4),
    unary("cube", lambda x: x ** 3, dtypes=NUMBERS),
    unary("exp2", torch.exp2),
    unary("expm1", torch.expm1),
    unary("log1p", torch.log1p, -0.8, 4),
    unary("log2", torch.log2, 0.1, 4),
    unary("log10", torch.log10, 0.1, 4),
    unary("isnan", torch.isnan, dtypes=NUMBERS),
    unary("isinf", torch.isinf, dtypes=NUMBERS),
    unary("isposinf", torch.isposinf, dtypes=NUMBERS),
    unary("isneginf", torch.isneginf, dtypes=NUMBERS),
    unary("isfinite", torch.isfinite, dtypes=NUMBERS),
    unary("sinc", torch.sinc, order=1),
    unary("lgamma", torch.lgamma, 0.2, 5),
    unary("digamma", torch.digamma, 0.2, 5, loose=4, single=True),
    unary("erfc", torch.erfc),
    unary("erfinv", torch.erfinv, -0.9, 0.9, loose=4),
    unary("tan", torch.tan, -1.4, 1.4, loose=4),
    unary("asin", torch.asin, -0.9, 0.9),
    unary("acos", torch.acos, -0.9, 0.9),
    unary("atan", torch.atan),
    unary("sinh", torch.sinh),
    unary("cosh", torch.cosh),
    unary("asinh", torch.asinh),
    unary("acosh", torch.acosh, 1.1, 4),
    unary("atanh", torch.atanh, -0.9, 0.9),
    unary("logical_not", torch.logical_not, dtypes=BOOL),
    unary("bitwise_not", torch.bitwise_not, -100, 100, dtypes=INTEGERS + BOOL),
    unary("zeros_like", torch.zeros_like, dtypes=ALL),
    unary("ones_like", torch.ones_like, dtypes=ALL),
    unary("stop_gradient", torch.detach, dtypes=ALL),
    binary("add", torch.add, dtypes=NUMBERS),
    binary("subtract", torch.sub, dtypes=NUMBERS),
    binary("multiply", torch.mul, dtypes=NUMBERS),
    binary("divide", torch.div, second=(0.3, 3)),
    binary("power", torch.pow, (0.1, 3), (-2, 2)),
    binary("maximum", torch.maximum, dtypes=NUMBERS),
    binary("minimum", torch.minimum, dtypes=NUMBERS),
    binary("logaddexp", torch.logaddexp),
    binary("floor_divide", integer_division(torch.floor_divide), dtypes=NUMBERS),
    binary("remainder", integer_division(torch.remainder), dtypes=NUMBERS),
    binary("fmod", integer_division(torch.fmod), dtypes=NUMBERS),
    binary("clamp_min", lambda x, low: torch.clamp(x, min=low), dtypes=NUMBERS),
    binary("clamp_max", lambda x, high: torch.clamp(x, max=high), dtypes=NUMBERS),
    binary("heaviside", torch.heaviside, dtypes=NUMBERS, order=0),
    binary("xlogy", torch.xlogy, (0, 3), (0.1, 3)),
    binary("atan2", torch.atan2, (0.1, 3), (-3, 3)),
    binary("hypot", torch.hypot, (0.1, 3)),
    binary("equal", torch.eq, dtypes=ALL),
    binary("not_equal", torch.ne, dtypes=ALL),
    binary("less", torch.lt, dtypes=NUMBERS),
    binary("less_equal", torch.le, dtypes=NUMBERS),
    binary("greater", torch.gt, dtypes=NUMBERS),
    binary("greater_equal", torch.ge, dtypes=NUMBERS),
    binary("logical_and", torch.logical_and, dtypes=BOOL),
    binary("logical_or", torch.logical_or, dtypes=BOOL),
    binary("logical_xor", torch.logical_xor, dtypes=BOOL),
    binary("bitwise_and", torch.bitwise_and, (-100, 100), dtypes=INTEGERS + BOOL),
    binary("bitwise_or", torch.bitwise_or, (-100, 100), dtypes=INTEGERS + BOOL),
    binary("bitwise_xor", torch.bitwise_xor, (-100, 100), dtypes=INTEGERS + BOOL),
    Operation("bitwise_left_shift", draw_shift, shift(torch.bitwise_left_shift, torch.zeros_like), INTEGERS),
    Operation("bitwise_right_shift", draw_shift, shift(torch.bitwise_right_shift, lambda a: torch.where(a < 0, -1, 0).to(a.dtype)), INTEGERS),
    Operation("prelu", draw_prelu, F.prelu),
    with_numbers("leaky_relu", lambda x, slope: F.leaky_relu(x, slope), lambda d: {"slope": d.real(0, 0.5)}),
    with_numbers("elu", lambda x, alpha: F.elu(x, alpha), lambda d: {"alpha": d.real(0.2, 2)}),
    with_numbers("celu", lambda x, alpha: F.celu(x, alpha), lambda d: {"alpha": d.choice((0.5, 1.0, 2.0))}),
    with_numbers("hardtanh", lambda x, low, high: F.hardtanh(x, low, high), draw_clamp),
    with_numbers("softshrink", lambda x, bound: F.softshrink(x, bound), lambda d: {"bound": d.choice((0.5, 1, d.real(0, 2)))}),
    with_numbers("hardshrink", lambda x, bound: F.hardshrink(x, bound), lambda d: {"bound": d.choice((0.5, 1, d.real(0, 2)))}),
    with_numbers("threshold", lambda x, bound, value: F.threshold(x, bound, value),
                 lambda d: {"bound": d.choice((0.5, d.real(-2, 2))), "value": d.real(-2, 2)}),
    with_numbers("softplus", lambda x, beta, threshold: F.softplus(x, beta, threshold),
                 lambda d: {"beta": d.real(0.3, 3), "threshold": d.choice((20.0, 2.0))}, -8, 30),
    with_numbers("polygamma", lambda x, n: torch.polygamma(n, x), lambda d: {"n": d.integer(0, 3)}, 0.3, 5, loose=4, single=True),
    with_numbers("clamp_numbers", lambda x, low, high: torch.clamp(x, low, high), draw_clamp, of="clamp"),
    with_numbers("power_number", lambda x, exponent: torch.pow(x, exponent),
                 lambda d: {"exponent": d.choice((0.0, 1.0, 2.0, 3.0, -1.0, 0.5, 1.7))}, 0.1, 3, of="power"),
    with_numbers("full_like", lambda x, value: torch.full_like(x, value), lambda d: {"value": d.integer(0, 1)}, dtypes=ALL),
    with_numbers("cast", lambda x, to: x.to(getattr(torch, to)), draw_cast, dtypes=ALL),
    with_numbers("nan_to_num", lambda x, nan, infinity=None, negative_infinity=None: torch.nan_to_num(x, nan, infinity, negative_infinity),
                 draw_nan_to_num),
    Operation("clamp", draw_bounds, torch.clamp, NUMBERS, elementwise=True, special=True),
    ternary("lerp", torch.lerp, loose=4),
    ternary("where", torch.where, ALL, mask=0),
    ternary("masked_fill", lambda x, mask, value: torch.where(mask, value, x), ALL, mask=1),
    Operation("isclose", draw_close, lambda a, b, relative, absolute, equal_nan: torch.isclose(a, b, relative, absolute, equal_nan), special=True),
    Operation("allclose", draw_close, lambda a, b, relative, absolute, equal_nan: torch.isclose(a, b, relative, absolute, equal_nan).all(), special=True),
]
