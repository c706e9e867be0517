"""Products between two sets of rows: what prediction is made of."""

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin.engines import LocalEngine
from widemargin.kernels import Points, cross_product, given_product, make_kernel

D, GAMMA = 6, 0.1
RBF = make_kernel("rbf", GAMMA, 3, 0.0)


def draw(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("memory", [100_000, 1 << 30])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 65), (64, 64), (65, 129), (300, 63), (0, 4), (4, 0)])
@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix])
def test_products_between_two_sets(n, m, columns, memory, storage):
    X, Z, v = draw(n, D), draw(m, D, seed=4), draw(m, columns)
    engine = LocalEngine(2)
    K = np.exp(-GAMMA * ((X[:, None] - Z) ** 2).sum(axis=2))
    left, right = Points(storage(X)), Points(storage(Z))
    found = cross_product(RBF, left, right, v, np.float64, engine, memory)
    np.testing.assert_allclose(found, K @ v, rtol=0, atol=1e-11)
    picked = np.arange(n)[::-3]
    found = cross_product(RBF, left, right, v, np.float64, engine, memory, rows=picked)
    np.testing.assert_allclose(found, K[picked] @ v, rtol=0, atol=1e-11)
    for given_K in (K, np.asfortranarray(K), K.astype(np.float32)):
        found = given_product(given_K, picked, np.arange(m)[::2], v[::2], engine)
        np.testing.assert_allclose(found, given_K[picked, ::2] @ v[::2], rtol=0, atol=1e-5)
