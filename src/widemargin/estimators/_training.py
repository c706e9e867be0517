"""From X, y and weights to what a solver works on: distinct rows, their classes and costs, and kernel rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import compute_class_weight

from widemargin.engines import LocalEngine
from widemargin.estimators._distinct import Distinct, find_distinct
from widemargin.kernels import GivenRows, Kernel, KernelRows, Points, Rows, is_sparse, make_kernel

# Up to so many rows, or below so small a tolerance, kernel entries are float64: nothing to gain from float32.
FEW_ROWS = 2048
_FINE_TOLERANCE = 1e-6
# Kernel values beyond this leave float32 no room for sums.
_LARGEST_SINGLE = 1e15


@dataclass(frozen=True)
class KernelChoice:
    """The kernel as the user named it."""

    kernel: str | Callable
    gamma: str | float
    degree: int
    coef0: float

    @property
    def is_given(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def make(self, points: Points, weight: np.ndarray) -> Kernel:
        return make_kernel(self.kernel, self._find_gamma(points, weight), self.degree, self.coef0)

    def _find_gamma(self, points: Points, weight: np.ndarray) -> float:
        """As SVC: "scale" is 1 / (n_features * variance of X), rows counted by weight; "auto" is 1 / n_features."""
        if not isinstance(self.gamma, str):
            return float(self.gamma)
        if callable(self.kernel) or self.kernel == "linear":
            return 1.0  # nobody asks for it
        if self.gamma == "auto":
            return 1 / points.d
        with np.errstate(over="ignore", invalid="ignore"):
            variance = points.variance(weight)
        if not np.isfinite(variance):
            raise ValueError(
                'The variance of X, which gamma="scale" divides by, is not a finite number: the values of X are too '
                "large. Scale the features, to [0, 1] say."
            )
        return 1 / (points.d * variance) if variance > np.finfo(float).tiny else 1.0


@dataclass(frozen=True)
class Training:
    """The reduced training set. `kernel` is None where the kernel matrix was given."""

    X: Any  # dense or CSR
    distinct: Distinct
    labels: np.ndarray  # of the distinct rows, as indices of classes
    kernel: Kernel | None
    centre: np.ndarray | None

    def rows(self, memory: int, tol: float, engine: LocalEngine) -> Rows:
        few = len(self.distinct.first) <= FEW_ROWS or tol < _FINE_TOLERANCE
        dtype = np.float64 if few else np.float32
        rows: Rows
        if self.kernel is None:
            rows = GivenRows(self.X, memory=memory, dtype=dtype, engine=engine, index=self.distinct.first)
        else:
            points = Points(self.X, self.centre, self.distinct.first)
            rows = KernelRows(points, self.kernel, memory=memory, dtype=dtype, engine=engine)
        largest = np.abs(rows.diag()).max()
        if not np.isfinite(largest):
            raise ValueError(
                "The kernel of a row with itself is not a finite number: X is too large for this kernel. "
                "Scale the features, to [0, 1] say, or lower gamma or degree."
            )
        return rows.in_dtype(np.float64) if largest > _LARGEST_SINGLE else rows

    def signs(self, n_classes: int) -> list[np.ndarray]:
        """Labels -1 and +1 of the machines: one for two classes (+1 is the second), else one a class."""
        positives = [1] if n_classes == 2 else range(n_classes)
        return [np.where(self.labels == positive, 1.0, -1.0) for positive in positives]


def prepare(X: Any, labels: np.ndarray, weight: np.ndarray, choice: KernelChoice) -> Training:
    """Merge equal rows, and give the kernel its numbers."""
    if choice.is_given:
        _check_given(X)
    distinct = find_distinct(X, labels, weight, merge=not choice.is_given)
    kernel = centre = None
    if not choice.is_given:
        points = Points(X, index=distinct.first)
        kernel = choice.make(points, distinct.weight)
        centre = points.means() if kernel.is_difference and not is_sparse(X) else None
    return Training(X, distinct, labels[distinct.first], kernel, centre)


def weigh_classes(class_weight: Any, classes: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The factor of each class; refuses a class that no row of positive weight shows."""
    present = np.bincount(labels, weight > 0, len(classes)) > 0
    if not present.all():
        raise ValueError(
            f"sample_weight leaves class {classes[~present].tolist()[0]!r} without a row of positive weight: "
            "every class needs one, or leave the rows of that class out of X and y."
        )
    factors = compute_class_weight(class_weight, classes=classes, y=classes[labels], sample_weight=weight)
    usable = np.isfinite(factors) & (factors > 0)
    if not usable.all():
        raise ValueError(
            f"class_weight gives class {classes[~usable].tolist()[0]!r} the weight {factors[~usable][0]:g}: give a "
            "number above zero, or leave the rows of that class out of X and y."
        )
    return factors


def _check_given(K: np.ndarray) -> None:
    if K.shape[0] != K.shape[1]:
        raise ValueError(
            f'kernel="precomputed" takes the square matrix of the kernel between all rows, and X has shape {K.shape}: '
            "give K(X_train, X_train) to fit and K(X_test, X_train) to predict."
        )
    scale = np.abs(K.diagonal()).max()
    for start in range(0, len(K), 256):
        part = slice(start, start + 256)
        if np.abs(K[part] - K[:, part].T).max() > 1e-4 * scale:
            raise ValueError(
                'kernel="precomputed" takes a symmetric matrix, and X is not: give (X + X.T) / 2 if it should be.'
            )
