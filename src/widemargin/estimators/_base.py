"""What every machine shares: checked input, one kernel for all classes, a certified fit, prediction by blocks."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.callback import CallbackSupportMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, compute_class_weight
from sklearn.utils._param_validation import HasMethods, Interval, Options, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from widemargin.engines import LocalEngine
from widemargin.estimators._distinct import Distinct, find_distinct
from widemargin.estimators._progress import GapProgress
from widemargin.kernels import (
    NAMES,
    GivenRows,
    Kernel,
    KernelRows,
    Points,
    cross_product,
    given_product,
    make_kernel,
    parse_memory,
)
from widemargin.problems import Problem
from widemargin.solvers import CoordinateDescent, Monitor, Solution, Solver, combine, solve

# Up to so many rows, or below so small a tolerance, kernel entries are float64: nothing to gain from float32.
_FEW_ROWS = 2048
_FINE_TOLERANCE = 1e-6
# Prediction uses float32 entries where their rounding, 6e-8 each, moves a score by less than this.
_SCORE_ERROR = 1e-5


class KernelMachine(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """Base of the kernel machines: subclasses say which problem they pose and which solver climbs it."""

    _parameter_constraints: ClassVar[dict] = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "kernel": [StrOptions(set(NAMES)), callable],
        "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0, None, closed="left")],
        "degree": [Interval(Real, 0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left"), Options(Integral, {-1})],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "random_state": ["random_state"],
        "solver": [StrOptions({"auto", "coordinate"})],
        "plan": [None],
        "engine": [StrOptions({"local"}), HasMethods("map")],
        "n_jobs": [Integral, None],
        "memory": [str, Integral],
        "device": [StrOptions({"cpu"})],
        "time_budget": [Interval(Real, 0, None, closed="neither"), None],
        "warm_start": ["boolean"],
    }

    @abstractmethod
    def _make_problem(self, y: np.ndarray, C: np.ndarray) -> Problem:
        """The machine's problem for labels -1 and +1 and costs C_i."""

    @abstractmethod
    def _make_solver(self, memory: int, rng: np.random.Generator) -> Solver:
        """The default solver."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.kernel != "precomputed"
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None):
        """Fit to rows X and labels y.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_samples, n_features), or (n_samples, n_samples) if kernel="precomputed"
            float32 and float64 are used as they are, without a copy.
        y : array of shape (n_samples,)
        sample_weight : array of shape (n_samples,), optional
            Multiplies C row by row. A weight of zero leaves the row out, of two counts it twice.
        """
        memory = parse_memory(self.memory)
        monitor = Monitor(self.tol, np.inf if self.max_iter == -1 else self.max_iter, self.time_budget)
        X, y, weight = self._check_training_data(X, y, sample_weight)
        engine = self._make_engine()
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        with engine.limit_blas():
            labels, distinct = self._reduce(X, y, weight)
            kernel, points = self._make_kernel(X, distinct)
            costs = self.C * distinct.weight * self._class_factors(y, weight)[labels]
            problems = [self._make_problem(sign, costs) for sign in _one_against_rest(labels, len(self.classes_))]
            make_solver = CoordinateDescent if self.solver == "coordinate" else self._make_solver
            # The type's share of the budget is known before it is made.
            solver = make_solver(memory, rng)
            solver.memory = int(memory * solver.memory_share)
            dtype = np.float64 if len(distinct.first) <= _FEW_ROWS or self.tol < _FINE_TOLERANCE else np.float32
            room = {"memory": memory - solver.memory, "dtype": dtype, "engine": engine}
            rows = GivenRows(X, index=distinct.first, **room) if kernel is None else KernelRows(points, kernel, **room)
            starts = self._starting_point(X, problems, distinct)
            progress = GapProgress(self, X, y, {"sample_weight": sample_weight}, self.tol, self._machine_names())
            monitor.observe = progress.observe
            progress.snapshot = lambda: self._fitted(X, problems, monitor.solutions, distinct, kernel)
            solutions, certificates = solve(problems, rows, starts, solver, monitor)
        self.certificates_ = certificates
        self.certificate_ = combine(certificates, rows.evaluations)
        self.history_ = monitor.history
        self.n_iter_ = max(1, *(solution.epochs for solution in solutions))
        for name, value in self._fitted(X, problems, solutions, distinct, kernel).items():
            setattr(self, name, value)
        progress.finish()
        if self.certificate_.status == "interrupted":
            raise KeyboardInterrupt
        if self.certificate_.status != "optimal":
            warnings.warn(
                f"{type(self).__name__} ended at a relative duality gap of {self.certificate_.relative_gap:.1e} after "
                f"{self.n_iter_} epochs, above tol={self.tol:g} ({self.certificate_.status}): {self.certificate_.advice}.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def decision_function(self, X):
        """Scores of shape (n_samples,) for two classes, positive for classes_[1]; else (n_samples, n_classes)."""
        check_is_fitted(self)
        X = validate_data(
            self, X, accept_sparse=False if self.kernel == "precomputed" else "csr", dtype=[np.float64, np.float32], reset=False
        )
        engine = self._make_engine()
        g = self.dual_coef_.T
        if self.kernel == "precomputed":
            scores = given_product(X, np.arange(len(X)), self.support_, g, engine)
        else:
            vectors = Points(self.support_vectors_, self._centre)
            dtype = self._score_dtype(vectors, g)
            scores = cross_product(
                self._kernel, Points(X, self._centre), vectors, g, dtype, engine, parse_memory(self.memory)
            )
        scores += self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X):
        """The class of each row."""
        scores = self.decision_function(X)
        chosen = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[chosen]

    def _score_dtype(self, vectors: Points, g: np.ndarray):
        if len(vectors) <= _FEW_ROWS:
            return np.float64
        scale = float(self._kernel.diagonal(vectors.subset(slice(0, _FEW_ROWS))).max())
        error = 6e-8 * scale * float(np.sqrt((g**2).sum(axis=0).max()))
        return np.float32 if error < _SCORE_ERROR else np.float64

    def _make_engine(self) -> LocalEngine:
        return LocalEngine(self.n_jobs) if self.engine == "local" else self.engine

    def _check_training_data(self, X, y, sample_weight):
        is_given = self.kernel == "precomputed"
        X, y = validate_data(self, X, y, accept_sparse=False if is_given else "csr", dtype=[np.float64, np.float32])
        check_classification_targets(y)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} separates classes and y has only one class, {self.classes_[0]!r}: "
                "give rows of at least two classes."
            )
        if is_given:
            _check_given_kernel(X)
        return X, y, weight

    def _reduce(self, X, y, weight) -> tuple[np.ndarray, Distinct]:
        """The distinct rows and the index of each one's class."""
        labels = np.searchsorted(self.classes_, y)
        present = np.bincount(labels, weight > 0, len(self.classes_)) > 0
        if not present.all():
            missing = self.classes_[~present]
            raise ValueError(
                f"sample_weight leaves class {missing[0]!r} without a row of positive weight: "
                "every class needs one, or leave the rows of that class out of X and y."
            )
        distinct = find_distinct(X, labels, weight, merge=self.kernel != "precomputed")
        return labels[distinct.first], distinct

    def _make_kernel(self, X, distinct: Distinct) -> tuple[Kernel | None, Points | None]:
        """The kernel with its numbers (None if precomputed) and the distinct rows."""
        self._centre = None
        self._kernel = None
        if self.kernel == "precomputed":
            return None, None
        points = Points(X, index=distinct.first)
        kernel = make_kernel(self.kernel, self._find_gamma(points, distinct.weight), self.degree, self.coef0)
        if kernel.is_difference and not sp.issparse(X):
            self._centre = points.means()
        self._kernel = kernel
        return kernel, Points(X, self._centre, distinct.first)

    def _find_gamma(self, points: Points, weight: np.ndarray) -> float:
        """SVC's meaning: "scale" is 1 / (n_features * variance of X), with the weights that rows have; "auto" 1 / n_features."""
        if not isinstance(self.gamma, str):
            return float(self.gamma)
        if self.gamma == "auto":
            return 1 / points.d
        variance = points.variance(weight)
        return 1 / (points.d * variance) if variance > 0 else 1.0

    def _class_factors(self, y, weight: np.ndarray) -> np.ndarray:
        return compute_class_weight(self.class_weight, classes=self.classes_, y=y, sample_weight=weight)

    def _machine_names(self) -> list[str]:
        return ["gap"] if len(self.classes_) == 2 else [f"class {label}" for label in self.classes_]

    def _starting_point(self, X, problems: list[Problem], distinct: Distinct) -> np.ndarray:
        """Zero, or with warm_start the last fit's coefficients, made feasible for this one's costs."""
        start = np.zeros((len(distinct.first), len(problems)))
        if not self.warm_start or not hasattr(self, "dual_coef_"):
            return start
        if self._n_rows != X.shape[0] or len(self.dual_coef_) != len(problems):
            warnings.warn(
                f"warm_start goes on from the last fit only on as many rows and classes ({self._n_rows} rows then, "
                f"{X.shape[0]} now): this fit starts from zero.",
                UserWarning,
                stacklevel=3,
            )
            return start
        last = np.zeros((X.shape[0], len(problems)))
        last[self.support_] = self.dual_coef_.T
        start = distinct.gather(last)
        return np.column_stack([problem.nearest_feasible(g) for problem, g in zip(problems, start.T, strict=True)])

    def _fitted(self, X, problems, solutions: list[Solution], distinct: Distinct, kernel) -> dict:
        """The attributes that prediction needs."""
        g = distinct.spread(np.column_stack([solution.g for solution in solutions]), X.shape[0])
        support = np.flatnonzero(g.any(axis=1))
        intercepts = [problem.intercept(solution.f) for problem, solution in zip(problems, solutions, strict=True)]
        return {
            "dual_coef_": np.ascontiguousarray(g[support].T),
            "support_": support,
            "support_vectors_": X[:0] if kernel is None else X[support],
            "intercept_": np.array(intercepts),
            "_kernel": kernel,
            "_centre": self._centre,
            "_n_rows": X.shape[0],
        }


def _one_against_rest(labels: np.ndarray, n_classes: int) -> list[np.ndarray]:
    """Signs of the machines: one for two classes (positive for the second), else one a class."""
    positives = [1] if n_classes == 2 else range(n_classes)
    return [np.where(labels == positive, 1.0, -1.0) for positive in positives]


def _check_given_kernel(K: np.ndarray) -> None:
    if K.shape[0] != K.shape[1]:
        raise ValueError(
            f'kernel="precomputed" takes the square matrix of the kernel between all rows, and X has shape {K.shape}: '
            "give K(X_train, X_train) to fit and K(X_test, X_train) to predict."
        )
    scale = np.abs(K.diagonal()).max()
    for start in range(0, len(K), 256):
        part = slice(start, start + 256)
        if np.abs(K[part] - K[:, part].T).max() > 1e-4 * scale:
            raise ValueError('kernel="precomputed" takes a symmetric matrix, and X is not: give (X + X.T) / 2 if it should be.')
