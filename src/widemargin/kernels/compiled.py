"""Compiled element loops of the kernels. Flat arrays, no state; float32 and float64 by specialisation.

exp is a written-out polynomial: Numba's own exp in a loop is scalar, this one vectorises. Its error is that of exp of
the rounded argument: 2e-7 (1 + |x|) exp(x) in float32, 4e-16 (1 + |x|) exp(x) in float64.

Tiles must be C-contiguous: in any other layout the same loops compile to scalar code, six times slower.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload

# No full fast-math: distances may overflow to infinity, so "nnan" and "ninf" would be lies, and cost nothing to leave.
_MATH = {"contract", "reassoc", "nsz", "arcp"}
compiled = numba.njit(cache=True, nogil=True, fastmath=_MATH)

_LOG2E = 1.0 / math.log(2.0)
# Taylor's series of 2^r: the next term is below half of the last place for |r| <= 1/2.
_DOUBLE = tuple(math.log(2.0) ** k / math.factorial(k) for k in range(13))
_SINGLE = tuple(np.float32(term) for term in _DOUBLE[:8])


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


def _exp2_negative(t):
    """2^t for t <= 0; below the smallest normal number it returns about that number."""
    raise NotImplementedError


@overload(_exp2_negative, inline="always")
def _exp2_negative_overload(t):
    # 2^t = 2^k 2^r, k an integer, |r| <= 1/2; 2^r by Horner's rule.
    if t == types.float32:

        def single(t):
            t = max(t, np.float32(-126.0))
            k = np.int32(t - np.float32(0.5))
            r = t - np.float32(k)
            p = _SINGLE[7] * r + _SINGLE[6]
            p = p * r + _SINGLE[5]
            p = p * r + _SINGLE[4]
            p = p * r + _SINGLE[3]
            p = p * r + _SINGLE[2]
            p = p * r + _SINGLE[1]
            p = p * r + _SINGLE[0]
            return p * _as_float32(np.int32((k + np.int32(127)) << np.int32(23)))

        return single
    if t == types.float64:

        def double(t):
            t = max(t, -1022.0)
            k = np.int64(t - 0.5)
            r = t - np.float64(k)
            p = _DOUBLE[12] * r + _DOUBLE[11]
            p = p * r + _DOUBLE[10]
            p = p * r + _DOUBLE[9]
            p = p * r + _DOUBLE[8]
            p = p * r + _DOUBLE[7]
            p = p * r + _DOUBLE[6]
            p = p * r + _DOUBLE[5]
            p = p * r + _DOUBLE[4]
            p = p * r + _DOUBLE[3]
            p = p * r + _DOUBLE[2]
            p = p * r + _DOUBLE[1]
            p = p * r + _DOUBLE[0]
            return p * _as_float64((k + np.int64(1023)) << np.int64(52))

        return double
    raise TypingError("float32 or float64 only")


@compiled
def exp_of_products(products, left, right, scale):
    """products[i, j] <- exp(min(0, scale * products[i, j] + left[i] + right[j])): the RBF kernel after a GEMM."""
    number = products.dtype.type
    zero, unit = number(0), number(_LOG2E)
    scale = scale * unit
    b = right * unit
    for i in range(products.shape[0]):
        row = products[i]
        a = left[i] * unit
        for j in range(row.shape[0]):
            row[j] = _exp2_negative(min(zero, scale * row[j] + a + b[j]))


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
    scale = scale * values.dtype.type(_LOG2E)
    for i in range(values.shape[0]):
        row = values[i]
        for j in range(row.shape[0]):
            row[j] = _exp2_negative(scale * row[j])


@compiled
def powers(products, scale, shift, degree):
    """products <- (scale * products + shift)^degree, for a whole degree: np.power is thirty times slower."""
    base = np.empty(products.shape[1], products.dtype)
    for i in range(products.shape[0]):
        row = products[i]
        for j in range(row.shape[0]):
            base[j] = scale * row[j] + shift
            row[j] = 1
        for _ in range(degree):
            for j in range(row.shape[0]):
                row[j] *= base[j]


@compiled
def sparse_products(left_data, left_indices, left_indptr, right_data, right_indices, right_indptr, out):
    """out = A B', A given by rows (CSR) and B' by rows too (B's CSC): only pairs that share a feature are visited."""
    for i in range(out.shape[0]):
        row = out[i]
        row[:] = 0
        for s in range(left_indptr[i], left_indptr[i + 1]):
            x = left_data[s]
            c = left_indices[s]
            for t in range(right_indptr[c], right_indptr[c + 1]):
                row[right_indices[t]] += x * right_data[t]


@compiled
def sparse_absolute_distances(
    left_data, left_indices, left_indptr, left_sums, right_data, right_indices, right_indptr, right_sums, out
):
    """out[i, j] = |a_i - b_j|_1 = |a_i|_1 + |b_j|_1, put right where both have a value; operands as above."""
    zero = out.dtype.type(0)
    for i in range(out.shape[0]):
        row = out[i]
        for j in range(row.shape[0]):
            row[j] = left_sums[i] + right_sums[j]
        for s in range(left_indptr[i], left_indptr[i + 1]):
            x = left_data[s]
            c = left_indices[s]
            for t in range(right_indptr[c], right_indptr[c + 1]):
                z = right_data[t]
                row[right_indices[t]] += abs(x - z) - (abs(x) + abs(z))
        for j in range(row.shape[0]):
            row[j] = max(zero, row[j])


@compiled
def symmetric_tile_product(tile, first_row, first_column, v, out):
    """One sweep over a tile T of K, whose corner is given, serves both of its places: T v there, T' v here.

    v and out hold one vector a row. Sums are float64 whatever the tile's type: at large C the rounding of a long
    float32 sum would swamp the residual.
    """
    height, width = tile.shape
    for i in range(height):
        row = tile[i]
        for k in range(v.shape[0]):
            x = v[k, first_row + i]
            v_columns = v[k, first_column : first_column + width]
            out_columns = out[k, first_column : first_column + width]
            total = 0.0
            for j in range(width):
                value = np.float64(row[j])
                total += value * v_columns[j]
                out_columns[j] += value * x
            out[k, first_row + i] += total


@compiled
def tile_product(tile, first_row, first_column, v, out):
    """out[rows of T] += T v[columns of T], one vector a row of v and out, summed in float64."""
    height, width = tile.shape
    for i in range(height):
        row = tile[i]
        for k in range(v.shape[0]):
            v_columns = v[k, first_column : first_column + width]
            total = 0.0
            for j in range(width):
                total += np.float64(row[j]) * v_columns[j]
            out[k, first_row + i] += total


@compiled
def indexed_product(K, rows, columns, v, out):
    """out[i] = sum_j K[rows[i], columns[j]] v[:, j], summed in float64: no part of K is copied."""
    for i in range(rows.shape[0]):
        row = K[rows[i]]
        for k in range(v.shape[0]):
            vector = v[k]
            total = 0.0
            for j in range(columns.shape[0]):
                total += np.float64(row[columns[j]]) * vector[j]
            out[i, k] = total
