"""The local engine: order, errors, nesting, numbers of threads."""

import copy
import pickle
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from widemargin.engines import LocalEngine, check_cancelled
from widemargin.engines.local import count_workers
from widemargin.kernels import compiled


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.mark.parametrize("n_jobs", [1, 2, 7])
def test_results_come_in_order(n_jobs):
    def task(item):
        time.sleep(0.001 * (item % 5))
        return item**2

    engine = LocalEngine(n_jobs)
    assert engine.map(task, iter(range(40))) == [item**2 for item in range(40)]
    assert engine.map(task, []) == []
    assert engine.map(task, [3]) == [9]


def test_two_workers_work_at_once():
    both = threading.Barrier(2, timeout=30)
    LocalEngine(2).map(lambda _: both.wait(), range(2))  # either would wait for ever for the other


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("n_jobs", [1, 2, 3])
def test_errors_come_through_and_end_the_call(n_jobs, error):
    done = []

    def task(item):
        if item == 4:
            raise error("item 4")
        time.sleep(0.005)
        done.append(item)

    engine = LocalEngine(n_jobs)
    with pytest.raises(error, match="item 4"):
        engine.map(task, range(1000))
    assert len(done) < 900
    assert engine.map(str, range(3)) == ["0", "1", "2"]  # and the engine is as good as new


def test_long_tasks_notice_that_their_map_has_failed():
    ended = []

    def task(item):
        if item == 0:
            raise ValueError("item 0")
        try:
            for _ in range(60_000):
                check_cancelled()
                time.sleep(0.001)
        except BaseException as reason:
            ended.append(type(reason).__name__)
            raise

    with pytest.raises(ValueError, match="item 0"):
        LocalEngine(3).map(task, range(3))
    assert set(ended) == {"CancelledError"}
    check_cancelled()  # outside a map there is nothing to cancel


def test_a_map_inside_a_task_stays_in_its_thread():
    engine = LocalEngine(2)

    def outer(_):
        return {threading.get_ident(), *engine.map(lambda _: threading.get_ident(), range(5))}

    assert [len(idents) for idents in engine.map(outer, range(4))] == [1] * 4


@pytest.mark.parametrize("n_items", [1, 4])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_tasks_have_one_blas_thread_each(n_jobs, n_items):
    before = blas_threads()
    assert before
    for threads in LocalEngine(n_jobs).map(lambda _: blas_threads(), range(n_items)):
        assert threads == [1] * len(before)
    assert blas_threads() == before


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda engine: pickle.loads(pickle.dumps(engine))])
def test_engines_can_be_copied(duplicate):
    engine = duplicate(LocalEngine(3))
    assert engine.n_workers == 3
    assert engine.map(abs, [-1, 2]) == [1, 2]


@pytest.mark.parametrize(
    ("n_jobs", "ceiling", "expected"),
    [
        (None, None, 8),
        (-1, None, 8),
        (-2, None, 7),
        (-100, None, 1),
        (1, None, 1),
        (12, None, 12),
        (None, "3", 3),
        (-1, "3", 3),
        (-2, "3", 7),
        (5, "3", 5),
        (None, "100", 8),
        (None, "0", 8),
        (None, "4,2", 8),
        (None, "", 8),
    ],
)
def test_number_of_workers(n_jobs, ceiling, expected, monkeypatch):
    monkeypatch.setattr("joblib.cpu_count", lambda: 8)
    if ceiling is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", ceiling)
    assert count_workers(n_jobs) == expected


def test_no_workers_are_refused():
    with pytest.raises(ValueError, match="n_jobs=0 leaves nobody to work"):
        LocalEngine(0)


def test_compiled_code_leaves_the_interpreter_free():
    """A worker in compiled code must not hold the interpreter's lock, or two workers are one."""
    ticks = []
    tile, v = np.ones((2000, 2000)), np.ones((1000, 2000))
    compiled.tile_product(np.ones((2, 2)), 0, 0, np.ones((1, 2)), np.ones((1, 2)))

    def task(item):
        if item == 0:
            compiled.tile_product(tile, 0, 0, v, np.zeros((1000, 2000)))
            ticks.append("end")
        while item == 1 and "end" not in ticks:
            ticks.append("tick")
            time.sleep(0.001)

    LocalEngine(2).map(task, range(2))
    assert ticks.count("tick") > 10
