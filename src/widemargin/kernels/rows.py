"""Who computes kernel rows. Solvers see only this:

    block(rows, columns)   K[rows][:, columns], in the working dtype
    matvec(v)              K v, for a vector or for several columns, summed in float64
    diag()                 the diagonal
    restrict(index)        the same kernel over some of the rows
    in_dtype(dtype)        the same rows in another working dtype

and never know whether K is stored, partly stored or streamed: the memory budget decides. K is cut into square tiles
of which the lower triangle is enough; as many tiles as the budget holds are kept, the others are computed anew at
every product ("stored", "cached" and "streamed" are the three cases of one rule).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any, Protocol

import numpy as np

from widemargin.engines import LocalEngine, check_cancelled
from widemargin.kernels import compiled
from widemargin.kernels.functions import Kernel
from widemargin.kernels.points import Block, Blocks, Index, Points

# Work is cut into so many shares, and the tile is chosen for so many workers, whatever their number: nothing that
# decides the order of a sum depends on n_workers, so that the results are the same to the last bit.
_SHARES = 16
_LARGEST_TILE = 512
_SMALLEST_TILE = 64
# What an entry costs beside its multiply-adds, in multiply-adds: its formula, and its pass through a product.
_FORMULA_COST, _PASS_COST = 20, 12
_FEWEST_ROWS = 256  # a share of fewer rows would spend its time on the columns' blocks


@dataclass
class Tally:
    """Kernel entries computed so far, shared by all rows that were made from each other."""

    evaluations: int = 0
    _lock: Any = field(default_factory=Lock, repr=False)

    def add(self, entries: int) -> None:
        with self._lock:  # blocks are also made inside the workers
            self.evaluations += entries


class TooLittleMemoryError(ValueError):
    """The budget does not hold one block of the kernel a worker."""

    def __init__(self, memory: int, needed: int, size: int, n_workers: int):
        super().__init__(
            f"The memory budget of {memory:,} bytes is too small for one {size} x {size} block of the kernel on "
            f"{n_workers} worker(s): raise memory to at least {needed:,}, or lower n_jobs."
        )
        self._numbers = memory, needed, size, n_workers

    def of_whole(self, memory: int) -> TooLittleMemoryError:
        """The same refusal in terms of the budget of which the rows have a share."""
        share, needed, size, n_workers = self._numbers
        return TooLittleMemoryError(memory, -(-needed * memory // share) + 1, size, n_workers)


class Rows(Protocol):
    """The contract between solvers and kernels."""

    n: int
    dtype: np.dtype
    tally: Tally
    engine: LocalEngine

    @property
    def is_definite(self) -> bool: ...  # known to be positive semidefinite, whatever the data

    @property
    def evaluations(self) -> int: ...

    @property
    def entry_cost(self) -> float: ...  # of a kernel entry, in multiply-adds of a GEMM: what solvers plan with

    @property
    def product_cost(self) -> float: ...  # of matvec, in the same unit

    def block(self, rows: Index, columns: Index | None = None) -> np.ndarray: ...
    def matvec(self, v: np.ndarray) -> np.ndarray: ...
    def diag(self) -> np.ndarray: ...
    def restrict(self, index: np.ndarray) -> Rows: ...
    def in_dtype(self, dtype, *, stored: bool = True) -> Rows: ...


class KernelRows:
    """Rows of the kernel matrix of `points`, within `memory` bytes."""

    def __init__(
        self, points: Points, kernel: Kernel, *, memory: int, dtype, engine: LocalEngine, tally: Tally | None = None
    ):
        self.points = points
        self.kernel = kernel
        self.memory = memory
        self.dtype = np.dtype(dtype)
        self.engine = engine
        self.n = len(points)
        self.tally = tally or Tally()
        self.tile_size = choose_tile_size(points, self.n, self.dtype.itemsize, memory, engine.n_workers)
        # Room for the partial sums of matvec: one vector a share for each column that it takes at a time.
        vectors = max(1, memory // 8 // (8 * max(1, self.n)))
        self.n_shares = min(_SHARES, vectors)
        self.n_columns = max(1, vectors // 2 // self.n_shares)
        working = self.n_shares * _tile_bytes(points, self.tile_size, self.dtype.itemsize)
        partial = (self.n_shares + 2) * self.n_columns * self.n * 8
        n_places = -(-self.n // self.tile_size)
        self.n_tiles = n_places * (n_places + 1) // 2
        self._blocks = Blocks(points, self.dtype, self.tile_size, memory // 8)
        left = memory - working - partial - self._blocks.bytes
        self.n_kept = min(self.n_tiles, max(0, left) // (self.tile_size**2 * self.dtype.itemsize))
        self._is_stored = np.zeros(self.n_kept, dtype=bool)

    @cached_property
    def _store(self) -> np.ndarray:
        # One array, so that the system may back it by huge pages: filling it for the first time is thrice as fast.
        return np.empty((self.n_kept, self.tile_size**2), self.dtype)

    @property
    def is_definite(self) -> bool:
        return self.kernel.is_definite

    @property
    def evaluations(self) -> int:
        return self.tally.evaluations

    @property
    def storage(self) -> str:
        """How the budget lets K be held: "stored", "cached" (in part) or "streamed"."""
        return "stored" if self.n_kept == self.n_tiles else "cached" if self.n_kept else "streamed"

    @property
    def entry_cost(self) -> float:
        return self.points.pair_cost + _FORMULA_COST

    @property
    def product_cost(self) -> float:
        streamed = 1 - self.n_kept / self.n_tiles
        return self.n**2 / 2 * (streamed * self.entry_cost + _PASS_COST)

    def diag(self) -> np.ndarray:
        return self.kernel.diagonal(self.points)

    def restrict(self, index: np.ndarray) -> KernelRows:
        return self._with(self.points.subset(index), self.dtype)

    def in_dtype(self, dtype, *, stored: bool = True) -> KernelRows:
        """The same rows in another working dtype; with stored=False nothing of K is kept, else these let go of it."""
        rows = self._with(self.points, dtype)
        if not stored:
            rows.n_kept = 0
        elif rows.dtype != self.dtype:
            self.__dict__.pop("_store", None)
            self._is_stored[:] = False
        return rows

    def _with(self, points: Points, dtype) -> KernelRows:
        return KernelRows(points, self.kernel, memory=self.memory, dtype=dtype, engine=self.engine, tally=self.tally)

    def block(self, rows: Index, columns: Index | None = None) -> np.ndarray:
        row_points = self.points.subset(rows)
        column_points = self.points if columns is None else self.points.subset(columns)
        out = np.empty((len(row_points), len(column_points)), self.dtype)
        fill(self.kernel, row_points, column_points, out, self.engine, self.tile_size)
        self.tally.add(out.size)
        return out

    def matvec(self, v: np.ndarray) -> np.ndarray:
        columns = v.reshape(self.n, -1)
        support = np.flatnonzero(columns.any(axis=1))
        if self._is_cheaper_sparse(len(support)):
            return self._sparse_matvec(columns, support).reshape(v.shape)
        transposed = np.ascontiguousarray(columns.T, dtype=np.float64)
        step = self.n_columns
        parts = [self._symmetric(transposed[start : start + step]) for start in range(0, len(transposed), step)]
        return np.concatenate(parts).T.reshape(v.shape)

    def _is_cheaper_sparse(self, n_support: int) -> bool:
        # Entries to compute, in halves of n^2; a pass over a stored tile costs about a sixteenth of computing it.
        missing = 1 - self._is_stored.sum() / self.n_tiles * 15 / 16
        return n_support * (2 * self.n - n_support) < 0.9 * self.n**2 * missing

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
            self.tally.add(len(rest) * len(support))
        return out

    def _symmetric(self, v: np.ndarray) -> np.ndarray:
        """K v, one vector a row of v and of the result."""
        tiles = list(_lower_triangle(_slices(self.n, self.tile_size)))

        def work(share) -> tuple[np.ndarray, int]:
            out = np.zeros(v.shape)
            scratch = np.empty(self.tile_size**2, self.dtype)
            computed = 0
            for number, rows, columns in share:
                check_cancelled()
                tile, is_new = self._obtain(number, rows, columns, scratch)
                computed += is_new * tile.size
                product = compiled.tile_product if rows == columns else compiled.symmetric_tile_product
                product(tile, rows.start, columns.start, v, out)
            return out, computed

        total = np.zeros(v.shape)
        for out, computed in self.engine.map(work, [tiles[start :: self.n_shares] for start in range(self.n_shares)]):
            total += out
            self.tally.add(computed)
        return total

    def _obtain(self, number: int, rows: slice, columns: slice, scratch: np.ndarray) -> tuple[np.ndarray, bool]:
        """The tile, in the store or in `scratch`, and whether it had to be computed."""
        shape = rows.stop - rows.start, columns.stop - columns.start
        keep = number < self.n_kept
        tile = (self._store[number] if keep else scratch)[: shape[0] * shape[1]].reshape(shape)
        if keep and self._is_stored[number]:
            return tile, False
        self.kernel.tile(self._blocks[rows], self._blocks[columns], tile)
        if keep:
            self._is_stored[number] = True
        return tile, True


class GivenRows:
    """kernel="precomputed": the user's matrix is the storage; nothing is computed, and only blocks are copied."""

    is_definite = False

    def __init__(self, K: np.ndarray, *, memory: int, dtype, engine: LocalEngine, index: np.ndarray | None = None):
        self.K = K
        self.index = np.arange(K.shape[0]) if index is None else index
        self.memory = memory
        self.dtype = np.dtype(dtype)
        self.engine = engine
        self.n = len(self.index)
        self.tally = Tally()
        self.storage = "given"
        self.entry_cost = 1.0
        self.product_cost = float(self.n) ** 2 * _PASS_COST

    @property
    def evaluations(self) -> int:
        return self.tally.evaluations

    def diag(self) -> np.ndarray:
        return self.K[self.index, self.index].astype(np.float64)

    def restrict(self, index: np.ndarray) -> GivenRows:
        return GivenRows(self.K, memory=self.memory, dtype=self.dtype, engine=self.engine, index=self.index[index])

    def in_dtype(self, dtype, *, stored: bool = True) -> GivenRows:
        return GivenRows(self.K, memory=self.memory, dtype=dtype, engine=self.engine, index=self.index)

    def block(self, rows: Index, columns: Index | None = None) -> np.ndarray:
        picked = self.index if columns is None else self.index[columns]
        chosen = self.index[rows]
        out = np.empty((len(chosen), len(picked)), self.dtype)
        for place in _slices(len(chosen), _FEWEST_ROWS):
            out[place] = self.K[np.ix_(chosen[place], picked)]
        return out

    def matvec(self, v: np.ndarray) -> np.ndarray:
        columns = v.reshape(self.n, -1)
        support = np.flatnonzero(columns.any(axis=1))
        return given_product(self.K, self.index, self.index[support], columns[support], self.engine).reshape(v.shape)


