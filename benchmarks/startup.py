"""How soon the first model is there: import, and the first fit in a new process with a warm Numba cache."""

from __future__ import annotations

import subprocess
import sys

from benchmarks import peers
from benchmarks.report import Report

IMPORT, FIRST_FIT = 1.5, 1.0  # seconds at most
ROWS = 500
FEATURES = (20, 100)  # few and many: they may take different compiled paths
SCRIPT = """
import time
start = time.perf_counter()
from widemargin import {machine}
imported = time.perf_counter() - start
import numpy as np
X = np.random.default_rng(0).random(({rows}, {features}))
y = np.where(X[:, :4].sum(axis=1) > 2, 1, -1)
start = time.perf_counter()
{machine}(C=1.0).fit(X, y)
print(imported, time.perf_counter() - start)
"""


def judge(report: Report, repeats: int) -> None:
    report.write(f"\nstartup: new processes, best of {repeats}; the first of each kind warms the cache, unmeasured")
    imports: list[float] = []
    for side in (peers.ODM, peers.SVM):
        for features in FEATURES:
            label = f"{side.name} first fit, {ROWS} x {features}, seconds"
            try:
                runs = [_new_process(side.machine, features) for _ in range(repeats + 1)][1:]
            except (subprocess.SubprocessError, ValueError) as error:
                report.miss(label, _why(error))
                continue
            imports += [imported for imported, _ in runs]
            report.target(label, min(fitted for _, fitted in runs), FIRST_FIT)
    if imports:
        report.target("import widemargin, seconds", min(imports), IMPORT)
    else:
        report.miss("import widemargin", "no process ended well")


def _new_process(machine: str, features: int) -> tuple[float, float]:
    script = SCRIPT.format(machine=machine, rows=ROWS, features=features)
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    imported, fitted = done.stdout.split()[-2:]
    return float(imported), float(fitted)


def _why(error: Exception) -> str:
    said = (getattr(error, "stderr", None) or "").strip().splitlines()
    return said[-1] if said else f"{type(error).__name__}: {error}".splitlines()[0]
