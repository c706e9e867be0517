"""The judge: primal, dual and gap of given coefficients, recomputed in float64 from the data.

It shares with the solvers the problem's formulas only, none of their running totals: the scores K g it is given were
computed anew from X (see solve.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from widemargin.problems import Problem
from widemargin.problems.base import relative_gap

# The worst first.
_ADVICE = {
    "interrupted": "the fit was interrupted; fit again with warm_start=True to go on from here",
    "indefinite": (
        "the kernel matrix is not positive semidefinite, so that the duality gap says nothing of the optimum: use "
        "another kernel, or for sigmoid another gamma and coef0"
    ),
    "stalled": (
        "no further progress: raise tol, scale the features to comparable ranges, lower C, or give more memory"
    ),
    "stopped": "a callback ended the fit; fit again with warm_start=True to go on from here",
    "time_budget": "raise time_budget, or fit again with warm_start=True to go on from here",
    "max_iter": "raise max_iter, or lower C",
}


@dataclass(frozen=True)
class Certificate:
    """How good an answer is. With a positive semidefinite kernel the optimum lies between `dual` and `primal`.

    `status` is "optimal" where relative_gap <= tol, and otherwise says what ended the fit. After Ctrl-C
    ("interrupted") the values are the solver's running ones: recomputing them could take long. `kernel_evaluations`
    are those of the whole fit; a single machine's certificate has none of its own.
    """

    primal: float
    dual: float
    feasibility: float
    status: str
    kernel_evaluations: int = 0

    @property
    def gap(self) -> float:
        return self.primal - self.dual

    @property
    def relative_gap(self) -> float:
        """(primal - dual) / max(|primal|, |dual|)"""
        return relative_gap(self.primal, self.dual)

    @property
    def advice(self) -> str:
        """What to change; empty for an optimum."""
        return _ADVICE.get(self.status, "")

    def __str__(self) -> str:
        return f"{self.status}: primal {self.primal:.6g}, dual {self.dual:.6g}, relative gap {self.relative_gap:.1e}"

    def __repr__(self) -> str:
        return f"Certificate({self})"


def certify(problem: Problem, g: np.ndarray, f: np.ndarray, status: str) -> Certificate:
    """The certificate of the coefficients g with scores f = K g."""
    primal, dual = problem.values(g, f)
    return Certificate(primal, dual, problem.infeasibility(g), status)


def combine(certificates: Sequence[Certificate], evaluations: int) -> Certificate:
    """Several machines as one problem: the sums of their objectives, the worst of their statuses."""
    statuses = [certificate.status for certificate in certificates]
    return Certificate(
        primal=sum(certificate.primal for certificate in certificates),
        dual=sum(certificate.dual for certificate in certificates),
        feasibility=max(certificate.feasibility for certificate in certificates),
        status=next((status for status in _ADVICE if status in statuses), "optimal"),
        kernel_evaluations=evaluations,
    )
