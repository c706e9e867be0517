"""What a user can do wrong, and the sentence that says so: what was found, and what to do where that is not plain."""

import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from widemargin import OptimalMarginClassifier, SupportVectorClassifier

MACHINES = [OptimalMarginClassifier, SupportVectorClassifier]
both = pytest.mark.parametrize("Machine", MACHINES)
X, y = make_classification(60, 4, random_state=0)
K = X @ X.T


def with_entry(A, value, dtype=None):
    A = A.astype(dtype or A.dtype)
    A[3, 2] = value
    return A


def kernel_of(values):
    """A callable kernel that is right, until it sees more than one row."""
    return lambda A, B: values(A, B) if len(A) > 1 else A @ B.T


PARAMETERS = [
    ({"C": -1}, r"'C' parameter of \w+ must be a float in the range \(0.0, inf\). Got -1"),
    ({"C": np.inf}, r"'C' parameter .* Got inf"),
    ({"C": "1"}, r"'C' parameter .* Got '1'"),
    ({"kernel": "rfb"}, r"'kernel' parameter .* must be a str among \{.*'laplacian'.*\} or a callable. Got 'rfb'"),
    ({"gamma": -0.1}, r"'gamma' parameter .* among \{.*'scale'.*\} or a float in the range \[0.0, inf\). Got -0.1"),
    ({"degree": 2.5}, r"'degree' parameter .* must be an int in the range \[0, inf\). Got 2.5"),
    ({"coef0": np.nan}, "'coef0' parameter .* Got nan"),
    ({"tol": 0}, r"'tol' parameter .* must be a float in the range \(0.0, inf\). Got 0"),
    ({"max_iter": 0}, r"'max_iter' parameter .* in the range \[1, inf\) or a int among \{-1\}. Got 0"),
    ({"time_budget": 0}, r"'time_budget' parameter .* in the range \(0.0, inf\) or None. Got 0"),
    ({"class_weight": "auto"}, r"'class_weight' parameter .* among \{'balanced'\}, .*'dict' or None. Got 'auto'"),
    ({"class_weight": {0: 1, 7: 1}}, r"The classes, \[1\], are not in class_weight"),
    ({"class_weight": {0: -2}}, "class_weight gives class 0 the weight -2: give a number above zero, or leave"),
    ({"class_weight": {1: 0}}, "class_weight gives class 1 the weight 0: give a number above zero"),
    ({"class_weight": {1: np.nan}}, "class_weight gives class 1 the weight nan: give a number above zero"),
    ({"random_state": "seed"}, "'random_state' parameter .* Got 'seed'"),
    ({"solver": "newton"}, r"'solver' parameter .* among \{.*'coordinate'.*\}. Got 'newton'"),
    ({"plan": "SODM"}, "'plan' parameter .* must be None. Got 'SODM'"),
    ({"engine": "slurm"}, r"'engine' parameter .* among \{'local'\} or an object implementing 'map' .* Got 'slurm'"),
    ({"engine": map}, "'engine' parameter .* an object implementing 'map' and 'limit_blas'"),
    ({"device": "cuda"}, r"'device' parameter .* among \{'cpu'\}. Got 'cuda'"),
    ({"n_jobs": 0}, "n_jobs=0 leaves nobody to work: give 1 or more, or -1 for every core"),
    ({"n_jobs": 1.5}, "'n_jobs' parameter .* must be an instance of 'int' or None. Got 1.5"),
    ({"memory": "plenty"}, "memory='plenty' is not a size: give a string such as \"2GiB\""),
    ({"memory": "0GB"}, "memory='0GB' leaves no room at all: give a positive size"),
    ({"memory": None}, "'memory' parameter .* an instance of 'str' or an instance of 'int'. Got None"),
    ({"warm_start": "yes"}, "'warm_start' parameter .* 'bool'.* Got 'yes'"),
]


OWN_PARAMETERS = [
    (OptimalMarginClassifier, {"theta": 1.0}, r"'theta' .* must be a float in the range \[0.0, 1.0\). Got 1.0"),
    (OptimalMarginClassifier, {"theta": -0.1}, r"'theta' .* in the range \[0.0, 1.0\). Got -0.1"),
    (OptimalMarginClassifier, {"theta": np.nan}, r"'theta' .* in the range \[0.0, 1.0\). Got nan"),
    (OptimalMarginClassifier, {"upsilon": 0}, r"'upsilon' .* in the range \(0.0, inf\). Got 0"),
    (SupportVectorClassifier, {"fit_intercept": 3}, "'fit_intercept' .* must be an instance of 'bool'.* Got 3"),
]


