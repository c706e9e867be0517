"""How a fit goes, how it ends, and what it says of itself: warnings, budgets, callbacks, history, warm starts."""

import io
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.callback import ProgressBar, ScoringMonitor
from sklearn.datasets import load_iris, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, make_scorer

from widemargin import OptimalMarginClassifier, SupportVectorClassifier

MACHINES = [OptimalMarginClassifier, SupportVectorClassifier]
both = pytest.mark.parametrize("Machine", MACHINES)
SOLVERS = ["auto", "coordinate"]
every_solver = pytest.mark.parametrize("solver", SOLVERS)


def moons(n=400, seed=0):
    return make_moons(n, noise=0.3, random_state=seed)


@pytest.mark.slow
def test_a_climb_that_locks_follows_the_dual_until_it_is_free():
    """Mostly noise, a high C and a picture of few rows: minimising the gap alone ends at 0.35."""
    X = np.random.default_rng(0).normal(size=(1500, 5))
    y = np.sin(9 * X[:, 0]) + np.random.default_rng(1).normal(size=1500) > 0
    machine = OptimalMarginClassifier(C=1e3, gamma=1.0, memory="4MiB", max_iter=1500, random_state=0).fit(X, y)
    assert machine.certificate_.status == "optimal"


@pytest.mark.parametrize(
    ("parameters", "optimum"),
    [
        ({"theta": 0.99}, 0.452497),
        ({"theta": 0.999}, 0.00476488),
        ({"theta": 0.999, "C": 1e-4}, 0.00151291),
        ({"upsilon": 1e-6, "C": 1e4}, 3722.18),
        ({"theta": 0, "upsilon": 1e6, "C": 1e-8}, 1.49999982e-6),
    ],
)
def test_a_narrow_or_lopsided_loss_is_solved_too(parameters, optimum):
    """The optima are those of a plain Newton method on the primal."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 5))
    y = X[:, 0] + 0.5 * rng.normal(size=300) > 0
    certificate = OptimalMarginClassifier(**parameters).fit(X, y).certificate_
    assert certificate.status == "optimal"
    assert certificate.primal == pytest.approx(optimum, rel=2e-3)


def test_a_kernel_of_low_rank_at_a_high_price():
    """Ten features without a kernel: blocks of few rows undo each other's work."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 10))
    y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.4 * rng.normal(size=1500) > 0
    machine = SupportVectorClassifier(C=100, kernel="linear", random_state=0).fit(X, y)
    assert machine.certificate_.status == "optimal"


# -- the end of a fit ------------------------------------------------------------------------------------------------


@both
@every_solver
def test_a_fit_that_ends_early_warns_at_the_callers_line_and_says_what_to_do(Machine, solver):
    X, y = moons()
    with pytest.warns(ConvergenceWarning) as caught:
        machine = Machine(solver=solver, tol=1e-9, max_iter=1, C=100).fit(X, y)
    assert caught[0].filename == __file__
    message = str(caught[0].message)
    assert f"{machine.certificate_.relative_gap:.1e} after 1 epochs, above tol=1e-09 (max_iter)" in message
    assert "raise max_iter, or lower C" in message
    assert machine.certificate_.status == "max_iter"
    assert machine.certificate_.relative_gap > 1e-9
    assert machine.n_iter_ == 1
    assert machine.score(X, y) > 0.5  # usable all the same


@both
@every_solver
def test_a_fit_that_ends_well_is_silent(Machine, solver):
    X, y = moons()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        machine = Machine(solver=solver).fit(X, y)
    assert machine.certificate_.status == "optimal"
    assert machine.certificate_.advice == ""
    assert 0 <= machine.certificate_.relative_gap <= 1e-3


@both
def test_no_limit_of_epochs(Machine):
    X, y = moons(100)
    assert Machine(max_iter=-1, tol=1e-7).fit(X, y).certificate_.status == "optimal"


@both
@every_solver
def test_a_time_budget_returns_the_best_so_far_with_its_certificate(Machine, solver):
    X, y = moons(3500)
    with pytest.warns(ConvergenceWarning, match=r"\(time_budget\): raise time_budget, or fit again with"):
        machine = Machine(solver=solver, time_budget=1e-9, tol=1e-12, C=1e4).fit(X, y)
    assert machine.certificate_.status == "time_budget"
    assert np.isfinite(machine.decision_function(X)).all()


