"""Rows against the whole matrix: stored, cached in part, streamed and given make one contract."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics.pairwise import rbf_kernel

from widemargin.engines import LocalEngine
from widemargin.kernels import GivenRows, KernelRows, Points, cross_product, given_product, make_kernel

N, D, GAMMA = 300, 6, 0.1
# Budgets that make tiles of 64 rows (N is no multiple), of which all, some or none are kept.
BUDGETS = {"stored": 1_000_000, "cached": 480_000, "streamed": 150_000}
KINDS = [*BUDGETS, "given"]
RBF = make_kernel("rbf", GAMMA, 3, 0.0)


def data(n=N, d=D):
    return np.random.default_rng(0).normal(size=(n, d))


def make_rows(kind, X, *, n_workers=2, dtype=np.float64):
    engine = LocalEngine(n_workers)
    if kind == "given":
        return GivenRows(rbf_kernel(X, gamma=GAMMA).astype(dtype), memory=1 << 20, dtype=dtype, engine=engine)
    memory = BUDGETS[kind] * np.dtype(dtype).itemsize // 4
    return KernelRows(Points(X), RBF, memory=memory, dtype=dtype, engine=engine)


def draw(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_contract(kind, dtype):
    X = data()
    K = rbf_kernel(X, gamma=GAMMA)
    rows = make_rows(kind, X, dtype=dtype)
    atol = 1e-12 if dtype == np.float64 else 1e-6
    some, others = np.array([7, 3, 299, 64, 3]), np.array([0, 128, 5])
    assert rows.n == N
    assert rows.storage == kind
    for found, expected in [
        (rows.block(some), K[some]),
        (rows.block(slice(60, 70)), K[60:70]),
        (rows.block(some, others), K[np.ix_(some, others)]),
        (rows.block(slice(None), slice(10, 200)), K[:, 10:200]),
    ]:
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
    np.testing.assert_allclose(rows.diag(), np.ones(N), rtol=0, atol=atol)
    for v in (draw(N), draw(N, 1), draw(N, 7), draw(N).astype(np.float32), np.ones(N, int), draw(7, N).T):
        for _ in range(2):  # the second time from the store
            found = rows.matvec(v)
            assert found.shape == v.shape
            assert found.dtype == np.float64
            np.testing.assert_allclose(found, K @ v, rtol=0, atol=atol * np.abs(v).sum(axis=0).max())


@pytest.mark.parametrize("kind", KINDS)
def test_restrict(kind):
    X = data()
    K = rbf_kernel(X, gamma=GAMMA)
    first = np.random.default_rng(2).permutation(N)[:200]
    second = np.array([150, 3, 70])
    rows = make_rows(kind, X)
    for part, index in [(rows.restrict(first), first), (rows.restrict(first).restrict(second), first[second])]:
        own = K[np.ix_(index, index)]
        v = draw(len(index))
        assert part.n == len(index)
        np.testing.assert_allclose(part.block(slice(None)), own, atol=1e-12)
        np.testing.assert_allclose(part.block(np.array([1, 2]), np.array([0])), own[1:3, :1], atol=1e-12)
        np.testing.assert_allclose(part.diag(), np.diag(own), atol=1e-12)
        np.testing.assert_allclose(part.matvec(v), own @ v, atol=1e-10)
    assert rows.n == N


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("n_support", [0, 1, 40, 150, 290])
@pytest.mark.parametrize("kind", KINDS)
def test_few_non_zeros(kind, n_support, is_warm):
    X = data()
    rows = make_rows(kind, X)
    if is_warm:
        rows.matvec(draw(N))
    v = np.zeros((N, 2))
    support = np.random.default_rng(3).permutation(N)[:n_support]
    v[support[::2], 0] = draw(len(support[::2]))
    v[support[1::2], 1] = 1
    np.testing.assert_allclose(rows.matvec(v), rbf_kernel(X, gamma=GAMMA) @ v, atol=1e-11)
    np.testing.assert_allclose(rows.matvec(v[:, 0]), rbf_kernel(X, gamma=GAMMA) @ v[:, 0], atol=1e-11)


def everything(kind, n_workers, dtype, X):
    rows = make_rows(kind, X, n_workers=n_workers, dtype=dtype)
    few = np.where(np.arange(N) % 10 == 0, draw(N), 0)
    yield rows.matvec(few)
    yield rows.matvec(draw(N))
    yield rows.matvec(draw(N, 3))
    yield rows.matvec(few)
    yield rows.block(np.arange(5, 155))
    part = rows.restrict(np.arange(0, N, 2))
    yield part.matvec(draw(part.n))
    if kind == "given":
        yield given_product(rows.K, np.arange(200), np.arange(50, N), draw(N - 50, 2), rows.engine)
    else:
        yield cross_product(RBF, rows.points, part.points, draw(part.n, 2), dtype, rows.engine, rows.memory)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [D, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_same_bits_for_any_number_of_workers(kind, d, dtype):
    X = data(d=d) * np.sqrt(D / d)
    alone = list(everything(kind, 1, dtype, X))
    for n_workers in (2, 3):
        for found, expected in zip(everything(kind, n_workers, dtype, X), alone, strict=True):
            np.testing.assert_array_equal(found, expected)


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 210), columns=st.integers(0, 3), kind=st.sampled_from(KINDS), seed=st.integers(0, 99))
def test_any_size(n, columns, kind, seed):
    X = data(n)
    rng = np.random.default_rng(seed)
    K = rbf_kernel(X, gamma=GAMMA)
    v = (rng.normal(size=(n, columns) if columns else n).T * (rng.random(n) < rng.random())).T
    index = rng.permutation(n)[: rng.integers(1, n + 1)]
    rows = make_rows(kind, X)
    np.testing.assert_allclose(rows.matvec(v), K @ v, rtol=0, atol=1e-10)
    np.testing.assert_allclose(rows.block(index), K[index], rtol=0, atol=1e-12)
    np.testing.assert_allclose(rows.restrict(index).matvec(v[index]), K[np.ix_(index, index)] @ v[index], atol=1e-10)


@pytest.mark.parametrize("kind", ["stored", "cached", "streamed"])
def test_evaluations_are_those_done(kind):
    rows = make_rows(kind, data())
    triangle = sum(min(64, N - i) * (i + min(64, N - i)) for i in range(0, N, 64))
    rows.matvec(draw(N))
    assert rows.evaluations == triangle
    rows.matvec(draw(N))
    again = rows.evaluations - triangle
    assert {"stored": again == 0, "cached": 0 < again < triangle, "streamed": again == triangle}[kind]
    rows.matvec(draw(N, 50))  # as many columns in one pass as the budget has room for
    passes = -(-50 // rows.n_columns)
    assert passes > 1
    assert rows.evaluations == triangle + again + passes * again
    before = rows.evaluations
    rows.block(np.arange(5), np.arange(20))
    assert rows.evaluations - before == 100


def test_few_non_zeros_take_few_evaluations():
    rows = make_rows("streamed", data())
    v = np.zeros(N)
    v[[3, 77]] = 1
    rows.matvec(v)
    assert 2 * N - 1 <= rows.evaluations <= 2 * N


@pytest.mark.parametrize("kind", KINDS)
def test_in_dtype(kind):
    X = data()
    K = rbf_kernel(X, gamma=GAMMA)
    rows = make_rows(kind, X, dtype=np.float32)
    for exact in (rows.in_dtype(np.float64), rows.in_dtype(np.float64, stored=False)):
        before = rows.evaluations
        if kind != "given":
            np.testing.assert_allclose(exact.matvec(draw(N)), K @ draw(N), rtol=0, atol=1e-11)
            assert rows.evaluations > before  # one tally for all that is derived from these rows
        assert exact.block(np.arange(3)).dtype == np.float64
    assert exact.storage in ("streamed", "given")
    assert rows.block(np.arange(3)).dtype == np.float32


def test_given_rows_compute_nothing_and_leave_the_matrix_alone():
    K = rbf_kernel(data(), gamma=GAMMA)
    K.flags.writeable = False
    rows = GivenRows(K, memory=1 << 20, dtype=np.float64, engine=LocalEngine(1))
    rows.block(np.arange(4))[:] = 0
    rows.matvec(draw(N))
    assert rows.evaluations == 0


def test_an_error_in_a_users_kernel_comes_through():
    def broken(A, B):
        raise ZeroDivisionError("in the kernel")

    rows = KernelRows(
        Points(data()), make_kernel(broken, 1, 3, 0), memory=200_000, dtype=np.float64, engine=LocalEngine(2)
    )
    for act in (lambda: rows.matvec(draw(N)), lambda: rows.block(np.arange(9)), rows.diag):
        with pytest.raises(ZeroDivisionError, match="in the kernel"):
            act()


def test_rows_in_another_dtype_take_the_place_of_the_last():
    """Two stores at once would be twice the budget."""
    rows = make_rows("stored", data(), dtype=np.float32)
    first = rows.matvec(draw(N))
    exact = rows.in_dtype(np.float64)
    assert "_store" not in vars(rows)
    exact.matvec(draw(N))
    np.testing.assert_array_equal(rows.matvec(draw(N)), first)  # it can still be asked, at a price
