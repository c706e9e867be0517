"""A low-rank picture of the kernel matrix, K ~ L L' + diag(residual), and Newton's system solved with it.

Pivots are rows drawn at random (Nystroem): L = K[:, pivots] R^-T with R R' = K[pivots, pivots]. L costs n * rank kernel
evaluations; a system costs one product with L and its transpose.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, solve_triangular

from widemargin.kernels import Rows

# Sums over more rows than this are gathered in float64: a long float32 sum loses the identity in I + L'EL.
_CHUNK = 4096
_STALE_SHARE = 0.05  # of the rows may have changed curvature before the system is factored anew
_SMALLEST_RANK, _LARGEST_FIRST_RANK = 500, 1000


class LowRank:
    """K ~ L L' + diag(residual). `grow` doubles the rank while the memory allows; at full rank the picture is exact."""

    def __init__(self, rows: Rows, memory: int, rng: np.random.Generator):
        self._rows = rows
        self._order = rng.permutation(rows.n)
        self._diagonal = rows.diag()
        # L is made from a block of its own size.
        self.largest_rank = max(1, min(rows.n, memory // (2 * rows.dtype.itemsize * rows.n)))
        wanted = min(_LARGEST_FIRST_RANK, max(_SMALLEST_RANK, 4 * int(np.sqrt(rows.n))))
        self._build(min(self.largest_rank, wanted))

    def grow(self) -> bool:
        """Twice the rank, or False where there is no room for more."""
        if self.rank == self.largest_rank:
            return False
        self._build(min(self.largest_rank, 2 * self.rank))
        return True

    def _build(self, rank: int) -> None:
        self.rank = rank
        pivots = np.sort(self._order[:rank])
        core = self._rows.block(pivots, pivots).astype(np.float64)
        factor = _safe_cholesky(0.5 * (core + core.T)).astype(self._rows.dtype)
        # K is symmetric, so the rows of the pivots are its columns too.
        self.L = solve_triangular(factor, self._rows.block(pivots), lower=True, overwrite_b=True, check_finite=False).T
        self.residual = np.maximum(self._diagonal - np.einsum("ij,ij->i", self.L, self.L), 0.0)


class NewtonSystem:
    """z = (I + H K~)^-1 r for a diagonal H >= 0, with K~ the low-rank picture. H follows the problem's curvature."""

    def __init__(self, picture: LowRank):
        self.picture = picture
        self._rank = 0

    def solve(self, H: np.ndarray, r: np.ndarray) -> np.ndarray:
        # With M = I + H R, E = M^-1 H and S = I + L'EL:  z = M^-1 r - E L S^-1 L' M^-1 r  (Woodbury).
        # A rough picture is not made better by the latest curvature; an exact one is.
        patience = 0 if self.picture.rank == len(H) else _STALE_SHARE * len(H)
        if self._rank != self.picture.rank or np.count_nonzero(self._H != H) > patience:
            self._factor(H)
        if self._core is None:
            return r
        L = self.picture.L
        base = r / (1 + self._H * self.picture.residual)
        inner = cho_solve(self._core, (L.T @ base.astype(L.dtype)).astype(np.float64))
        z = base - self._E * (L @ inner.astype(L.dtype))
        return z if np.isfinite(z).all() else r

    def _factor(self, H: np.ndarray) -> None:
        L = self.picture.L
        self._rank = self.picture.rank
        self._H = H
        self._E = H / (1 + H * self.picture.residual)
        S = np.eye(self._rank)
        for start in range(0, len(H), _CHUNK):
            part = slice(start, start + _CHUNK)
            scaled = L[part] * np.sqrt(self._E[part]).astype(L.dtype)[:, None]
            S += scaled.T @ scaled
        try:
            self._core = cho_factor(S, lower=True, overwrite_a=True)
        except LinAlgError:
            self._core = None  # no preconditioner is better than a wrong one


def _safe_cholesky(core: np.ndarray) -> np.ndarray:
    """The lower factor of core, lifted by as little of the identity as makes it positive definite."""
    lift = 1e-6 * max(float(np.diag(core).mean()), np.finfo(np.float32).tiny)
    while True:
        try:
            return cholesky(core + lift * np.eye(len(core)), lower=True)
        except LinAlgError:
            lift *= 10
