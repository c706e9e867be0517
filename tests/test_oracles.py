"""Optima against solvers that share no code with the library: cvxpy with Clarabel, KernelRidge, SVC."""

from functools import cache

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris, make_classification
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.svm import SVC

from widemargin import OptimalMarginClassifier, SupportVectorClassifier

TOL = 1e-8
CLARABEL = {"solver": cp.CLARABEL, "tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}

# The product table: a new machine is one row here and its textbook problem in `textbook`.
MACHINES = {
    "odm": (OptimalMarginClassifier, {"C": 2.0}),
    "odm narrow": (OptimalMarginClassifier, {"C": 0.3, "theta": 0.0, "upsilon": 1.7}),
    "odm wide": (OptimalMarginClassifier, {"C": 20.0, "theta": 0.6, "upsilon": 0.1}),
    "svm": (SupportVectorClassifier, {"C": 2.0}),
    "svm through zero": (SupportVectorClassifier, {"C": 2.0, "fit_intercept": False}),
}
KERNELS = {
    "linear": {},
    "rbf": {"gamma": 0.2},
    "laplacian": {"gamma": 0.1},
    "poly": {"gamma": 0.1, "coef0": 1.0, "degree": 3},
}
WEIGHTS = ["equal", "sample_weight", "class_weight"]
CLASS_WEIGHT = {0: 0.4, 1: 3.0}


@cache
def data(n=70):
    X, y = make_classification(n, 5, n_informative=3, n_redundant=0, flip_y=0.15, class_sep=0.8, random_state=4)
    return X, y


def weigh(weights, n=70):
    """sample_weight, class_weight, and the factor of C they make for each row."""
    y = data(n)[1]
    if weights == "sample_weight":
        weight = np.random.default_rng(0).uniform(0.2, 3, n)
        weight[::7] = 0  # left out
        return weight, None, weight
    factors = np.where(y == 1, CLASS_WEIGHT[1], CLASS_WEIGHT[0])
    return (None, CLASS_WEIGHT, factors) if weights == "class_weight" else (None, None, np.ones(n))


@cache
def kernel_matrix(kernel, n=70):
    return pairwise_kernels(data(n)[0], metric=kernel, **KERNELS[kernel])


def features(K):
    """Rows phi_i with phi_i . phi_j = K_ij."""
    values, vectors = np.linalg.eigh(K)
    kept = values > 1e-13 * values[-1]
    return vectors[:, kept] * np.sqrt(values[kept])


@cache
def textbook(machine, kernel, weights):
    """Optimum and scores of the primal as the papers write it, with slack variables."""
    estimator, params = MACHINES[machine]
    y = np.where(data()[1] == 1, 1.0, -1.0)
    C = params["C"] * weigh(weights)[2]
    phi = features(kernel_matrix(kernel))
    w, b = cp.Variable(phi.shape[1]), cp.Variable()
    scores = phi @ w + b
    bought = C > 0  # a row without price constrains nothing
    y, C, margin = y[bought], C[bought], cp.multiply(y[bought], scores[bought])
    xi, eps = cp.Variable(len(y), nonneg=True), cp.Variable(len(y), nonneg=True)
    if estimator is OptimalMarginClassifier:
        theta, upsilon = params.get("theta", 0.1), params.get("upsilon", 0.5)
        price = (C @ cp.square(xi) + upsilon * (C @ cp.square(eps))) / (2 * (1 - theta) ** 2)
        constraints = [margin >= 1 - theta - xi, margin <= 1 + theta + eps, b == 0]
    else:
        price = C @ xi
        constraints = [margin >= 1 - xi]
        if not params.get("fit_intercept", True):
            constraints.append(b == 0)
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + price), constraints)
    problem.solve(**CLARABEL)
    return problem.value, scores.value


def make(machine, kernel="rbf", **more):
    estimator, params = MACHINES[machine]
    return estimator(**{"kernel": kernel, "tol": TOL, "max_iter": 100_000, **params, **KERNELS.get(kernel, {}), **more})


@pytest.mark.parametrize("solver", ["auto", "coordinate"])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("machine", MACHINES)
def test_optimum_is_clarabels(machine, kernel, weights, solver):
    X, y = data()
    sample_weight, class_weight, _ = weigh(weights)
    fitted = make(machine, kernel, solver=solver, class_weight=class_weight).fit(X, y, sample_weight)
    optimum, scores = textbook(machine, kernel, weights)
    # Optimal to TOL, so within it of the oracle, which is exact to 1e-10.
    assert fitted.certificate_.primal == pytest.approx(optimum, rel=1e-7)
    assert fitted.certificate_.dual == pytest.approx(optimum, rel=1e-7)
    np.testing.assert_allclose(fitted.decision_function(X), scores, rtol=0, atol=5e-4)


