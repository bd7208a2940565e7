"""A row of the tables: an operation, what its cases are drawn from, and what computes the same in PyTorch."""
from draw import REALS

PLANS = 0.06


class Operation:
    """`draw` makes the inputs and attributes of a case, `torch` computes it: torch(*inputs, **attributes)."""

    def __init__(self, name, draw, torch, dtypes=REALS, *, of=None, elementwise=False, special=False, order=2,
                 loose=1, constant=(), single=False, layer=False, plans=PLANS):
        self.name = name
        self.draw = draw
        self.torch = torch
        self.dtypes = dtypes
        self.of = of or name  # the function in docs/ops.md
        self.elementwise = elementwise  # each element depends on few others: it is compared by itself
        self.special = special  # NaN, infinities and the like may be among the elements
        self.order = order  # of the derivatives that are compared
        self.loose = loose  # a factor of the tolerances
        self.constant = constant  # inputs for which PyTorch has no gradient
        self.single = single  # PyTorch's float64 kernel has constants in float32
        self.layer = layer  # it is no function of docs/ops.md
        self.plans = plans  # the share of cases that run as plans of inference


def by_name(operations):
    table = {operation.name: operation for operation in operations}
    assert len(table) == len(operations), "a name is in the tables twice"
    return table
