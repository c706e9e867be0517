"""decision_function on 10,000 rows, for the models fitted at C = 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.data import SEED, Problem
from benchmarks.measure import Timing, in_turns
from benchmarks.report import Report

C = 1.0
ROWS = 10_000
TIMES_ONEDAL = 1.5


def sides() -> list[peers.Side]:
    return [peers.ODM, peers.SVM, peers.ONEDAL, peers.ONEDAL_FLOAT32]


def judge(report: Report, problem: Problem, fitted: dict[str, Timing], repeats: int) -> None:
    models = {
        side: fitted[side.name].result for side in sides() if side.name in fitted and not fitted[side.name].failure
    }
    rows = _rows(problem)
    timings = in_turns({side.name: _call(side, model, rows) for side, model in models.items()}, repeats)
    sizes = {side.name: len(model.support) for side, model in models.items()}
    parts = [f"{name} {timing} ({sizes[name]:,} vectors)" for name, timing in timings.items()]
    report.write(f"    decision_function on {ROWS:,} rows: " + (", ".join(parts) or "no side can run"))
    for ours in (peers.ODM, peers.SVM):
        _against_onedal(report, ours, timings, sizes)


def _against_onedal(report: Report, side: peers.Side, timings: dict[str, Timing], sizes: dict[str, int]) -> None:
    label = f"{side.name} prediction seconds / oneDAL's"
    ours, theirs = timings.get(side.name), timings.get(peers.ONEDAL.name)
    if ours is None or ours.failure:
        report.miss(label, ours.failure if ours else side.status() or "its fit failed")
    elif theirs is None or theirs.failure:
        report.no_figure(label, "oneDAL is missing or failed")
    else:
        ratio = ours.seconds / theirs.seconds
        report.target(label, ratio, TIMES_ONEDAL)
        report.note("  the same per support vector", ratio * sizes[peers.ONEDAL.name] / sizes[side.name])


def _rows(problem: Problem) -> np.ndarray:
    chosen = np.random.default_rng(SEED).choice(len(problem.y_test), ROWS, replace=len(problem.y_test) < ROWS)
    return problem.X_test[chosen]


def _call(side: peers.Side, model: peers.Model, rows: np.ndarray) -> Callable[[], tuple[float, Any]]:
    cast = rows.astype(side.dtype, copy=False)
    return lambda: peers.timed(lambda: model.estimator.decision_function(cast))
