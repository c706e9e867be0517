"""What every machine shares: checked input, one kernel for all classes, a certified fit, prediction by blocks."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.callback import CallbackSupportMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, Options, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from widemargin.engines import LocalEngine
from widemargin.estimators._progress import GapProgress
from widemargin.estimators._training import FEW_ROWS, KernelChoice, Training, prepare, weigh_classes
from widemargin.kernels import NAMES, Kernel, Points, TooLittleMemoryError, cross_product, given_product, parse_memory
from widemargin.problems import Problem
from widemargin.solvers import Certificate, CoordinateDescent, Monitor, Record, Solution, Solver, combine, solve

# Prediction uses float32 entries where their rounding moves a score by less than this.
_SINGLE_ROUNDING = 6e-8
_SCORE_ERROR = 1e-5
_LEAST_COST = 1e-30


class KernelMachine(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """Base of the kernel machines: subclasses say which problem they pose and which solver climbs it."""

    _parameter_constraints: ClassVar[dict] = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "kernel": [StrOptions(set(NAMES)), callable],
        "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0, None, closed="left")],
        "degree": [Interval(Integral, 0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left"), Options(Integral, {-1})],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "random_state": ["random_state"],
        "solver": [StrOptions({"auto", "coordinate"})],
        "plan": [None],
        "engine": [StrOptions({"local"}), HasMethods(["map", "limit_blas"])],
        "n_jobs": [Integral, None],
        "memory": [str, Integral],
        "device": [StrOptions({"cpu"})],
        "time_budget": [Interval(Real, 0, None, closed="neither"), None],
        "warm_start": ["boolean"],
    }

    # Set by fit, beside what the subclasses document.
    _kernel: Kernel
    _centre: np.ndarray | None
    _distinct_support: np.ndarray
    _distinct_coef: np.ndarray
    _n_rows: int

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
        X, labels, weight = self._check_training_data(X, y, sample_weight)
        engine = self._make_engine()
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        with engine.limit_blas():
            factors = weigh_classes(self.class_weight, self.classes_, labels, weight)
            choice = KernelChoice(self.kernel, self.gamma, self.degree, self.coef0)
            training = prepare(X, labels, weight, choice)
            costs = self.C * training.distinct.weight * factors[training.labels]
            self._check_costs(costs)
            problems = [self._make_problem(y, costs) for y in training.signs(len(self.classes_))]
            solver = CoordinateDescent(memory, rng) if self.solver == "coordinate" else self._make_solver(memory, rng)
            try:
                rows = training.rows(memory - solver.memory, self.tol, engine)
            except TooLittleMemoryError as error:
                raise error.of_whole(memory) from None
            start = self._starting_point(training, problems)
            progress = GapProgress(self, X, y, {"sample_weight": sample_weight}, self.tol, self._machine_names())
            progress.snapshot = lambda: self._model(training, problems, monitor.solutions)
            monitor.observe = progress.observe
            solutions, certificates = solve(problems, rows, start, solver, monitor)
        self.certificates_: list[Certificate] = certificates
        self.certificate_: Certificate = combine(certificates, rows.tally.evaluations)
        self.history_: list[Record] = monitor.history
        self.n_iter_ = max(1, *(solution.epochs for solution in solutions))
        for name, value in self._model(training, problems, solutions).items():
            setattr(self, name, value)
        progress.finish()
        if self.certificate_.status == "interrupted":
            raise KeyboardInterrupt
        if self.certificate_.status != "optimal":
            gap = self.certificate_.relative_gap
            above = f", above tol={self.tol:g}" if gap > self.tol else ""
            if len(certificates) > 1:
                open_ones = sum(certificate.status != "optimal" for certificate in certificates)
                above += f", {open_ones} of {len(certificates)} classes not solved (see certificates_)"
            warnings.warn(
                f"{type(self).__name__} ended at a relative duality gap of {gap:.1e} after {self.n_iter_} epochs"
                f"{above} ({self.certificate_.status}): {self.certificate_.advice}.",
                ConvergenceWarning,
                stacklevel=3,  # the caller's line: fit is wrapped once
            )
        return self

    def decision_function(self, X):
        """Scores of shape (n_samples,) for two classes, positive for classes_[1]; else (n_samples, n_classes)."""
        check_is_fitted(self)
        X = validate_data(
            self,
            X,
            accept_sparse=False if self.kernel == "precomputed" else "csr",
            dtype=[np.float64, np.float32],
            reset=False,
        )
        engine = self._make_engine()
        g = self.dual_coef_.T
        if self.kernel == "precomputed":
            scores = given_product(X, np.arange(len(X)), self.support_, g, engine)
        else:
            # Equal support vectors count once here, with the sum of their coefficients.
            vectors = Points(self.support_vectors_, self._centre, self._distinct_support)
            g = self._distinct_coef
            dtype = self._score_dtype(vectors, g)
            scores = cross_product(
                self._kernel, Points(X, self._centre), vectors, g, dtype, engine, parse_memory(self.memory)
            )
        scores += self.intercept_
        if not np.isfinite(scores).all():
            raise ValueError(
                f"{type(self).__name__} finds no finite score for some rows of X: their values are too large for this "
                "kernel. Scale the features as those that the machine was fitted to."
            )
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X):
        """The class of each row."""
        scores = self.decision_function(X)
        chosen = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[chosen]

    def _score_dtype(self, vectors: Points, g: np.ndarray) -> type:
        if len(vectors) <= FEW_ROWS:
            return np.float64
        scale = float(self._kernel.diagonal(vectors.subset(slice(0, FEW_ROWS))).max())
        error = _SINGLE_ROUNDING * scale * float(np.sqrt((g**2).sum(axis=0).max()))
        return np.float32 if error < _SCORE_ERROR else np.float64

    def _make_engine(self) -> LocalEngine:
        if self.engine == "local":
            return LocalEngine(self.n_jobs)
        if not hasattr(self.engine, "n_workers"):
            raise TypeError(
                f"engine={self.engine!r} does not say how many workers it has: an engine has map, limit_blas and "
                'n_workers, as widemargin.engines.LocalEngine does; or use engine="local".'
            )
        return self.engine

    def _check_training_data(self, X, y, sample_weight):
        """X, the rows' classes as indices of classes_, and their weights."""
        accept_sparse = False if self.kernel == "precomputed" else "csr"
        X, y = validate_data(self, X, y, accept_sparse=accept_sparse, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} separates classes and y has only one class, {self.classes_.tolist()[0]!r}: "
                "give rows of at least two classes."
            )
        return X, labels, weight

    def _check_costs(self, costs: np.ndarray) -> None:
        smallest, largest = float(costs.min()), float(costs.max())
        if not (smallest >= _LEAST_COST and largest <= 1 / _LEAST_COST):
            raise ValueError(
                f"C times the weights runs from {smallest:.3g} to {largest:.3g}, which leaves float64 no room: "
                f"keep it between {_LEAST_COST:g} and {1 / _LEAST_COST:g}, and give a row that should not count the "
                "weight 0."
            )

    def _machine_names(self) -> list[str]:
        return ["gap"] if len(self.classes_) == 2 else [f"class {label}" for label in self.classes_]

    def _starting_point(self, training: Training, problems: list[Problem]) -> np.ndarray:
        """Zero, or with warm_start the last fit's coefficients, made feasible for this one's costs."""
        start = np.zeros((len(training.labels), len(problems)))
        if not self.warm_start or not hasattr(self, "dual_coef_"):
            return start
        n_rows = training.X.shape[0]
        if self._n_rows != n_rows or len(self.dual_coef_) != len(problems):
            warnings.warn(
                f"warm_start goes on from the last fit only on as many rows and classes ({self._n_rows} rows then, "
                f"{n_rows} now): this fit starts from zero.",
                UserWarning,
                stacklevel=4,
            )
            return start
        last = np.zeros((n_rows, len(problems)))
        last[self.support_] = self.dual_coef_.T
        start = training.distinct.gather(last)
        return np.column_stack([problem.nearest_feasible(g) for problem, g in zip(problems, start.T, strict=True)])

    def _model(self, training: Training, problems: list[Problem], solutions: list[Solution]) -> dict:
        """The attributes that prediction needs."""
        X = training.X
        coef = np.column_stack([solution.g for solution in solutions])
        g = training.distinct.spread(coef, X.shape[0])
        support = np.flatnonzero(g.any(axis=1))
        carries = coef.any(axis=1)
        intercepts = [problem.intercept(solution.f) for problem, solution in zip(problems, solutions, strict=True)]
        return {
            "dual_coef_": np.ascontiguousarray(g[support].T),
            "support_": support,
            "support_vectors_": X[:0] if training.kernel is None else X[support],
            "intercept_": np.array(intercepts),
            "_distinct_support": np.searchsorted(support, training.distinct.first[carries]),
            "_distinct_coef": coef[carries],
            "_kernel": training.kernel,
            "_centre": training.centre,
            "_n_rows": X.shape[0],
        }
