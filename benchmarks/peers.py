"""The sides of the race: one small object a library, ours among them, all asked for the same machine.

A side has a name, a status ("" when its package is installed), ``prepare`` (untimed), ``fit`` (timed) and ``read``
(untimed), which turns what the library returns into a `Model` whose signs are the same for every library:
f(x) = sum_j coefficients_j k(x_j, x) + intercept, positive for the label +1.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

MEMORY_MB = 2048  # the same for every side: our memory="2GiB", the others' cache
SECONDS_AT_MOST = 600  # for a side that runs in a process of its own


@dataclass
class Model:
    """What a side found, by rows of the training set; ``estimator`` is None where it lives in another process."""

    support: np.ndarray
    coefficients: np.ndarray
    intercept: float
    estimator: Any = None


@dataclass(frozen=True, eq=False)
class Side:
    """A library behind scikit-learn's names; the other libraries override what differs."""

    name: str
    package: str
    module: str
    machine: str = "SVC"
    parameters: dict[str, Any] = field(default_factory=lambda: {"cache_size": MEMORY_MB})
    dtype: type = np.float64
    isolated: bool = False

    def status(self) -> str:
        """Empty if the side can run, else why not, in plain words."""
        try:
            getattr(import_module(self.module), self.machine)
        except Exception as error:  # a broken install is a status as well
            return f"{self.package} cannot be used: {type(error).__name__}: {error}".splitlines()[0]
        return ""

    def prepare(self, X: np.ndarray, y: np.ndarray) -> Any:
        return X.astype(self.dtype, copy=False), y

    def fit(self, prepared: Any, C: float, gamma: float, tol: float) -> Any:
        machine = getattr(import_module(self.module), self.machine)
        return machine(C=C, kernel="rbf", gamma=gamma, tol=tol, **self.parameters).fit(*prepared)

    def read(self, fitted: Any, y: np.ndarray) -> Model:
        intercept = float(np.ravel(getattr(fitted, "intercept_", 0.0))[0])
        return Model(np.asarray(fitted.support_), np.ravel(fitted.dual_coef_), intercept, fitted)


class OneDAL(Side):
    def read(self, fitted: Any, y: np.ndarray) -> Model:
        if not hasattr(fitted, "_onedal_estimator"):
            raise RuntimeError("sklearnex fell back to scikit-learn's solver")
        return super().read(fitted, y)


class Libsvm(Side):
    def prepare(self, X: np.ndarray, y: np.ndarray) -> Any:
        return import_module(self.module).svm_problem(y.astype(float), csr_matrix(X))

    def fit(self, prepared: Any, C: float, gamma: float, tol: float) -> Any:
        options = f"-q -s 0 -t 2 -c {C} -g {gamma} -e {tol} -m {MEMORY_MB}"
        return import_module(self.module).svm_train(prepared, options)

    def read(self, fitted: Any, y: np.ndarray) -> Model:
        sign = fitted.get_labels()[0]  # its scores are positive for the first label
        support = np.asarray(fitted.get_sv_indices()) - 1
        return Model(support, sign * np.ravel(fitted.get_sv_coef()), -sign * float(fitted.rho[0]))


class ThunderSVM(Side):
    def read(self, fitted: Any, y: np.ndarray) -> Model:
        sign = y[0]  # its scores are positive for the label met first, and its intercept_ is LIBSVM's rho
        return Model(fitted.support_, sign * fitted.dual_coef_[0], -sign * float(fitted.intercept_[0]))


ODM = Side(
    "ODM", "widemargin", "widemargin", "OptimalMarginClassifier", {"theta": 0.1, "upsilon": 0.5, "memory": "2GiB"}
)
SVM = Side("SVM", "widemargin", "widemargin", "SupportVectorClassifier", {"fit_intercept": True, "memory": "2GiB"})
SKLEARN = Side("scikit-learn", "scikit-learn", "sklearn.svm")
ONEDAL = OneDAL("oneDAL", "scikit-learn-intelex", "sklearnex.svm")
ONEDAL_FLOAT32 = OneDAL("oneDAL on float32", "scikit-learn-intelex", "sklearnex.svm", dtype=np.float32)
THUNDERSVM = ThunderSVM(
    "ThunderSVM", "thundersvm-cpu", "thundersvm", parameters={"max_mem_size": MEMORY_MB}, isolated=True
)
LIBSVM = Libsvm("LIBSVM", "libsvm-official", "libsvm.svmutil", "svm_train", isolated=True)
SIDES = (ODM, SVM, SKLEARN, ONEDAL, ONEDAL_FLOAT32, THUNDERSVM, LIBSVM)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result of one call."""
    gc.collect()
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def timed_fit(side: Side, X: np.ndarray, y: np.ndarray, C: float, gamma: float, tol: float) -> tuple[float, Model]:
    """Seconds of the fit alone, and the model."""
    if side.isolated:
        return _fit_elsewhere(side, X, y, C, gamma, tol)
    prepared = side.prepare(X, y)
    seconds, fitted = timed(lambda: side.fit(prepared, C, gamma, tol))
    return seconds, side.read(fitted, y)


def version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _fit_elsewhere(side: Side, X: np.ndarray, y: np.ndarray, C: float, gamma: float, tol: float) -> tuple[float, Model]:
    """For a library that may crash or never end: a new process, which warms itself up and times its own fit.

    Both libraries concerned use OpenMP, whose waiting threads spin by default: on a machine with other work that made
    them a hundred times slower, so their threads sleep instead, unless the caller's environment says otherwise.
    """
    environment = {"OMP_NUM_THREADS": str(os.cpu_count()), "OMP_WAIT_POLICY": "passive", **os.environ}
    with tempfile.TemporaryDirectory() as place:
        given, returned = Path(place, "given.npz"), Path(place, "returned.npz")
        np.savez(given, X=X, y=y, C=C, gamma=gamma, tol=tol)
        command = [sys.executable, "-m", "benchmarks.peers", side.name, str(given), str(returned)]
        root = Path(__file__).resolve().parents[1]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, timeout=SECONDS_AT_MOST)
        if done.returncode:
            raise RuntimeError(f"its process ended with code {done.returncode}")
        with np.load(returned) as found:
            model = Model(found["support"], found["coefficients"], float(found["intercept"]))
            return float(found["seconds"]), model


def _fit_here(name: str, given: str, returned: str) -> None:
    """The other end of `_fit_elsewhere`."""
    side = next(side for side in SIDES if side.name == name)
    with np.load(given) as problem:
        X, y = problem["X"], problem["y"]
        C, gamma, tol = (float(problem[key]) for key in ("C", "gamma", "tol"))
    side.fit(side.prepare(X[:500], y[:500]), C, gamma, tol)
    prepared = side.prepare(X, y)
    seconds, fitted = timed(lambda: side.fit(prepared, C, gamma, tol))
    model = side.read(fitted, y)
    found = {"support": model.support, "coefficients": model.coefficients, "intercept": model.intercept}
    np.savez(returned, seconds=seconds, **found)


if __name__ == "__main__":
    _fit_here(*sys.argv[1:])
