"""The memory budget: how it is said, when it is refused, and that it is kept."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from widemargin.engines import LocalEngine
from widemargin.kernels import KernelRows, Points, cross_product, make_kernel, parse_memory


@pytest.mark.parametrize(
    ("memory", "size"),
    [
        (1, 1),
        (np.int64(2**33), 2**33),
        (2e9, 2 * 10**9),
        ("100", 100),
        ("7b", 7),
        ("2GB", 2 * 10**9),
        ("2GiB", 2 * 2**30),
        (" 1.5 gib ", 3 * 2**29),
        ("512MiB", 2**29),
        ("3k", 3000),
        ("3Ki", 3072),
        ("0.25TiB", 2**38),
    ],
)
def test_sizes(memory, size):
    assert parse_memory(memory) == size


@pytest.mark.parametrize("memory", ["", "GiB", "2 GiB free", "-1GB", "1e9", "2PB", "2ib", True, None, -3])
def test_what_is_no_size(memory):
    with pytest.raises(ValueError, match="is not a size: give a string such as"):
        parse_memory(memory)


@pytest.mark.parametrize("memory", ["0GB", "0.1b", "0", 0])
def test_no_room_at_all(memory):
    with pytest.raises(ValueError, match="leaves no room at all: give a positive size"):
        parse_memory(memory)


@pytest.mark.parametrize("n_workers", [1, 3])
def test_too_small_a_budget_is_refused_with_the_size_that_would_do(n_workers):
    points, kernel, engine = Points(np.zeros((500, 10))), make_kernel("rbf", 1.0, 3, 0.0), LocalEngine(n_workers)
    needed = n_workers * (64 * 64 * 4 + 4 * 64 * 10 * 4)
    message = (
        f"The memory budget of {needed - 1:,} bytes is too small for one 64 x 64 block of the kernel on {n_workers} "
        rf"worker\(s\): raise memory to at least {needed:,}, or lower n_jobs\."
    )
    with pytest.raises(ValueError, match=message):
        KernelRows(points, kernel, memory=needed - 1, dtype=np.float32, engine=engine)
    with pytest.raises(ValueError, match=message):
        cross_product(kernel, points, points, np.ones((500, 1)), np.float32, engine, needed - 1)
    assert KernelRows(points, kernel, memory=needed, dtype=np.float32, engine=engine).matvec(np.ones(500)).sum() > 0


MEASURE = """
import sys
import numpy as np, scipy.sparse as sp
from widemargin.engines import LocalEngine
from widemargin.kernels import KernelRows, Points, cross_product, make_kernel

budget, kernel, n, d, density = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
rng = np.random.default_rng(0)

def data(n):
    if density == 1:
        return rng.standard_normal((n, d), dtype=np.float32)
    return sp.random(n, d, density=density, format="csr", dtype=np.float32, random_state=rng)

def acts(X):
    n = X.shape[0]
    points = Points(X, Points(X).means() if kernel == "rbf" else None)
    few = np.where(np.arange(n) % 3, 0, 1.0)[:, None]
    formula = make_kernel(kernel, 1 / d, 2, 1.0)
    rows = lambda: KernelRows(points, formula, memory=budget, dtype=np.float32, engine=engine)
    yield "means", lambda: points.means()
    yield "diag", lambda: rows().diag()
    lasting = rows()
    yield "products", lambda: [lasting.matvec(np.ones(n)) for _ in range(7)]  # the store is filled when it pays
    del lasting
    yield "columns", lambda: rows().matvec(np.ones((n, 2)))
    both = rows()
    yield "few", lambda: (both.matvec(np.ones(n)), both.matvec(few))
    del both
    yield "block", lambda: rows().block(np.arange(0, n, n // 40))
    support = np.flatnonzero(few)
    parts = points, points.subset(support), few[support]
    yield "cross", lambda: cross_product(formula, *parts, np.float32, engine, budget)

engine = LocalEngine(2)
"""

FITS = """
import sys, warnings
import numpy as np, scipy.sparse as sp
from widemargin import OptimalMarginClassifier, SupportVectorClassifier

budget, machine, n, d, density = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
rng = np.random.default_rng(0)
warnings.simplefilter("ignore")  # not all fits end within their epochs

def data(n):
    if density == 1:
        return rng.standard_normal((n, d), dtype=np.float32)
    return sp.random(n, d, density=density, format="csr", dtype=np.float32, random_state=rng)

def acts(X):
    y = X.sum(axis=1) > X.sum() / X.shape[0] if sp.issparse(X) else X[:, 0] + X[:, 1] ** 2 > 1
    y = np.asarray(y).ravel()
    if machine.startswith("many"):
        y = y + 2 * (np.arange(len(y)) % 4)
    kind = OptimalMarginClassifier if machine.endswith("odm") else SupportVectorClassifier
    solver = "coordinate" if "reference" in machine else "auto"
    estimator = kind(C=10, memory=budget, max_iter=6, solver=solver, random_state=0)
    yield "fit", lambda: estimator.fit(X, y)
    yield "predict", lambda: estimator.predict(X)
"""

PEAKS = """
def memory(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(field))

for _, act in acts(data(300)):  # everything is compiled ...
    act()
for _, act in acts(data(3300)):  # ... for float32 entries too
    act()
X = data(n)
before = memory("VmRSS")
for name, act in acts(X):
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    act()
    print(name, memory("VmHWM") - before)
"""


def peaks(script, *arguments):
    """Bytes that each act of the script took at most, beyond the data, in a process of its own."""
    run = subprocess.run(
        [sys.executable, "-c", script + PEAKS, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return {name: int(peak) for name, peak in map(str.split, run.stdout.splitlines())}


linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of memory is Linux's to tell")


@linux
@pytest.mark.parametrize(
    ("kernel", "n", "d", "density"),
    [
        ("rbf", 20_000, 20, 1),
        ("rbf", 20_000, 500, 1),
        ("poly", 8_000, 500, 1),
        ("laplacian", 20_000, 20, 0.3),
        ("rbf", 8_000, 1_000, 0.02),
        ("rbf", 8_000, 100_000, 0.0005),
    ],
)
def test_the_budget_is_kept_by_products(kernel, n, d, density):
    """Beyond the data, nothing takes more than the budget (and a tenth, for the allocator)."""
    budget = 64 << 20
    found = peaks(MEASURE, budget, kernel, n, d, density)
    assert len(found) == 7
    assert max(found.values()) < 1.1 * budget, found
    assert found["products"] > 0.5 * budget, found  # what there is of room is used


@linux
@pytest.mark.parametrize(
    ("machine", "n", "d", "density"),
    [
        ("odm", 20_000, 20, 1),
        ("svm", 20_000, 20, 1),
        ("odm", 6_000, 2_000, 1),
        ("svm", 6_000, 2_000, 1),
        ("many odm", 10_000, 20, 1),
        ("many svm", 10_000, 20, 1),
        ("odm", 10_000, 50_000, 0.001),
        ("svm", 10_000, 50_000, 0.001),
        ("reference odm", 6_000, 20, 1),
    ],
)
def test_the_budget_is_kept_by_fit_and_predict(machine, n, d, density):
    budget = 96 << 20
    found = peaks(FITS, budget, machine, n, d, density)
    assert len(found) == 2
    assert max(found.values()) < 1.2 * budget, found