def test_a_kernel_that_is_not_positive_semidefinite_is_not_called_optimal():
    X, y = moons()
    with pytest.warns(ConvergenceWarning, match=r"\(indefinite\): the kernel matrix is not positive semidefinite"):
        machine = SupportVectorClassifier(kernel="sigmoid", gamma=1.0, coef0=-1.0, C=10, max_iter=10_000).fit(X, y)
    assert machine.certificate_.status == "indefinite"


# -- the history -----------------------------------------------------------------------------------------------------


@both
@every_solver
def test_history_tells_the_way_to_the_certificate(Machine, solver):
    X, y = moons()
    machine = Machine(solver=solver, tol=1e-6, max_iter=100_000).fit(X, y)
    history, certificate = machine.history_, machine.certificate_
    assert len(history) > 1
    seconds, epochs = ([getattr(record, name) for record in history] for name in ("seconds", "epoch"))
    assert seconds == sorted(seconds)
    assert epochs == sorted(epochs)
    assert history[0].relative_gap > 1e-2
    assert history[-1].primal == pytest.approx(certificate.primal, rel=1e-9)
    assert history[-1].dual == pytest.approx(certificate.dual, rel=1e-9)
    # Each record brackets the optimum, which lies between the certificate's bounds.
    assert min(record.primal for record in history) >= certificate.dual * (1 - 1e-12)
    assert max(record.dual for record in history) <= certificate.primal * (1 + 1e-12)


def test_history_names_the_machine_of_each_class():
    X, y = load_iris(return_X_y=True)
    machine = OptimalMarginClassifier().fit(X, y)
    assert {record.machine for record in machine.history_} == {0, 1, 2}
    assert len(machine.certificates_) == 3
    assert machine.certificate_.gap == pytest.approx(sum(one.gap for one in machine.certificates_))


# -- callbacks -------------------------------------------------------------------------------------------------------


class Listener:
    """Notes what it is told; stops the fit once `stop_after` tasks have ended."""

    def __init__(self, stop_after=np.inf):
        self.stop_after = stop_after
        self.tasks, self.scores, self.calls = [], [], []

    def setup(self, estimator, context):
        self.calls.append("setup")

    def on_fit_task_begin(self, estimator, context, *, fitted_estimator=None, **told):
        self.calls.append("begin")

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None, **told):
        self.calls.append("end")
        self.tasks.append(context.task_name)
        self.scores.append(fitted_estimator.score(X, y))
        return len(self.tasks) >= self.stop_after

    def teardown(self, estimator, context):
        self.calls.append("teardown")


@both
@every_solver
def test_callbacks_see_the_gap_fall_and_a_usable_model_at_each_step(Machine, solver):
    X, y = moons()
    listener = Listener()
    machine = Machine(solver=solver, tol=1e-4, max_iter=100_000).set_callbacks(listener).fit(X, y)
    decades = [name for name in listener.tasks if name.startswith("gap")]
    assert decades == ["gap 1e-01", "gap 1e-02", "gap 1e-03", "gap 1e-04"]
    assert listener.tasks.count("step") == 40
    assert listener.scores[-1] == machine.score(X, y)
    assert listener.calls[0] == "setup"
    assert listener.calls[-1] == "teardown"
    assert listener.calls.count("begin") == listener.calls.count("end")


def test_callbacks_see_each_class():
    X, y = load_iris(return_X_y=True)
    listener = Listener()
    OptimalMarginClassifier().set_callbacks(listener).fit(X, y)
    assert {"class 0", "class 1", "class 2"} <= set(listener.tasks)
    assert listener.calls.count("begin") == listener.calls.count("end")


@both
@every_solver
def test_a_callback_may_end_the_fit(Machine, solver):
    X, y = moons()
    with pytest.warns(ConvergenceWarning, match=r"\(stopped\): a callback ended the fit"):
        machine = Machine(solver=solver, tol=1e-8, C=100).set_callbacks(listener := Listener(stop_after=3)).fit(X, y)
    assert machine.certificate_.status == "stopped"
    assert machine.certificate_.relative_gap > 1e-8
    assert listener.calls[-1] == "teardown"


