"""The SVM against the other SVM solvers, at equal quality: each primal objective is recomputed from the model."""

from __future__ import annotations

from benchmarks import peers
from benchmarks.data import Problem
from benchmarks.measure import Timing, fits, hinge_primal
from benchmarks.report import Report

VALUES_OF_C = (1.0, 10.0)
EQUAL = 1e-3  # relative distance to the best primal within which two models count as equally good
TIGHTER = 1e-4  # tol for a solver that is not, once
LIMITS = {peers.ONEDAL.name: 1.0, peers.SKLEARN.name: 1 / 3}
SLOW_PEERS_ON = ("phishing",)


def sides(problem: Problem, C: float) -> list[peers.Side]:
    slow = [peers.THUNDERSVM, peers.LIBSVM] if problem.name in SLOW_PEERS_ON else []
    return [peers.SVM, peers.SKLEARN, peers.ONEDAL, peers.ONEDAL_FLOAT32, *slow] if C in VALUES_OF_C else []


def judge(report: Report, problem: Problem, C: float, timings: dict[str, Timing], repeats: int) -> None:
    timings = {
        side.name: timings[side.name]
        for side in sides(problem, C)
        if side.name in timings and not timings[side.name].failure
    }
    if peers.SVM.name not in timings:
        report.miss("SVM", peers.SVM.status() or "its fit failed")
        return
    primals = {name: hinge_primal(problem, C, timing.result) for name, timing in timings.items()}
    loose = [side for side in peers.SIDES if side.name in _above(primals, EQUAL)]
    for name, again in fits(problem, C, loose, repeats, TIGHTER).items():
        report.write(
            f"    {name} is {_distances(primals)[name]:.1e} above the best primal at its default tolerance: "
            f"run again with tol={TIGHTER:g}, {again}"
        )
        if not again.failure:
            timings[name] = again
            primals[name] = hinge_primal(problem, C, again.result)
    distances = _distances(primals)
    report.write(f"    best primal {min(primals.values()):.8g}; distance of each above it, relative:")
    report.write("      " + ", ".join(f"{name} {distance:.1e}" for name, distance in distances.items()))
    report.target("SVM primal above the best solver's", distances[peers.SVM.name], EQUAL)
    _ratios(report, timings, distances)


def _ratios(report: Report, timings: dict[str, Timing], distances: dict[str, float]) -> None:
    ours = timings[peers.SVM.name].seconds
    for name, limit in LIMITS.items():
        if name not in timings:
            report.no_figure(f"SVM seconds / {name}'s", "it is missing or failed")
            continue
        if distances[name] > EQUAL:
            report.write(f"    {name} is still {distances[name]:.1e} above the best: its time is for a worse model")
        report.target(f"SVM seconds / {name}'s", ours / timings[name].seconds, limit)
    for name, timing in timings.items():
        if name not in LIMITS and name != peers.SVM.name:
            report.note(f"SVM seconds / {name}'s", ours / timing.seconds)


def _distances(primals: dict[str, float]) -> dict[str, float]:
    best = min(primals.values())
    return {name: (primal - best) / best for name, primal in primals.items()}


def _above(primals: dict[str, float], limit: float) -> list[str]:
    return [name for name, distance in _distances(primals).items() if not distance <= limit]
