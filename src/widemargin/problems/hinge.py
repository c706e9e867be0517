"""The support vector machine, with and without intercept.

min_{w,b}  1/2 |w|^2 + sum_i C_i max(0, 1 - y_i (f_i + b))

max_g  -1/2 g'Kg + sum_i y_i g_i     s.t.  0 <= y_i g_i <= C_i,  and  sum_i g_i = 0 where there is an intercept.
"""

from __future__ import annotations

import numpy as np

from widemargin.problems.base import Problem


class Hinge(Problem):
    """The hinge loss: zero above the margin, a straight line below."""

    def __init__(self, y: np.ndarray, C: np.ndarray, has_intercept: bool):
        super().__init__(y, C)
        self.has_intercept = has_intercept
        self.lower = np.where(y > 0, 0.0, -C)
        self.upper = np.where(y > 0, C, 0.0)

    def restrict(self, index: np.ndarray) -> Hinge:
        """The same machine on some of the rows."""
        return Hinge(self.y[index], self.C[index], self.has_intercept)

    def losses(self, f):
        return float(self.C @ np.maximum(0, 1 - self.y * f))

    def gap_share(self, g: np.ndarray, f: np.ndarray) -> float:
        """These rows' share of the gap, sum of C xi - u (1 - m) >= 0 with u = y g and the margin m, others held.

        Over all rows the shares add up to P - D.
        """
        shortfall = 1 - self.y * (f + self.intercept(f, held=-float(g.sum())))
        return float(self.C @ np.maximum(0, shortfall) - (self.y * g) @ shortfall)

    def conjugates(self, g):
        return -float(self.y @ g)

    def link(self, f):
        return np.where(self.y * f < 1, self.y * self.C, 0.0)

    def intercept(self, f, held: float = 0.0):
        """The minimiser of a convex piecewise linear function of b: the breakpoint y_i - f_i where the slope turns.

        Rows left out of this problem, with coefficients that add up to `held`, pull b with the slope -held.
        """
        if not self.has_intercept:
            return 0.0
        breaks = self.y - f
        order = np.argsort(breaks)
        # Left of every breakpoint the positive rows lose, each with slope -C_i; a breakpoint passed adds its C_i.
        slopes = np.cumsum(self.C[order]) - self.C[self.y > 0].sum() - held
        at = int(np.searchsorted(slopes, -1e-12 * self.C.sum()))
        below = breaks[order[min(at, len(order) - 1)]]
        flat = at + 1 < len(order) and abs(slopes[at]) <= 1e-12 * self.C.sum()
        # On a flat bottom every b between two breakpoints is optimal: the middle treats both classes alike.
        return float(0.5 * (below + breaks[order[at + 1]])) if flat else float(below)

    def nearest_feasible(self, g):
        g = np.clip(g, self.lower, self.upper)
        if self.has_intercept:
            positive, negative = g[g > 0].sum(), -g[g < 0].sum()
            total = min(positive, negative)
            g[g > 0] *= total / positive if positive else 0
            g[g < 0] *= total / negative if negative else 0
        return g

    def infeasibility(self, g):
        outside = np.maximum(np.maximum(self.lower - g, g - self.upper), 0) / self.C
        balance = abs(g.sum()) / self.C.sum() if self.has_intercept else 0.0
        return float(max(outside.max(initial=0.0), balance))
