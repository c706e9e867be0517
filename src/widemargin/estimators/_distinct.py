"""Each distinct row once: rows that agree in features and label become one row with the sum of their weights.

The problem is the same, smaller; a weight of two and a row given twice are the same problem to the last bit, because
the distinct rows are put in an order that depends on their values alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from widemargin.kernels import is_sparse

_CHUNK_VALUES = 1 << 20  # values looked at together


@dataclass(frozen=True)
class Distinct:
    """`first[k]` is a row of the data that shows distinct row k; `group[i]` the distinct row of kept[i]."""

    first: np.ndarray
    kept: np.ndarray
    group: np.ndarray
    weight: np.ndarray  # of the distinct rows
    share: np.ndarray  # of each kept row in its distinct row's weight

    def gather(self, g: np.ndarray) -> np.ndarray:
        """Coefficients of all rows -> of the distinct rows."""
        return np.stack([np.bincount(self.group, column[self.kept], len(self.first)) for column in g.T], axis=1)

    def spread(self, g: np.ndarray, n: int) -> np.ndarray:
        """Coefficients of the distinct rows -> of all n rows, by their weights: feasible, with the same dual value."""
        full = np.zeros((n, g.shape[1]))
        full[self.kept] = g[self.group] * self.share[:, None]
        return full


def find_distinct(X: Any, labels: np.ndarray, weight: np.ndarray, merge: bool = True) -> Distinct:
    """The distinct rows of positive weight. With merge=False every row of positive weight stands for itself."""
    kept = np.flatnonzero(weight > 0)
    if not merge:
        everyone = np.arange(len(kept))
        return Distinct(kept, kept, everyone, weight[kept], np.ones(len(kept)))
    order = kept[np.lexsort((kept, labels[kept], _hashes(X)[kept]))]
    starts = np.concatenate([[True], ~_equal_neighbours(X, labels, order)])
    group = np.cumsum(starts) - 1
    total = np.bincount(group, weight[order])
    return Distinct(order[starts], order, group, total, weight[order] / total[group])


def _hashes(X: Any) -> np.ndarray:
    """A 64-bit hash of each row's values: their bits, each column's times a random odd number, summed and mixed."""
    rng = np.random.default_rng(20260101)
    factors = rng.integers(0, 2**63, X.shape[1], dtype=np.uint64) * 2 + 1
    if is_sparse(X):
        # Differences of running sums are right modulo 2^64, which is all that a hash needs.
        def hashes(rows):
            running = np.zeros(rows.nnz + 1, np.uint64)
            np.cumsum(_bits(rows.data) * factors[rows.indices], out=running[1:])
            return running[rows.indptr[1:]] - running[rows.indptr[:-1]]
    else:

        def hashes(rows):
            return (_bits(rows) * factors).sum(axis=1, dtype=np.uint64)

    sums = np.empty(X.shape[0], np.uint64)
    step = _chunk_rows(X)
    for start in range(0, len(sums), step):
        part = slice(start, start + step)
        sums[part] = hashes(X[part])
    sums ^= sums >> np.uint64(31)
    sums *= np.uint64(0x9E3779B97F4A7C15)
    return sums ^ (sums >> np.uint64(29))


def _bits(values: np.ndarray) -> np.ndarray:
    values = np.ascontiguousarray(values) + 0.0  # -0.0 is 0.0
    return values.view(f"u{values.dtype.itemsize}").astype(np.uint64)


def _equal_neighbours(X: Any, labels: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Whether order[k] and order[k + 1] are the same row with the same label."""
    left, right = order[:-1], order[1:]
    equal = labels[left] == labels[right]
    step = _chunk_rows(X)
    for start in range(0, len(left), step):
        part = slice(start, start + step)
        if is_sparse(X):
            same = np.diff((X[left[part]] != X[right[part]]).tocsr().indptr) == 0
        else:
            same = (X[left[part]] == X[right[part]]).all(axis=1)
        equal[part] &= same
    return equal


def _chunk_rows(X: Any) -> int:
    row_length = X.nnz // X.shape[0] if is_sparse(X) else X.shape[1]
    return max(1, _CHUNK_VALUES // max(1, row_length))