@pytest.mark.parametrize("solver", ["auto", "coordinate"])
def test_dual_of_the_paper(solver):
    """Equation (1) with its two variables a row, zeta and beta; lambda = C M."""
    X, y = data()
    theta, upsilon, C, M = 0.2, 0.4, 3.0, len(y)
    signs = np.where(y == 1, 1.0, -1.0)
    c = (1 - theta) ** 2 / (C * M * upsilon)
    zeta, beta = cp.Variable(M, nonneg=True), cp.Variable(M, nonneg=True)
    Q = cp.psd_wrap(np.outer(signs, signs) * kernel_matrix("rbf"))
    ridge = 0.5 * M * c * (upsilon * cp.sum_squares(zeta) + cp.sum_squares(beta))
    linear = (theta - 1) * cp.sum(zeta) + (theta + 1) * cp.sum(beta)
    problem = cp.Problem(cp.Minimize(0.5 * cp.quad_form(zeta - beta, Q) + ridge + linear))
    problem.solve(**CLARABEL)
    fitted = make("odm", C=C, theta=theta, upsilon=upsilon, solver=solver, tol=1e-10).fit(X, y)
    assert fitted.certificate_.dual == pytest.approx(-problem.value, rel=1e-7)
    g = np.zeros(M)
    g[fitted.support_] = fitted.dual_coef_[0]
    np.testing.assert_allclose(g, signs * (zeta.value - beta.value), atol=5e-4)


@pytest.mark.parametrize("solver", ["auto", "coordinate"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_odm_without_band_is_kernel_ridge(kernel, solver):
    X, y = data(150)
    weight, C = np.random.default_rng(1).uniform(0.5, 2, 100), 1.5
    signs = np.where(y == 1, 1.0, -1.0)[:100]
    ridge = KernelRidge(alpha=1 / C, kernel=kernel, **KERNELS[kernel]).fit(X[:100], signs, weight)
    odm = make("odm", kernel, C=C, theta=0.0, upsilon=1.0, solver=solver, tol=1e-9).fit(X[:100], y[:100], weight)
    np.testing.assert_allclose(odm.decision_function(X), ridge.predict(X), rtol=0, atol=5e-4)
    # The optimum of ridge regression is C/2 y'(y - f), rows weighted.
    optimum = 0.5 * C * weight @ (1 - signs * ridge.predict(X[:100]))
    assert odm.certificate_.primal == pytest.approx(optimum, rel=1e-7)


@pytest.mark.parametrize("solver", ["auto", "coordinate"])
@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly"])
def test_svm_is_libsvms(kernel, solver):
    X, y = data(150)
    weight, params = np.random.default_rng(1).uniform(0.5, 2, 100), KERNELS[kernel]
    theirs = SVC(C=2.0, kernel=kernel, tol=1e-5, class_weight=CLASS_WEIGHT, **params).fit(X[:100], y[:100], weight)
    ours = make("svm", kernel, solver=solver, class_weight=CLASS_WEIGHT).fit(X[:100], y[:100], weight)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), rtol=0, atol=2e-4)
    assert (ours.predict(X) == theirs.predict(X)).mean() > 0.99


@pytest.mark.parametrize("gamma", ["scale", "auto"])
@pytest.mark.parametrize("balanced", [None, "balanced"])
def test_words_mean_what_they_mean_for_svc(gamma, balanced):
    X, y = data(150)
    theirs = SVC(C=2.0, gamma=gamma, tol=1e-6, class_weight=balanced).fit(X[:100], y[:100])
    ours = make("svm", gamma=gamma, class_weight=balanced).fit(X[:100], y[:100])
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), rtol=0, atol=2e-4)


@pytest.mark.parametrize("solver", ["auto", "coordinate"])
@pytest.mark.parametrize("machine", MACHINES)
def test_many_classes_are_each_against_the_rest(machine, solver):
    X, y = load_iris(return_X_y=True)
    weight = np.random.default_rng(2).uniform(0.5, 2, len(y))
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    factors = {"setosa": 0.5, "versicolor": 2.0, "virginica": 1.0}
    together = make(machine, solver=solver, tol=1e-6, class_weight=factors).fit(X, names, weight)
    scores = together.decision_function(X)
    assert scores.shape == (len(y), 3)
    alone = [
        make(machine, solver=solver, tol=1e-6).fit(X, names == name, weight * np.vectorize(factors.get)(names))
        for name in together.classes_
    ]
    for k, one in enumerate(alone):
        np.testing.assert_allclose(scores[:, k], one.decision_function(X), rtol=0, atol=5e-3)
        assert together.certificates_[k].primal == pytest.approx(one.certificate_.primal, rel=2e-6)
    assert together.certificate_.primal == pytest.approx(sum(one.certificate_.primal for one in alone), rel=2e-6)
    assert (together.predict(X) == together.classes_[scores.argmax(axis=1)]).all()


ROUTES = {
    "precomputed": lambda X: ("precomputed", pairwise_kernels(X, X[:100], metric="rbf", **KERNELS["rbf"])),
    "callable": lambda X: (lambda A, B: pairwise_kernels(A, B, metric="rbf", **KERNELS["rbf"]), X),
    "CSR": lambda X: ("rbf", sp.csr_matrix(X)),
    "float32": lambda X: ("rbf", X.astype(np.float32)),
    "CSR float32": lambda X: ("rbf", sp.csr_matrix(X.astype(np.float32))),
}


@pytest.mark.parametrize("solver", ["auto", "coordinate"])
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("machine", ["odm", "svm"])
def test_every_route_to_the_kernel_leads_to_the_same_machine(machine, route, solver):
    X, y = data(150)
    X = X.astype(np.float32).astype(float)
    kernel, Z = ROUTES[route](X)
    plain = make(machine, solver=solver).fit(X[:100], y[:100])
    routed = make(machine, solver=solver).set_params(kernel=kernel).fit(Z[:100], y[:100])
    assert routed.certificate_.primal == pytest.approx(plain.certificate_.primal, rel=2 * TOL)
    np.testing.assert_allclose(routed.decision_function(Z), plain.decision_function(X), rtol=0, atol=5e-4)
