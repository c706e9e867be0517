"""What the course of a climb tells: how far it still is, whether it is locked, whether it has stalled."""

from __future__ import annotations

import numpy as np

# The pace that a forecast goes by is that of so many epochs.
_EPOCHS = 5
# Locked: the gap has not fallen to this share of itself in that time.
_LOCKED_SHARE = 0.98
_FIRST_STAY = 10
# An escape pays where the smallest gap falls to this share of itself from one lock to the next. Stalled: it does not
# pay, and neither bound has moved by this share of the gap (or of itself).
_PAYS, _MOVES = 0.99, 1e-4


class Pace:
    """The gaps, epoch by epoch, the best bounds, and what the climb should follow."""

    def __init__(self):
        self._gaps: list[float] = []
        self._primal, self._dual = np.inf, -np.inf  # the best bounds so far
        self._begun = 0  # the epoch at which the present way of climbing began
        self._locked_until = 0
        self._stay = _FIRST_STAY
        self._last_lock = np.inf, np.inf, -np.inf  # the smallest gap and the bounds then
        self.escape = "dual"
        self.has_stalled = False

    def add(self, primal: float, dual: float) -> None:
        self._gaps.append(primal - dual)
        self._primal, self._dual = min(self._primal, primal), max(self._dual, dual)

    def begin_anew(self, is_exact: bool) -> None:
        """Past epochs say nothing about those to come: a picture has come, exact or not."""
        self._begun = len(self._gaps)
        self.escape = "primal" if is_exact else "dual"

    def epochs_left(self, target: float) -> float:
        """Epochs to come until the gap is at the target, at the present pace; 0 while there is no pace yet."""
        recent = self._gaps[self._begun :]
        if len(recent) <= _EPOCHS:
            return 0.0
        pace = np.log(recent[-1 - _EPOCHS] / recent[-1]) / _EPOCHS
        return np.log(recent[-1] / target) / pace if pace > 0 else np.inf

    def is_best(self) -> bool:
        return self._gaps[-1] <= min(self._gaps)

    def merit(self) -> str:
        """What to follow in the next epoch: the gap, and where it is locked the primal or the dual for a while.

        Each lock doubles the while, and an escape that did not pay gives way to the other.
        """
        epoch = len(self._gaps)
        if epoch < self._locked_until:
            return self.escape
        recent = self._gaps[max(self._begun, self._locked_until) :]
        if len(recent) <= _EPOCHS or recent[-1] <= _LOCKED_SHARE * recent[-1 - _EPOCHS]:
            return "gap"
        self._compare_with_last_lock()
        self._locked_until = epoch + self._stay
        self._stay *= 2
        return self.escape

    def _compare_with_last_lock(self) -> None:
        smallest = min(self._gaps)
        last_smallest, last_primal, last_dual = self._last_lock
        if smallest > _PAYS * last_smallest:
            self.escape = "dual" if self.escape == "primal" else "primal"
            moved = max(last_primal - self._primal, self._dual - last_dual)
            self.has_stalled = moved < _MOVES * min(smallest, abs(self._primal))
        self._last_lock = smallest, self._primal, self._dual
