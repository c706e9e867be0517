"""The contract of a problem."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np


class Problem(ABC):
    """A machine's primal and dual on rows with labels `y` (-1 or +1) and costs `C` (C_i > 0)."""

    has_intercept = False

    def __init__(self, y: np.ndarray, C: np.ndarray):
        self.y = y
        self.C = C

    @abstractmethod
    def losses(self, f: np.ndarray) -> float:
        """sum_i l_i(f_i), f with the intercept in it."""

    @abstractmethod
    def conjugates(self, g: np.ndarray) -> float:
        """sum_i l_i*(-g_i) for feasible g."""

    @abstractmethod
    def link(self, f: np.ndarray) -> np.ndarray:
        """A dual point that any scores give, -l_i'(f_i): at the optimum it is g itself."""

    @abstractmethod
    def infeasibility(self, g: np.ndarray) -> float:
        """The largest violation of the feasible set, relative to the costs; 0 where there is no constraint."""

    def nearest_feasible(self, g: np.ndarray) -> np.ndarray:
        """A feasible point near g: where a warm start begins."""
        return g

    def intercept(self, f: np.ndarray) -> float:
        """The b that minimises the losses at f + b; 0 for a machine without intercept."""
        return 0.0

    def primal(self, squared_norm: float, f: np.ndarray) -> float:
        """P at w, from |w|^2 and the scores without intercept."""
        return 0.5 * squared_norm + self.losses(f + self.intercept(f))

    def dual(self, squared_norm: float, g: np.ndarray) -> float:
        """D at g, from g'Kg and g."""
        return -0.5 * squared_norm - self.conjugates(g)

    def values(self, g: np.ndarray, f: np.ndarray) -> tuple[float, float]:
        """(P, D) of the coefficients g, whose scores are f = K g."""
        squared_norm = float(g @ f)
        return self.primal(squared_norm, f), self.dual(squared_norm, g)


def relative_gap(primal: float, dual: float) -> float:
    """(P - D) / max(|P|, |D|)"""
    scale = max(abs(primal), abs(dual))
    return (primal - dual) / scale if scale > 0 else 0.0
