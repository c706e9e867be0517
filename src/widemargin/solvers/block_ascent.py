"""Compiled moves inside a small block of dual variables whose kernel is at hand.

    max_g  v'g' - 1/2 g'Kg over the block   s.t. lower <= g <= upper   (and sum g unchanged where there is an intercept)

`v` is the dual's gradient y - f on the block, kept up to date; `g` is moved in place.
"""

from __future__ import annotations

import numpy as np

from widemargin.kernels.compiled import compiled


@compiled
def ascend_pairs(K, v, g, lower, upper, tolerance, max_moves):
    """Moves of two variables that keep their sum: the most violating one and the partner that gains most."""
    m = len(v)
    diagonal = np.empty(m)
    for i in range(m):
        diagonal[i] = K[i, i]
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
        row_i = K[i]
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
        row_j = K[j]
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
def ascend_singles(K, v, g, lower, upper, tolerance, max_moves):
    """Moves of one variable, the one that gains most (no intercept)."""
    m = len(v)
    moves = 0
    while moves < max_moves:
        i = -1
        best = 0.0
        largest = 0.0
        for s in range(m):
            slope = v[s]
            if (slope > 0 and g[s] < upper[s]) or (slope < 0 and g[s] > lower[s]):
                largest = max(largest, abs(slope))
                gain = slope * slope / max(K[s, s], 1e-12)
                if gain > best:
                    best = gain
                    i = s
        if i < 0 or largest <= tolerance:
            break
        row = K[i]
        target = min(max(g[i] + v[i] / max(row[i], 1e-12), lower[i]), upper[i])
        step = target - g[i]
        g[i] = target
        for s in range(m):
            v[s] -= step * row[s]
        moves += 1
    return moves


@compiled
def corner(kernel, rows, columns):
    """kernel[rows][:, columns] in float64."""
    out = np.empty((len(rows), len(columns)))
    for i in range(len(rows)):
        row = kernel[rows[i]]
        for j in range(len(columns)):
            out[i, j] = row[columns[j]]
    return out


@compiled
def add_rows(kernel, rows, weights, f):
    """f += sum_i weights_i kernel[rows_i], in pieces of f that stay in the cache."""
    for start in range(0, len(f), 2048):
        stop = min(len(f), start + 2048)
        for i in range(len(rows)):
            row = kernel[rows[i]]
            weight = weights[i]
            for j in range(start, stop):
                f[j] += weight * np.float64(row[j])
