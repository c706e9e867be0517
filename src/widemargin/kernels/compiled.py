"""Compiled element loops of the kernels. Flat arrays, no state; float32 and float64 by specialisation.

exp is a written-out polynomial: Numba's own exp in a loop is scalar, this one vectorises. Relative error: 2e-7 in
float32, 4e-16 in float64.
"""

from __future__ import annotations

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload

# No `afn`/full fast-math: NaN never gets here (inputs are checked), but the order of a row's sum must not depend on
# the tile that it is computed in, so only the safe liberties are taken.
_MATH = {"contract", "reassoc", "nsz", "arcp", "nnan", "ninf"}
compiled = numba.njit(cache=True, nogil=True, fastmath=_MATH)

_LN2 = 0.6931471805599453
_LOG2E = 1.4426950408889634


@intrinsic
def _as_float32(typing_context, bits):
    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def _as_float64(typing_context, bits):
    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


def _exp_negative(x):
    """exp(x) for x <= 0; below the smallest normal number it returns about that number."""
    raise NotImplementedError


@overload(_exp_negative, inline="always")
def _exp_negative_overload(x):
    # exp(x) = 2^k exp(r), k an integer, |r| <= ln2 / 2; exp(r) by its Taylor polynomial in Horner's form.
    if x == types.float32:

        def single(x):
            t = max(x * np.float32(_LOG2E), np.float32(-126.0))
            k = np.int32(t - np.float32(0.5))
            r = (t - np.float32(k)) * np.float32(_LN2)
            p = np.float32(1 / 5040)
            p = p * r + np.float32(1 / 720)
            p = p * r + np.float32(1 / 120)
            p = p * r + np.float32(1 / 24)
            p = p * r + np.float32(1 / 6)
            p = p * r + np.float32(1 / 2)
            p = p * r + np.float32(1)
            p = p * r + np.float32(1)
            return p * _as_float32(np.int32((k + np.int32(127)) << np.int32(23)))

        return single
    if x == types.float64:

        def double(x):
            t = max(x * _LOG2E, -1022.0)
            k = np.int64(t - 0.5)
            r = (t - np.float64(k)) * _LN2
            p = 1 / 6227020800
            p = p * r + 1 / 479001600
            p = p * r + 1 / 39916800
            p = p * r + 1 / 3628800
            p = p * r + 1 / 362880
            p = p * r + 1 / 40320
            p = p * r + 1 / 5040
            p = p * r + 1 / 720
            p = p * r + 1 / 120
            p = p * r + 1 / 24
            p = p * r + 1 / 6
            p = p * r + 1 / 2
            p = p * r + 1.0
            p = p * r + 1.0
            return p * _as_float64((k + np.int64(1023)) << np.int64(52))

        return double
    raise TypingError("float32 or float64 only")


@compiled
def exp_of_products(products, left, right, scale):
    """products[i, j] <- exp(min(0, scale * products[i, j] + left[i] + right[j])): the RBF kernel after a GEMM."""
    zero = products.dtype.type(0)
    for i in range(products.shape[0]):
        row = products[i]
        a = left[i]
        for j in range(row.shape[0]):
            row[j] = _exp_negative(min(zero, scale * row[j] + a + right[j]))


@compiled
def squared_distances(a, b_transposed, out):
    """out[i, j] = |a_i - b_j|^2, four features a sweep, so that a sweep is bound by arithmetic and not by loads."""
    d = a.shape[1]
    m = b_transposed.shape[1]
    for i in range(a.shape[0]):
        row = out[i]
        for j in range(m):
            row[j] = 0
        c = 0
        while c + 4 <= d:
            x0, x1, x2, x3 = a[i, c], a[i, c + 1], a[i, c + 2], a[i, c + 3]
            b0, b1, b2, b3 = b_transposed[c], b_transposed[c + 1], b_transposed[c + 2], b_transposed[c + 3]
            for j in range(m):
                d0 = b0[j] - x0
                d1 = b1[j] - x1
                d2 = b2[j] - x2
                d3 = b3[j] - x3
                row[j] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)
            c += 4
        while c < d:
            x0 = a[i, c]
            b0 = b_transposed[c]
            for j in range(m):
                d0 = b0[j] - x0
                row[j] += d0 * d0
            c += 1


@compiled
def absolute_distances(a, b_transposed, out):
    """out[i, j] = |a_i - b_j|_1."""
    for i in range(a.shape[0]):
        row = out[i]
        for j in range(row.shape[0]):
            row[j] = 0
        for c in range(a.shape[1]):
            x = a[i, c]
            b = b_transposed[c]
            for j in range(row.shape[0]):
                row[j] += abs(b[j] - x)


@compiled
def exp_scaled(values, scale):
    """values <- exp(scale * values), scale * values <= 0, in place."""
    for i in range(values.shape[0]):
        row = values[i]
        for j in range(row.shape[0]):
            row[j] = _exp_negative(scale * row[j])


@compiled
def sparse_products(data, indices, indptr, rows, b_transposed, out):
    """out[i] = (row rows[i] of a CSR matrix) . b, vectorised over the columns of b_transposed (features x m)."""
    zero = out.dtype.type(0)
    for i in range(rows.shape[0]):
        row = out[i]
        for j in range(row.shape[0]):
            row[j] = zero
        for s in range(indptr[rows[i]], indptr[rows[i] + 1]):
            value = out.dtype.type(data[s])
            b = b_transposed[indices[s]]
            for j in range(row.shape[0]):
                row[j] += value * b[j]


@compiled
def symmetric_tile_product(tile, v_rows, v_columns, out_rows, out_columns):
    """One sweep over a tile of K serves both of its places: out_rows += T v_columns, out_columns += T' v_rows.

    Sums are float64 whatever the tile's type: at large C the rounding of a long float32 sum would swamp the residual.
    """
    for i in range(tile.shape[0]):
        row = tile[i]
        v = v_rows[i]
        total = 0.0
        for j in range(row.shape[0]):
            k = np.float64(row[j])
            total += k * v_columns[j]
            out_columns[j] += k * v
        out_rows[i] += total


@compiled
def tile_product(tile, v_columns, out_rows):
    """out_rows += T v_columns, summed in float64."""
    for i in range(tile.shape[0]):
        row = tile[i]
        total = 0.0
        for j in range(row.shape[0]):
            total += np.float64(row[j]) * v_columns[j]
        out_rows[i] += total
