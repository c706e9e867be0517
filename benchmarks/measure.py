"""How things are measured: in turns, best of several, and every objective recomputed from the coefficients."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel

from benchmarks.data import Problem
from benchmarks.peers import Model, Side, timed_fit

LONG = 60.0  # seconds after which a side is not run again
BLOCK = 2**23  # kernel entries at a time


@dataclass
class Timing:
    """Every run of one side: its seconds, its last result, and why it failed if it did."""

    runs: list[float] = field(default_factory=list)
    result: Any = None
    failure: str = ""
    cut_short: bool = False

    @property
    def seconds(self) -> float:
        return math.nan if self.failure or not self.runs else min(self.runs)

    def __str__(self) -> str:
        if self.failure:
            return f"failed ({self.failure})"
        runs = f" (runs: {len(self.runs)}, for each takes over {LONG:.0f} s)" if self.cut_short else ""
        return f"{self.seconds:.3g} s{runs}"


def in_turns(calls: dict[str, Callable[[], tuple[float, Any]]], repeats: int) -> dict[str, Timing]:
    """Runs A, B, C, A, B, C, ...: what else the machine does falls on all alike. A call returns (seconds, result)."""
    timings = {name: Timing() for name in calls}
    for turn in range(repeats):
        for name, call in calls.items():
            timing = timings[name]
            if timing.failure or timing.cut_short:
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # what they would say is printed with the figures
                    seconds, timing.result = call()
                timing.runs.append(seconds)
            except Exception as error:
                timing.failure = f"{type(error).__name__}: {error}".splitlines()[0]
            else:
                timing.cut_short = seconds > LONG and turn + 1 < repeats
    return timings


def fits(problem: Problem, C: float, sides: Iterable[Side], repeats: int, tol: float = 1e-3) -> dict[str, Timing]:
    """The sides' fits on one problem, in turns; each result is a `Model`."""

    def call(side: Side) -> Callable[[], tuple[float, Model]]:
        return lambda: timed_fit(side, problem.X, problem.y, C, problem.gamma, tol)

    return in_turns({side.name: call(side) for side in sides}, repeats)


def warm_up(problem: Problem, sides: Iterable[Side], rows: int = 500) -> None:
    """One small fit and prediction a side, so that no timing pays for compilation or for the first thread."""
    for side in sides:
        if side.isolated:
            continue  # it warms up in its own process
        try:
            _, model = timed_fit(side, problem.X[:rows], problem.y[:rows], 1.0, problem.gamma, 1e-3)
            if model.estimator is not None:
                model.estimator.decision_function(problem.X_test[:rows].astype(side.dtype, copy=False))
        except Exception as error:
            print(f"  {side.name} fails on {rows} rows: {type(error).__name__}: {error}", flush=True)


def accuracy(problem: Problem, model: Model) -> float:
    """Share of the test part that the library's own predict gets right."""
    return float(np.mean(model.estimator.predict(problem.X_test) == problem.y_test))


def hinge_primal(problem: Problem, C: float, model: Model) -> float:
    """1/2 |w|^2 + C sum_i [1 - y_i (f_i + b)]_+ in float64, from the coefficients and the intercept returned."""
    support, coefficients = problem.X[model.support], np.asarray(model.coefficients, dtype=np.float64)
    scores = np.empty(len(problem.y))
    step = max(1, BLOCK // max(1, len(support)))
    for start in range(0, len(scores), step):
        rows = slice(start, start + step)
        scores[rows] = rbf_kernel(problem.X[rows], support, gamma=problem.gamma) @ coefficients
    hinge = np.maximum(0.0, 1.0 - problem.y * (scores + model.intercept)).sum()
    return float(0.5 * coefficients @ scores[model.support] + C * hinge)