@both
def test_scikit_learns_progress_bar_shows_the_gap(Machine, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("sys.stdout", screen := io.StringIO())
    Machine(tol=1e-3).set_callbacks(ProgressBar()).fit(*moons())
    shown = screen.getvalue()
    assert Machine.__name__ in shown
    for decade in ("gap 1e-01", "gap 1e-02", "gap 1e-03"):
        assert decade in shown


@both
def test_scikit_learns_scoring_monitor_follows_the_fit(Machine):
    X, y = moons()
    monitor = ScoringMonitor(scoring=make_scorer(accuracy_score))
    machine = Machine().set_callbacks(monitor).fit(X, y)
    assert machine.score(X, y) > 0.85


# -- warm starts -----------------------------------------------------------------------------------------------------


@both
def test_a_warm_start_goes_on_from_the_last_fit(Machine):
    X, y = moons(1000)
    machine = Machine(tol=1e-5, max_iter=100_000, warm_start=True, C=10).fit(X, y)
    first, optimum = machine.n_iter_, machine.certificate_.primal
    machine.fit(X, y)
    assert machine.history_[0].relative_gap <= 2e-5
    assert machine.n_iter_ < first
    machine.set_params(C=12).fit(X, y)
    assert machine.history_[0].relative_gap < 0.3
    cold = Machine(tol=1e-5, max_iter=100_000, C=12).fit(X, y)
    assert machine.certificate_.primal == pytest.approx(cold.certificate_.primal, rel=2e-5)
    assert machine.certificate_.primal != pytest.approx(optimum, rel=1e-2)


@both
def test_a_warm_start_finishes_what_a_budget_cut_off(Machine):
    X, y = moons()
    machine = Machine(tol=1e-6, max_iter=2, warm_start=True, C=100)
    gaps = []
    for _ in range(500):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine.fit(X, y)
        gaps.append(machine.certificate_.relative_gap)
        if gaps[-1] <= 1e-6:
            break
    assert len(gaps) > 1
    assert machine.certificate_.status == "optimal"
    assert machine.certificate_.dual == pytest.approx(
        Machine(tol=1e-6, max_iter=100_000, C=100).fit(X, y).certificate_.dual, rel=2e-6
    )


@both
def test_a_warm_start_stays_feasible_where_the_costs_fall(Machine):
    X, y = moons()
    machine = Machine(C=100, warm_start=True).fit(X, y)
    machine.set_params(C=0.1).fit(X, y, np.random.default_rng(0).uniform(0, 2, len(y)))
    assert machine.certificate_.status == "optimal"
    assert machine.certificate_.feasibility <= 1e-12


# -- what must not matter --------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("n", [300, 4000])
def test_the_same_bits_for_any_number_of_workers(Machine, n):
    X, y = moons(n)
    one, two, three = (Machine(C=10, n_jobs=n_jobs, random_state=7).fit(X, y) for n_jobs in (1, 2, 3))
    np.testing.assert_array_equal(one.dual_coef_, two.dual_coef_)
    np.testing.assert_array_equal(one.dual_coef_, three.dual_coef_)
    np.testing.assert_array_equal(one.decision_function(X), three.decision_function(X))


@both
@every_solver
@pytest.mark.parametrize("memory", ["40MiB", "6MiB", "4GiB"])
def test_the_same_machine_for_any_budget(Machine, solver, memory):
    X, y = moons(3200)
    if solver == "coordinate" and (Machine is SupportVectorClassifier or memory == "6MiB"):
        pytest.skip("the SMO reference holds the whole matrix, and says so: test_errors.py")
    plain = Machine(solver=solver, tol=1e-4).fit(X, y)
    small = Machine(solver=solver, tol=1e-4, memory=memory, n_jobs=1).fit(X, y)
    assert small.certificate_.status == "optimal"
    assert small.certificate_.primal == pytest.approx(plain.certificate_.primal, rel=2e-4)


@both
@pytest.mark.parametrize("n", [200, 5000])
def test_a_weight_of_two_is_a_row_given_twice_and_of_zero_a_row_left_out(Machine, n):
    X, y = moons(n)
    weight = np.random.default_rng(0).integers(0, 3, n)
    order = np.random.default_rng(1).permutation(weight.sum())
    repeated = np.repeat(np.arange(n), weight)[order]
    weighted = Machine(C=3, random_state=0).fit(X, y, weight)
    given = Machine(C=3, random_state=0).fit(X[repeated], y[repeated])
    np.testing.assert_array_equal(weighted.decision_function(X), given.decision_function(X))
    assert weighted.certificate_.primal == given.certificate_.primal
    assert not np.isin(weighted.support_, np.flatnonzero(weight == 0)).any()
    # Rows that were merged for the fit share their coefficient again.
    assert given.dual_coef_.sum() == pytest.approx(weighted.dual_coef_.sum(), abs=1e-9)


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_data_are_left_alone(Machine, dtype):
    X, y = moons()
    X = X.astype(dtype)
    X.flags.writeable = False
    weight = np.ones(len(y))
    weight.flags.writeable = False
    machine = Machine().fit(X, y, weight)
    machine.decision_function(X)
    assert clone(machine).fit(X, y).score(X, y) > 0.85
