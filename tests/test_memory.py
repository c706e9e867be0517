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
        rf"worker\(s\), which takes {needed:,} bytes: raise memory to at least that, or lower n_jobs\."
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

def memory(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(field))

engine = LocalEngine(2)
for _, act in acts(data(200)):  # everything is compiled
    act()
X = data(n)
before = memory("VmRSS")
for name, act in acts(X):
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    act()
    print(name, memory("VmHWM") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of memory is Linux's to tell")
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
def test_the_budget_is_kept(kernel, n, d, density):
    """Beyond the data, nothing takes more than the budget (and a tenth, for the allocator)."""
    budget = 64 << 20
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, *map(str, (budget, kernel, n, d, density))],
        capture_output=True,
        text=True,
        env=os.environ,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    peaks = {name: int(peak) for name, peak in map(str.split, run.stdout.splitlines())}
    assert len(peaks) == 7
    assert max(peaks.values()) < 1.1 * budget, peaks
    assert peaks["products"] > 0.5 * budget, peaks  # what there is of room is used
