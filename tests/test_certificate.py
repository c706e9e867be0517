"""The certificate: recomputed here by other code, and shown to catch what is planted."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.metrics.pairwise import pairwise_kernels

from widemargin import OptimalMarginClassifier, SupportVectorClassifier
from widemargin.engines import LocalEngine
from widemargin.kernels import KernelRows, Points, make_kernel
from widemargin.problems import Hinge, MarginDistribution
from widemargin.solvers import Certificate, Monitor, SubspaceDescent, WorkingSet, combine, solve
from widemargin.solvers.certificate import certify

KERNELS = {"rbf": {"gamma": 2.0}, "linear": {}, "laplacian": {"gamma": 1.0}, "poly": {"gamma": 1.0, "coef0": 1.0}}
THETA, UPSILON = 0.2, 0.3


def odm_values(K, y, C, g):
    """The paper's primal, with its slacks, and its dual (1), with zeta and beta."""
    f, u = K @ g, y * g
    xi, eps = np.maximum(0, 1 - THETA - y * f), np.maximum(0, y * f - 1 - THETA)
    primal = 0.5 * g @ f + (C * (xi**2 + UPSILON * eps**2)).sum() / (2 * (1 - THETA) ** 2)
    zeta, beta = np.maximum(u, 0), np.maximum(-u, 0)
    Q = y[:, None] * K * y
    ridge = ((1 - THETA) ** 2 / C * (zeta**2 + beta**2 / UPSILON)).sum()
    dual = 0.5 * (zeta - beta) @ Q @ (zeta - beta) + ridge / 2 + (THETA - 1) * zeta.sum() + (THETA + 1) * beta.sum()
    return primal, -dual


def svm_values(K, y, C, g, b):
    f = K @ g
    return 0.5 * g @ f + C @ np.maximum(0, 1 - y * (f + b)), np.abs(g).sum() - 0.5 * g @ f


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("n", [200, 2500])  # entries of K in float64, in float32
@pytest.mark.parametrize("machine", ["odm", "svm", "svm through zero"])
def test_certificate_is_recomputed_from_the_returned_coefficients(machine, n, kernel, dtype):
    X, labels = make_moons(n, noise=0.3, random_state=0)
    X = X.astype(dtype)
    weight = np.random.default_rng(0).uniform(0.5, 2, n)
    if machine == "odm":
        estimator = OptimalMarginClassifier(C=5, theta=THETA, upsilon=UPSILON)
    else:
        estimator = SupportVectorClassifier(C=5, fit_intercept=machine == "svm")
    estimator.set_params(kernel=kernel, **KERNELS[kernel]).fit(X, labels, weight)
    certificate = estimator.certificate_
    y, g = np.where(labels == 1, 1.0, -1.0), np.zeros(n)
    g[estimator.support_] = estimator.dual_coef_[0]
    K = pairwise_kernels(X.astype(np.float64), metric=kernel, **KERNELS[kernel])
    if machine == "odm":
        primal, dual = odm_values(K, y, 5 * weight, g)
    else:
        primal, dual = svm_values(K, y, 5 * weight, g, estimator.intercept_[0])
        assert (y * g >= 0).all()
        assert (y * g <= 5 * weight * (1 + 1e-12)).all()
        assert machine != "svm" or abs(g.sum()) < 1e-9 * np.abs(g).sum()
    assert certificate.status == "optimal"
    assert certificate.feasibility <= 1e-12
    # float32 data centred in float32 would not pass: the certificate is the data's, in float64.
    assert certificate.primal == pytest.approx(primal, rel=1e-6 if dtype == np.float32 else 1e-9)
    assert certificate.dual == pytest.approx(dual, rel=1e-6 if dtype == np.float32 else 1e-9)
    assert certificate.relative_gap == pytest.approx((primal - dual) / primal, abs=2e-6)
    assert -1e-9 < certificate.relative_gap <= 1e-3


