#!/usr/bin/env python3
"""Writes optimizers.h: what PyTorch's optimizers, schedules and averages compute in float64 for a small problem.

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python tests/figures/optimizers.py > tests/figures/optimizers.h

What PyTorch lacks (Lion, Lamb, Lars, Eg) is written here in NumPy, as in the papers.
"""
import numpy as np
import torch
from torch.optim import lr_scheduler as lrs
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.set_default_dtype(torch.float64)

CHECKED = [4, 40, 400, 1000]


def numbers(count, a, b, size):
    return [((a * i) % b - b // 2) / size for i in range(count)]


X = torch.tensor(numbers(24, 37, 19, 8)).reshape(8, 3)
Y = torch.tensor(numbers(16, 23, 17, 16)).reshape(8, 2)


class Model(torch.nn.Module):
    """z = xW + b, with the mean of (z - y)² + z⁴ / 16 for a loss."""

    def __init__(self, simplex=False):
        super().__init__()
        w = [1 / 8] * 4 + [1 / 4] * 2 if simplex else numbers(6, 29, 13, 8)
        b = [1 / 4, 3 / 4] if simplex else [0.25, -0.5]
        self.w = torch.nn.Parameter(torch.tensor(w).reshape(3, 2))
        self.b = torch.nn.Parameter(torch.tensor(b))

    def loss(self, x, y):
        z = x @ self.w + self.b
        return ((z - y) ** 2 + z**4 / 16).mean()

    def batch_loss(self, step):
        rows = slice(2 * (step % 4), 2 * (step % 4) + 2)
        return self.loss(X[rows], Y[rows])

    def values(self):
        return [v for p in (self.w, self.b) for v in p.detach().flatten().tolist()]


class Rule:
    """A rule in NumPy: `update(p, g, state, t)` returns the next p."""

    def __init__(self, model, update):
        self.update = update
        self.parameters = [model.w, model.b]
        self.states = [{}, {}]
        self.t = 0

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None

    def step(self):
        self.t += 1
        for p, state in zip(self.parameters, self.states):
            p.data = torch.tensor(self.update(p.detach().numpy().copy(), p.grad.numpy(), state, self.t))


class Cycled:
    """An optimizer in one cycle of 1,000 steps, in which its momentum changes too."""

    def __init__(self, optimizer, rate):
        self.optimizer = optimizer
        self.schedule = lrs.OneCycleLR(optimizer, rate, total_steps=1000)

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        self.optimizer.step()
        self.schedule.step()


def lion(lr, beta1, beta2, decay):
    def update(p, g, s, t):
        m = s.get("m", np.zeros_like(p))
        c = beta1 * m + (1 - beta1) * g
        s["m"] = beta2 * m + (1 - beta2) * g
        return p - lr * (np.sign(c) + decay * p)

    return update


def ratio(a, b):
    return a / b if a > 0 and b > 0 else 1.0


def lamb(lr, beta1, beta2, epsilon, decay):
    def update(p, g, s, t):
        s["m"] = beta1 * s.get("m", np.zeros_like(p)) + (1 - beta1) * g
        s["v"] = beta2 * s.get("v", np.zeros_like(p)) + (1 - beta2) * g * g
        r = s["m"] / (1 - beta1**t) / (np.sqrt(s["v"] / (1 - beta2**t)) + epsilon)
        u = r + decay * p
        return p - lr * ratio(np.linalg.norm(p.ravel()), np.linalg.norm(u.ravel())) * u

    return update


def lars(lr, momentum, trust, decay):
    def update(p, g, s, t):
        of_p, of_g = np.linalg.norm(p.ravel()), np.linalg.norm(g.ravel())
        rate = lr * ratio(trust * of_p, of_g + decay * of_p)
        s["v"] = momentum * s.get("v", np.zeros_like(p)) + rate * (g + decay * p)
        return p - s["v"]

    return update


def eg(lr, momentum):
    def update(p, g, s, t):
        s["v"] = momentum * s.get("v", np.zeros_like(p)) - lr * g
        q = p * np.exp(s["v"])
        return q / q.sum()

    return update


O = torch.optim
CASES = {
    "Sgd": lambda m: O.SGD(m.parameters(), lr=0.05),
    "Sgd, dampening": lambda m: O.SGD(m.parameters(), lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.01),
    "Sgd, nesterov": lambda m: O.SGD(m.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Sgd, one cycle": lambda m: Cycled(O.SGD(m.parameters(), lr=0.02, momentum=0.95, nesterov=True), 0.02),
    "Adadelta": lambda m: O.Adadelta(m.parameters()),
    "Adadelta, options": lambda m: O.Adadelta(m.parameters(), lr=0.5, rho=0.95, eps=1e-5, weight_decay=0.01),
    "Adagrad": lambda m: O.Adagrad(m.parameters(), lr=0.05, weight_decay=0.01),
    "Adagrad, accumulator": lambda m: O.Adagrad(m.parameters(), lr=0.05, initial_accumulator_value=0.1),
    "Adam": lambda m: O.Adam(m.parameters(), lr=0.01, weight_decay=0.01),
    "Adam, amsgrad": lambda m: O.Adam(m.parameters(), lr=0.01, betas=(0.8, 0.9), weight_decay=0.01, amsgrad=True),
    "Adam, one cycle": lambda m: Cycled(O.Adam(m.parameters(), lr=0.01, betas=(0.95, 0.999)), 0.01),
    "AdamW": lambda m: O.AdamW(m.parameters(), lr=0.01, weight_decay=0.1),
    "AdamW, amsgrad": lambda m: O.AdamW(m.parameters(), lr=0.01, betas=(0.8, 0.9), weight_decay=0.1, amsgrad=True),
    "Adamax": lambda m: O.Adamax(m.parameters(), lr=0.01, weight_decay=0.01),
    "NAdam": lambda m: O.NAdam(m.parameters(), lr=0.01, weight_decay=0.01),
    "NAdam, decoupled": lambda m: O.NAdam(
        m.parameters(), lr=0.01, momentum_decay=0.01, weight_decay=0.1, decoupled_weight_decay=True
    ),
    "RAdam": lambda m: O.RAdam(m.parameters(), lr=0.01, weight_decay=0.01),
    "RAdam, decoupled": lambda m: O.RAdam(
        m.parameters(), lr=0.01, betas=(0.8, 0.95), weight_decay=0.1, decoupled_weight_decay=True
    ),
    "RmsProp": lambda m: O.RMSprop(m.parameters(), lr=0.005),
    "RmsProp, centered": lambda m: O.RMSprop(
        m.parameters(), lr=0.002, alpha=0.9, eps=1e-4, weight_decay=0.01, momentum=0.5, centered=True
    ),
    "Asgd": lambda m: O.ASGD(m.parameters(), lr=0.05, lambd=1e-3, alpha=0.6, t0=500, weight_decay=0.01),
    "Rprop": lambda m: O.Rprop(m.parameters(), lr=0.01, etas=(0.4, 1.3), step_sizes=(1e-5, 0.1)),
    "Adafactor": lambda m: O.Adafactor(m.parameters(), lr=0.02, weight_decay=0.1),
    "Adafactor, options": lambda m: O.Adafactor(m.parameters(), lr=0.05, beta2_decay=-0.5, eps=(1e-4, 0.01), d=1.5),
    "Lion": lambda m: Rule(m, lion(0.003, 0.9, 0.99, 0.1)),
    "Lamb": lambda m: Rule(m, lamb(0.01, 0.9, 0.999, 1e-6, 0.01)),
    "Lars": lambda m: Rule(m, lars(2.0, 0.9, 0.01, 0.01)),
    "Eg": lambda m: Rule(m, eg(0.1, 0.9)),
}


def show(values):
    return ", ".join(float(v).hex() for v in values)


def block(rows):
    return "{{" + ",\n       ".join("{{" + show(row) + "}}" for row in rows) + "}}"


def train(make, simplex=False, after_step=None):
    model = Model(simplex)
    rule = make(model)
    rows = []
    for step in range(CHECKED[-1]):
        rule.zero_grad()
        model.batch_loss(step).backward()
        rule.step()
        if after_step:
            after_step(model)
        if step + 1 in CHECKED:
            rows.append((model.values(), rule))
    return rows


def write_cases():
    print("inline const std::vector<OptimizerFigures> optimizer_figures{")
    for name, make in CASES.items():
        rows = [values for values, _ in train(make, simplex=name == "Eg")]
        print(f'    {{"{name}",\n     {block(rows)}}},')
    print("};\n")


def write_averages():
    print("/// Of the parameters that Adam trains; for Asgd, its own.")
    print("inline const std::vector<OptimizerFigures> average_figures{")
    for name in ["Ema", "Swa", "Asgd"]:
        averages = []

        def make(model):
            if name == "Asgd":
                return CASES["Asgd"](model)
            fn = {"multi_avg_fn": get_ema_multi_avg_fn(0.99)} if name == "Ema" else {}
            averages.append(AveragedModel(model, **fn))
            return CASES["Adam"](model)

        rows = []
        count = 0

        def collect(model):
            nonlocal count
            count += 1
            if averages:
                averages[0].update_parameters(model)
                if count in CHECKED:
                    rows.append(averages[0].module.values())

        trained = train(make, after_step=collect)
        if name == "Asgd":  # only the end: the states are changed in place
            model_rule = trained[-1][1]
            end = [v for p in model_rule.param_groups[0]["params"] for v in model_rule.state[p]["ax"].flatten().tolist()]
            rows = [[0.0] * 8] * (len(CHECKED) - 1) + [end]
        print(f'    {{"{name}",\n     {block(rows)}}},')
    print("};\n")


def write_lbfgs():
    print("/// After each of four steps of at most five directions; and the loss before it.")
    print("inline const std::vector<LbfgsFigures> lbfgs_figures{")
    for search in [True, False]:
        model = Model()
        rule = O.LBFGS(
            model.parameters(), lr=1 if search else 0.3, max_iter=5, history_size=4,
            line_search_fn="strong_wolfe" if search else None
        )
        rows, losses = [], []

        def closure():
            rule.zero_grad()
            loss = model.loss(X, Y)
            loss.backward()
            return loss

        for _ in range(4):
            losses.append(rule.step(closure).item())
            rows.append(model.values())
        evaluations = rule.state[rule._params[0]]["func_evals"]
        print(
            f'    {{{"true" if search else "false"}, {evaluations},\n     {{{{{show(losses)}}}}},'
            f'\n     {block(rows)}}},'
        )
    print("};\n")


# The factor of the rate, for an optimizer whose rate is the largest that the schedule gives.
def with_rate(make, rate=1.0):
    model = Model()
    rule = O.SGD(model.parameters(), lr=rate)
    return rule, make(rule)


SCHEDULES = {
    "step_decay": lambda o: lrs.StepLR(o, 7, 0.9),
    "multi_step": lambda o: lrs.MultiStepLR(o, [3, 10, 10, 400], 0.5),
    "exponential": lambda o: lrs.ExponentialLR(o, 0.99),
    "polynomial": lambda o: lrs.PolynomialLR(o, total_iters=600, power=1.7),
    "linear": lambda o: lrs.LinearLR(o, start_factor=0.1, end_factor=1.0, total_iters=50),
    "cosine_restarts": lambda o: lrs.CosineAnnealingWarmRestarts(o, 30, T_mult=1, eta_min=0.1),
    "cosine_restarts, growing": lambda o: lrs.CosineAnnealingWarmRestarts(o, 10, T_mult=2, eta_min=0.05),
    "one_cycle": lambda o: lrs.OneCycleLR(o, 1.0, total_steps=1000, cycle_momentum=False),
    "one_cycle, three phases": lambda o: lrs.OneCycleLR(
        o, 1.0, total_steps=1000, pct_start=0.2, anneal_strategy="linear", three_phase=True, div_factor=10,
        final_div_factor=100, cycle_momentum=False
    ),
    "cyclical": lambda o: lrs.CyclicLR(o, 0.1, 1.0, step_size_up=30, step_size_down=50, cycle_momentum=False),
    "cyclical, halving": lambda o: lrs.CyclicLR(
        o, 0.1, 1.0, step_size_up=40, mode="triangular2", cycle_momentum=False
    ),
    "cyclical, exponential": lambda o: lrs.CyclicLR(
        o, 0.1, 1.0, step_size_up=40, mode="exp_range", gamma=0.995, cycle_momentum=False
    ),
    "chained": lambda o: lrs.ChainedScheduler([lrs.ExponentialLR(o, 0.99), lrs.StepLR(o, 7, 0.9)]),
    "sequential": lambda o: lrs.SequentialLR(
        o, [lrs.LinearLR(o, 0.1, 1.0, 20), lrs.ExponentialLR(o, 0.99), lrs.StepLR(o, 7, 0.9)], [20, 300]
    ),
}
STEPS = [0, 1, 2, 3, 6, 7, 9, 10, 11, 20, 29, 30, 31, 49, 50, 69, 70, 80, 99, 149, 150, 199, 300, 301, 400, 598, 700, 999]


def write_schedules():
    print(f"inline const std::vector<int> schedule_steps{{{', '.join(map(str, STEPS))}}};")
    print("inline const std::vector<ScheduleFigures> schedule_figures{")
    for name, make in SCHEDULES.items():
        rule, schedule = with_rate(make)
        factors = []
        for step in range(STEPS[-1] + 1):
            if step in STEPS:
                factors.append(rule.param_groups[0]["lr"])
            rule.step()
            if step < STEPS[-1]:
                schedule.step()
        print(f'    {{"{name}",\n     {{{show(factors)}}}}},')
    print("};\n")


def write_plateau():
    print("/// The rate after each of these metrics, with patience 2, cooldown 1, factor 0.3 and threshold 0.01.")
    metrics = [1.0, 0.9, 0.895, 0.893, 0.892, 0.891, 0.89, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.4, float("nan"), 0.5, 0.5, 0.5]
    print(f"inline const std::vector<double> plateau_metrics{{{', '.join('NAN' if m != m else m.hex() for m in metrics)}}};")
    print("inline const std::vector<PlateauFigures> plateau_figures{")
    for mode in ["rel", "abs"]:
        for maximize in [False, True]:
            rule, schedule = with_rate(
                lambda o: lrs.ReduceLROnPlateau(
                    o, mode="max" if maximize else "min", factor=0.3, patience=2, threshold=0.01,
                    threshold_mode=mode, cooldown=1, min_lr=0.02
                )
            )
            rates = []
            for m in metrics:
                schedule.step(m)
                rates.append(rule.param_groups[0]["lr"])
            print(f'    {{{"true" if mode == "rel" else "false"}, {"true" if maximize else "false"},\n     {{{show(rates)}}}}},')
    print("};\n")


print(f"""// Made by optimizers.py with PyTorch {torch.__version__.split("+")[0]}: what its optimizers, schedules and averages compute in float64.
// clang-format off
#pragma once
#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace espalier::testing {{

/// The elements of both parameters after these numbers of steps.
inline constexpr std::array<int, {len(CHECKED)}> figure_steps{{{', '.join(map(str, CHECKED))}}};
using ParameterFigures = std::array<std::array<double, 8>, {len(CHECKED)}>;
struct OptimizerFigures {{
  std::string name;
  ParameterFigures values;
}};
struct LbfgsFigures {{
  bool line_search;
  int evaluations;
  std::array<double, 4> losses;
  ParameterFigures values;
}};
struct ScheduleFigures {{
  std::string name;
  std::vector<double> factors;
}};
struct PlateauFigures {{
  bool relative, maximize;
  std::vector<double> rates;
}};
""")
write_cases()
write_averages()
write_lbfgs()
write_schedules()
write_plateau()
print("}  // namespace espalier::testing")
