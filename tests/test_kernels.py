"""k(x, z) against scikit-learn's and SciPy's: every kernel, both types, dense and sparse, and the awkward data."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import pairwise_kernels

from widemargin.kernels import NAMES, Points, compiled, make_kernel

FORMULAS = [name for name in NAMES if name != "precomputed"]
DISTANCES = {"rbf": "sqeuclidean", "laplacian": "cityblock"}
TOLERANCE = {np.float64: 1e-11, np.float32: 3e-6}
TAKEN = {"linear": [], "rbf": ["gamma"], "laplacian": ["gamma"], "sigmoid": ["gamma", "coef0"]}
DATA = {
    "one feature": (1, None),
    "fused": (8, None),
    "fused and a rest": (11, None),
    "product": (13, None),
    "product, long": (150, None),
    "csr": (7, 0.5),
    "csr, made dense": (300, 0.05),
    "csr, wide": (3000, 0.01),
}


def draw(shape, density=None, seed=0):
    rng = np.random.default_rng(seed)
    if density is None:
        return rng.normal(size=shape)
    return sp.random(*shape, density=density, format="csr", random_state=rng, data_rvs=rng.standard_normal)


def oracle(name, X, Z, **parameters):
    taken = TAKEN.get(name, ["gamma", "degree", "coef0"])
    return pairwise_kernels(X, Z, metric=name, **{key: parameters[key] for key in taken})


def matrix(kernel, X, Z, dtype, centre=None):
    out = np.full((X.shape[0], Z.shape[0]), np.nan, dtype)  # an entry that is left out shows
    kernel.tile(Points(X, centre).block(slice(None), dtype), Points(Z, centre).block(slice(None), dtype), out)
    return out


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", DATA)
@pytest.mark.parametrize("name", FORMULAS)
def test_kernel_is_that_of_scikit_learn(name, shape, dtype):
    d, density = DATA[shape]
    X, Z = draw((37, d), density), draw((53, d), density, seed=1)
    parameters = {"gamma": 0.7 / d, "degree": 3, "coef0": 0.4}
    expected = oracle(name, X, Z, **parameters)
    found = matrix(make_kernel(name, **parameters), X, Z, dtype)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE[dtype] * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("shape", DATA)
@pytest.mark.parametrize("name", FORMULAS)
def test_diagonal(name, shape):
    d, density = DATA[shape]
    X = draw((40, d), density)
    parameters = {"gamma": 0.7 / d, "degree": 3, "coef0": 0.4}
    found = make_kernel(name, **parameters).diagonal(Points(X))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, np.diag(oracle(name, X, X, **parameters)), rtol=1e-10)


@pytest.mark.parametrize("degree", [0, 1, 2, 5, 4.0])
def test_whole_degrees(degree):
    X = draw((20, 6))
    kernel = make_kernel("poly", gamma=np.float64(0.3), degree=degree, coef0=-0.5)
    np.testing.assert_allclose(
        matrix(kernel, X, X, np.float64), (0.3 * X @ X.T - 0.5) ** degree, rtol=1e-11, atol=1e-12
    )


@pytest.mark.parametrize("degree", [2.5, -1])
def test_other_degrees_are_refused(degree):
    with pytest.raises(ValueError, match="takes a whole degree"):
        make_kernel("poly", gamma=1.0, degree=degree, coef0=0.0)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_exp(dtype):
    x = np.concatenate([-np.geomspace(1e-10, 80, 20_000), [0.0, -1.0]]).astype(dtype)
    found = x[None].copy()
    compiled.exp_scaled(found, dtype(1))
    expected = np.exp(x.astype(np.longdouble))
    bound = (2e-7 if dtype == np.float32 else 4e-16) * (1 - x.astype(np.longdouble)) * expected
    assert (np.abs(found[0] - expected) <= bound).all()


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_exp_of_anything_small_is_nearly_zero(dtype):
    x = np.array([[-150, -1e3, -1e10, -3e38, -np.inf]], dtype)
    compiled.exp_scaled(x, dtype(5))
    assert (x >= 0).all()
    assert (x < 2e-38).all()


@pytest.mark.parametrize("given", [np.float32, np.float64])
@pytest.mark.parametrize("as_storage", [np.asarray, sp.csr_matrix, sp.csr_array])
@pytest.mark.parametrize("d", [5, 40])
@pytest.mark.parametrize("name", DISTANCES)
def test_data_far_from_the_origin_keep_their_digits(name, d, as_storage, given):
    X = (draw((60, d)) + (1e3 if given == np.float32 else 1e6)).astype(given)
    data = as_storage(X)
    centre = Points(data).means()
    np.testing.assert_allclose(centre, X.mean(axis=0, dtype=np.float64), rtol=1e-12)
    gamma = 0.5 / d
    found = matrix(make_kernel(name, gamma, 3, 0), data, data, np.float32, centre)
    expected = np.exp(-gamma * cdist(X.astype(np.float64), X.astype(np.float64), DISTANCES[name]))
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-6)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("scale", [30, 1e3, 1e8, 1e18, 1e30])
@pytest.mark.parametrize("d", [5, 40])
@pytest.mark.parametrize("name", DISTANCES)
def test_distant_points_have_nothing_in_common(name, d, scale, dtype):
    """Neither cancellation nor overflow: 0 between distinct points, 1 between equal ones."""
    X = scale * draw((30, d))
    found = matrix(make_kernel(name, 1.0, 3, 0), np.vstack([X, X]), X, dtype)
    np.testing.assert_allclose(found, np.vstack([np.eye(30), np.eye(30)]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("integer", [np.uint8, np.int64, bool])
@pytest.mark.parametrize("name", FORMULAS)
def test_whole_numbers(name, integer, storage):
    X = np.random.default_rng(0).integers(0, 2 if integer is bool else 250, size=(25, 20)).astype(integer)
    centre = X.mean(axis=0) if make_kernel(name, 1, 1, 1).is_difference else None
    parameters = {"gamma": 1e-5, "degree": 2, "coef0": 1.0}
    expected = oracle(name, X.astype(np.float64), X.astype(np.float64), **parameters)
    found = matrix(make_kernel(name, **parameters), storage(X), storage(X), np.float32, centre)
    np.testing.assert_allclose(found, expected, rtol=3e-6)


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 5), (5, 1)])
def test_one_row_and_one_column(n, m, name):
    X, Z = draw((n, 1)), draw((m, 1), seed=1)
    parameters = {"gamma": 2.0, "degree": 2, "coef0": 1.0}
    expected = oracle(name, X, Z, **parameters)
    np.testing.assert_allclose(matrix(make_kernel(name, **parameters), X, Z, np.float64), expected, rtol=1e-10)


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("d", [30, 3000])
def test_sparse_data_in_disorder(name, d):
    """Entries twice over, features out of order, a row without any: CSR allows all of it."""
    data, indices, indptr = [1.0, 2.0, 3.0, -1.0, 0.5, 2.0, 0.0], [7, 2, 7, 7, 2, 7, 1], [0, 3, 3, 7]
    X = sp.csr_matrix((data, indices, indptr), shape=(3, d))
    parameters = {"gamma": 0.1, "degree": 3, "coef0": 0.4}
    expected = oracle(name, X.toarray(), X.toarray(), **parameters)
    np.testing.assert_allclose(matrix(make_kernel(name, **parameters), X, X, np.float64), expected, rtol=1e-11)
    assert X.nnz == 7  # the user's own matrix is left as it was


@pytest.mark.parametrize("d", [6, 30])
def test_any_layout_of_the_data(d):
    X = np.asfortranarray(draw((40, d)))
    X.flags.writeable = False
    parameters = {"gamma": 0.1, "degree": 3, "coef0": 0.4}
    for view in (X, X[::-2], X[:, ::-1]):
        for name in FORMULAS:
            found = matrix(make_kernel(name, **parameters), view, view, np.float64)
            np.testing.assert_allclose(found, oracle(name, view, view, **parameters), rtol=1e-10, atol=1e-12)


def test_a_users_function():
    X, Z = draw((9, 4)), draw((6, 4), seed=1)
    kernel = make_kernel(lambda A, B: 1 / (1 + cdist(A, B)), 1.0, 3, 0.0)
    np.testing.assert_allclose(matrix(kernel, X, Z, np.float64), 1 / (1 + cdist(X, Z)), rtol=1e-14)
    np.testing.assert_allclose(matrix(kernel, X, Z, np.float32), 1 / (1 + cdist(X, Z)), rtol=1e-6)
    np.testing.assert_array_equal(make_kernel(lambda A, B: A @ B.T, 1, 3, 0).diagonal(Points(X)).shape, (9,))
    np.testing.assert_allclose(make_kernel(lambda A, B: A @ B.T, 1, 3, 0).diagonal(Points(X)), (X**2).sum(axis=1))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda A, B: A @ A.T, r"returned an array of shape \(9, 9\) for 9 and 6 rows: it must return shape \(9, 6\)"),
        (lambda A, B: np.full((len(A), len(B)), np.nan), "values that are not finite real numbers"),
        (lambda A, B: np.full((len(A), len(B)), 1j), "values that are not finite real numbers"),
    ],
)
def test_what_a_users_function_may_not_return(function, message):
    with pytest.raises(ValueError, match=message):
        matrix(make_kernel(function, 1.0, 3, 0.0), draw((9, 4)), draw((6, 4)), np.float64)
