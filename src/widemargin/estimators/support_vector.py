"""The support vector machine behind scikit-learn's interface."""

from __future__ import annotations

from typing import ClassVar

from widemargin.estimators._base import KernelMachine
from widemargin.problems import Hinge
from widemargin.solvers import WorkingSet


class SupportVectorClassifier(KernelMachine):
    """Support vector machine: the plain SVM, on the same kernels and with the same certificate as the other machines.

        min_{w,b}  1/2 |w|^2 + sum_i C_i max(0, 1 - y_i (f(x_i) + b))

    More than two classes: one machine a class against the rest, over one shared kernel.

    Parameters
    ----------
    C : float, default=1.0
        Price of a margin too small, before class and sample weights.
    fit_intercept : bool, default=True
    kernel : {"linear", "rbf", "laplacian", "poly", "sigmoid", "precomputed"} or callable, default="rbf"
    gamma : {"scale", "auto"} or float, default="scale"
    degree, coef0 : int and float, default=3, 0.0
        Of the polynomial (and, coef0, the sigmoid) kernel. All four mean what they mean for scikit-learn's SVC;
        "scale" counts each row by its sample weight.
    tol : float, default=1e-3
        The relative duality gap (P - D) / max(|P|, |D|) to reach; `certificate_` says what was reached.
    max_iter : int, default=1000
        Epochs at most, each worth a visit to every row; -1 for no limit.
    class_weight : dict, "balanced" or None, default=None
    random_state : int, RandomState or None, default=None
        Draws the first active rows.
    solver : {"auto", "coordinate"}, default="auto"
        "coordinate" is plain dual coordinate descent (SMO where there is an intercept), kept as a reference.
    plan : None
        Partitioned training; exact training of the whole is the only plan yet.
    engine : "local" or an engine, default="local"
    n_jobs : int or None, default=None
        Threads; None or -1 for every core.
    memory : str or int, default="2GiB"
        Budget for everything beyond the data itself.
    device : "cpu"
    time_budget : float or None, default=None
        Seconds after which the best so far is returned, with its certificate and a warning.
    warm_start : bool, default=False
        Begin from the last fit's coefficients.

    Attributes
    ----------
    certificate_ : Certificate
        primal, dual, gap, relative_gap, feasibility, status, kernel_evaluations: recomputed in float64 from X, y and
        the coefficients. With more than two classes the sums over the machines, which `certificates_` lists.
    history_ : list of Record
        seconds, epoch, primal, dual, relative_gap, machine of every epoch.
    dual_coef_ : array of shape (n_machines, n_support)
        Signed coefficients g: scores are K(X, support_vectors_) @ dual_coef_.T + intercept_.
    intercept_ : array of shape (n_machines,)
    support_, support_vectors_, n_iter_, classes_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from widemargin import SupportVectorClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> machine = SupportVectorClassifier(C=10).fit(X, y)
    >>> machine.certificate_.relative_gap <= 1e-3
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        **KernelMachine._parameter_constraints,
        "fit_intercept": ["boolean"],
    }

    def __init__(
        self,
        C=1.0,
        *,
        fit_intercept=True,
        kernel="rbf",
        gamma="scale",
        degree=3,
        coef0=0.0,
        tol=1e-3,
        max_iter=1000,
        class_weight=None,
        random_state=None,
        solver="auto",
        plan=None,
        engine="local",
        n_jobs=None,
        memory="2GiB",
        device="cpu",
        time_budget=None,
        warm_start=False,
    ):
        self.C = C
        self.fit_intercept = fit_intercept
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.random_state = random_state
        self.solver = solver
        self.plan = plan
        self.engine = engine
        self.n_jobs = n_jobs
        self.memory = memory
        self.device = device
        self.time_budget = time_budget
        self.warm_start = warm_start

    def _make_problem(self, y, C):
        return Hinge(y, C, self.fit_intercept)

    def _make_solver(self, memory, rng):
        return WorkingSet(memory, rng)
