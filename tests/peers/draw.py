"""Draws the inputs and attributes of a case. All of a case follows from its seed."""
import random

import torch

REALS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32)
NUMBERS = REALS + INTEGERS
ALL = NUMBERS + (torch.bool,)

# The elements that programs meet where something went wrong, and those where formulas change.
SPECIAL = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.0, 1e30, -1e30, 1e-30, 700.0, -700.0)


class Draw:
    """A source of random shapes, layouts, elements and attributes."""

    def __init__(self, seed, dtypes, may_be_special=False):
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(self.random.getrandbits(63))
        weights = [4 if dtype == torch.float32 else 1 for dtype in dtypes]
        self.dtype = self.random.choices(dtypes, weights)[0]
        kind = self.random.random()
        self.special = may_be_special and kind < 0.15  # NaN, infinities and the like among the elements
        self.coarse = kind > 0.75  # multiples of 1/2: equal elements, and corners of functions

    # Numbers of attributes.

    def chance(self, probability):
        return self.random.random() < probability

    def flag(self):
        return self.random.random() < 0.5

    def integer(self, low, high):
        return self.random.randint(low, high)

    def real(self, low, high):
        """With few digits, so that it is the same number in float32."""
        return round(self.random.uniform(low, high) * 64) / 64

    def choice(self, options):
        return self.random.choice(options)

    # Shapes and axes.

    def size(self, zero=0.03):
        x = self.random.random()
        if x < zero:
            return 0
        return 1 if x < 0.2 else self.random.randint(2, 5)

    def shape(self, least=0, most=5, zero=0.03, long=True):
        """Sizes of 0, 1 and more; now and then one long axis, for the loops that take many elements at once. Unless
        `long` it has at most 100, for results whose sizes are products of these."""
        rank = self.random.randint(least, most)
        shape = [self.size(zero) for _ in range(rank)]
        if rank and self.chance(0.1):
            shape[self.random.randrange(rank)] = self.random.choice((8, 17, 33, 100))
        if long and 1 <= rank <= 2 and self.chance(0.05):
            shape[-1] = self.random.choice((257, 1000, 2051))
        return shape

    def axis(self, rank):
        return self.random.randint(-rank, rank - 1)

    def axes(self, rank):
        """Some axes, counted from either end; none stands for all of them."""
        chosen = self.random.sample(range(rank), self.random.randint(0, rank))
        return [a - rank if self.flag() else a for a in chosen]

    def order(self, rank):
        return self.random.sample(range(rank), rank)

    def broadcast(self, shape, probability=0.25):
        """A shape that is broadcast to that one."""
        if self.flag():
            return list(shape)
        shape = [1 if self.chance(probability) else size for size in shape]
        return shape[self.random.randint(0, len(shape)):] if self.chance(0.3) else shape

    def pair(self, least=0, most=5):
        """Two shapes that are broadcast to one."""
        shape = self.shape(least, most)
        return (shape, self.broadcast(shape)) if self.flag() else (self.broadcast(shape), shape)

    # Elements.

    def tensor(self, shape, low=-3.0, high=3.0, dtype=None, special=None):
        """Elements from low to high, contiguous or as a view with other strides."""
        dtype = dtype or self.dtype
        layout = self.random.random()
        if layout < 0.6 or not shape:
            return self._elements(shape, low, high, dtype, special)
        if layout < 0.75:  # axes in another order
            order = self.order(len(shape))
            x = self._elements([shape[axis] for axis in order], low, high, dtype, special)
            inverse = [order.index(axis) for axis in range(len(shape))]
            return x.permute(inverse)
        axis = self.random.randrange(len(shape))
        if layout < 0.9:  # every second slice, behind one that is left out
            larger = list(shape)
            larger[axis] = 2 * shape[axis] + 1
            return self._elements(larger, low, high, dtype, special).narrow(axis, 1, 2 * shape[axis])[
                (slice(None),) * axis + (slice(None, None, 2),)]
        if shape[axis] == 0:
            return self._elements(shape, low, high, dtype, special)
        smaller = list(shape)  # one slice, repeated
        smaller[axis] = 1
        return self._elements(smaller, low, high, dtype, special).expand(shape)

    def integers(self, shape, low, high, dtype=None):
        """Indices, labels and counts: high is included."""
        dtype = dtype or self.choice(INTEGERS)
        return torch.randint(low, high + 1, tuple(shape), generator=self.generator).to(dtype)

    def mask(self, shape):
        return self.tensor(shape, dtype=torch.bool)

    def distinct(self, shape, low=-3.0, high=3.0):
        """No two elements are equal: for gradients that need it."""
        count = max(1, torch.Size(shape).numel())
        grid = torch.linspace(low, high, count, dtype=torch.float64)
        return grid[torch.randperm(count, generator=self.generator)][:torch.Size(shape).numel()].reshape(shape).to(
            self.dtype)

    def _elements(self, shape, low, high, dtype, special):
        shape = tuple(shape)
        if dtype == torch.bool:
            return torch.rand(shape, generator=self.generator) < 0.5
        if not dtype.is_floating_point:
            return torch.randint(int(low), int(high) + 1, shape, generator=self.generator, dtype=dtype)
        x = torch.rand(shape, generator=self.generator, dtype=torch.float64) * (high - low) + low
        if self.coarse:
            x = ((x * 2).round() / 2).clamp(low, high)
        if self.special and special is not False:
            chosen = torch.randint(0, len(SPECIAL), shape, generator=self.generator)
            rare = torch.rand(shape, generator=self.generator) < 0.3
            x = torch.where(rare, torch.tensor(SPECIAL, dtype=torch.float64)[chosen], x)
        return x.to(dtype)
