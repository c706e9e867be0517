"""Who computes kernel rows. Solvers see only this:

    block(rows, columns)   K[rows][:, columns], in the working dtype
    matvec(v)              K v, for a vector or for several columns, summed in float64
    diag()                 the diagonal
    restrict(index)        the same kernel over some of the rows

and never know whether K is stored, partly stored or streamed: the memory budget decides. K is cut into square tiles
of which the lower triangle is enough; as many tiles as the budget holds are kept, the others are computed anew at
every product ("stored", "cached" and "streamed" are the three cases of one rule).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from widemargin.engines import LocalEngine
from widemargin.kernels import compiled
from widemargin.kernels.functions import Kernel
from widemargin.kernels.points import Index, Points

# Sums are gathered in so many partial vectors, in a fixed order: the same result for any number of workers.
_GROUPS = 8
_LARGEST_TILE = 1024
_SMALLEST_TILE = 64


class Rows(Protocol):
    """The contract between solvers and kernels."""

    n: int
    evaluations: int
    engine: LocalEngine

    def block(self, rows: Index, columns: Index | None = None) -> np.ndarray: ...
    def matvec(self, v: np.ndarray) -> np.ndarray: ...
    def diag(self) -> np.ndarray: ...
    def restrict(self, index: np.ndarray) -> Rows: ...


class KernelRows:
    """Rows of the kernel matrix of `points`, within `memory` bytes."""

    def __init__(self, points: Points, kernel: Kernel, *, memory: int, dtype, engine: LocalEngine):
        self.points = points
        self.kernel = kernel
        self.memory = memory
        self.dtype = np.dtype(dtype)
        self.engine = engine
        self.n = len(points)
        self.evaluations = 0
        self.tile_size = choose_tile_size(self.n, points.d, self.dtype.itemsize, memory, engine.n_workers)
        working = engine.n_workers * _tile_bytes(self.tile_size, points.d, self.dtype.itemsize)
        partial = _GROUPS * self.n * 8
        room = memory - working - partial
        self.n_kept = max(0, int(room // (self.tile_size**2 * self.dtype.itemsize)))
        self._tiles: dict[tuple[int, int], np.ndarray] = {}

    @property
    def storage(self) -> str:
        """How the budget lets K be held: "stored", "cached" (in part) or "streamed"."""
        n_tiles = len(list(_lower_triangle(self._places())))
        return "stored" if self.n_kept >= n_tiles else "cached" if self.n_kept else "streamed"

    def diag(self) -> np.ndarray:
        return self.kernel.diagonal(self.points)

    def restrict(self, index: np.ndarray) -> KernelRows:
        return KernelRows(
            self.points.subset(index), self.kernel, memory=self.memory, dtype=self.dtype, engine=self.engine
        )

    def block(self, rows: Index, columns: Index | None = None) -> np.ndarray:
        row_points = self.points.subset(rows)
        column_points = self.points if columns is None else self.points.subset(columns)
        out = np.empty((len(row_points), len(column_points)), self.dtype)
        fill(self.kernel, row_points, column_points, out, self.engine, self.tile_size)
        self.evaluations += out.size
        return out

    def matvec(self, v: np.ndarray) -> np.ndarray:
        columns = v.reshape(self.n, -1)
        support = np.flatnonzero(columns.any(axis=1))
        if len(support) < 0.8 * self.n and not self._tiles:
            return self._sparse_matvec(columns, support).reshape(v.shape)
        tiles = list(_lower_triangle(self._places()))
        kept = {key for key, _, _ in tiles[: self.n_kept]}
        result = self._symmetric(columns, tiles, kept)
        return result.reshape(v.shape)

    def _sparse_matvec(self, v: np.ndarray, support: np.ndarray) -> np.ndarray:
        """K v where few rows of v are not zero: a triangle over the support, a rectangle over the rest."""
        inner = self.restrict(support)
        inner.n_kept = 0
        out = np.zeros(v.shape)
        if len(support):
            out[support] = inner.matvec(v[support])
            rest = np.setdiff1d(np.arange(self.n), support, assume_unique=True)
            out[rest] = cross_product(
                self.kernel, self.points, inner.points, v[support], self.dtype, self.engine, self.memory, rows=rest
            )
            self.evaluations += inner.evaluations + len(rest) * len(support)
        return out

    def _symmetric(self, v: np.ndarray, tiles: list, kept: set) -> np.ndarray:
        v = np.ascontiguousarray(v, dtype=np.float64)
        groups = [tiles[start::_GROUPS] for start in range(min(_GROUPS, len(tiles)))]

        def work(group) -> tuple[np.ndarray, int]:
            out = np.zeros(v.shape)
            computed = 0
            for key, rows, columns in group:
                if self.engine.cancelled.is_set():
                    break
                tile = self._tiles.get(key)
                if tile is None:
                    tile = self._compute(rows, columns)
                    computed += tile.size
                    if key in kept:
                        self._tiles[key] = tile
                _add_tile(tile, v, out, rows, columns)
            return out, computed

        total = np.zeros(v.shape)
        for out, computed in self.engine.map(work, groups):
            total += out
            self.evaluations += computed
        return total

    def _compute(self, rows: slice, columns: slice) -> np.ndarray:
        left = self.points.block(rows, self.dtype)
        right = left if rows == columns else self.points.block(columns, self.dtype)
        out = np.empty((len(left), len(right)), self.dtype)
        self.kernel.tile(left, right, out)
        return out

    def _places(self) -> list[slice]:
        return [slice(start, min(start + self.tile_size, self.n)) for start in range(0, self.n, self.tile_size)]


class GivenRows:
    """kernel="precomputed": the user's matrix is the storage; nothing is computed or copied whole."""

    def __init__(self, K: np.ndarray, *, memory: int, dtype, engine: LocalEngine, index: np.ndarray | None = None):
        self.K = K
        self.index = np.arange(K.shape[0]) if index is None else index
        self.memory = memory
        self.dtype = np.dtype(dtype)
        self.engine = engine
        self.n = len(self.index)
        self.evaluations = 0
        self.storage = "given"

    def diag(self) -> np.ndarray:
        return self.K[self.index, self.index].astype(np.float64)

    def restrict(self, index: np.ndarray) -> GivenRows:
        return GivenRows(self.K, memory=self.memory, dtype=self.dtype, engine=self.engine, index=self.index[index])

    def block(self, rows: Index, columns: Index | None = None) -> np.ndarray:
        picked = self.index if columns is None else self.index[columns]
        return self.K[np.ix_(self.index[rows], picked)].astype(self.dtype, copy=False)

    def matvec(self, v: np.ndarray) -> np.ndarray:
        columns = v.reshape(self.n, -1)
        support = np.flatnonzero(columns.any(axis=1))
        return given_product(self.K, self.index, self.index[support], columns[support], self.engine).reshape(v.shape)


