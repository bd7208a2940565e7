"""Compares Espalier with PyTorch on random cases: run.py LIBRARY [--cases N] [--seed S] [--only OPERATION...]
[--all]. --case I prints one case again, --all every difference, not the first ones of each operation. The last line is
"N cases, N differ"; it fails where one does, where an operation of docs/ops.md has no row, and where a row had no case
in which both libraries computed the same."""
import argparse
import collections
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import re
import sys
import traceback
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

import attention
import axis
import convolutions
import elementwise
import images
import layout
import losses
import matrix
import norms
import places
import pooling
import recurrent
import regions
import signal_windows
from case import Case
from espalier import Espalier
from operation import by_name
from without import WITHOUT

PAGES = (elementwise, axis, layout, matrix, losses, convolutions, pooling, images, places, recurrent, regions,
         signal_windows, attention, norms)
TABLE = by_name([operation for page in PAGES for operation in page.OPERATIONS])
SHOWN = 3  # differences of an operation, unless all are asked for
DEATHS = 3  # of processes at cases of an operation, until its others are left out


def documented():
    """The functions of docs/ops.md."""
    page = pathlib.Path(__file__).parents[2] / "docs" / "ops.md"
    lines = re.findall(r"^- `([^`]*)`", page.read_text(), re.MULTILINE)
    return sorted({re.search(r"(\w+)\(", line).group(1) for line in lines if "(" in line and "constexpr" not in line})


def case_of(names, seed, number):
    return Case(TABLE[names[number % len(names)]], f"{seed}:{number}")


def outcome_of(espalier, names, seed, number):
    """What became of a case: (outcome, text, order of its derivatives, whether it ran as a plan)."""
    try:
        case = case_of(names, seed, number)
        outcome, text = case.check(espalier)
    except Exception:
        return "differs", f"the row is wrong: {traceback.format_exc(limit=-2)}", None, False
    if outcome == "differs":
        text = f"{case}: {text}"
    return outcome, text, case.order, case.frozen


def work(library, names, seed, numbers, results):
    """The cases of one process, each sent before the next one begins."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    espalier = Espalier(library)
    for number in numbers:
        results.send(outcome_of(espalier, names, seed, number))


class Tally:
    """What became of all cases."""

    def __init__(self):
        self.counts, self.reasons, self.found = collections.Counter(), collections.Counter(), []
        self.deaths = collections.Counter()

    def add(self, name, number, outcome, text, order=None, frozen=False):
        self.counts[name, outcome] += 1
        if outcome in ("same", "differs", "known") and order is not None:
            self.counts[name, f"order {order}"] += 1
            self.counts[name, "frozen"] += frozen
        if outcome == "differs":
            self.found.append((name, number, text))
        if outcome == "known":
            self.reasons[name, text] += 1
        if outcome == "refused" and not text.startswith("PyTorch"):
            self.reasons[name, f"refused as a plan: {text[:90]}"] += 1

    def given_up(self, name):
        return self.deaths[name] >= DEATHS


class Worker:
    """A process with a share of the cases; `numbers` are those that it has not finished, in their order."""

    def __init__(self, context, arguments, names, numbers):
        self.numbers = collections.deque(numbers)
        self.results, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=work, daemon=True, args=(arguments.library, names, arguments.seed, numbers, sender))
        self.process.start()
        sender.close()  # the process has the only one: the pipe ends with it


def run_all(arguments, names):
    """Starts the processes. Where one dies, the case that it was at differs, and another goes on behind it; it
    leaves out the rows of which DEATHS cases died."""
    context, tally = multiprocessing.get_context("fork"), Tally()
    shares = [range(first, arguments.cases, arguments.jobs) for first in range(arguments.jobs)]
    workers = {worker.results: worker for worker in (Worker(context, arguments, names, list(share)) for share in shares)}
    while workers:
        for results in multiprocessing.connection.wait(list(workers)):
            worker = workers[results]
            try:
                outcome = results.recv()
            except EOFError:
                del workers[results]
                worker.process.join()
                if worker.numbers:
                    at = worker.numbers.popleft()
                    name = names[at % len(names)]
                    tally.deaths[name] += 1
                    tally.add(name, at, "differs", f"the process died: exit status {worker.process.exitcode}")
                    left = [n for n in worker.numbers if not tally.given_up(names[n % len(names)])]
                    worker = Worker(context, arguments, names, left)
                    workers[worker.results] = worker
                continue
            number = worker.numbers.popleft()
            tally.add(names[number % len(names)], number, *outcome)
    return tally


def report(tally, names, shown_of_each):
    counts, found, reasons = tally.counts, tally.found, tally.reasons
    columns = ("same", "known", "refused", "differs", "order 1", "order 2", "frozen")
    print(f"{'operation':34}" + "".join(f"{column:>9}" for column in columns))
    for name in sorted(names):
        print(f"{name:34}" + "".join(f"{counts[name, column]:9}" for column in columns))
    for (name, why), count in sorted(reasons.items()):
        print(f"{name}: {count} times {why}")
    shown = collections.Counter()
    for name, number, text in sorted(found):
        shown[name] += 1
        if shown[name] <= shown_of_each:
            print(f"DIFFERS --case {number}: {text}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--case", type=int)
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    names = arguments.only or sorted(TABLE)
    if arguments.case is not None:
        case = case_of(names, arguments.seed, arguments.case)
        print(case, *case.inputs, case.check(Espalier(arguments.library)), sep="\n")
        return
    failures = []
    covered = {operation.of for operation in TABLE.values() if not operation.layer}
    failures += [f"{name} has no row" for name in documented() if name not in covered and name not in WITHOUT]
    failures += [f"{name} is not in docs/ops.md" for name in sorted(covered | set(WITHOUT)) if name not in documented()]
    tally = run_all(arguments, names)
    report(tally, names, len(tally.found) if arguments.all else SHOWN)
    failures += [f"{name} had no case that both libraries computed alike" for name in names if tally.counts[name, "same"] == 0]
    failures += [f"{name}: {DEATHS} cases died, the others were left out" for name in names if tally.given_up(name)]
    print(*failures, sep="\n")
    cases = sum(tally.counts[name, outcome] for name in names for outcome in ("same", "known", "differs"))
    print(f"{cases} cases, {len(tally.found)} differ")
    sys.exit(1 if tally.found or failures else 0)


if __name__ == "__main__":
    main()
