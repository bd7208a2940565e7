"""One case: draws it, computes it with both libraries, and compares."""
import copy

import torch

import known
from compare import as_near, difference, tolerance_of
from draw import Draw
from espalier import Refused, as_text

SECOND_ORDER = 0.3  # the share of cases with second derivatives
HALF = (torch.float16, torch.bfloat16)


class Results:
    """Values, gradients of the sum of their products with cotangents, and gradients of the sum of the products of
    these with directions; None is a gradient of zero."""

    def __init__(self, values, first=(), second=()):
        self.stages = [list(values), list(first), list(second)]

    def map(self, function):
        return Results(*[[None if x is None else function(x) for x in stage] for stage in self.stages])


class Case:
    def __init__(self, operation, seed):
        self.operation, self.seed = operation, seed
        self.draw = Draw(seed, operation.dtypes, operation.special)
        self.inputs, self.attributes = operation.draw(self.draw)
        self.inputs = [x.detach() for x in self.inputs]
        order = 0 if self.draw.special else 2 if self.draw.chance(SECOND_ORDER) else 1
        self.order = min(order, operation.order)
        self.frozen = self.draw.chance(operation.plans)
        self.cotangents, self.directions = None, None
        self.may_be_known = True

    def with_inputs(self, inputs):
        """The same with other elements; no difference of it is known."""
        other = copy.copy(self)
        other.inputs, other.cotangents, other.directions, other.may_be_known = inputs, None, None, False
        return other

    def __str__(self):
        inputs = ", ".join(f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}" for x in self.inputs)
        return f"{self.operation.name}({inputs}; {as_text(self.attributes)}){' frozen' if self.frozen else ''}"

    def _random_like(self, x):
        return torch.rand(x.shape, generator=self.draw.generator, dtype=torch.float64).add(0.5).to(x.dtype)

    def _real_inputs(self):
        return [i for i, x in enumerate(self.inputs) if x.is_floating_point()]

    def torch(self, convert=lambda x: x):
        """What PyTorch computes of the inputs, converted."""
        inputs = [convert(x) if x.is_floating_point() else x for x in self.inputs]
        leaves = [x.detach().requires_grad_(self.order > 0 and x.is_floating_point()) for x in inputs]
        real = [x for x in leaves if x.requires_grad]
        self.order = self.order if real else 0
        outputs = self.operation.torch(*leaves, **self.attributes)
        outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
        values = [y.detach() for y in outputs]
        outputs = [y for y in outputs if y.is_floating_point()]
        self.order = self.order if outputs else 0
        if self.order == 0:
            return Results(values)
        if self.cotangents is None:
            self.cotangents = [self._random_like(y) for y in outputs]
            self.directions = [self._random_like(x) for x in real]
            for i, direction in zip(self._real_inputs(), self.directions):
                if i in self.operation.constant:
                    direction.zero_()
        first = self._gradients(outputs, self.cotangents, real, convert)
        if self.order == 1:
            return Results(values, first)
        try:
            second = self._gradients([g for g in first if g is not None],
                                     [c for g, c in zip(first, self.directions) if g is not None], real, convert)
        except RuntimeError:  # PyTorch does not differentiate twice
            self.order = 1
            second = []
        return Results(values, [g if g is None else g.detach() for g in first], second)

    def _gradients(self, outputs, cotangents, inputs, convert):
        pairs = [(y, convert(c)) for y, c in zip(outputs, cotangents) if y.requires_grad]
        if not pairs:
            return [None] * len(inputs)
        return list(torch.autograd.grad([y for y, _ in pairs], inputs, [c for _, c in pairs], allow_unused=True,
                                        create_graph=self.order > 1))

    def expected(self):
        """PyTorch's results; in float32, rounded, where it has no 16-bit kernel."""
        try:
            return self.torch()
        except (RuntimeError, NotImplementedError):
            if self.draw.dtype not in HALF:
                raise
        half = self.draw.dtype
        wide = self.torch(lambda x: x.float() if x.dtype == half else x)
        self.cotangents = self.cotangents and [c.to(half) for c in self.cotangents]
        self.directions = self.directions and [c.to(half) for c in self.directions]
        return wide.map(lambda y: y.to(half) if y.dtype == torch.float32 else y)

    def ours(self, library):
        arrays = library.run(self.operation.name, self.attributes, self.inputs,
                             self.cotangents if self.order > 0 else (), self.directions if self.order > 1 else (),
                             self.frozen)
        real = sum(x.is_floating_point() for x in self.inputs)
        values = len(arrays) - real * self.order if self.order and len(arrays) > real * self.order else len(arrays)
        return Results(arrays[:values], arrays[values:values + real], arrays[values + real:])

    def exact(self):
        try:
            return self.torch(lambda x: x.double())
        except (RuntimeError, NotImplementedError):
            return None

    def check(self, library):
        """What became of it: ("refused" | "known" | "differs", text), or ("same", "")."""
        try:
            expected = self.expected()
        except (RuntimeError, IndexError, NotImplementedError, ValueError) as e:
            return "refused", f"PyTorch: {e}"
        try:
            ours = self.ours(library)
        except Refused as e:
            if self.frozen and e.kind == "UnsupportedError":
                return "refused", str(e)
            why = known.reason(self, 0, str(e), library)
            return ("known", why) if why else ("differs", f"threw {e}")
        exact = None
        for stage in range(self.order + 1):
            a, b = ours.stages[stage], expected.stages[stage]
            if len(a) != len(b):
                return "differs", f"{len(a)} results, PyTorch {len(b)}"
            for i, (x, y) in enumerate(zip(a, b)):
                if x is None and y is None or stage and self._real_inputs()[i] in self.operation.constant:
                    continue
                x, y = torch.zeros_like(y) if x is None else x, torch.zeros_like(x) if y is None else y
                tolerance = tolerance_of(y.dtype, stage, self.operation)
                if stage:  # what is summed down to a smaller operand
                    tolerance *= max(1, expected.stages[0][0].numel() / max(1, y.numel())) ** 0.5
                elementwise = self.operation.elementwise
                text = difference(x, y, tolerance, elementwise)
                if text is None:
                    continue
                if exact is None:
                    exact = self.exact() or ours
                best = exact.stages[stage][i] if exact is not ours and i < len(exact.stages[stage]) else None
                if as_near(x, y, best, tolerance, elementwise):
                    continue
                text = f"{('value', 'gradient', 'second gradient')[stage]} {i}: {text}"
                why = known.reason(self, stage, text, library)
                return ("known", why) if why else ("differs", text)
        return "same", ""