def small(kind):
    X, labels = make_moons(60, noise=0.3, random_state=0)
    y, C = np.where(labels == 1, 1.0, -1.0), np.full(60, 5.0)
    problem = MarginDistribution(y, C, THETA, UPSILON) if kind == "odm" else Hinge(y, C, kind == "svm")
    kernel = make_kernel("rbf", 2.0, 3, 0.0)
    rows = KernelRows(Points(X), kernel, memory=1 << 24, dtype=np.float64, engine=LocalEngine(1))
    return problem, rows


class Liar:
    """A solver that returns what it was given, with one coefficient planted wrong, and says that all is well."""

    memory = 0

    def __init__(self, planted, lie):
        self.planted = planted
        self.lie = lie
        self.calls = 0

    def climb(self, problems, rows, solutions, monitor, targets, names):
        self.calls += 1
        for solution in solutions:
            solution.g = self.planted.copy()
            solution.f = np.zeros(rows.n) if self.lie == "scores" else rows.matvec(solution.g)
            solution.status = "optimal"


@pytest.mark.parametrize("kind", ["odm", "svm", "svm through zero"])
@pytest.mark.parametrize("lie", ["coefficient", "scores"])
def test_a_planted_error_is_caught(kind, lie):
    problem, rows = small(kind)
    machine = OptimalMarginClassifier(C=5, theta=THETA, upsilon=UPSILON, gamma=2.0, tol=1e-9, max_iter=10_000)
    if kind != "odm":
        machine = SupportVectorClassifier(C=5, fit_intercept=kind == "svm", gamma=2.0, tol=1e-9, max_iter=10_000)
    machine.fit(rows.points.X, problem.y)
    optimum = np.zeros(60)
    optimum[machine.support_] = machine.dual_coef_[0]

    def judge(g, lie):
        liar = Liar(g, lie)
        _, [certificate] = solve([problem], rows, np.zeros((60, 1)), liar, Monitor(1e-6, np.inf))
        return certificate, liar.calls

    certificate, calls = judge(optimum, "scores")  # scores are not believed, so that a right answer passes all the same
    assert (certificate.status, calls) == ("optimal", 1)
    planted = optimum.copy()
    planted[np.argmax(np.abs(optimum))] *= 0.5
    certificate, calls = judge(planted, lie)
    assert certificate.status == "stalled"
    assert certificate.relative_gap > 1e-3 or certificate.feasibility > 1e-3
    assert calls > 1  # sent back to work


def test_certificate_of_a_point_outside_says_how_far():
    problem, rows = small("svm")
    g = np.zeros(60)
    g[0] = problem.y[0] * 5.5
    certificate = certify(problem, g, rows.matvec(g), "optimal")
    assert certificate.feasibility == pytest.approx(0.1)


@pytest.mark.parametrize("Machine", [OptimalMarginClassifier, SupportVectorClassifier])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_indefinite_kernel_proves_nothing(Machine, sign):
    """Its gap may well close, at a point that is only stationary."""
    X, y = make_moons(60, noise=0.3, random_state=0)
    K = sign * pairwise_kernels(X, metric="rbf")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        machine = Machine(kernel="precomputed").fit(K, y)
    assert machine.certificate_.status == ("optimal" if sign > 0 else "indefinite")
    assert len(caught) == (sign < 0)
    assert all("(indefinite): the kernel matrix is not positive semidefinite" in str(one.message) for one in caught)


def test_several_machines_are_as_good_as_their_worst():
    parts = [Certificate(3.0, 2.0, 1e-9, "optimal"), Certificate(5.0, 4.5, 1e-3, "max_iter")]
    whole = combine(parts, 7)
    assert whole == Certificate(8.0, 6.5, 1e-3, "max_iter", 7)
    assert whole.gap == 1.5
    assert whole.relative_gap == pytest.approx(1.5 / 8)
    assert whole.advice == "raise max_iter, or lower C"
    worse = combine([*parts, Certificate(1.0, 1.0, 0.0, "indefinite")], 7)
    assert worse.status == "indefinite"  # whatever the order of the classes
    assert str(whole) == "max_iter: primal 8, dual 6.5, relative gap 1.9e-01"


