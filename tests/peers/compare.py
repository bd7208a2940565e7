"""When two results are equal: the tolerances, in one place."""
import torch

# Of values, relative to the larger of 1 and the element (elementwise operations) or the largest element (others).
TOLERANCE = {torch.float64: 1e-11, torch.float32: 5e-6, torch.float16: 3e-3, torch.bfloat16: 2e-2}
# By how much more derivatives may differ: of the value, the first and the second one.
OF_ORDER = (1, 8, 64)
# Where both differ by more, Espalier's may differ from PyTorch's result in float64 by so many times as much as
# PyTorch's own does.
OF_PEER = 4


# Of float64, where PyTorch's kernel has constants in float32.
SINGLE = 1e-7


def tolerance_of(dtype, stage, operation):
    """Of a value (stage 0), a first or a second derivative."""
    base = SINGLE if operation.single and dtype == torch.float64 else TOLERANCE.get(dtype, 0)
    return base * OF_ORDER[stage] * operation.loose


def scale(x, elementwise):
    magnitude = torch.where(torch.isfinite(x), x, 0).abs()
    if elementwise or magnitude.numel() == 0:
        return magnitude.clamp(min=1)
    return magnitude.max().clamp(min=1)


def difference(ours, theirs, tolerance, elementwise):
    """Whether the elements are those of PyTorch: None, or what differs."""
    if list(ours.shape) != list(theirs.shape):
        return f"shape {list(ours.shape)}, PyTorch {list(theirs.shape)}"
    if ours.dtype != theirs.dtype:
        return f"dtype {ours.dtype}, PyTorch {theirs.dtype}"
    if torch.equal(ours, theirs):
        return None
    if not ours.dtype.is_floating_point:
        return "elements"
    ours, theirs = ours.double(), theirs.double()
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    same |= (ours - theirs).abs() <= tolerance * scale(theirs, elementwise)
    if same.all():
        return None
    worst = torch.nonzero(~same)[0].tolist()
    return f"element {worst} is {ours[tuple(worst)].item()!r}, PyTorch {theirs[tuple(worst)].item()!r}"


def as_near(ours, theirs, exact, tolerance, elementwise):
    """Whether our result is about as near to the exact one as PyTorch's."""
    if exact is None or ours.shape != exact.shape or not ours.dtype.is_floating_point:
        return False
    rounded = exact.to(ours.dtype).double()
    ours, theirs = ours.double(), theirs.double()
    same = (ours == rounded) | (ours.isnan() & rounded.isnan())
    distance = torch.where(torch.isfinite(theirs) & torch.isfinite(rounded), (theirs - rounded).abs(), 0)
    if not elementwise and distance.numel():
        distance = distance.max()
    same |= (ours - rounded).abs() <= OF_PEER * distance + tolerance * scale(rounded, elementwise)
    return bool(same.all())
