"""What happens to work in progress, and to a process: Ctrl-C and fork."""

import os
import signal
import subprocess
import sys
import time

import pytest

INTERRUPTED = """
import signal, sys, time
import numpy as np
from widemargin.engines import LocalEngine
from widemargin.kernels import KernelRows, Points, make_kernel

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start without it
engine = LocalEngine(int(sys.argv[2]))

def rows(n, d):
    points = Points(np.random.default_rng(0).random((n, d), dtype=np.float32))
    return KernelRows(points, make_kernel("laplacian", 1.0, 3, 0.0), memory=1 << 26, dtype=np.float32, engine=engine)

def product(n=200_000, d=300):  # hours
    return rows(n, d).matvec(np.ones(n))

product(2000, 3)
print("ready", flush=True)
try:
    product() if sys.argv[1] == "kernel" else engine.map(lambda _: time.sleep(0.01), range(1_000_000))
except KeyboardInterrupt:
    assert product(2000, 3).min() > 0  # the engine is as good as new
    print("ended", flush=True)
    raise
"""


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is sent as a POSIX signal")
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("work", ["kernel", "any"])
def test_ctrl_c_ends_a_long_map(work, n_jobs):
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, work, str(n_jobs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    finally:
        child.kill()
    assert out == "ended\n", err
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert child.returncode == -signal.SIGINT


FIT = """
import signal, sys
import numpy as np
from widemargin import OptimalMarginClassifier, SupportVectorClassifier

signal.signal(signal.SIGINT, signal.default_int_handler)

class Ready:
    "Says so once the gap has begun to fall."
    setup = teardown = lambda self, estimator, context: None
    on_fit_task_begin = lambda self, estimator, context, **told: None

    def on_fit_task_end(self, estimator, context, **told):
        print("ready", flush=True)

X = np.random.default_rng(0).normal(size=(20_000, 5))
y = X[:, 0] + 0.3 * np.random.default_rng(1).normal(size=20_000) > 0
Machine = OptimalMarginClassifier if sys.argv[1] == "odm" else SupportVectorClassifier
machine = Machine(C=1, gamma=0.2, tol=1e-12, max_iter=-1, solver=sys.argv[2], memory="64MiB")
try:
    machine.set_callbacks(Ready()).fit(X, y)
except KeyboardInterrupt:
    assert machine.certificate_.status == "interrupted", machine.certificate_
    assert 1e-12 < machine.certificate_.relative_gap <= 1, machine.certificate_
    assert np.isfinite(machine.decision_function(X[:100])).all()
    print("ended", flush=True)
    raise
"""


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is sent as a POSIX signal")
@pytest.mark.parametrize(("machine", "solver"), [("odm", "auto"), ("svm", "auto"), ("odm", "coordinate")])
def test_ctrl_c_ends_a_fit_with_a_marked_model(machine, solver):
    child = subprocess.Popen(
        [sys.executable, "-c", FIT, machine, solver], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
    assert out.endswith("ended\n"), err
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert child.returncode == -signal.SIGINT


FORKED = """
import os
import numpy as np
from widemargin.engines import LocalEngine
from widemargin.kernels import KernelRows, Points, make_kernel

def product(d):
    points = Points(np.random.default_rng(0).random((3000, d)))
    return KernelRows(points, make_kernel("rbf", 1.0, 3, 0.0), memory=1 << 26, dtype=np.float64, engine=engine).matvec(
        np.ones(3000)
    )

engine = LocalEngine(2)
before = [product(3), product(30)]
child = os.fork()
if child == 0:
    same = all(np.array_equal(a, b) for a, b in zip(before, [product(3), product(30)], strict=True))
    os._exit(0 if same else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_can_work():
    run = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120, check=False)
    assert run.stdout == "0\n", run.stderr