def given_product(K, rows: np.ndarray, columns: np.ndarray, v: np.ndarray, engine: LocalEngine) -> np.ndarray:
    """K[rows][:, columns] v in float64."""
    v = np.ascontiguousarray(v.T, dtype=np.float64)
    out = np.empty((len(rows), len(v)))

    def work(place: slice) -> None:
        check_cancelled()
        compiled.indexed_product(K, rows[place], columns, v, out[place])

    engine.map(work, _slices(len(rows), max(1, -(-len(rows) // _SHARES))))
    return out


def fill(kernel: Kernel, left: Points, right: Points, out: np.ndarray, engine: LocalEngine, step: int) -> None:
    """out[i, j] = k(left_i, right_j), tiles shared among the workers."""

    def work(place: tuple[slice, slice]) -> None:
        check_cancelled()
        rows, columns = place
        out[rows, columns] = _tile(kernel, left.block(rows, out.dtype), right.block(columns, out.dtype), out.dtype)

    # A few rows take wider tiles: less work than a quarter of a tile is not worth a thread's while.
    column_places = _slices(len(right), max(step, step * step // (4 * max(1, len(left), left.d))))
    # Rows are cut further where the columns alone make too few shares.
    row_places = _slices(len(left), _share(len(left), step, -(-_SHARES // max(1, len(column_places)))))
    engine.map(work, [(rows, columns) for rows in row_places for columns in column_places])


def cross_product(
    kernel: Kernel, left: Points, right: Points, v: np.ndarray, dtype, engine: LocalEngine, memory: int, rows=None
) -> np.ndarray:
    """K(left[rows], right) v: entries in `dtype`, sums in float64, whatever the sizes within the budget."""
    dtype = np.dtype(dtype)
    left = left if rows is None else left.subset(rows)
    v = np.ascontiguousarray(v.T, dtype=np.float64)
    out = np.zeros((len(left), len(v)))
    step = choose_tile_size(left, max(len(left), len(right)), dtype.itemsize, memory, engine.n_workers)
    right_blocks = Blocks(right, dtype, step, memory // 4)

    def work(place: slice) -> None:
        block = left.block(place, dtype)
        total = np.zeros((len(v), len(block)))
        scratch = np.empty(len(block) * step, dtype)  # one for all: fresh memory is slow at its first touch
        for columns in _slices(len(right), step):
            check_cancelled()
            width = columns.stop - columns.start
            tile = scratch[: len(block) * width].reshape(len(block), width)
            kernel.tile(block, right_blocks[columns], tile)
            compiled.tile_product(tile, 0, columns.start, v, total)
        out[place] = total.T

    engine.map(work, _slices(len(left), _share(len(left), step, _SHARES)))
    return out


def choose_tile_size(points: Points, n: int, itemsize: int, memory: int, n_workers: int) -> int:
    """The largest useful tile that fits half of the budget for every share, or a clear refusal."""
    size = _LARGEST_TILE
    while size > _SMALLEST_TILE and _SHARES * _tile_bytes(points, size, itemsize) > memory // 2:
        size //= 2
    needed = min(n_workers, _SHARES) * _tile_bytes(points, size, itemsize)
    if needed > memory:
        raise TooLittleMemoryError(memory, needed, size, n_workers)
    return min(size, max(1, n))


def _tile_bytes(points: Points, size: int, itemsize: int) -> int:
    return size * size * itemsize + points.operand_bytes(size, itemsize)


def _tile(kernel: Kernel, left: Block, right: Block, dtype) -> np.ndarray:
    out = np.empty((len(left), len(right)), dtype)
    kernel.tile(left, right, out)
    return out


def _slices(n: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def _share(n: int, step: int, n_shares: int) -> int:
    """Rows a share: n cut into `n_shares`, but not into slivers, nor beyond a tile."""
    return min(step, max(_FEWEST_ROWS, -(-n // n_shares)))


def _lower_triangle(places: list[slice]) -> Iterator[tuple[int, slice, slice]]:
    """(number, rows, columns) of its tiles, row by row."""
    number = itertools.count()
    for i, rows in enumerate(places):
        for columns in places[: i + 1]:
            yield next(number), rows, columns
