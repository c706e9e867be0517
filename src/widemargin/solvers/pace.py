"""What the course of a climb tells: how far it still is, whether it is locked, whether it has stalled."""

from __future__ import annotations

import numpy as np

# The pace that a forecast goes by is that of so many epochs.
_EPOCHS = 5
# Locked: the gap has not fallen to this share of itself in that time.
_LOCKED_SHARE = 0.98
_FIRST_STAY = 10
# Stalled: from one lock to the next neither the smallest gap has fallen to this share of itself, nor has the dual risen
# by this share of the gap (or of itself).
_NO_BETTER, _NO_HIGHER = 0.99, 1e-4


class Pace:
    """Gaps and dual values epoch by epoch, and which of the two the climb should follow."""

    def __init__(self):
        self._gaps: list[float] = []
        self._duals: list[float] = []
        self._begun = 0  # the epoch at which the present way of climbing began
        self._dual_until = 0
        self._stay = _FIRST_STAY
        self._last_lock = np.inf, -np.inf  # the smallest gap and the dual then
        self.has_stalled = False

    def add(self, gap: float, dual: float) -> None:
        self._gaps.append(gap)
        self._duals.append(dual)

    def begin_anew(self) -> None:
        """Past epochs say nothing about those to come."""
        self._begun = len(self._gaps)

    def epochs_left(self, target: float) -> float:
        """Epochs to come until the gap is at the target, at the present pace; 0 while there is no pace yet."""
        recent = self._gaps[self._begun :]
        if len(recent) <= _EPOCHS:
            return 0.0
        pace = np.log(recent[-1 - _EPOCHS] / recent[-1]) / _EPOCHS
        return np.log(recent[-1] / target) / pace if pace > 0 else np.inf

    def is_best(self) -> bool:
        return self._gaps[-1] <= min(self._gaps)

    def follows_dual(self) -> bool:
        """Whether to follow the dual for a while: the gap is locked. Each lock doubles the while."""
        epoch = len(self._gaps)
        if epoch < self._dual_until:
            return True
        recent = self._gaps[max(self._begun, self._dual_until) :]
        if len(recent) <= _EPOCHS or recent[-1] <= _LOCKED_SHARE * recent[-1 - _EPOCHS]:
            return False
        self._compare_with_last_lock()
        self._dual_until = epoch + self._stay
        self._stay *= 2
        return True

    def _compare_with_last_lock(self) -> None:
        smallest, dual = min(self._gaps), self._duals[-1]
        last_smallest, last_dual = self._last_lock
        self.has_stalled = smallest > _NO_BETTER * last_smallest and dual - last_dual < _NO_HIGHER * min(
            smallest, abs(dual)
        )
        self._last_lock = smallest, dual
