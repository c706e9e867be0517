"""Preconditioned subspace descent, for machines whose every row carries weight (ODM): one product with K an epoch.

The residual r = link(K g) - g is zero at the optimum only. Newton's direction for r = 0,

    z = (I + H K)^-1 r,    H = diag(l_i''),

is approximated with a low-rank picture of K (nystroem.py). Then the gap, a convex function of g whose minimum is zero,

    P(g) - D(g) = g'Kg + sum_i l_i((K g)_i) + sum_i l_i*(-g_i),

is minimised over the span of the last directions, whose products with K are at hand. With an exact picture this is the
semismooth Newton method. It may lock, for z is a descent direction of the gap only near the optimum; where it does, the
dual (z is its preconditioned gradient, kinks aside) or the primal (z is its Newton step) is followed for a while: see
pace.py. Where the forecast is long the picture is refined. Measurements: docs/design/solvers.md.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from widemargin.problems import MarginDistribution
from widemargin.solvers.nystroem import LowRank, NewtonSystem
from widemargin.solvers.pace import Pace
from widemargin.solvers.solution import Monitor, Solution

_DIRECTIONS = 20
_NEWTON_STEPS = 30
_SAVED_SHARE = 0.5  # of the epochs to come, by a finer picture
_RUNAWAY = 1e100  # an indefinite kernel knows no highest dual

Climb = Generator[np.ndarray, np.ndarray, None]


class SubspaceDescent:
    """Solver of smooth machines; several over one kernel climb in step, so that each product serves all of them."""

    def __init__(self, memory: int, rng: np.random.Generator):
        # Its share of the budget; the rows have the rest.
        self.memory = int(0.3 * memory)
        self.rng = rng
        self._picture: LowRank | None = None  # a further round over the same rows goes on with it

    def climb(self, problems, rows, solutions, monitor, targets, names) -> None:
        picture = self._picture
        if picture is None or picture.rows is not rows:
            self._picture = None  # the last one goes before the next one comes
            self._picture = picture = LowRank(rows, self.memory // 4 * 3, self.rng, len(problems))
        affordable = self.memory // 4 // (2 * 8 * rows.n * len(problems))
        size = max(2, min(_DIRECTIONS, affordable))
        climbs = [
            _climb(problem, solution, picture, size, monitor, target, name)
            for problem, solution, target, name in zip(problems, solutions, targets, names, strict=True)
        ]
        wanted = {i: z for i, climb in enumerate(climbs) if (z := next(climb, None)) is not None}
        while wanted:
            products = rows.matvec(np.column_stack(list(wanted.values())))
            for column, i in enumerate(list(wanted)):
                try:
                    wanted[i] = climbs[i].send(products[:, column])
                except StopIteration:
                    del wanted[i]


def _climb(
    problem: MarginDistribution,
    solution: Solution,
    picture: LowRank,
    n_directions: int,
    monitor: Monitor,
    target: float,
    name: int,
) -> Climb:
    """One machine's climb: yields the vectors whose products with K it needs."""
    newton = NewtonSystem(picture)
    span = _Span(n_directions, len(solution.g))
    pace = Pace()
    rank = 0
    best = solution.g, solution.f
    while True:
        primal, dual = problem.values(solution.g, solution.f)
        target_gap = target * max(abs(primal), abs(dual))
        pace.add(primal, dual)
        if pace.is_best():
            best = solution.g, solution.f
        reason = monitor.report(solution.epochs, primal, dual, name, target)
        if reason is None and (pace.has_stalled or not abs(dual) < _RUNAWAY):
            reason = "stalled"
        if reason is not None:
            if reason != "optimal":
                solution.g, solution.f = best
            solution.status = reason
            return
        saved = _SAVED_SHARE * pace.epochs_left(target_gap) * picture.product_cost
        if rank == picture.rank and saved > picture.growth_cost():
            picture.grow()
        if rank != picture.rank:  # grown, by this machine or another; or the first
            rank = picture.rank
            pace.begin_anew(rank == len(solution.g))
        rounding = problem.rounding(0.5 * (primal - dual))
        merit = pace.merit()
        if merit == "primal":
            link, curvature = problem.link(solution.f), problem.curvature(solution.f)
        else:
            link, curvature = problem.smooth_link(solution.f, rounding)
        direction = newton.solve(curvature, link - solution.g)
        span.add(direction, (yield direction))
        enough = 5e-4 * (primal - dual)
        step = span.minimise(problem, solution.g, solution.f, merit, rounding, enough)
        solution.g, solution.f = solution.g + step @ span.directions, solution.f + step @ span.products
        solution.epochs += 1


