"""Dual coordinate descent: the reference that the fast solvers are compared with.

ODM, as the paper prints it (scalable ODM paper, equation (3)): the variables zeta_i >= 0 (margin too small) and
beta_i >= 0 (margin too large) are visited in random order, each set to

    max(alpha_i - [gradient]_i / H_ii, 0),    H_ii = K_ii + a_i for zeta_i,  K_ii + a_i / upsilon for beta_i,

with a_i = (1-theta)^2 / C_i (the paper's M c v, its lambda / M being C). After each step the scores f = K g follow.
SVM: without intercept the same with one variable in a box; with intercept, pairs chosen by the second-order rule (SMO).

An epoch is one visit to every row. Nothing here is tuned: rows of K are fetched a block at a time, in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widemargin.kernels import Rows
from widemargin.kernels.compiled import compiled
from widemargin.problems import Hinge, MarginDistribution, Problem
from widemargin.solvers.solution import Monitor, Solution


class CoordinateDescent:
    """The papers' algorithm, one machine after the other."""

    def __init__(self, memory: int, rng: np.random.Generator):
        # Its share of the budget; the rows have the rest.
        self.memory = int(0.5 * memory)
        self.rng = rng

    def climb(self, problems, rows, solutions, monitor, targets, names) -> None:
        rows = rows.in_dtype(np.float64)
        for done, (problem, solution, target, name) in enumerate(zip(problems, solutions, targets, names, strict=True)):
            monitor.share_seconds(len(problems) - done)
            self._climb(problem, rows, solution, monitor, target, name)

    def _climb(self, problem: Problem, rows: Rows, solution: Solution, monitor: Monitor, target: float, name: int):
        while True:
            primal, dual = problem.values(solution.g, solution.f)
            reason = monitor.report(solution.epochs, primal, dual, name, target)
            if reason is not None:
                solution.status = reason
                return
            if problem.has_intercept:
                self._move_pairs(problem, rows, solution)
            else:
                self._visit_rows(problem, rows, solution)
            solution.epochs += 1

    def _visit_rows(self, problem: Problem, rows: Rows, solution: Solution) -> None:
        visit, numbers = _VISITS[type(problem)](problem)
        order = self.rng.permutation(rows.n)
        height = max(1, min(256, self.memory // (8 * rows.n)))
        for start in range(0, rows.n, height):
            visited = order[start : start + height]
            visit(rows.block(visited), visited, solution.g, solution.f, problem.y, *numbers)

    def _move_pairs(self, problem: Any, rows: Rows, solution: Solution) -> None:
        if 8 * rows.n**2 > self.memory:
            raise ValueError(
                f'solver="coordinate" with an intercept holds the kernel matrix in float64, {8 * rows.n**2:,} bytes '
                f"here, and may use {self.memory:,} of the memory budget: raise memory, or use the default solver."
            )
        kernel = rows.block(np.arange(rows.n))
        gradient = problem.y - solution.f
        _move_pairs(kernel, gradient, solution.g, problem.lower, problem.upper)
        solution.f = problem.y - gradient


@compiled
def _visit_odm(block, visited, g, f, y, a, theta, upsilon):
    """One visit to the zeta and the beta of each row; g = y (zeta - beta)."""
    for b in range(len(visited)):
        i = visited[b]
        row = block[b]
        u = y[i] * g[i]
        zeta, beta = max(u, 0.0), max(-u, 0.0)
        gradient = y[i] * f[i] + a[i] * zeta + theta - 1
        new_zeta = max(zeta - gradient / (row[i] + a[i]), 0.0)
        margin = y[i] * f[i] + row[i] * (new_zeta - zeta)
        gradient = -margin + a[i] / upsilon * beta + theta + 1
        new_beta = max(beta - gradient / (row[i] + a[i] / upsilon), 0.0)
        # Both positive only wastes: lowering both by the smaller raises the dual and leaves zeta - beta.
        step = y[i] * (new_zeta - new_beta) - g[i]
        if step != 0.0:
            g[i] += step
            for j in range(len(f)):
                f[j] += step * row[j]


@compiled
def _visit_box(block, visited, g, f, y, lower, upper):
    """max(min(g_i + (y_i - f_i) / K_ii, upper_i), lower_i)"""
    for b in range(len(visited)):
        i = visited[b]
        row = block[b]
        step = min(max(g[i] + (y[i] - f[i]) / max(row[i], 1e-12), lower[i]), upper[i]) - g[i]
        if step != 0.0:
            g[i] += step
            for j in range(len(f)):
                f[j] += step * row[j]


@compiled
def _move_pairs(kernel, gradient, g, lower, upper):
    """As many pairs as there are rows: the one that would rise most, with the partner that gains most."""
    diagonal = np.diag(kernel)
    for _ in range(len(g)):
        i = np.argmax(np.where(g < upper, gradient, -np.inf))
        slope = np.where(g > lower, np.maximum(gradient[i] - gradient, 0.0), 0.0)
        curvature = np.maximum(diagonal[i] + diagonal - 2 * kernel[i], 1e-12)
        j = np.argmax(slope**2 / curvature)
        step = min(slope[j] / curvature[j], upper[i] - g[i], g[j] - lower[j])
        if step <= 0:
            return
        # At a bound exactly: no rounding leaves a variable a hair inside.
        g[i] = upper[i] if step == upper[i] - g[i] else g[i] + step
        g[j] = lower[j] if step == g[j] - lower[j] else g[j] - step
        gradient -= step * (kernel[i] - kernel[j])


# What a visit does, and the numbers it needs beside g and f.
_VISITS: dict[type, Any] = {
    MarginDistribution: lambda problem: (_visit_odm, (1 / problem.stiffness, problem.theta, problem.upsilon)),
    Hinge: lambda problem: (_visit_box, (problem.lower, problem.upper)),
}
