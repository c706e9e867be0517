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
_FEW_ROWS = 500  # for so few the picture is exact
_SMALLEST_RANK, _LARGEST_FIRST_RANK = 200, 1000
# A row's passes besides the multiply-adds, in multiply-adds, for each column of L.
_PASSES = 100
# So much of the curvature may have changed before the system is factored anew: the more, the dearer that is.
_STALE_SHARES, _STALE_SHARE_AT_PAR = (0.05, 0.5), 0.2


class LowRank:
    """K ~ L L' + diag(residual). `grow` doubles the rank while the memory allows; at full rank the picture is exact."""

    def __init__(self, rows: Rows, memory: int, rng: np.random.Generator, n_systems: int = 1):
        self.rows = rows
        self._order = rng.permutation(rows.n)
        self._diagonal = rows.diag()
        self.parts = [slice(start, min(start + _CHUNK, rows.n)) for start in range(0, rows.n, _CHUNK)]
        self.map = rows.engine.map
        self.product_cost = rows.product_cost
        # Two fifths of the memory for L, the rest for the systems' factors and for what is on its way.
        for_L = int(0.4 * memory) // (rows.dtype.itemsize * rows.n)
        for_factors = int(np.sqrt(memory / (4 * 8 * n_systems)))
        self.largest_rank = max(1, min(rows.n, for_L, for_factors))
        wanted = min(_LARGEST_FIRST_RANK, max(_SMALLEST_RANK, 4 * int(np.sqrt(rows.n))))
        self._build(min(self.largest_rank, rows.n if rows.n <= _FEW_ROWS else wanted))

    @property
    def larger_rank(self) -> int:
        return min(self.largest_rank, 2 * self.rank)

    def growth_cost(self) -> float:
        """Multiply-adds to grow and to factor the system that follows; infinite where there is no room."""
        rank = self.larger_rank
        if rank == self.rank:
            return np.inf
        return self.rows.n * rank * (self.rows.entry_cost + rank) + self.factor_cost(rank)

    def factor_cost(self, rank: int) -> float:
        return self.rows.n * rank * (rank / 2 + _PASSES)

    @property
    def patience(self) -> float:
        """The share of the curvature that may have changed before a system is factored anew."""
        if self.rank == self.rows.n:
            return 0.0  # an exact picture is made better by the latest curvature, a rough one is not
        lowest, highest = _STALE_SHARES
        at_par = self.factor_cost(self.rank) / self.product_cost
        return min(highest, max(lowest, _STALE_SHARE_AT_PAR * at_par))

    def grow(self) -> None:
        self._build(self.larger_rank)

    def _build(self, rank: int) -> None:
        self.rank = rank
        self.L = np.empty((0, 0))  # the last one goes before the next one comes
        pivots = np.sort(self._order[:rank])
        core = self.rows.block(pivots, pivots).astype(np.float64)
        factor = _safe_cholesky(0.5 * (core + core.T))
        # Not solve_triangular chunk by chunk: SciPy holds the interpreter's lock there, and one core would idle.
        inverse = solve_triangular(factor, np.eye(rank), lower=True, check_finite=False).astype(self.rows.dtype)
        self.L = np.empty((self.rows.n, rank), self.rows.dtype)
        self.residual = np.empty(self.rows.n)

        def fill(part: slice) -> None:
            # K is symmetric, so the rows of the pivots are its columns too.
            block = self.rows.block(pivots, np.arange(part.start, part.stop))
            L = self.L[part]
            np.matmul(block.T, inverse.T, out=L)
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
        step = 2 * self.rows.engine.n_workers  # so many partial sums are held at a time
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
        if self._rank != self.picture.rank or np.abs(self._H - H).sum() > self.picture.patience * self._H.sum():
            self._factor(H)
        if self._core is None:
            return r
        base = r / (1 + self._H * self.picture.residual)
        inner = cho_solve(self._core, self.picture.project(base), check_finite=False)
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
