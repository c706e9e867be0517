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
# |x|^2 - 2 x.z + |z|^2 loses what |x - z|^2 keeps: beyond this error in the exponent GEMM gives way to the fused loop.
_EXPONENT_ERROR = 1e-5


class Kernel(ABC):
    """k(x, z). Frozen: a kernel is its formula and its numbers."""

    is_difference = False  # a function of x - z alone: the data may be centred

    @property
    def is_definite(self) -> bool:
        """Whether every kernel matrix is positive semidefinite, whatever the rows."""
        return True

    @abstractmethod
    def tile(self, left: Block, right: Block, out: np.ndarray) -> None:
        """out[i, j] = k(left_i, right_j), in out's dtype; out is C-contiguous."""

    @abstractmethod
    def diagonal(self, points: Points) -> np.ndarray:
        """k(x_i, x_i), float64."""


class _ProductKernel(Kernel):
    """k(x, z) = h(x.z)."""

    def tile(self, left, right, out):
        products(left, right, out)
        self._apply(out)

    def diagonal(self, points):
        norms = np.concatenate([points.block(chunk, np.float64).squared_norms for chunk in points.chunks()])
        too_long = ~np.isfinite(norms)
        self._apply(norms[:, None])
        norms[too_long] = np.inf  # a bounded h would hide that the products with other rows are not numbers
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
    degree: int
    coef0: float

    @property
    def is_definite(self):
        return self.coef0 >= 0

    def _apply(self, products):
        scalar = products.dtype.type
        compiled.powers(products, scalar(self.gamma), scalar(self.coef0), self.degree)


@dataclass(frozen=True)
class Sigmoid(_ProductKernel):
    """tanh(gamma x.z + coef0): seldom positive semidefinite, and without that a closed gap does not say optimal."""

    gamma: float
    coef0: float

    @property
    def is_definite(self):
        return False

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
        if not left.is_sparse and (left.rows.shape[1] <= _FUSED_FEATURES or self._cancels(left, right, out.dtype)):
            compiled.squared_distances(left.rows, right.transposed, out)
            compiled.exp_scaled(out, scalar(-self.gamma))
        else:
            products(left, right, out)
            shrink = scalar(-self.gamma)
            compiled.exp_of_products(
                out, shrink * left.squared_norms, shrink * right.squared_norms, scalar(2 * self.gamma)
            )

    def _cancels(self, left, right, dtype) -> bool:
        longest = max(left.squared_norms.max(), right.squared_norms.max())
        return not self.gamma * float(longest) * np.finfo(dtype).eps < _EXPONENT_ERROR


@dataclass(frozen=True)
class Laplacian(_DifferenceKernel):
    """exp(-gamma |x - z|_1)"""

    gamma: float

    def tile(self, left, right, out):
        if left.is_sparse:
            compiled.sparse_absolute_distances(
                *_compressed(left.rows), left.absolute_sums, *_compressed(right.transposed), right.absolute_sums, out
            )
        else:
            compiled.absolute_distances(left.rows, right.transposed, out)
        compiled.exp_scaled(out, out.dtype.type(-self.gamma))


@dataclass(frozen=True)
class Custom(Kernel):
    """A user's function of two blocks of rows, k(X, Z) -> array (rows of X, rows of Z), as SVC takes it."""

    is_definite = False
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
    # Plain floats: a NumPy float64 scalar would make every float32 pass over a tile a float64 one.
    gamma, coef0 = float(gamma), float(coef0)
    if degree != int(degree) or degree < 0:
        raise ValueError(f"degree={degree!r}: the polynomial kernel takes a whole degree, 0 or more.")
    return {
        "linear": lambda: Linear(),
        "rbf": lambda: RBF(gamma),
        "laplacian": lambda: Laplacian(gamma),
        "poly": lambda: Polynomial(gamma, int(degree), coef0),
        "sigmoid": lambda: Sigmoid(gamma, coef0),
    }[kernel]()


def products(left: Block, right: Block, out: np.ndarray) -> None:
    """out[i, j] = left_i . right_j: a GEMM, or a sparse product where the data is sparse and wide."""
    if left.is_sparse:
        compiled.sparse_products(*_compressed(left.rows), *_compressed(right.transposed), out)
    else:
        np.matmul(left.rows, right.rows.T, out=out)


def _compressed(matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return matrix.data, matrix.indices, matrix.indptr
