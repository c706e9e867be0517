"""Compiled moves inside a small block of dual variables whose kernel rows are at hand, and the choice of the block.

    max_g  v'g - 1/2 g'Kg over the block   s.t. lower <= g <= upper   (and sum g unchanged where there is an intercept)

`v` is the dual's gradient y - f, `kernel[rows[i], columns[j]]` the block's K; `g` and `v` are moved in place.
Few of a block's rows move before it is left, so K is gathered row by row as the moves ask for it.
"""

from __future__ import annotations

import numpy as np

from widemargin.kernels.compiled import compiled


@compiled
def _diagonal(kernel, rows, columns):
    out = np.empty(len(rows))
    for i in range(len(rows)):
        out[i] = kernel[rows[i], columns[i]]
    return out


@compiled
def _row(kernel, rows, columns, K, gathered, i):
    """Row i of the block's K, gathered at its first use."""
    out = K[i]
    if not gathered[i]:
        gathered[i] = True
        row = kernel[rows[i]]
        for j in range(len(columns)):
            out[j] = row[columns[j]]
    return out


@compiled
def ascend_pairs(kernel, rows, columns, v, g, lower, upper, tolerance, max_moves):
    """Moves of two variables that keep their sum: the most violating one and the partner that gains most."""
    m = len(v)
    K = np.empty((m, m))
    gathered = np.zeros(m, np.bool_)
    diagonal = _diagonal(kernel, rows, columns)
    moves = 0
    while moves < max_moves:
        i = -1
        highest = -np.inf
        for s in range(m):
            if g[s] < upper[s] and v[s] > highest:
                highest = v[s]
                i = s
        if i < 0:
            break
        row_i = _row(kernel, rows, columns, K, gathered, i)
        j = -1
        best = 0.0
        lowest = np.inf
        for s in range(m):
            if g[s] > lower[s]:
                slope = highest - v[s]
                lowest = min(lowest, v[s])
                if slope > 0:
                    curvature = max(diagonal[i] + diagonal[s] - 2 * row_i[s], 1e-12)
                    gain = slope * slope / curvature
                    if gain > best:
                        best = gain
                        j = s
        if j < 0 or highest - lowest <= tolerance:
            break
        row_j = _row(kernel, rows, columns, K, gathered, j)
        curvature = max(diagonal[i] + diagonal[j] - 2 * row_i[j], 1e-12)
        step = (highest - v[j]) / curvature
        room_i, room_j = upper[i] - g[i], g[j] - lower[j]
        if step >= min(room_i, room_j):
            step = min(room_i, room_j)
        # A variable that reaches its bound is set there exactly: no rounding leaves it a hair inside.
        g[i] = upper[i] if step == room_i else g[i] + step
        g[j] = lower[j] if step == room_j else g[j] - step
        for s in range(m):
            v[s] -= step * (row_i[s] - row_j[s])
        moves += 1
    return moves


@compiled
def ascend_singles(kernel, rows, columns, v, g, lower, upper, tolerance, max_moves):
    """Moves of one variable, the one that gains most (no intercept)."""
    m = len(v)
    K = np.empty((m, m))
    gathered = np.zeros(m, np.bool_)
    diagonal = np.maximum(_diagonal(kernel, rows, columns), 1e-12)
    moves = 0
    while moves < max_moves:
        i = -1
        best = 0.0
        largest = 0.0
        for s in range(m):
            slope = v[s]
            if (slope > 0 and g[s] < upper[s]) or (slope < 0 and g[s] > lower[s]):
                largest = max(largest, abs(slope))
                gain = slope * slope / diagonal[s]
                if gain > best:
                    best = gain
                    i = s
        if i < 0 or largest <= tolerance:
            break
        row = _row(kernel, rows, columns, K, gathered, i)
        target = min(max(g[i] + v[i] / diagonal[i], lower[i]), upper[i])
        step = target - g[i]
        g[i] = target
        for s in range(m):
            v[s] -= step * row[s]
        moves += 1
    return moves


@compiled
def add_rows(kernel, rows, weights, f):
    """f += sum_i weights_i kernel[rows_i], four rows a sweep: f is in the cache and the rows are not."""
    i = 0
    while i + 4 <= len(rows):
        r0, r1, r2, r3 = kernel[rows[i]], kernel[rows[i + 1]], kernel[rows[i + 2]], kernel[rows[i + 3]]
        w0, w1, w2, w3 = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
        for j in range(len(f)):
            f[j] += w0 * r0[j] + w1 * r1[j] + (w2 * r2[j] + w3 * r3[j])
        i += 4
    while i < len(rows):
        row, weight = kernel[rows[i]], weights[i]
        for j in range(len(f)):
            f[j] += weight * row[j]
        i += 1


@compiled
def choose_pairs(v, g, lower, upper, size):
    """The rows that violate optimality most, half that would rise and half that would fall, in order; and by how much.

    With an intercept: optimal where no row that can rise has a larger gradient than one that can fall.
    """
    rising, falling = np.empty(len(v)), np.empty(len(v))
    for s in range(len(v)):
        rising[s] = v[s] if g[s] < upper[s] else -np.inf
        falling[s] = -v[s] if g[s] > lower[s] else -np.inf
    half = max(1, min(size, len(v)) // 2)
    chosen = np.zeros(len(v), np.bool_)
    chosen[_largest(rising, half)] = True
    chosen[_largest(falling, half)] = True
    return np.flatnonzero(chosen), rising.max() + falling.max()


@compiled
def choose_singles(v, g, lower, upper, size):
    """The same without intercept: optimal where no row can follow its gradient."""
    violation = np.where(((v > 0) & (g < upper)) | ((v < 0) & (g > lower)), np.abs(v), -np.inf)
    chosen = np.zeros(len(v), np.bool_)
    chosen[_largest(violation, min(size, len(v)))] = True
    return np.flatnonzero(chosen), violation.max()


@compiled
def _largest(values, count):
    """Indices of the `count` largest values, of those above -inf: a heap of the best so far, the least on top."""
    keys = np.empty(count)
    places = np.empty(count, np.int64)
    size = 0
    for s in range(len(values)):
        x = values[s]
        if (size == count and x <= keys[0]) or x == -np.inf:
            continue
        if size < count:  # from the last place up
            k = size
            size += 1
            while k > 0 and keys[(k - 1) // 2] > x:
                keys[k], places[k] = keys[(k - 1) // 2], places[(k - 1) // 2]
                k = (k - 1) // 2
        else:  # from the top down
            k = 0
            while 2 * k + 1 < count:
                child = 2 * k + 1
                if child + 1 < count and keys[child + 1] < keys[child]:
                    child += 1
                if keys[child] >= x:
                    break
                keys[k], places[k] = keys[child], places[child]
                k = child
        keys[k], places[k] = x, s
    return places[:size]
