"""Products, distances, systems of equations and decompositions. What is not unique is compared by what is: signs of
vectors do not count."""
import torch
import torch.nn.functional as F

from draw import REALS
from operation import Operation

FLOATS = (torch.float32, torch.float64)


def draw_matmul(d):
    leading = d.shape(0, 3)
    m, k, n = (d.size() for _ in range(3))
    if d.chance(0.1):
        m, k, n = (d.integer(10, 40) for _ in range(3))
        leading = leading[:1]
    a, b = d.broadcast(leading) + [m, k], d.broadcast(leading) + [k, n]
    x, y = d.tensor(a), d.tensor(b)
    if d.chance(0.3):
        y = d.tensor(b[:-2] + [n, k]).mT
    return [x, y], {}


def draw_vectors(d):
    return [d.tensor([d.size()]), d.tensor([d.size()])], {}


def draw_equal_vectors(d):
    shape = d.shape(1, 1)
    return [d.tensor(shape), d.tensor(shape)], {}


def draw_inner(d):
    k = d.size()
    return [d.tensor(d.shape(0, 2, long=False) + [k]) for _ in range(2)], {}


EQUATIONS = ("ij,jk->ik", "ij,ij->", "i,j->ij", "bij,bjk->bik", "ij,kj->ki", "ii->i", "ii->", "ij->ji", "bij->bj",
             "bi,ij,bj->b", "ij,jk,kl->il", "...i,...i->...", "...ij,jk->...ik", "ij,jk", "bhqd,bhkd->bhqk", "a,b,c->cab",
             "ijk,ilm,njm,nlk,abc->")


def draw_einsum(d):
    equation = d.choice(EQUATIONS)
    sizes = {letter: d.size() for letter in "abcdhijklmnqtk"}
    leading = d.shape(0, 2)
    inputs = []
    for part in equation.split("->")[0].split(","):
        shape = leading if "..." in part else []
        inputs.append(d.tensor(shape + [sizes[letter] for letter in part.replace("...", "")], -1, 1))
    return inputs, {"equation": equation}


def draw_vecdot(d):
    shape = d.shape(1)
    return [d.tensor(shape), d.tensor([1 if d.chance(0.2) else s for s in shape])], {"axis": d.axis(len(shape))}


def vecdot(a, b, axis):
    return (a * b).sum(axis)


def draw_cross(d):
    shape = d.shape(1)
    axis = d.axis(len(shape))
    shape[axis] = 3
    return [d.tensor(shape), d.tensor(shape)], {"axis": axis}


def draw_tensordot(d):
    shared = d.shape(0, 2)
    first, second = (d.shape(0, 2, long=False) for _ in range(2))
    return [d.tensor(first + shared), d.tensor(shared + second)], {"axes": len(shared)}


def draw_tensordot_pairs(d):
    shared = d.shape(1, 2)
    order = d.order(len(shared))
    a, b = shared + d.shape(0, 2, long=False), [shared[i] for i in order] + d.shape(0, 2, long=False)
    return [d.tensor(a), d.tensor(b)], {"axes_a": order, "axes_b": list(range(len(shared)))}


def draw_kron(d):
    return [d.tensor(d.shape(0, 3, long=False)) for _ in range(2)], {}


def draw_bilinear(d):
    leading = d.shape(1, 3)
    o, i, j = (d.integer(1, 4) for _ in range(3))
    bias = [d.tensor([o])] if d.flag() else []
    return [d.tensor(leading + [i]), d.tensor(leading + [j]), d.tensor([o, i, j])] + bias, {}


def draw_cosine(d):
    shape = d.shape(1, zero=0)
    return [d.tensor(shape, 0.2, 3), d.tensor(shape)], {"axis": d.axis(len(shape)), "epsilon": 1e-8}


def draw_pairwise(d):
    shape = d.shape(1, 4, zero=0)
    return [d.tensor(shape), d.tensor(shape)], {"p": d.choice((1.0, 2.0, 3.0)), "epsilon": 1e-6, "keep_dims": d.flag()}


def draw_cdist(d):
    leading, k = d.shape(0, 2), d.integer(1, 5)
    a = d.tensor(d.broadcast(leading) + [d.size(), k])
    return [a, d.tensor(d.broadcast(leading) + [d.size(), k], -3, 3)], {"p": d.choice((1.0, 2.0, 3.0, float("inf")))}


def draw_linear(d):
    features, outputs = d.size(), [d.size()] if d.chance(0.9) else []
    bias = [d.tensor(outputs)] if d.flag() else []
    return [d.tensor(d.shape(0, 3) + [features]), d.tensor(outputs + [features])] + bias, {}


def draw_pdist(d):
    # Of no rows, PyTorch's gradient reads elements that are not there.
    return [d.tensor([d.integer(1, 7), d.integer(1, 5)])], {"p": d.choice((0.5, 1.0, 2.0, 3.0, float("inf")))}


def well_conditioned(d, leading, n):
    """A diagonal that is larger than the rest of its row."""
    d.coarse = False
    return d.tensor(leading + [n, n], -1, 1) + torch.eye(n, dtype=d.dtype) * (n + 1)


def square(attributes=lambda d: {}, least=1):
    def draw(d):
        return [well_conditioned(d, d.shape(0, 2), d.integer(least, 5))], attributes(d)

    return draw


def draw_solve(d):
    leading, n = d.shape(0, 2), d.integer(1, 5)
    return [well_conditioned(d, d.broadcast(leading), n), d.tensor(d.broadcast(leading) + [n, d.size()])], {}


def draw_cholesky_solve(d):
    (a, b), _ = draw_solve(d)
    return [b, a], {"upper": d.flag()}


