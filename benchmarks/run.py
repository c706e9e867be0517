"""``python -m benchmarks.run``: every speed target, each a ratio within this run. See ``--help``."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from benchmarks import data, odm, peers, predict, startup, svm
from benchmarks.measure import fits, warm_up
from benchmarks.report import Report, header

TARGETS = ("odm", "svm", "predict", "startup")
VALUES_OF_C = (1.0, 10.0, 100.0)
QUICK_ROWS = 2_000


def main() -> None:
    options = _options()
    with contextlib.ExitStack() as stack:
        copy = stack.enter_context(options.output.open("w", encoding="utf-8")) if options.output else None
        report = Report(copy)
        header(report)
        if options.quick:
            report.write(f"quick: at most {QUICK_ROWS:,} rows of each set and one run a side; no figure to quote")
        if set(options.only) != {"startup"}:
            for name in _sets(report, options.sets):
                _one_set(report, data.load(name, QUICK_ROWS if options.quick else None), options)
        if "startup" in options.only:
            startup.judge(report, options.repeats)
        report.summary()


def _one_set(report: Report, problem: data.Problem, options: argparse.Namespace) -> None:
    """All fits of one set; the targets share them, so that nothing is fitted twice."""
    report.write(f"\n{problem}")
    plan = {C: _sides(problem, C, options.only) for C in VALUES_OF_C}
    warm_up(problem, [side for side in peers.SIDES if any(side in sides for sides in plan.values())])
    for C, sides in plan.items():
        if not sides:
            continue
        timings = fits(problem, C, sides, options.repeats)
        report.write(f"  C = {C:g}")
        seconds = ", ".join(f"{name} {timing}" for name, timing in timings.items())
        report.write(f"    fit: {seconds}")
        if "odm" in options.only:
            odm.judge(report, problem, C, timings)
        if "svm" in options.only and C in svm.VALUES_OF_C:
            svm.judge(report, problem, C, timings, options.repeats)
        if "predict" in options.only and C == predict.C:
            predict.judge(report, problem, timings, options.repeats)


def _sides(problem: data.Problem, C: float, targets: list[str]) -> list[peers.Side]:
    """Who must fit at this C for the targets asked, less those that are not installed."""
    wanted = odm.sides(C) if "odm" in targets else []
    wanted += svm.sides(problem, C) if "svm" in targets else []
    wanted += predict.sides() if "predict" in targets and C == predict.C else []
    return [side for side in peers.SIDES if side in wanted and not side.status()]


def _sets(report: Report, names: list[str]) -> list[str]:
    found = data.at_hand(names)
    for name in names:
        if name not in found:
            report.write(f"{name}: missing, no {name}.npz in {data.folder()}")
    if not found:
        report.write("No set is at hand (point WIDEMARGIN_DATA at a folder with them): GENERATED data instead,")
        report.write("on which the targets were not set.")
    return found or [data.GENERATED]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--sets", nargs="+", choices=(*data.SETS, data.GENERATED), default=list(data.SETS))
    parser.add_argument("--only", nargs="+", choices=TARGETS, default=list(TARGETS), help="these targets alone")
    parser.add_argument("--repeats", type=int, default=3, help="runs a side, of which the best counts (3)")
    parser.add_argument("--quick", action="store_true", help="few rows, one run: does it work at all?")
    parser.add_argument("--output", type=Path, metavar="RESULTS", help="write the same text to this file")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    if options.quick:
        options.repeats = 1
    return options


if __name__ == "__main__":
    main()
