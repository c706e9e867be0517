"""What is printed: a header, a line a figure, the verdict at the end of the line; the same text to a file."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path
from typing import IO

from threadpoolctl import threadpool_info

from benchmarks.peers import MEMORY_MB, SIDES, version

LIBRARIES = ("numpy", "scipy", "numba", "threadpoolctl")


class Report:
    """Lines to the screen and to a file as they come, and the count of verdicts."""

    def __init__(self, copy: IO[str] | None = None) -> None:
        self.copy = copy
        self.met = self.missed = self.unmeasured = 0

    def write(self, line: str = "") -> None:
        print(line, flush=True)
        if self.copy is not None:
            print(line, file=self.copy, flush=True)

    def target(self, label: str, value: float, limit: float, at_least: bool = False) -> None:
        """A figure with a target; not-a-number (a side of ours that failed) misses it."""
        met = value >= limit if at_least else value <= limit
        self.met, self.missed = self.met + met, self.missed + (not met)
        bound = f"(at {'least' if at_least else 'most'} {limit:.4g})"
        self.write(f"    {label:<44} {value:>9.4g}  {bound:<18} {'met' if met else 'MISSED'}")

    def note(self, label: str, value: float, remark: str = "for information") -> None:
        """A figure without a target."""
        self.write(f"    {label:<44} {value:>9.4g}  {remark}")

    def no_figure(self, label: str, why: str) -> None:
        """A target that could not be judged because the peer is missing or failed."""
        self.unmeasured += 1
        self.write(f"    {label:<44} not measured: {why}")

    def miss(self, label: str, why: str) -> None:
        """A target missed without a figure, because our side failed."""
        self.missed += 1
        self.write(f"    {label:<44} {why}: MISSED")

    def summary(self) -> None:
        rest = f", {self.unmeasured} not measured" if self.unmeasured else ""
        self.write(f"\n{self.met} met, {self.missed} missed{rest} (load at the end {_load()})")


def header(report: Report) -> None:
    """The machine and the versions, without which no figure means anything."""
    report.write(f"widemargin benchmarks, {datetime.datetime.now().astimezone():%Y-%m-%d %H:%M %Z}")
    report.write(f"python {platform.python_version()} on {platform.platform()}")
    report.write(f"cpu {_cpu()}, {_cores()} cores for us of {os.cpu_count()}, load {_load()}")
    for variable in ("OPENBLAS_CORETYPE", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "NUMBA_NUM_THREADS"):
        report.write(f"{variable} {os.environ.get(variable, 'not set')}")
    packages = dict.fromkeys([side.package for side in SIDES] + list(LIBRARIES))
    report.write(", ".join(f"{package} {version(package)}" for package in packages))
    for side in SIDES:
        if status := side.status():  # also imports them, so that their thread pools show below
            report.write(f"{side.name}: {status}")
    for pool in threadpool_info():
        keys = ("user_api", "internal_api", "version", "architecture", "num_threads")
        report.write("threads: " + ", ".join(f"{key} {pool[key]}" for key in keys if pool.get(key) is not None))
    report.write(
        f"Each side may keep {MEMORY_MB} MB of kernel rows. Fits are timed in turns and the best run counts; judge by\n"
        "the ratios, on a quiet machine. scikit-learn's SVC has one thread by nature, oneDAL its own threads (TBB)."
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