def draw_block_diag(d):
    # Behind an empty vector, PyTorch's gradient is that of another row.
    return [d.tensor(d.shape(0, 2, zero=0)) for _ in range(d.integer(1, 4))], {}


def draw_triangular(d):
    (a, b), _ = draw_solve(d)
    unit = d.flag()
    if unit:
        a = a / (2 * a.size(-1))
    return [a, b], {"upper": d.flag(), "transposed": d.flag(), "unit_diagonal": unit}


def triangular_solve(a, b, upper, transposed, unit_diagonal):
    a = a.triu() if upper else a.tril()
    if transposed:
        a, upper = a.mT, not upper
    return torch.linalg.solve_triangular(a, b, upper=upper, unitriangular=unit_diagonal)


def draw_positive(attributes=lambda d: {}):
    def draw(d):
        n = d.integer(1, 5)
        d.coarse = False
        x = d.tensor(d.shape(0, 2) + [n, n], -1, 1)
        return [x @ x.mT + torch.eye(n, dtype=d.dtype)], attributes(d)

    return draw


def symmetric(d, n, leading):
    """With eigenvalues that differ."""
    d.coarse = False
    x = d.tensor(leading + [n, n], -0.3, 0.3)
    return x + x.mT + torch.diag(torch.arange(1.0, n + 1)).to(d.dtype) * 2


def draw_symmetric(d):
    return [symmetric(d, d.integer(1, 5), d.shape(0, 2))], {}


def draw_factors(d, tall=False):
    """Singular values that differ."""
    d.coarse = False
    m, n = d.integer(1, 5), d.integer(1, 5)
    if tall:
        m = max(m, n)
    x = d.tensor(d.shape(0, 2) + [m, n], -0.3, 0.3)
    values = torch.arange(1.0, min(m, n) + 1).to(d.dtype) * 2
    main = torch.zeros(m, n, dtype=d.dtype)
    main.diagonal().copy_(values)
    return [x + main], {}


def absolute(*factors):
    return tuple(f.abs() for f in factors)


def svd(x):
    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    return u.abs(), s, vt.abs()


def eigh(x):
    values, vectors = torch.linalg.eigh(x)
    return values, vectors.abs()


def draw_lstsq(d):
    (a,), _ = draw_factors(d)
    return [a, d.tensor(list(a.shape[:-1]) + [d.integer(1, 3)])], {}


def linalg(name, draw, function, **options):
    return Operation(name, draw, function, FLOATS, loose=options.pop("loose", 20), **options)


OPERATIONS = [
    Operation("matmul", draw_matmul, torch.matmul),
    Operation("outer", draw_vectors, torch.outer),
    Operation("dot", draw_equal_vectors, torch.dot),
    Operation("inner", draw_inner, torch.inner),
    Operation("einsum", draw_einsum, lambda *x, equation: torch.einsum(equation, *x), loose=4),
    Operation("vecdot", draw_vecdot, vecdot),
    Operation("cross", draw_cross, lambda a, b, axis: torch.linalg.cross(a, b, dim=axis)),
    Operation("tensordot", draw_tensordot, lambda a, b, axes: torch.tensordot(a, b, axes), loose=4),
    Operation("tensordot_pairs", draw_tensordot_pairs, lambda a, b, axes_a, axes_b: torch.tensordot(a, b, (axes_a, axes_b)),
              of="tensordot", loose=4),
    Operation("kron", draw_kron, torch.kron),
    Operation("bilinear", draw_bilinear, lambda a, b, weight, bias=None: F.bilinear(a, b, weight, bias), loose=4),
    Operation("cosine_similarity", draw_cosine, lambda a, b, axis, epsilon: F.cosine_similarity(a, b, axis, epsilon)),
    Operation("pairwise_distance", draw_pairwise, lambda a, b, p, epsilon, keep_dims: F.pairwise_distance(a, b, p, epsilon, keep_dims)),
    Operation("cdist", draw_cdist, lambda a, b, p: torch.cdist(a, b, p), FLOATS, loose=4),
    Operation("linear", draw_linear, lambda x, weight, bias=None: F.linear(x, weight, bias), loose=4),
    Operation("pdist", draw_pdist, lambda x, p: F.pdist(x, p), FLOATS, loose=4),
    linalg("solve", draw_solve, torch.linalg.solve),
    linalg("triangular_solve", draw_triangular, triangular_solve),
    linalg("inverse", square(), torch.linalg.inv),
    linalg("matrix_power", square(lambda d: {"n": d.integer(-3, 4)}), lambda a, n: torch.linalg.matrix_power(a, n)),
    linalg("det", square(), torch.linalg.det),
    linalg("slogdet", square(), torch.linalg.slogdet),
    linalg("cholesky", draw_positive(lambda d: {"upper": d.flag()}), lambda a, upper: torch.linalg.cholesky(a, upper=upper)),
    linalg("cholesky_solve", draw_cholesky_solve, lambda b, factor, upper: torch.cholesky_solve(b, factor.triu() if upper else factor.tril(), upper)),
    Operation("block_diag", draw_block_diag, torch.block_diag),
    linalg("qr", lambda d: draw_factors(d, d.flag()), lambda x: absolute(*torch.linalg.qr(x))),
    linalg("svd", draw_factors, svd),
    linalg("svdvals", draw_factors, torch.linalg.svdvals),
    linalg("eigh", draw_symmetric, eigh),
    linalg("eigvalsh", draw_symmetric, torch.linalg.eigvalsh),
    linalg("lstsq", draw_lstsq, lambda a, b: torch.linalg.pinv(a) @ b),
    linalg("pinv", draw_factors, torch.linalg.pinv),
    linalg("matrix_rank", lambda d: ([torch.cat([d.tensor([3, 4])] * d.integer(1, 2))], {}), torch.linalg.matrix_rank),
]
