"""The optimal margin distribution machine (scalable ODM paper, section 2).

    min_w  1/2 |w|^2 + sum_i C_i (xi_i^2 + upsilon eps_i^2) / (2 (1-theta)^2)
    s.t.   1 - theta - xi_i <= y_i f_i <= 1 + theta + eps_i                      (C_i = C weight_i = lambda / M there)

The paper's dual has two variables a row, zeta_i for the lower bound and beta_i for the upper. At the optimum one of
them is zero, so one signed variable u_i = zeta_i - beta_i, g_i = y_i u_i, is enough:

    max_g  -1/2 g'Kg + sum_i (u_i - theta |u_i|) - 1/2 sum_i (a_i [u_i]_+^2 + a_i / upsilon [u_i]_-^2)

with a_i = (1-theta)^2 / C_i. No constraint at all, strongly concave: the optimum is unique.
Link: u_i = (xi_i - upsilon eps_i) / a_i.
"""

from __future__ import annotations

import numpy as np

from widemargin.problems.base import Problem

_LINK_STEPS = 8


class MarginDistribution(Problem):
    """ODM's loss: a square outside the band |y f - 1| <= theta, cheaper by upsilon above it."""

    def __init__(self, y: np.ndarray, C: np.ndarray, theta: float, upsilon: float):
        super().__init__(y, C)
        self.theta = theta
        self.upsilon = upsilon
        self.stiffness = C / (1 - theta) ** 2  # 1 / a_i, the curvature of the lower side

    def losses(self, f):
        below, above = self._deviations(f)
        return 0.5 * float(self.stiffness @ (below**2 + self.upsilon * above**2))

    def conjugates(self, g):
        u = self.y * g
        ridge = np.where(u > 0, 1.0, 1 / self.upsilon) / self.stiffness
        return float(0.5 * (ridge @ u**2) - (u - self.theta * np.abs(u)).sum())

    def link(self, f):
        below, above = self._deviations(f)
        return self.y * self.stiffness * (below - self.upsilon * above)

    def rounding(self, error: float) -> float:
        """The rounding of smooth_conjugates that changes their sum by `error` at most."""
        return error / (self.theta * float(self.stiffness.sum())) if self.theta else 1.0

    def smooth_conjugates(self, g: np.ndarray, rounding: float) -> tuple[float, np.ndarray, np.ndarray]:
        """The conjugates with |u| rounded off at zero, sqrt(u^2 + s^2), s = rounding / a: sum, slopes, curvatures."""
        u = self.y * g
        ridge = np.where(u > 0, 1.0, 1 / self.upsilon) / self.stiffness
        rounded = np.sqrt(u**2 + (rounding * self.stiffness) ** 2)
        value = float(0.5 * (ridge @ u**2) - u.sum() + self.theta * rounded.sum())
        slope = self.y * (ridge * u - 1 + self.theta * u / rounded)
        return value, slope, ridge + self.theta * (rounding * self.stiffness) ** 2 / rounded**3

    def smooth_link(self, f: np.ndarray, rounding: float) -> tuple[np.ndarray, np.ndarray]:
        """The link of the loss whose conjugate is the rounded one, and its derivative -dg/df >= 0.

        Solves phi(u) = a u + theta u / sqrt(u^2 + s^2) = x with x = |1 - y f|, row by row.
        """
        excess = 1 - self.y * f
        x = np.abs(excess)
        ridge = np.where(excess > 0, 1.0, 1 / self.upsilon) / self.stiffness
        s = rounding * self.stiffness
        floor = np.maximum(x - self.theta, 0) / ridge
        # A start of the root's size: the root without the ridge, or where both terms bend, whichever is smaller.
        bent = np.cbrt(self.theta * s**2 / (2 * ridge))
        inside = np.maximum(self.theta**2 - x**2, 1e-300)
        u = np.maximum(floor, 0.5 * np.where(x < self.theta, np.minimum(bent, s * x / np.sqrt(inside)), bent))
        # phi is concave: Newton's method never overshoots from below, and from above lands below.
        for _ in range(_LINK_STEPS):
            rounded = np.sqrt(u**2 + s**2)
            slope = ridge + self.theta * s**2 / rounded**3
            u = np.maximum(u + (x - ridge * u - self.theta * u / rounded) / slope, floor)
        rounded = np.sqrt(u**2 + s**2)
        return self.y * np.sign(excess) * u, 1 / (ridge + self.theta * s**2 / rounded**3)

    def curvature(self, f: np.ndarray) -> np.ndarray:
        """l''(f), the stiffness of the side that a margin outside the band is on."""
        margin = self.y * f
        below, above = margin < 1 - self.theta, margin > 1 + self.theta
        return self.stiffness * (below + self.upsilon * above)

    def infeasibility(self, g):
        return 0.0

    def _deviations(self, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """xi and eps: how far each margin lies below and above the band."""
        margin = self.y * f
        return np.maximum(0, 1 - self.theta - margin), np.maximum(0, margin - 1 - self.theta)
