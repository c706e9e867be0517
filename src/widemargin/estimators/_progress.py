"""scikit-learn's callbacks, told of the falling gap.

The fit is a task with a subtask for each factor of ten that the relative gap has to fall by ("gap 1e-01", "gap 1e-02",
...), each with ten steps, equal on the logarithmic scale. With several machines each machine is such a subtask.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from sklearn.callback import CallbackContext

from widemargin.solvers import Record

_STEPS = 10  # a decade


class GapProgress:
    """An observer of records that moves the task tree of a fit; its answer is True where a callback wants to stop."""

    def __init__(self, estimator: Any, X: Any, y: Any, metadata: dict, tol: float, machines: Sequence[str]):
        self._told = {"estimator": estimator, "X": X, "y": y, "metadata": metadata}
        self._decades = max(1, math.ceil(-math.log10(tol) - 1e-9)) if tol < 1 else 1
        self._closed = [0] * len(machines)
        single = len(machines) == 1
        self._root = estimator._init_callback_context(
            max_subtasks=self._decades if single else len(machines), sequential_subtasks=single
        )
        self._root.call_on_fit_task_begin(**self._told)
        # The open subtask of each machine: its present decade, or the machine as a whole.
        self._open: list = [None] if single else [self._begin(machine, k) for k, machine in enumerate(machines)]
        self.snapshot: Callable[[], dict] | None = None

    def observe(self, record: Record) -> bool:
        gap = min(1.0, max(record.relative_gap, 10.0**-self._decades))
        steps = int(-math.log10(gap) * _STEPS + 1e-9)
        wants_stop = False
        while self._closed[record.machine] < steps:
            wants_stop |= self._close_step(record.machine)
        return wants_stop

    def finish(self) -> None:
        """Close whatever is open: the fit has ended, with or without its gap closed."""
        for task in self._open:
            if task is not None:
                self._end(task)
        self._end(self._root)

    def _begin(self, name: str, task_id: int | None = None) -> CallbackContext:
        n_steps = _STEPS * (1 if task_id is None else self._decades)
        task = self._root.subcontext(task_name=name, task_id=task_id, max_subtasks=n_steps)
        task.call_on_fit_task_begin(**self._told)
        return task

    def _end(self, task: CallbackContext) -> bool:
        return task.call_on_fit_task_end(**self._told, reconstruction_attributes=self.snapshot)

    def _close_step(self, machine: int) -> bool:
        single = len(self._closed) == 1
        if single and self._open[0] is None:
            self._open[0] = self._begin(f"gap 1e-{self._closed[0] // _STEPS + 1:02d}")
        step = self._open[machine].subcontext(task_name="step")
        step.call_on_fit_task_begin(**self._told)
        wants_stop = self._end(step)
        self._closed[machine] += 1
        if single and self._closed[0] % _STEPS == 0:
            wants_stop |= self._end(self._open[0])
            self._open[0] = None
        return wants_stop