@pytest.mark.parametrize("kind", ["odm", "svm"])
def test_after_ctrl_c_the_certificate_is_that_of_the_coefficients(kind):
    """Wherever it comes, a product with K included, and from a warm start."""
    problem, rows = small(kind)
    rng = np.random.default_rng(0)
    solver = SubspaceDescent(1 << 26, rng) if kind == "odm" else WorkingSet(1 << 26, rng)
    start = problem.nearest_feasible(0.1 * problem.y)[:, None]
    for product in range(1, 6):
        interrupted = InterruptedRows(rows, product)
        (solution,), (certificate,) = solve([problem], interrupted, start, solver, Monitor(1e-12, 100))
        primal, dual = problem.values(solution.g, rows.matvec(solution.g))
        assert certificate.primal == pytest.approx(primal, rel=1e-9)
        assert certificate.dual == pytest.approx(dual, rel=1e-9)


def test_a_fault_in_compiled_code_is_not_taken_for_ctrl_c():
    problem, rows = small("svm")

    def fault(v):
        raise SystemError("returned NULL without setting an exception")

    rows.matvec, rows.in_dtype = fault, lambda dtype, stored: rows
    start = problem.nearest_feasible(0.1 * problem.y)[:, None]
    with pytest.raises(SystemError, match="returned NULL"):
        solve([problem], rows, start, WorkingSet(1 << 26, np.random.default_rng(0)), Monitor(1e-3, 10))


class InterruptedRows:
    """Rows whose products, those in other working dtypes counted, end with Ctrl-C at one of them."""

    def __init__(self, rows, product, count=None):
        self._rows, self._product, self._count = rows, product, count or [0]

    def __getattr__(self, name):
        return getattr(self._rows, name)

    def in_dtype(self, dtype, **how):
        return InterruptedRows(self._rows.in_dtype(dtype, **how), self._product, self._count)

    def matvec(self, v):
        self._count[0] += 1
        if self._count[0] == self._product:
            if self._product % 2:
                raise KeyboardInterrupt
            # As it comes out of compiled code that was handing over its result.
            raise SystemError("returned a result with an exception set") from KeyboardInterrupt()
        return self._rows.matvec(v)


def test_a_machine_cut_off_by_its_share_goes_on_while_seconds_are_left():
    problem, rows = small("svm")
    solver = ShortOfTime(WorkingSet(1 << 26, np.random.default_rng(0)))
    _, certificates = solve([problem] * 3, rows, np.zeros((60, 3)), solver, Monitor(1e-6, 1000, time_budget=1000))
    assert [certificate.status for certificate in certificates] == ["optimal"] * 3
    assert solver.called == [[0, 1, 2], [0]]


def test_the_seconds_left_are_shared_among_the_machines_to_come():
    monitor = Monitor(1e-3, 10, time_budget=1e6)
    shares = []
    for machines_to_come in (4, 2, 1):
        monitor.share_seconds(machines_to_come)
        shares.append(monitor.deadline)
    assert shares == pytest.approx([2.5e5, 5e5, 1e6], rel=1e-3)


class ShortOfTime:
    """A solver whose first machine is out of time at its first turn."""

    def __init__(self, solver):
        self.memory, self.called, self._solver = solver.memory, [], solver

    def climb(self, problems, rows, solutions, monitor, targets, names):
        self.called.append(list(names))
        turns = slice(1 if len(self.called) == 1 else 0, None)
        if turns.start:
            solutions[0].status = "time_budget"
        self._solver.climb(problems[turns], rows, solutions[turns], monitor, targets[turns], names[turns])
