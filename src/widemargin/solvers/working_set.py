"""Working sets inside working sets, for machines with sparse solutions (SVM).

    max_g  y'g - 1/2 g'Kg    s.t.  lower <= g <= upper,  and  sum g = 0 where there is an intercept

Three nested sets. The *active* rows are those that may carry weight: a random sample at first, then the support and a
share of the violators, until no row outside violates anything; their kernel matrix is held where the budget allows. On
them, *blocks* of the most violating rows are chosen, and inside a block compiled *moves* climb (block_ascent.py).
Choosing among the violators at random, not the worst first, is what keeps the active set small: the worst under an
early model are mostly outliers. Measurements: docs/design/solvers.md.
"""

from __future__ import annotations

import numpy as np

from widemargin.kernels import Rows
from widemargin.problems import Hinge
from widemargin.solvers.block_ascent import add_rows, ascend_pairs, ascend_singles, corner
from widemargin.solvers.solution import Monitor, Solution

_BLOCK = 256
_INNER_TOLERANCE = 0.1  # a block is left when its violation has fallen to this share
_INNER_MOVES = 20  # moves a row of the block, at most
_SMALL = 3000  # up to here all rows are active from the start
_FIRST_SHARE = 0.1
_GROWTH = 0.5  # at most so many new rows a round, as a share of those kept
_SLACK_MARGIN = 1.3  # rows without weight and with a margin above this leave the active set


class WorkingSet:
    """Solver of hinge machines, one after the other."""

    def __init__(self, memory: int, rng: np.random.Generator):
        # Its share of the budget; the rows have the rest.
        self.memory = int(0.75 * memory)
        self.rng = rng

    def climb(self, problems, rows, solutions, monitor, targets, names) -> None:
        for problem, solution, target, name in zip(problems, solutions, targets, names, strict=True):
            self._climb(problem, rows, solution, monitor, target, name)

    def _climb(self, problem: Hinge, rows: Rows, solution: Solution, monitor: Monitor, target: float, name: int):
        active = self._first_active(solution.g)
        gap, reason = 1.0, None
        while reason is None:
            everything = len(active) == rows.n
            part = _Active(problem, rows, active, solution, self.memory)
            report = (lambda p, d: monitor.report(solution.epochs, p, d, name, target)) if everything else None
            reason = part.climb(solution, monitor, target if everything else max(0.3 * target, 0.05 * gap), report)
            change = np.zeros(rows.n)
            change[active] = part.g - solution.g[active]
            # Scores of the active rows were followed; those of the others need the kernel.
            f = part.f if everything else solution.f + rows.matvec(change)
            solution.g, solution.f = solution.g + change, f
            if everything:
                break
            primal, dual = problem.values(solution.g, solution.f)
            gap = (primal - dual) / max(abs(primal), abs(dual))
            verdict = monitor.report(solution.epochs, primal, dual, name, target)
            reason = verdict if reason in (None, "optimal") or verdict == "optimal" else reason
            if reason is None:
                active = self._next_active(problem, solution, active)
        solution.status = reason or "stalled"

    def _first_active(self, g: np.ndarray) -> np.ndarray:
        n = len(g)
        if n <= _SMALL:
            return np.arange(n)
        sample = self.rng.choice(n, max(_SMALL, int(_FIRST_SHARE * n)), replace=False)
        return np.union1d(sample, np.flatnonzero(g))

    def _next_active(self, problem: Hinge, solution: Solution, active: np.ndarray) -> np.ndarray:
        margin = problem.y * (solution.f + problem.intercept(solution.f))
        idle = solution.g == 0
        kept = active[~idle[active] | (margin[active] < _SLACK_MARGIN)]
        outside = np.ones(len(margin), bool)
        outside[active] = False
        violators = np.flatnonzero(outside & idle & (margin < 1))
        room = max(_BLOCK, int(_GROWTH * len(kept)))
        if len(violators) > room:
            violators = self.rng.choice(violators, room, replace=False)
        return np.union1d(kept, violators)


class _Active:
    """The problem on the active rows, the others' coefficients held."""

    def __init__(self, problem: Hinge, rows: Rows, active: np.ndarray, solution: Solution, memory: int):
        self.rows = rows.restrict(active)
        self.problem = problem.restrict(active)
        self.g = solution.g[active]
        self.f = solution.f[active]
        n = len(active)
        fits = n * n * rows.dtype.itemsize <= memory
        self.gram = self.rows.block(np.arange(n)) if fits else None

    def climb(self, solution: Solution, monitor: Monitor, target: float, report) -> str | None:
        """Move blocks until the relative gap on the active rows is at most `target`; an epoch covers each row once."""
        sweep = max(1, len(self.g) // _BLOCK)
        while True:
            primal, dual = self.problem.values(self.g, self.f)
            if report is not None:
                reason = report(primal, dual)
            else:
                closed = primal - dual <= target * max(abs(primal), abs(dual))
                reason = "optimal" if closed else monitor.reason_to_stop(solution.epochs)
            if reason is not None:
                return None if reason == "optimal" and report is None else reason
            moves = sum(self._move_block() for _ in range(sweep))
            solution.epochs += 1
            if moves == 0:
                return "stalled" if report is not None else None

    def _move_block(self) -> int:
        problem = self.problem
        gradient = problem.y - self.f
        block, violation = self._choose(gradient)
        if not violation > 0:
            return 0
        if self.gram is None:
            kernel, places = self.rows.block(block), np.arange(len(block))
        else:
            kernel, places = self.gram, block
        g = self.g[block]
        ascend = ascend_pairs if problem.has_intercept else ascend_singles
        moves = ascend(
            corner(kernel, places, block),
            gradient[block],
            g,
            problem.lower[block],
            problem.upper[block],
            _INNER_TOLERANCE * violation,
            _INNER_MOVES * len(block),
        )
        change = g - self.g[block]
        moved = np.flatnonzero(change)
        self.g[block] = g
        add_rows(kernel, places[moved], change[moved], self.f)
        return moves

    def _choose(self, gradient: np.ndarray) -> tuple[np.ndarray, float]:
        """The rows that violate optimality most, and by how much."""
        can_rise, can_fall = self.g < self.problem.upper, self.g > self.problem.lower
        if self.problem.has_intercept:
            # Optimal where no row that can rise has a larger gradient than one that can fall.
            rising = np.where(can_rise, gradient, -np.inf)
            falling = np.where(can_fall, gradient, np.inf)
            half = max(1, min(_BLOCK, len(gradient)) // 2)
            highest, lowest = _largest(rising, half), _largest(-falling, half)
            block = np.union1d(highest[np.isfinite(rising[highest])], lowest[np.isfinite(falling[lowest])])
            return block, float(rising.max() - falling.min())
        violation = np.where(gradient > 0, can_rise, can_fall) * np.abs(gradient)
        block = np.sort(_largest(violation, min(_BLOCK, len(gradient))))
        return block, float(violation.max())


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    return np.argpartition(values, len(values) - count)[-count:]
