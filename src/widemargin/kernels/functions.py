"""The kernels: k(x, z) for blocks of rows.

A kernel fills a tile, `tile(left, right, out)`: out[i, j] = k(left_i, right_j). Two routes lead there. Kernels of the
product x.z are one GEMM and one pass over the tile; kernels of the difference x - z in few dimensions are one fused
loop. Measurements of both: docs/design/kernels.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from widemargin.kernels import compiled
from widemargin.kernels.points import Block, Points

NAMES = ("linear", "rbf", "laplacian", "poly", "sigmoid", "precomputed")

# Up to this many features the fused loop beats GEMM and pass.
_FUSED_FEATURES = 12


class Kernel(ABC):
    """k(x, z). Frozen: a kernel is its formula and its numbers."""

    is_difference = False  # a function of x - z alone: the data may be centred

    @abstractmethod
    def tile(self, left: Block, right: Block, out: np.ndarray) -> None:
        """out[i, j] = k(left_i, right_j), in out's dtype."""

    @abstractmethod
    def diagonal(self, points: Points) -> np.ndarray:
        """k(x_i, x_i), float64."""


class _ProductKernel(Kernel):
    """k(x, z) = h(x.z)."""

    def tile(self, left, right, out):
        products(left, right, out)
        self._apply(out)

    def diagonal(self, points):
        norms = np.concatenate([points.block(chunk, np.float64).squared_norms for chunk in _chunks(points)])
        self._apply(norms[:, None])
        return norms

    @abstractmethod
    def _apply(self, products: np.ndarray) -> None: ...


@dataclass(frozen=True)
class Linear(_ProductKernel):
    """x.z"""

    def _apply(self, products):
        pass


@dataclass(frozen=True)
class Polynomial(_ProductKernel):
    """(gamma x.z + coef0)^degree"""

    gamma: float
    degree: float
    coef0: float

    def _apply(self, products):
        products *= self.gamma
        products += self.coef0
        np.power(products, int(self.degree) if self.degree == int(self.degree) else self.degree, out=products)


@dataclass(frozen=True)
class Sigmoid(_ProductKernel):
    """tanh(gamma x.z + coef0): not positive definite; a closed gap then says stationary, not optimal."""

    gamma: float
    coef0: float

    def _apply(self, products):
        products *= self.gamma
        products += self.coef0
        np.tanh(products, out=products)


class _DifferenceKernel(Kernel):
    is_difference = True

    def diagonal(self, points):
        return np.ones(len(points))


@dataclass(frozen=True)
class RBF(_DifferenceKernel):
    """exp(-gamma |x - z|^2)"""

    gamma: float

    def tile(self, left, right, out):
        scalar = out.dtype.type
        if left.rows.shape[1] <= _FUSED_FEATURES and not left.is_sparse:
            compiled.squared_distances(left.rows, right.transposed, out)
            compiled.exp_scaled(out, scalar(-self.gamma))
        else:
            products(left, right, out)
            shrink = scalar(-self.gamma)
            compiled.exp_of_products(
                out, shrink * left.squared_norms, shrink * right.squared_norms, scalar(2 * self.gamma)
            )


@dataclass(frozen=True)
class Laplacian(_DifferenceKernel):
    """exp(-gamma |x - z|_1)"""

    gamma: float

    def tile(self, left, right, out):
        for i, rows in left.pieces():
            for j, columns in right.pieces():
                corner = out[i, j]
                compiled.absolute_distances(rows.dense, columns.transposed, corner)
                compiled.exp_scaled(corner, out.dtype.type(-self.gamma))


@dataclass(frozen=True)
class Custom(Kernel):
    """A user's function of two blocks of rows, k(X, Z) -> array (rows of X, rows of Z), as SVC takes it."""

    function: Callable

    def tile(self, left, right, out):
        values = np.asarray(self.function(left.rows, right.rows))
        if values.shape != out.shape:
            raise ValueError(
                f"The kernel function returned an array of shape {values.shape} for {len(left)} and {len(right)} rows: "
                f"it must return shape {out.shape}, one value for every pair of rows."
            )
        if values.dtype.kind not in "fiub" or not np.isfinite(values).all():
            raise ValueError("The kernel function returned values that are not finite real numbers.")
        out[...] = values

    def diagonal(self, points):
        out = np.empty((1, 1))
        values = np.empty(len(points))
        for i in range(len(points)):
            row = points.block(slice(i, i + 1), points.X.dtype)
            self.tile(row, row, out)
            values[i] = out[0, 0]
        return values


def make_kernel(kernel: str | Callable, gamma: float, degree: float, coef0: float) -> Kernel:
    """The kernel of that name (`precomputed` has no formula: see rows.GivenRows)."""
    if callable(kernel):
        return Custom(kernel)
    return {
        "linear": lambda: Linear(),
        "rbf": lambda: RBF(gamma),
        "laplacian": lambda: Laplacian(gamma),
        "poly": lambda: Polynomial(gamma, degree, coef0),
        "sigmoid": lambda: Sigmoid(gamma, coef0),
    }[kernel]()


def products(left: Block, right: Block, out: np.ndarray) -> None:
    """out[i, j] = left_i . right_j: a GEMM, or a sparse-dense product where the data is sparse and wide."""
    if not left.is_sparse:
        np.matmul(left.rows, right.rows.T, out=out)
        return
    rows = left.rows
    everything = np.arange(len(left))
    for place, piece in right.pieces():
        compiled.sparse_products(rows.data, rows.indices, rows.indptr, everything, piece.transposed, out[:, place])


def _chunks(points: Points, step: int = 4096):
    return [slice(start, start + step) for start in range(0, len(points), step)]
