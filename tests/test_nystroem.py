"""The low-rank picture of K, and Newton's system solved with it, against dense algebra."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from widemargin.engines import LocalEngine
from widemargin.kernels import KernelRows, Points, make_kernel
from widemargin.solvers.nystroem import LowRank, NewtonSystem


def picture_of(n, memory=1 << 28):
    X = np.random.default_rng(0).normal(size=(n, 3))
    rows = KernelRows(
        Points(X), make_kernel("rbf", 0.5, 3, 0.0), memory=1 << 26, dtype=np.float64, engine=LocalEngine(2)
    )
    return rbf_kernel(X, gamma=0.5), LowRank(rows, memory, np.random.default_rng(1))


def test_the_picture_has_the_kernels_diagonal_and_is_close_in_every_chunk():
    K, picture = picture_of(4500)  # more than a chunk
    found = picture.L @ picture.L.T
    np.testing.assert_allclose(np.diag(found) + picture.residual, 1, atol=1e-9)
    # On the average, chunk by chunk: a row far from every pivot is seen by its diagonal alone.
    errors = [np.abs(found - K)[part].mean() for part in picture.parts]
    assert max(errors) < 1e-3
    before = picture.rank
    assert np.isfinite(picture.growth_cost())
    picture.grow()
    assert picture.rank == 2 * before
    assert np.abs(picture.L @ picture.L.T - K).mean() < max(errors) / 2


@pytest.mark.parametrize("n", [300, 900])
def test_newtons_system(n):
    _, picture = picture_of(n)
    rng = np.random.default_rng(2)
    H, r = rng.uniform(0, 50, n) * (rng.random(n) < 0.7), rng.normal(size=n)
    z = NewtonSystem(picture).solve(H, r)
    seen = picture.L @ picture.L.T + np.diag(picture.residual)
    np.testing.assert_allclose(z + H * (seen @ z), r, atol=1e-8)


def test_no_room_to_grow():
    _, picture = picture_of(900, memory=1 << 18)
    assert picture.rank == picture.larger_rank
    assert picture.growth_cost() == np.inf
