"""This process's threads: compiled code and BLAS release the interpreter lock, so both cores work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Event, local
from typing import TypeVar

import joblib
from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")

_worker = local()  # in a worker thread, `_worker.stop` is the event that ends its map early


class CancelledError(Exception):
    """Raised inside a task whose map has already failed or been interrupted; nobody sees it."""


class LocalEngine:
    """Runs a function over items on `n_jobs` threads (None or -1: as many as this process may use).

    The threads live for one call only: nothing is left behind for a forked child to inherit. Ctrl-C and errors end the
    call soon, because tasks call `check_cancelled` between their steps. A map inside a task runs in that task's thread.
    """

    def __init__(self, n_jobs: int | None = None):
        self.n_jobs = n_jobs
        self.n_workers = count_workers(n_jobs)
        self._blas = ThreadpoolController().select(user_api="blas")

    def __reduce__(self):
        return LocalEngine, (self.n_jobs,)

    def limit_blas(self):
        """A context in which BLAS keeps to the calling thread: work is shared by `map`, whose sums do not depend on the
        number of workers, and idle BLAS threads do not spin against the workers."""
        return self._blas.limit(limits=1)

    def map(self, task: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """[task(item) for item in items], in the items' order whatever the number of workers."""
        items = list(items)
        n_workers = min(self.n_workers, len(items))
        if hasattr(_worker, "stop"):
            return _in_turn(task, items)
        # One BLAS thread a worker: the workers already fill the cores, and the sums do not depend on their number.
        with self._blas.limit(limits=1):
            if n_workers <= 1:
                return _in_turn(task, items)
            stop = Event()
            with ThreadPoolExecutor(n_workers, initializer=_enter, initargs=(stop,)) as pool:
                try:
                    return list(pool.map(task, items))
                except BaseException:
                    stop.set()
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise


def check_cancelled() -> None:
    """Ends the calling task if the map that it belongs to has failed or been interrupted."""
    if hasattr(_worker, "stop") and _worker.stop.is_set():
        raise CancelledError


def _enter(stop: Event) -> None:
    _worker.stop = stop


def _in_turn(task: Callable[[Item], Result], items: list[Item]) -> list[Result]:
    results = []
    for item in items:
        check_cancelled()
        results.append(task(item))
    return results


def count_workers(n_jobs: int | None) -> int:
    """The number of threads that `n_jobs` means here; OMP_NUM_THREADS, where set, is a ceiling for the default."""
    if n_jobs == 0:
        raise ValueError("n_jobs=0 leaves nobody to work: give 1 or more, or -1 for every core.")
    if n_jobs is not None and n_jobs > 0:
        return n_jobs
    available = joblib.cpu_count()
    if n_jobs is not None and n_jobs != -1:
        return max(1, available + 1 + n_jobs)
    ceiling = os.environ.get("OMP_NUM_THREADS", "")
    return min(available, int(ceiling)) if ceiling.isdigit() and int(ceiling) > 0 else available