def given_product(K, rows: np.ndarray, columns: np.ndarray, v: np.ndarray, engine: LocalEngine) -> np.ndarray:
    """K[rows][:, columns] v in float64, a few rows at a time."""

    def work(part: np.ndarray) -> np.ndarray:
        return K[np.ix_(part, columns)].astype(np.float64) @ v

    step = max(1, min(256, (8 << 20) // (8 * max(1, len(columns)))))
    parts = [rows[start : start + step] for start in range(0, len(rows), step)]
    return np.concatenate(engine.map(work, parts)) if parts else np.zeros((0, v.shape[1]))


def fill(kernel: Kernel, left: Points, right: Points, out: np.ndarray, engine: LocalEngine, step: int) -> None:
    """out[i, j] = k(left_i, right_j), tiles shared among the workers."""

    def work(place: tuple[slice, slice]) -> None:
        rows, columns = place
        if not engine.cancelled.is_set():
            kernel.tile(left.block(rows, out.dtype), right.block(columns, out.dtype), out[rows, columns])

    row_step = min(step, max(_SMALLEST_TILE, -(-len(left) // engine.n_workers)))
    engine.map(
        work,
        [
            (slice(i, i + row_step), slice(j, j + step))
            for i in range(0, len(left), row_step)
            for j in range(0, len(right), step)
        ],
    )


def cross_product(
    kernel: Kernel, left: Points, right: Points, v: np.ndarray, dtype, engine: LocalEngine, memory: int, rows=None
) -> np.ndarray:
    """K(left[rows], right) v: entries in `dtype`, sums in float64, whatever the sizes within the budget."""
    dtype = np.dtype(dtype)
    rows = np.arange(len(left)) if rows is None else rows
    v = np.ascontiguousarray(v, dtype=np.float64)
    out = np.zeros((len(rows), v.shape[1]))
    step = choose_tile_size(max(len(rows), len(right)), left.d, dtype.itemsize, memory, engine.n_workers)

    def work(start: int) -> None:
        block = left.block(rows[start : start + step], dtype)
        buffer = np.empty((len(block), min(step, len(right))), dtype)
        for first in range(0, len(right), step):
            if engine.cancelled.is_set():
                return
            place = slice(first, min(first + step, len(right)))
            tile = buffer[:, : place.stop - place.start]
            kernel.tile(block, right.block(place, dtype), tile)
            _add_products(tile, v[place], out[start : start + step])

    engine.map(work, range(0, len(rows), step))
    return out


def choose_tile_size(n: int, d: int, itemsize: int, memory: int, n_workers: int) -> int:
    """The largest useful tile that leaves every worker its own within half of the budget, or a clear refusal."""
    size = _LARGEST_TILE
    while size > _SMALLEST_TILE and n_workers * _tile_bytes(size, d, itemsize) > memory // 2:
        size //= 2
    needed = n_workers * _tile_bytes(size, d, itemsize)
    if needed > memory:
        raise ValueError(
            f"The memory budget of {memory:,} bytes is too small for one {size} x {size} block of the kernel on "
            f"{n_workers} worker(s), which takes {needed:,} bytes: raise memory to at least that, or lower n_jobs."
        )
    return min(size, max(1, n))


def _tile_bytes(size: int, d: int, itemsize: int) -> int:
    # The tile, its two operands, their transposes; wide sparse operands are cut to a fixed size (points.py).
    return size * size * itemsize + min(4 * size * d * itemsize, 64 << 20)


def _lower_triangle(places: list[slice]) -> Iterator[tuple[tuple[int, int], slice, slice]]:
    for i, rows in enumerate(places):
        for j, columns in enumerate(places[: i + 1]):
            yield (i, j), rows, columns


def _add_tile(tile: np.ndarray, v: np.ndarray, out: np.ndarray, rows: slice, columns: slice) -> None:
    """Add a lower-triangle tile's share of K v in both of its places."""
    if rows == columns:
        _add_products(tile, v[columns], out[rows])
    elif v.shape[1] == 1:
        compiled.symmetric_tile_product(tile, v[rows, 0], v[columns, 0], out[rows, 0], out[columns, 0])
    else:
        tile = tile.astype(np.float64, copy=False)
        out[rows] += tile @ v[columns]
        out[columns] += tile.T @ v[rows]


def _add_products(tile: np.ndarray, v: np.ndarray, out: np.ndarray) -> None:
    if v.shape[1] == 1:
        compiled.tile_product(tile, v[:, 0], out[:, 0])
    else:
        out += tile.astype(np.float64, copy=False) @ v