@pytest.mark.parametrize(
    ("Machine", "wrong", "message"), [(Machine, *case) for Machine in MACHINES for case in PARAMETERS] + OWN_PARAMETERS
)
def test_parameters(Machine, wrong, message):
    with pytest.raises(ValueError, match=message):
        Machine(**wrong).fit(X, y)


@both
@pytest.mark.parametrize(
    ("error", "message", "data"),
    [
        (ValueError, "Input X contains NaN", (with_entry(X, np.nan), y)),
        (ValueError, "Input X contains infinity", (with_entry(X, np.inf), y)),
        (ValueError, "Input X contains NaN", (sp.csr_matrix(with_entry(X, np.nan)), y)),
        (ValueError, "Complex data not supported", (X + 1j, y)),
        (ValueError, "could not convert string to float: 'red'", (with_entry(X, "red", object), y)),
        (TypeError, "argument must be a string or a real number, not 'dict'", (with_entry(X, {}, object), y)),
        (ValueError, "Expected 2D array, got 1D array instead", (X[:, 0], y)),
        (ValueError, r"Found array with 0 sample\(s\)", (X[:0], y[:0])),
        (ValueError, r"Found array with 0 feature\(s\)", (X[:, :0], y)),
        (ValueError, r"inconsistent numbers of samples: \[60, 59\]", (X, y[:-1])),
        (ValueError, "requires y to be passed, but the target y is None", (X, None)),
        (ValueError, "Input y contains NaN", (X, np.where(X[:, 0] > 0, y, np.nan))),
        (ValueError, "Unknown label type: continuous. Maybe you are trying to fit a classifier", (X, X[:, 0])),
        (ValueError, r"y should be a 1d array, got an array of shape \(60, 2\)", (X, np.column_stack([y, y]))),
        (ValueError, "y has only one class, 1: give rows of at least two classes", (X, np.ones(60, int))),
        (ValueError, r"sample_weight.shape == \(59,\), expected \(60,\)", (X, y, np.ones(59))),
        (ValueError, "Negative values in data passed to `sample_weight`", (X, y, np.where(y == 1, 1.0, -1.0))),
        (ValueError, "Input sample_weight contains NaN", (X, y, np.full(60, np.nan))),
        (ValueError, "Input sample_weight contains infinity", (X, y, np.full(60, np.inf))),
        (ValueError, "must contain at least one non-zero number", (X, y, np.zeros(60))),
        (ValueError, "leaves class 0 without a row of positive weight: every class needs one", (X, y, y)),
    ],
)
def test_data(Machine, error, message, data):
    with pytest.raises(error, match=message):
        Machine().fit(*data)


@both
@pytest.mark.parametrize(
    ("matrix", "error", "message"),
    [
        (X, ValueError, r"takes the square matrix .* and X has shape \(60, 4\): give K\(X_train, X_train\) to fit and"),
        (
            with_entry(K, 9),
            ValueError,
            r"takes a symmetric matrix, and X is not: give \(X \+ X.T\) / 2 if it should be",
        ),
        (sp.csr_matrix(K), TypeError, r"Sparse data was passed for X, but dense data is required"),
        (with_entry(K, np.nan), ValueError, "Input X contains NaN"),
    ],
)
def test_given_kernels(Machine, matrix, error, message):
    with pytest.raises(error, match=message):
        Machine(kernel="precomputed").fit(matrix, y)
    with pytest.raises(ValueError, match=r"X has 4 features, but \w+ is expecting 60 features"):
        Machine(kernel="precomputed").fit(K, y).predict(X)


@both
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda A, B: np.ones((3, 7)), r"returned an array of shape \(3, 7\) .* it must return shape"),
        (lambda A, B: None, "one value for every pair of rows"),
        (kernel_of(lambda A, B: np.ones(len(A))), r"returned an array of shape \(60,\) .* must return shape"),
        (kernel_of(lambda A, B: np.full((len(A), len(B)), np.nan)), "that are not finite real numbers"),
        (kernel_of(lambda A, B: np.full((len(A), len(B)), "a")), "that are not finite real numbers"),
        (kernel_of(lambda A, B: A @ B.T + 1j), "that are not finite real numbers"),
        (kernel_of(lambda A, B: int("its own error")), "its own error"),
    ],
)
def test_callable_kernels(Machine, function, message):
    with pytest.raises(ValueError, match=message):
        Machine(kernel=function).fit(X, y)


