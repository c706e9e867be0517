"""This process's threads: compiled code and BLAS release the interpreter lock, so both cores work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeVar

import joblib
from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")


class LocalEngine:
    """Runs a function over items on `n_jobs` threads (None or -1: as many as this process may use).

    The threads live for one call only: nothing is left behind for a forked child to inherit, and Ctrl-C ends the
    call at the next item, because tasks look at `cancelled` between their steps.
    """

    def __init__(self, n_jobs: int | None = None):
        self.n_workers = count_workers(n_jobs)
        self.cancelled = Event()
        self._blas = ThreadpoolController().select(user_api="blas")

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """[task(item) for item in items], in the items' order whatever the number of workers."""
        items = list(items)
        n_workers = min(self.n_workers, len(items))
        if n_workers <= 1:
            return [task(item) for item in items]
        # One BLAS thread a worker: the workers already fill the cores.
        with self._blas.limit(limits=1), ThreadPoolExecutor(n_workers) as pool:
            try:
                return list(pool.map(task, items))
            except BaseException:
                self.cancelled.set()
                pool.shutdown(wait=True, cancel_futures=True)
                self.cancelled.clear()
                raise


def count_workers(n_jobs: int | None) -> int:
    """The number of threads that `n_jobs` means here; OMP_NUM_THREADS, where set, is a ceiling for the default."""
    if n_jobs is not None and n_jobs > 0:
        return n_jobs
    available = joblib.cpu_count()
    if n_jobs is not None and n_jobs != -1:
        return max(1, available + 1 + n_jobs)
    ceiling = os.environ.get("OMP_NUM_THREADS", "")
    return min(available, int(ceiling)) if ceiling.isdigit() and int(ceiling) > 0 else available
