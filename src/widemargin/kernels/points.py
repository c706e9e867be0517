"""Rows of a data matrix, handed out in blocks of the dtype that a tile is computed in.

The data stays as the user gave it (dense or CSR, float32 or float64): only the block in hand is converted, so float32
data never has a float64 copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

Index = slice | np.ndarray

# Wider CSR data is multiplied in sparse form; narrower is cheaper to make dense a block at a time, for the GEMM.
_WIDEST_DENSE_BLOCK = 2048
_CHUNK_BYTES = 16 << 20


def is_sparse(X: Any) -> bool:
    return bool(sp.issparse(X))


class Points:
    """Rows of X (all, or those of `index` in its order: never a copy), seen from `centre`.

    The centre is subtracted from dense blocks; kernels of differences do not mind, and float32 products gain digits.
    """

    def __init__(self, X, centre: np.ndarray | None = None, index: np.ndarray | None = None):
        self.X = X
        self.centre = centre
        self.index = index
        self.n = X.shape[0] if index is None else len(index)
        self.d = X.shape[1]
        self.is_sparse = is_sparse(X)
        self.is_wide_sparse = self.is_sparse and self.d > _WIDEST_DENSE_BLOCK

    def __len__(self) -> int:
        return self.n

    def subset(self, index: Index) -> Points:
        chosen = np.arange(self.n)[index] if self.index is None else self.index[index]
        return Points(self.X, self.centre, chosen)

    def block(self, index: Index, dtype) -> Block:
        rows = self._rows(index)
        if self.is_wide_sparse:
            rows = rows.astype(dtype)
            rows.sum_duplicates()
            return Block(rows)
        if self.is_sparse:
            rows = rows.toarray()
        if self.centre is not None:
            # Before the change of type: float64 data far from zero keeps its digits.
            rows = rows - self.centre.astype(np.result_type(rows, np.float32))
        return Block(np.ascontiguousarray(rows, dtype=dtype))

    def operand_bytes(self, n_rows: int, itemsize: int) -> int:
        """Bytes of a tile's operands: two blocks, the transpose of one, and a block on its way to the tile's type."""
        if not self.is_wide_sparse:
            return 4 * n_rows * self.d * itemsize
        row_length = self.X.nnz / max(1, self.X.shape[0])
        return int(4 * n_rows * row_length * (itemsize + self.X.indices.itemsize)) + self.d * self.X.indices.itemsize

    @property
    def pair_cost(self) -> float:
        """Multiply-adds of a GEMM that x.z is worth; a pair of stored values that meet costs some fifty."""
        if not self.is_wide_sparse:
            return self.d
        row_length = self.X.nnz / max(1, self.X.shape[0])
        return 50 * row_length**2 / self.d

    def means(self) -> np.ndarray:
        """The column means in float64, without a float64 copy of the data."""
        total = np.zeros(self.d)
        for chunk in self.chunks():
            total += np.asarray(self._rows(chunk).astype(np.float64).sum(axis=0)).ravel()
        return total / self.n

    def variance(self, weight: np.ndarray) -> float:
        """The variance of all entries, each row counted `weight` times."""
        count = weight.sum() * self.d
        mean = sum(float(weight[chunk] @ self._row_sums(chunk, 0.0, 1)) for chunk in self.chunks()) / count
        # About the mean, in a second pass: the difference of two large numbers would lose its digits.
        return sum(float(weight[chunk] @ self._row_sums(chunk, mean, 2)) for chunk in self.chunks()) / count

    def _row_sums(self, index: Index, centre: float, power: int) -> np.ndarray:
        """sum_j (x_ij - centre)^power, float64; what a sparse row does not store counts as zero."""
        rows = self._rows(index)
        if not is_sparse(rows):
            return ((rows.astype(np.float64) - centre) ** power).sum(axis=1)
        rows = rows.astype(np.float64)
        rows.sum_duplicates()
        stored = np.diff(rows.indptr)
        rows.data = (rows.data - centre) ** power
        return np.asarray(rows.sum(axis=1)).ravel() + (self.d - stored) * (-centre) ** power

    def chunks(self):
        """Slices of rows that take a few MiB each in float64."""
        step = max(1, _CHUNK_BYTES // max(1, self.operand_bytes(1, 8)))
        return [slice(start, min(start + step, self.n)) for start in range(0, self.n, step)]

    def _rows(self, index: Index) -> Any:
        if self.index is None:
            return self.X[index]
        chosen = self.index[index]
        # take copies row by row, thrice as fast as indexing does
        return self.X[chosen] if self.is_sparse else self.X.take(chosen, axis=0)


@dataclass(frozen=True)
class Block:
    """A few rows in a tile's dtype: a dense array, or CSR where the data is sparse and wide."""

    rows: Any

    def __len__(self) -> int:
        return self.rows.shape[0]

    @property
    def is_sparse(self) -> bool:
        return is_sparse(self.rows)

    @cached_property
    def transposed(self):
        return self.rows.tocsc() if self.is_sparse else np.ascontiguousarray(self.rows.T)

    @cached_property
    def squared_norms(self) -> np.ndarray:
        if self.is_sparse:
            return np.asarray(self.rows.multiply(self.rows).sum(axis=1)).ravel().astype(self.rows.dtype)
        return np.einsum("ij,ij->i", self.rows, self.rows)

    @cached_property
    def absolute_sums(self) -> np.ndarray:
        return np.asarray(abs(self.rows).sum(axis=1)).ravel().astype(self.rows.dtype)


class Blocks:
    """The blocks of a product, in the tiles' dtype: each is made once where `memory` holds them all."""

    def __init__(self, points: Points, dtype, step: int, memory: int):
        self._points = points
        self._dtype = np.dtype(dtype)
        needed = -(-len(points) // step) * points.operand_bytes(step, self._dtype.itemsize)
        self.bytes = needed if needed <= memory else 0
        self._kept: dict[int, Block] = {}

    def __getitem__(self, place: slice) -> Block:
        block = self._kept.get(place.start)
        if block is None:
            block = self._points.block(place, self._dtype)
            if self.bytes:
                self._kept[place.start] = block  # two threads may both make it: the same block
        return block
