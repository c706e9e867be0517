"""Rows of a data matrix, handed out in blocks of the dtype that a tile is computed in.

The data stays as the user gave it (dense or CSR, float32 or float64): only the block in hand is converted, so float32
data never has a float64 copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

Index = slice | np.ndarray

# Wider CSR data is multiplied in sparse form; narrower is cheaper to make dense a block at a time, for the GEMM.
_WIDEST_DENSE_BLOCK = 2048
_SPARSE_OPERAND_BYTES = 16 << 20


class Points:
    """The rows of X, seen from `centre` (subtracted from dense blocks; kernels of differences do not mind)."""

    def __init__(self, X, centre: np.ndarray | None = None):
        self.X = X
        self.centre = centre
        self.n, self.d = X.shape
        self.is_wide_sparse = sp.issparse(X) and self.d > _WIDEST_DENSE_BLOCK

    def __len__(self) -> int:
        return self.n

    def subset(self, index: Index) -> Points:
        return Points(self.X[index], self.centre)

    def block(self, index: Index, dtype) -> Block:
        rows = self.X[index]
        if self.is_wide_sparse:
            return Block(rows.astype(dtype))
        if sp.issparse(rows):
            rows = rows.toarray()
        rows = np.ascontiguousarray(rows, dtype=dtype)
        if self.centre is not None:
            rows = rows - self.centre.astype(dtype)
        return Block(rows)

    def means(self) -> np.ndarray:
        """The column means in float64, without a float64 copy of the data."""
        if sp.issparse(self.X):
            return np.asarray(self.X.mean(axis=0, dtype=np.float64)).ravel()
        return self.X.mean(axis=0, dtype=np.float64)


@dataclass(frozen=True)
class Block:
    """A few rows in a tile's dtype: a dense array, or CSR where the data is sparse and wide."""

    rows: np.ndarray

    def __len__(self) -> int:
        return self.rows.shape[0]

    @property
    def is_sparse(self) -> bool:
        return sp.issparse(self.rows)

    @cached_property
    def transposed(self) -> np.ndarray:
        return np.ascontiguousarray(self.dense.T)

    @property
    def dense(self) -> np.ndarray:
        return self.rows.toarray() if self.is_sparse else self.rows

    @cached_property
    def squared_norms(self) -> np.ndarray:
        if self.is_sparse:
            return np.asarray(self.rows.multiply(self.rows).sum(axis=1)).ravel().astype(self.rows.dtype)
        return np.einsum("ij,ij->i", self.rows, self.rows)

    def pieces(self):
        """(place, block) pairs whose dense transposes stay small: the right operands of a sparse product."""
        width = self.rows.shape[1] * self.rows.dtype.itemsize
        step = max(1, _SPARSE_OPERAND_BYTES // max(1, width))
        for start in range(0, len(self), step):
            place = slice(start, start + step)
            yield place, Block(self.rows[place])
