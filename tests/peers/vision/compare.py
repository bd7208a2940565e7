"""Compares the models of nn/vision/ with PyTorch's, by files of these: compare.py PROGRAM [--only MODEL...]
[--dtype float64] [--seed S]. A line for each case: the largest relative differences of outputs, gradients and buffers (these
behind a step of training). It fails where one is beyond the tolerance.

In float32 a gradient may be off by more, where a rounding decides on which side of 0 a ReLU is: each case says how far
PyTorch's results are from its own in float64, and a difference counts if it is beyond three times that, and there is one
in float64, too, in which the case is then computed."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import torch_models

# Heights and widths; other numbers are the sizes that the models at least need.
SIZES = {"lenet5": [28], "alexnet": [64], "unet": [32]}
CHANNELS = {"lenet5": 1}
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-10}


def spread(model, generator):
    """Statistics and gains that are not 0 and 1, near which layers would do nothing."""
    for name, tensor in model.state_dict().items():
        if name.endswith("running_mean"):
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.1)
        elif name.endswith("running_var") or (tensor.ndim == 1 and name.endswith("weight")):
            tensor.copy_(torch.rand(tensor.shape, generator=generator) * 0.5 + 0.75)
        elif name.endswith("bias"):
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.1)


def results_of(model, x, factors):
    results = {}
    for mode in ("eval", "train"):
        model.train(mode == "train").zero_grad()
        y = model(x)
        (y * factors).sum().backward()
        results[f"{mode}/y"] = y.detach()
        for name, parameter in model.named_parameters():
            results[f"{mode}/gradient/{name}"] = parameter.grad.clone()
    results["plan/y"] = results["eval/y"]
    for name, buffer in model.named_buffers():
        results[f"after/{name}"] = buffer
    return results


KINDS = ("eval/y", "plan/y", "eval/gradient", "train/y", "train/gradient", "after")


def largest(ours, theirs):
    """The largest difference by kind of result, relative to the largest element of the tensor, or to a thousandth of
    that of all tensors of the kind: a bias before a normalization has no gradient but rounding."""
    differences = {}
    for kind in KINDS:
        pairs = [(ours[k].double(), v.double()) for k, v in theirs.items() if k.startswith(kind)]
        if any(a.shape != b.shape for a, b in pairs):
            raise SystemExit(f"shapes differ in {kind}")
        least = 1e-3 * max((b.abs().max().item() for _, b in pairs), default=0.0)
        differences[kind] = max((((a - b).abs().max() / b.abs().max().clamp(min=least or 1.0)).nan_to_num(float("inf"))
                                 .item() for a, b in pairs), default=0.0)
    return differences


def compare(program, name, size, dtype, seed):
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = torch_models.make(name)
    with torch.no_grad():
        spread(model, generator)
    model = model.to(dtype)
    rows = 2 if size > 32 else 8  # normalizations of two elements magnify every rounding
    x = torch.randn(rows, CHANNELS.get(name, 3), size, size, generator=generator).to(dtype)
    factors = torch.randn(model.eval()(x).shape, generator=generator).to(dtype)
    with tempfile.TemporaryDirectory() as folder:
        safetensors.torch.save_file(model.state_dict(), f"{folder}/state.safetensors")
        safetensors.torch.save_file({"x": x, "factors": factors}, f"{folder}/case.safetensors")
        exact = torch_models.make(name).double()
        exact.load_state_dict(model.state_dict())
        subprocess.run([program, name, folder], check=True)
        ours = safetensors.torch.load_file(f"{folder}/espalier.safetensors")
    theirs = results_of(model, x, factors)
    if ours.keys() != theirs.keys():
        raise SystemExit(f"{name}: {ours.keys() ^ theirs.keys()}")
    differences = largest(ours, theirs)
    own = largest(theirs, results_of(exact, x.double(), factors.double()))
    good = all(d <= max(TOLERANCE[dtype], 3 * own[kind]) for kind, d in differences.items())
    print(f"{name:13} {size:3}  " + "  ".join(f"{differences[k]:8.1e}" for k in KINDS) +
          f"  ({max(own.values()):7.1e})  {'' if good else 'differs'}", flush=True)
    if dtype == torch.float64 or good:
        return good
    print("  the same in float64:")
    return compare(program, name, size, torch.float64, seed)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("program", type=pathlib.Path)
    arguments.add_argument("--only", nargs="*", default=torch_models.MODELS)
    arguments.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    print(f"{'model':13} size  " + "  ".join(f"{k.replace('gradient', 'grad'):>8}" for k in KINDS) + "  (PyTorch's own)")
    cases = [(name, size) for name in options.only for size in SIZES.get(name, [32, 64])]
    results = [compare(options.program, *case, getattr(torch, options.dtype), options.seed) for case in cases]
    print(f"{len(results)} cases, {results.count(False)} differ")
    sys.exit(0 if all(results) else 1)


main()