class _Span:
    """The last directions Z and their products K Z, one a row, scaled to z'Kz = 1."""

    def __init__(self, size: int, n: int):
        self.size = size
        self.directions = np.empty((0, n))
        self.products = np.empty((0, n))
        self.gram = np.empty((0, 0))

    def add(self, z: np.ndarray, product: np.ndarray) -> None:
        curvature = abs(float(z @ product))
        scale = 1 / np.sqrt(curvature) if curvature > np.finfo(float).tiny else 1.0
        keep = slice(max(0, len(self.directions) + 1 - self.size), None)
        self.directions = np.vstack([self.directions[keep], z * scale])
        self.products = np.vstack([self.products[keep], product * scale])
        row = self.directions @ self.products[-1]
        self.gram = np.block([[self.gram[keep, keep], row[:-1, None]], [row[None, :-1], row[-1:, None]]])

    def minimise(
        self, problem: MarginDistribution, g: np.ndarray, f: np.ndarray, merit: str, rounding: float, enough: float
    ) -> np.ndarray:
        """argmin over t of the merit at g + Z't, P, -D (rounded) or both, by Newton's method until it gains little."""
        Z, KZ = self.directions, self.products
        has_primal, has_dual = merit in ("primal", "gap"), merit in ("dual", "gap")
        gram = (has_primal + has_dual) * self.gram
        slope = (has_primal + has_dual) * (Z @ f)

        def evaluate(t):
            product = gram @ t
            value, gradient, hessian = float(slope @ t + 0.5 * t @ product), slope + product, gram
            if has_primal:
                scores = f + t @ KZ
                value += problem.losses(scores)
                gradient = gradient - KZ @ problem.link(scores)
                hessian = hessian + (KZ * problem.curvature(scores)) @ KZ.T
            if has_dual:
                conjugates, conjugate_slope, conjugate_curvature = problem.smooth_conjugates(g + t @ Z, rounding)
                value += conjugates
                gradient = gradient + Z @ conjugate_slope
                hessian = hessian + (Z * conjugate_curvature) @ Z.T
            return value, gradient, hessian

        t = np.zeros(len(Z))
        value, gradient, hessian = evaluate(t)
        for _ in range(_NEWTON_STEPS):
            step = -_solve_scaled(hessian, gradient)
            descent = float(gradient @ step)
            size = 1.0
            while size > 1e-10:
                trial = evaluate(t + size * step)
                if trial[0] <= value + 1e-4 * size * descent:
                    break
                size /= 2
            else:
                return t
            t = t + size * step
            gained = value - trial[0]
            value, gradient, hessian = trial
            if gained <= enough:
                return t
        return t


def _solve_scaled(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A^-1 b for a positive semidefinite A whose rows may nearly repeat each other."""
    scale = 1 / np.sqrt(np.maximum(np.abs(np.diag(A)), np.finfo(float).tiny))
    scaled = A * scale * scale[:, None]
    lift = 1e-13
    while True:
        try:
            return scale * cho_solve(cho_factor(scaled + lift * np.eye(len(b)), lower=True), scale * b)
        except LinAlgError:
            lift *= 10
