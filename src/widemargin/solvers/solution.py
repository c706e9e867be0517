"""What a solver moves and reports, what makes it stop, and the contract that all solvers keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol

import numpy as np

from widemargin.kernels import Rows
from widemargin.problems import Problem
from widemargin.problems.base import relative_gap


@dataclass(frozen=True)
class Record:
    """One line of `history_`: the running values of one machine, and last the recomputed ones."""

    seconds: float
    epoch: int
    primal: float
    dual: float
    machine: int = 0

    @property
    def relative_gap(self) -> float:
        return relative_gap(self.primal, self.dual)


@dataclass
class Solution:
    """One machine's coefficients g and their scores f = K g, usable at any time, moved in place by a solver.

    `status` is "running" until the solver stops: "optimal", "stalled" (no progress in this precision), "indefinite"
    (a gap that proves nothing), "max_iter", "time_budget", "stopped" (a callback's wish) or "interrupted" (Ctrl-C).
    """

    g: np.ndarray
    f: np.ndarray
    status: str = "running"
    epochs: int = 0


@dataclass
class Monitor:
    """Keeps the history and says when to stop: gap closed, epochs or seconds used up, or an observer's wish.

    `observe(record)` is called after each epoch and returns True to stop the fit.
    """

    tol: float
    max_epochs: float
    time_budget: float | None = None
    observe: Callable[[Record], bool] | None = None
    history: list[Record] = field(default_factory=list)
    started: float = field(default_factory=perf_counter)
    solutions: list[Solution] = field(default_factory=list)  # the present state, for observers
    stopped: bool = False
    deadline: float | None = field(init=False)  # of the machine in hand

    def __post_init__(self) -> None:
        self.deadline = self.time_budget

    def seconds(self) -> float:
        return perf_counter() - self.started

    def share_seconds(self, n_machines: int) -> None:
        """Solvers that take one machine after the other give each an equal share of the seconds left."""
        if self.time_budget is not None:
            now = self.seconds()
            self.deadline = now + max(0.0, self.time_budget - now) / n_machines

    def has_seconds_left(self) -> bool:
        return self.time_budget is None or self.seconds() < self.time_budget

    def report(self, epoch: int, primal: float, dual: float, machine: int, target: float) -> str | None:
        """Note an epoch; the reason to stop, or None."""
        record = Record(self.seconds(), epoch, primal, dual, machine)
        self.history.append(record)
        if self.observe is not None and self.observe(record):
            self.stopped = True
        return "optimal" if record.relative_gap <= target else self.reason_to_stop(epoch)

    def reason_to_stop(self, epoch: int) -> str | None:
        if self.stopped:
            return "stopped"
        if self.deadline is not None and self.seconds() >= self.deadline:
            return "time_budget"
        return "max_iter" if epoch >= self.max_epochs else None


class Solver(Protocol):
    """Moves each solution until its running gap is at most its target, or the monitor says stop."""

    memory: int  # what it may use; the rows have the rest of the budget

    def climb(
        self,
        problems: Sequence[Problem],
        rows: Rows,
        solutions: Sequence[Solution],
        monitor: Monitor,
        targets: Sequence[float],
        names: Sequence[int],
    ) -> None: ...
