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
_STALE_SHARE = 0.05  # so much of the curvature may have changed before the system is factored anew
_SMALLEST_RANK, _LARGEST_FIRST_RANK = 500, 1000


class LowRank:
    """K ~ L L' + diag(residual). `grow` doubles the rank while the memory allows; at full rank the picture is exact."""

    def __init__(self, rows: Rows, memory: int, rng: np.random.Generator, n_systems: int = 1):
        self._rows = rows
        self._order = rng.permutation(rows.n)
        self._diagonal = rows.diag()
        self.parts = [slice(start, min(start + _CHUNK, rows.n)) for start in range(0, rows.n, _CHUNK)]
        self.map = rows.engine.map
        # Half of the memory for L and its successor, half for the systems' factors.
        for_L = memory // (4 * rows.dtype.itemsize * rows.n)
        for_factors = int(np.sqrt(memory / (4 * 8 * n_systems)))
        self.largest_rank = max(1, min(rows.n, for_L, for_factors))
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
        self.L = np.empty((self._rows.n, rank), self._rows.dtype)
        self.residual = np.empty(self._rows.n)

        def fill(part: slice) -> None:
            # K is symmetric, so the rows of the pivots are its columns too.
            block = self._rows.block(pivots, np.arange(part.start, part.stop))
            L = self.L[part]
            L[:] = solve_triangular(factor, block, lower=True, overwrite_b=True, check_finite=False).T
            self.residual[part] = np.maximum(self._diagonal[part] - np.einsum("ij,ij->i", L, L), 0.0)

        self.map(fill, self.parts)

    def project(self, v: np.ndarray) -> np.ndarray:
        """L' v"""
        v = v.astype(self.L.dtype)
        return np.sum(self.map(lambda part: (v[part] @ self.L[part]).astype(np.float64), self.parts), axis=0)

    def lift(self, t: np.ndarray) -> np.ndarray:
        """L t"""
        t = t.astype(self.L.dtype)
        return np.concatenate(self.map(lambda part: self.L[part] @ t, self.parts))

    def gram(self, weight: np.ndarray) -> np.ndarray:
        """L' diag(weight) L"""

        def work(part: slice) -> np.ndarray:
            scaled = self.L[part] * np.sqrt(weight[part]).astype(self.L.dtype)[:, None]
            return scaled.T @ scaled

        total = np.zeros((self.rank, self.rank))
        step = 2 * self._rows.engine.n_workers  # so many partial sums are held at a time
        for start in range(0, len(self.parts), step):
            for partial in self.map(work, self.parts[start : start + step]):
                total += partial
        return total


class NewtonSystem:
    """z = (I + H K~)^-1 r for a diagonal H >= 0, with K~ the low-rank picture. H follows the problem's curvature."""

    def __init__(self, picture: LowRank):
        self.picture = picture
        self._rank = 0
        self._core: tuple | None = None

    def solve(self, H: np.ndarray, r: np.ndarray) -> np.ndarray:
        # With M = I + H R, E = M^-1 H and S = I + L'EL:  z = M^-1 r - E L S^-1 L' M^-1 r  (Woodbury).
        # A rough picture is not made better by the latest curvature; an exact one is.
        patience = 0 if self.picture.rank == len(H) else _STALE_SHARE
        if self._rank != self.picture.rank or np.abs(self._H - H).sum() > patience * self._H.sum():
            self._factor(H)
        if self._core is None:
            return r
        base = r / (1 + self._H * self.picture.residual)
        inner = cho_solve(self._core, self.picture.project(base))
        z = base - self._E * self.picture.lift(inner)
        return z if np.isfinite(z).all() else r

    def _factor(self, H: np.ndarray) -> None:
        self._rank = self.picture.rank
        self._H = H
        self._E = H / (1 + H * self.picture.residual)
        S = self.picture.gram(self._E)
        S[np.diag_indices_from(S)] += 1
        try:
            self._core = cho_factor(S, lower=True, overwrite_a=True)
        except LinAlgError:
            self._core = None  # no preconditioner is better than a wrong one


def _safe_cholesky(core: np.ndarray) -> np.ndarray:
    """The lower factor of core, lifted by as little of the identity as makes it positive definite."""
    lift = 1e-6 * max(float(np.diag(core).mean()), 1e-30)
    while True:
        try:
            return cholesky(core + lift * np.eye(len(core)), lower=True)
        except LinAlgError:
            lift *= 10