@both
@pytest.mark.parametrize("solver", ["auto", "coordinate"])
def test_a_budget_too_small_for_one_block(Machine, solver):
    message = r"1,000 bytes is too small for one .* block of the kernel on 1 worker.* raise memory to at least ([\d,]+)"
    with pytest.raises(ValueError, match=message) as refusal:
        Machine(solver=solver, memory="1kB", n_jobs=1).fit(X, y)
    advised = int(re.search(message, str(refusal.value))[1].replace(",", ""))
    Machine(solver=solver, memory=advised, n_jobs=1).fit(X, y)
    machine = Machine().fit(X, y).set_params(memory="1kB")
    with pytest.raises(
        ValueError, match=r"1,000 bytes is too small for one .* block .* raise memory to at least [\d,]+,"
    ):
        machine.predict(X)


def test_a_reference_solver_that_cannot_hold_its_matrix():
    machine = SupportVectorClassifier(solver="coordinate", memory="200kB", n_jobs=1)
    with pytest.raises(ValueError, match=r"holds the kernel matrix in float64, 320,000 bytes here.* raise memory, or"):
        machine.fit(*make_classification(200, 4, random_state=0))


@both
def test_a_warm_start_on_other_rows_or_classes(Machine):
    machine = Machine(warm_start=True).fit(X, y)
    message = r"only on as many rows and classes \(60 rows then, 50 now\): this fit starts from zero"
    with pytest.warns(UserWarning, match=message) as caught:
        machine.fit(X[:50], y[:50])
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(machine.dual_coef_, Machine().fit(X[:50], y[:50]).dual_coef_)


@both
def test_prediction(Machine):
    with pytest.raises(NotFittedError, match=r"This \w+ instance is not fitted yet. Call 'fit'"):
        Machine().predict(X)
    machine = Machine(kernel="poly").fit(X, y)
    with pytest.raises(ValueError, match=r"X has 3 features, but \w+ is expecting 4 features"):
        machine.predict(X[:, :3])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        machine.predict(with_entry(X, np.nan))
    with pytest.raises(ValueError, match=r"no finite score for some rows of X: .* too large .* Scale the features"):
        machine.predict(with_entry(X, 1e200))


@both
@pytest.mark.parametrize("kernel", ["linear", "rbf", "laplacian", "poly", "sigmoid"])
@pytest.mark.parametrize("gamma", ["scale", 1.0, 1e-30])
@pytest.mark.parametrize("size", [1e300, 1e200, 1e100, 1e40, 1e-170])
def test_enormous_and_tiny_values_give_an_error_or_a_warning_but_never_nan(Machine, kernel, gamma, size):
    limit = 1e200 if gamma == "scale" or kernel in ("linear", "sigmoid") else 1e100 if kernel == "poly" else np.inf
    machine = Machine(kernel=kernel, gamma=gamma, max_iter=50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, of overflow
        warnings.simplefilter("ignore", ConvergenceWarning)
        if size >= limit:
            with pytest.raises(ValueError, match=r"too large.* Scale the features, to \[0, 1\] say"):
                machine.fit(X * size, y)
        else:
            scores = machine.fit(X * size, y).decision_function(X * size)
            assert np.isfinite([*scores, machine.certificate_.primal, machine.certificate_.dual]).all()


@both
@pytest.mark.parametrize("C", [1e-300, 1e300])
def test_prices_beyond_double_precision(Machine, C):
    with pytest.raises(ValueError, match=r"C times the weights runs from .* keep it between 1e-30 and 1e\+30"):
        Machine(C=C).fit(X, y)
    weight = np.where(np.arange(len(y)) % 3, 1.0, 1e-320)
    with pytest.raises(ValueError, match="give a row that should not count the weight 0"):
        Machine().fit(X, y, sample_weight=weight)


@both
def test_an_engine_that_does_not_say_how_many_workers_it_has(Machine):
    class Engine:
        def map(self, task, items): ...
        def limit_blas(self): ...

    with pytest.raises(TypeError, match="does not say how many workers it has: an engine has map, limit_blas and"):
        Machine(engine=Engine()).fit(X, y)
