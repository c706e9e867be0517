"""The exact ODM against the plain SVM at the same C: fit time, gap, test accuracy."""

from __future__ import annotations

from benchmarks import peers
from benchmarks.data import Problem
from benchmarks.measure import Timing, accuracy
from benchmarks.report import Report

GAP = 1e-3
TIMES_SKLEARN = {1.0: 0.5, 10.0: 1.0}
POINTS = 0.003  # how far below the SVC's test accuracy is still well


def sides(C: float) -> list[peers.Side]:
    """At C = 100 the question is only whether ours converges; scikit-learn's would take minutes."""
    rest = [peers.SKLEARN] if C in TIMES_SKLEARN else []
    return [peers.ODM, *rest, peers.ONEDAL, peers.ONEDAL_FLOAT32]


def judge(report: Report, problem: Problem, C: float, timings: dict[str, Timing]) -> None:
    ours = timings.get(peers.ODM.name)
    if ours is None or ours.failure:
        report.miss("ODM", ours.failure if ours else peers.ODM.status())
        return
    certificate = ours.result.estimator.certificate_
    report.target("ODM relative gap", certificate.relative_gap, GAP)
    report.write(f"    ODM status: {certificate.status}; {len(ours.result.support):,} rows carry weight")
    if C in TIMES_SKLEARN:
        _against_sklearn(report, problem, C, ours, timings)
    for peer in (peers.ONEDAL, peers.ONEDAL_FLOAT32):
        if peer.name in timings and not timings[peer.name].failure:
            report.note(f"ODM seconds / {peer.name}'s", ours.seconds / timings[peer.name].seconds)


def _against_sklearn(report: Report, problem: Problem, C: float, ours: Timing, timings: dict[str, Timing]) -> None:
    theirs = timings.get(peers.SKLEARN.name)
    if theirs is None or theirs.failure:
        report.no_figure("ODM seconds / scikit-learn's", theirs.failure if theirs else peers.SKLEARN.status())
        return
    report.target("ODM seconds / scikit-learn's", ours.seconds / theirs.seconds, TIMES_SKLEARN[C])
    least = accuracy(problem, theirs.result) - POINTS
    report.target("ODM test accuracy (SVC's less 0.3 points)", accuracy(problem, ours.result), least, at_least=True)
