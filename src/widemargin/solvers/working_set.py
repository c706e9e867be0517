"""Working sets inside working sets, for machines with sparse solutions (SVM).

    max_g  y'g - 1/2 g'Kg    s.t.  lower <= g <= upper,  and  sum g = 0 where there is an intercept

Three nested sets. The *active* rows are those whose coefficients may still change: a random sample at first; then the
rows that are not settled, and a share of those outside that violate optimality; until no row does. Their kernel matrix
is held where the budget allows. On them, *blocks* of the most violating rows are chosen, and inside a block compiled
*moves* climb (block_ascent.py). Choosing among the violators at random, not the worst first, keeps the active set
small: the worst under an early model are mostly outliers. Measurements: docs/design/solvers.md.
"""

from __future__ import annotations

import numpy as np

from widemargin.kernels import Rows
from widemargin.problems import Hinge
from widemargin.solvers.block_ascent import add_rows, ascend_pairs, ascend_singles, choose_pairs, choose_singles
from widemargin.solvers.solution import Monitor, Solution

_BLOCK = 256  # rows at first
_LARGEST_BLOCK = 2048
# Slow: within so many sweeps the rows' share of the gap has not fallen to this share of itself. Then blocks undo each
# other's work (a kernel of low rank, a high C), and larger ones help.
_SLOW_SWEEPS, _SLOW_SHARE = 10, 0.7
_INNER_TOLERANCE = 0.1  # a block is left when its violation has fallen to this share
_INNER_MOVES = 20  # moves a row of the block, at most
_SMALL = 1500  # up to here all rows are active from the start
_FIRST_SHARE = 0.1
_GROWTH = 0.5  # at most so many new rows a round, as a share of those kept
_SETTLED = 0.3  # a row at a bound is settled when its margin is this far on the right side of 1


class WorkingSet:
    """Solver of hinge machines, one after the other."""

    def __init__(self, memory: int, rng: np.random.Generator):
        # Its share of the budget; the rows have the rest.
        self.memory = int(0.75 * memory)
        self.rng = rng

    def climb(self, problems, rows, solutions, monitor, targets, names) -> None:
        for done, (problem, solution, target, name) in enumerate(zip(problems, solutions, targets, names, strict=True)):
            monitor.share_seconds(len(problems) - done)
            self._climb(problem, rows, solution, monitor, target, name)

    def _climb(self, problem: Hinge, rows: Rows, solution: Solution, monitor: Monitor, target: float, name: int):
        def judge() -> tuple[float, float, str | None]:
            primal, dual = problem.values(solution.g, solution.f)
            reason = monitor.report(solution.epochs, primal, dual, name, target)
            return primal - dual, max(abs(primal), abs(dual)), reason

        active = self._first_active(solution.g)
        gap, scale, reason = judge()
        part = None
        while reason is None:
            everything = len(active) == rows.n
            if part is None:
                part = _Active(problem, rows, active, solution, self.memory)
            # Where all rows are active a sweep is judged at once; a part is climbed until it has done its share.
            enough = np.inf if everything else max(0.3 * target * scale, 0.05 * gap)
            moves = part.climb(enough, solution, monitor)
            change = np.zeros(rows.n)
            change[active] = part.g - solution.g[active]
            # The active rows' scores were followed; those of the others need the kernel.
            f = part.f.copy() if everything else solution.f + rows.matvec(change)
            solution.g, solution.f = solution.g + change, f
            gap, scale, reason = judge()
            if reason is None and not everything:
                found = self._next_active(problem, solution, active)
                if moves == 0 and np.array_equal(found, active):
                    reason = "stalled"
                active = found
                part = None  # its matrix goes before the next one comes
            elif reason is None and moves == 0:
                reason = "stalled"
        solution.status = reason

    def _first_active(self, g: np.ndarray) -> np.ndarray:
        n = len(g)
        if n <= _SMALL:
            return np.arange(n)
        sample = self.rng.choice(n, max(_SMALL, int(_FIRST_SHARE * n)), replace=False)
        return np.union1d(sample, np.flatnonzero(g))

    def _next_active(self, problem: Hinge, solution: Solution, active: np.ndarray) -> np.ndarray:
        g, n = solution.g, len(solution.g)
        excess = problem.y * (solution.f + problem.intercept(solution.f)) - 1
        idle, full = g == 0, np.abs(g) == problem.C
        inside = np.zeros(n, bool)
        inside[active] = True
        settled = (idle & (excess > _SETTLED)) | (full & (excess < -_SETTLED))
        kept = np.flatnonzero(inside & ~settled)
        violators = np.flatnonzero(~inside & ((idle & (excess < 0)) | (full & (excess > 0))))
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
        self.n_rows = rows.n
        self.block = _BLOCK
        self._shares: list[float] = []  # of the gap, sweep by sweep, since the block has this size
        n = len(active)
        # An eighth is for the block's own matrix of float64.
        fits = n * n * rows.dtype.itemsize <= memory * 7 // 8
        most = np.sqrt(memory / 64)
        if not fits:  # then its rows are fetched at every visit
            most = max(_BLOCK, min(most, memory // (2 * n * rows.dtype.itemsize)))
        self._largest_block = min(n, _LARGEST_BLOCK, int(most))
        self.gram = self.rows.block(np.arange(n)) if fits else None

    def climb(self, enough: float, solution: Solution, monitor: Monitor) -> int:
        """Move blocks until these rows' share of the gap is `enough`; the number of moves."""
        total = 0
        begun = solution.epochs
        visits = 0
        while True:
            sweep = max(1, len(self.g) // self.block)
            moves = sum(self._move_block() for _ in range(sweep))
            total += moves
            # An epoch is worth one visit to every row of the whole training set.
            visits += sweep * min(self.block, len(self.g))
            solution.epochs = begun + -(-visits // self.n_rows)
            share = self.problem.gap_share(self.g, self.f)
            self._adapt(share)
            if share <= enough or moves == 0 or monitor.reason_to_stop(solution.epochs) is not None:
                return total

    def _adapt(self, share: float) -> None:
        """Twice the block where the sweeps are slow."""
        self._shares.append(share)
        slow = len(self._shares) > _SLOW_SWEEPS and share > _SLOW_SHARE * self._shares[-1 - _SLOW_SWEEPS]
        if slow and self.block < self._largest_block:
            self.block = min(2 * self.block, self._largest_block)
            self._shares.clear()

    def _move_block(self) -> int:
        problem = self.problem
        gradient = problem.y - self.f
        choose, ascend = (choose_pairs, ascend_pairs) if problem.has_intercept else (choose_singles, ascend_singles)
        block, violation = choose(gradient, self.g, problem.lower, problem.upper, self.block)
        if not violation > 0:
            return 0
        if self.gram is None:
            kernel, places = self.rows.block(block), np.arange(len(block))
        else:
            kernel, places = self.gram, block
        g = self.g[block]
        moves = ascend(
            kernel,
            places,
            block,
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
