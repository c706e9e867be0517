"""Solve, then judge; where the judge is not content, go on from the judged scores with a harder target.

The climb may use float32 kernel entries; the scores that the certificate is computed from are always recomputed from
the data in float64, and the climb continues from them (iterative refinement). A climb that stalls in float32 continues
in float64. Each machine's history ends with the judge's values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from widemargin.kernels import Rows
from widemargin.problems import Problem
from widemargin.solvers.certificate import Certificate, certify
from widemargin.solvers.solution import Monitor, Solution, Solver

# The rows with the largest coefficients, of which so many are searched for a negative eigenvalue ...
_WITNESSES = 500
# ... below this share of the largest: less may be the rounding of a float32 matrix.
_NEGATIVE_SHARE = 1e-5
# Rounds of refinement; each asks the running gap to be half of the last round's. Beyond them a round for each machine
# that its share of the seconds cut off.
_ROUNDS = 12


def solve(
    problems: Sequence[Problem], rows: Rows, starts: np.ndarray, solver: Solver, monitor: Monitor
) -> tuple[list[Solution], list[Certificate]]:
    """Climb from the columns of `starts`, one machine a problem, all over the same kernel rows."""
    exact = rows.in_dtype(np.float64, stored=False)
    solutions = monitor.solutions = [Solution(np.zeros(rows.n), np.zeros(rows.n)) for _ in problems]
    certificates: list[Certificate] = []
    try:
        if starts.any():
            _set(exact, solutions, starts)
        _refine(problems, rows, exact, solutions, solver, monitor)
        for solution in solutions:
            if not rows.is_definite and _is_indefinite(exact, solution.g):
                solution.status = "indefinite"
    except (KeyboardInterrupt, SystemError) as error:
        # Ctrl-C while compiled code hands over its result comes wrapped in a SystemError.
        if not isinstance(error.__cause__ or error, KeyboardInterrupt):
            raise
        # The best so far, with the scores as the solver followed them: recomputing could take long.
        for solution in solutions:
            solution.status = "interrupted"
    for problem, solution in zip(problems, solutions, strict=True):
        certificates.append(certify(problem, solution.g, solution.f, solution.status))
    return solutions, certificates


def _refine(problems, rows, exact, solutions, solver, monitor) -> None:
    targets = [monitor.tol] * len(solutions)
    pending = list(range(len(solutions)))
    for _ in range(_ROUNDS + len(problems)):
        solver.climb(
            [problems[i] for i in pending],
            rows,
            [solutions[i] for i in pending],
            monitor,
            [targets[i] for i in pending],
            pending,
        )
        _set(exact, [solutions[i] for i in pending], np.column_stack([solutions[i].g for i in pending]))
        unfinished = []
        for i in pending:
            solution = solutions[i]
            reason = monitor.report(solution.epochs, *problems[i].values(solution.g, solution.f), i, monitor.tol)
            if reason == "optimal":
                solution.status = "optimal"
            elif solution.status == "optimal" or (solution.status == "stalled" and rows.dtype == np.float32):
                targets[i] /= 2
                unfinished.append(i)
            elif solution.status == "time_budget" and monitor.has_seconds_left():
                unfinished.append(i)  # its share ran out, and others have left it some of theirs
        if any(solutions[i].status == "stalled" for i in unfinished):
            rows = rows.in_dtype(np.float64)
        pending = unfinished
        if not pending:
            return
    for i in pending:
        if solutions[i].status != "time_budget":
            solutions[i].status = "stalled"


def _set(exact: Rows, solutions: Sequence[Solution], coefficients: np.ndarray) -> None:
    """Coefficients, a column a machine, and their scores in float64: together, for Ctrl-C may come at any time."""
    scores = exact.matvec(coefficients)
    for solution, g, f in zip(solutions, coefficients.T, scores.T, strict=True):
        solution.g, solution.f = np.ascontiguousarray(g), np.ascontiguousarray(f)


def _is_indefinite(exact: Rows, g: np.ndarray) -> bool:
    """Whether a principal minor of K, over the rows that carry most weight, has a negative eigenvalue."""
    witnesses = np.sort(np.argsort(np.abs(g))[-_WITNESSES:])
    eigenvalues = np.linalg.eigvalsh(exact.block(witnesses, witnesses))
    return bool(eigenvalues[0] < -_NEGATIVE_SHARE * np.abs(eigenvalues).max())
