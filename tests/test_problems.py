"""The mathematics of the problems, each formula against its definition."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from widemargin.problems import Hinge, MarginDistribution
from widemargin.problems.base import relative_gap


def numbers(low, high):
    # Sixteenths: ties and points exactly on a kink are drawn often, and sums of a few are exact.
    return st.integers(int(low * 16), int(high * 16)).map(lambda k: k / 16)


def vectors(n, low, high):
    return arrays(float, n, elements=numbers(low, high))


def labels(n):
    return arrays(float, n, elements=st.sampled_from([-1.0, 1.0]))


def odm(y, C):
    return st.builds(lambda t, u: MarginDistribution(y, C, t, u), numbers(0, 0.9), numbers(0.0625, 3))


# A new problem enrols itself here: from labels and costs to its members.
PROBLEMS = {
    "odm": odm,
    "hinge": lambda y, C: st.just(Hinge(y, C, has_intercept=False)),
    "hinge with intercept": lambda y, C: st.just(Hinge(y, C, has_intercept=True)),
}
every_problem = pytest.mark.parametrize("kind", PROBLEMS)


def draw_problem(data, kind, n=None):
    """A problem on a few rows, costs and labels free; one class may be missing."""
    n = data.draw(st.integers(1, 7), "n") if n is None else n
    return data.draw(PROBLEMS[kind](data.draw(labels(n), "y"), data.draw(vectors(n, 0.0625, 8), "C")), "problem")


def draw_feasible(data, problem, label="g"):
    return problem.nearest_feasible(data.draw(vectors(len(problem.y), -10, 10), label))


@every_problem
@given(data=st.data())
def test_weak_duality(kind, data):
    """P at any w is no smaller than D at any feasible g, for every kernel matrix, of any rank."""
    problem = draw_problem(data, kind)
    n = len(problem.y)
    factor = data.draw(arrays(float, (n, data.draw(st.integers(0, n))), elements=numbers(-2, 2)))
    K = factor @ factor.T
    g, anything = draw_feasible(data, problem), data.draw(vectors(n, -10, 10), "w")
    primal, dual = problem.values(g, K @ g)
    elsewhere = problem.primal(anything @ K @ anything, K @ anything)
    slack = 1e-9 * (1 + abs(primal) + abs(dual) + abs(elsewhere))
    assert min(primal, elsewhere) >= dual - slack


@every_problem
@given(data=st.data())
def test_losses_and_conjugates_add_up_over_rows(kind, data):
    problem = draw_problem(data, kind)
    f = data.draw(vectors(len(problem.y), -4, 4), "f")
    g = draw_feasible(data, problem)
    parts = [take(problem, slice(i, i + 1)) for i in range(len(f))]
    assert problem.losses(f) == pytest.approx(sum(p.losses(f[i : i + 1]) for i, p in enumerate(parts)))
    assert problem.conjugates(g) == pytest.approx(sum(p.conjugates(g[i : i + 1]) for i, p in enumerate(parts)))


def take(problem, index):
    y, C = problem.y[index], problem.C[index]
    if isinstance(problem, Hinge):
        return Hinge(y, C, has_intercept=False)
    return MarginDistribution(y, C, problem.theta, problem.upsilon)


@every_problem
@given(data=st.data())
def test_link_is_minus_the_slope_of_the_losses(kind, data):
    problem = draw_problem(data, kind)
    f = data.draw(vectors(len(problem.y), -4, 4), "f")
    if isinstance(problem, Hinge):
        assume((problem.y * f != 1).all())  # no derivative there
    step = 1e-5
    for i, g in enumerate(problem.link(f)):
        at = np.eye(len(f))[i] * step
        slope = (problem.losses(f + at) - problem.losses(f - at)) / (2 * step)
        # The second derivative of ODM's losses may jump within the step.
        jump = step * problem.stiffness[i] if isinstance(problem, MarginDistribution) else 0
        assert -slope == pytest.approx(g, rel=1e-6, abs=1e-6 + jump)


@pytest.mark.parametrize("kind", ["odm", "hinge"])  # an intercept would hold one row alone at zero
@given(data=st.data())
def test_conjugate_is_the_largest_value_of_minus_g_f_minus_the_loss(kind, data):
    problem = draw_problem(data, kind, n=1)
    g = draw_feasible(data, problem)
    low, high, best = -1e4, 1e4, -np.inf
    for _ in range(12):  # a concave function: the grid closes in on its top
        grid = np.linspace(low, high, 101)
        values = [-g[0] * f - problem.losses(np.array([f])) for f in grid]
        top = int(np.argmax(values))
        best = max(best, values[top])
        low, high = grid[max(top - 1, 0)], grid[min(top + 1, 100)]
    assert problem.conjugates(g) == pytest.approx(best, rel=1e-6, abs=1e-6)


@every_problem
@given(data=st.data())
def test_link_attains_the_conjugate(kind, data):
    """l(f) + l*(-g) = -g f exactly where g = -l'(f)."""
    problem = draw_problem(data, kind)
    f = data.draw(vectors(len(problem.y), -4, 4), "f")
    g = problem.link(f)
    assert problem.losses(f) + problem.conjugates(g) == pytest.approx(-g @ f, rel=1e-9, abs=1e-9)


@given(data=st.data(), rounding=st.floats(1e-4, 1))
def test_smooth_conjugates_have_their_derivatives(data, rounding):
    problem = draw_problem(data, "odm")
    g = data.draw(vectors(len(problem.y), -4, 4), "g")
    assume((g != 0).all())  # upsilon makes the second derivative jump there
    value, slope, curvature = problem.smooth_conjugates(g, rounding)
    assert value >= problem.conjugates(g) - 1e-12 * abs(value)
    step = 1e-6
    for i in range(len(g)):
        at = np.eye(len(g))[i] * step
        right, left = problem.smooth_conjugates(g + at, rounding), problem.smooth_conjugates(g - at, rounding)
        size = np.abs(value) + curvature[i]
        assert (right[0] - left[0]) / (2 * step) == pytest.approx(slope[i], rel=1e-6, abs=1e-8 * size / step)
        assert (right[1][i] - left[1][i]) / (2 * step) == pytest.approx(curvature[i], rel=1e-3, abs=1e-6)


@given(data=st.data(), error=st.floats(1e-9, 1))
def test_rounding_bounds_the_error(data, error):
    problem = draw_problem(data, "odm")
    g = data.draw(vectors(len(problem.y), -4, 4), "g")
    exact = problem.conjugates(g)
    excess = problem.smooth_conjugates(g, problem.rounding(error))[0] - exact
    slack = 1e-12 * (1 + abs(exact))
    assert -slack <= excess <= error + slack
    at_zero = problem.smooth_conjugates(np.zeros(len(g)), problem.rounding(error))[0]
    assert at_zero == pytest.approx(error if problem.theta else 0)  # where the bound is attained


# Newton's steps of the link are counted, not watched: near the kink of a hardly rounded conjugate they end early.
@pytest.mark.parametrize(("least", "error"), [(1e-2, 1e-8), (1e-9, 2e-3)])
@given(data=st.data())
def test_smooth_link_inverts_the_smooth_conjugates(least, error, data):
    problem = draw_problem(data, "odm")
    f = data.draw(vectors(len(problem.y), -4, 4), "f")
    g, fall = problem.smooth_link(f, rounding := data.draw(st.floats(least, 1)))
    _, slope, curvature = problem.smooth_conjugates(g, rounding)
    np.testing.assert_allclose(slope, -f, atol=error)
    assert (fall >= 0).all()
    if least == 1e-2:
        np.testing.assert_allclose(fall * curvature, 1, rtol=1e-2)
        np.testing.assert_allclose(problem.smooth_link(f, 1e-12)[0], problem.link(f), rtol=1e-3, atol=1e-2)


@given(data=st.data())
def test_hinge_intercept_is_a_minimiser(data):
    problem = draw_problem(data, "hinge with intercept")
    f = data.draw(vectors(len(problem.y), -4, 4), "f")
    best = min(problem.losses(f + b) for b in problem.y - f)  # piecewise linear: a breakpoint is among the minimisers
    assert problem.losses(f + problem.intercept(f)) == pytest.approx(best, abs=1e-9)


@given(data=st.data())
def test_hinge_intercept_treats_the_classes_alike(data):
    problem = draw_problem(data, "hinge with intercept")
    assume(len(set(problem.y)) == 2)
    f = data.draw(vectors(len(problem.y), -4, 4), "f")
    turned = Hinge(-problem.y, problem.C, has_intercept=True)
    assert turned.intercept(-f) == pytest.approx(-problem.intercept(f), abs=1e-12)


@pytest.mark.parametrize("favoured", [-1.0, 1.0])
def test_hinge_intercept_with_one_sided_weights(favoured):
    y = np.array([-1.0, -1, 1, 1])
    problem = Hinge(y, np.where(y == favoured, 1e9, 1e-9), has_intercept=True)
    f = np.array([3.0, -2, 5, -4])
    assert problem.losses(f + problem.intercept(f)) <= min(problem.losses(f + b) for b in y - f) * (1 + 1e-9)
    assert (favoured * (f + problem.intercept(f))[y == favoured] >= 1 - 1e-9).all()


@every_problem
@given(data=st.data())
def test_nearest_feasible_is_feasible_and_leaves_feasible_points(kind, data):
    problem = draw_problem(data, kind)
    g = data.draw(vectors(len(problem.y), -10, 10), "g")
    given_g = g.copy()
    near = problem.nearest_feasible(g)
    assert (g == given_g).all()
    assert problem.infeasibility(near) <= 1e-14
    np.testing.assert_allclose(problem.nearest_feasible(near), near, rtol=1e-12)


@pytest.mark.parametrize("kind", ["hinge", "hinge with intercept"])
@given(data=st.data(), violation=st.floats(1e-9, 10))
def test_infeasibility_measures_a_planted_violation(kind, data, violation):
    problem = draw_problem(data, kind)
    g = draw_feasible(data, problem)
    i = data.draw(st.integers(0, len(g) - 1))
    outward = data.draw(st.sampled_from(["above", "below"]))
    step = violation * problem.C[i]
    g[i] = problem.upper[i] + step if outward == "above" else problem.lower[i] - step
    assert problem.infeasibility(g) >= violation * (1 - 1e-6)


@given(data=st.data())
def test_infeasibility_measures_a_planted_imbalance(data):
    problem = draw_problem(data, "hinge with intercept")
    g = draw_feasible(data, problem)
    i = data.draw(st.integers(0, len(g) - 1))
    moved = data.draw(st.floats(0, 1)) * (problem.upper[i] - problem.lower[i]) + problem.lower[i]
    imbalance = abs(moved - g[i]) / problem.C.sum()
    g[i] = moved  # in its box, out of balance
    assert problem.infeasibility(g) == pytest.approx(imbalance, abs=1e-12)


def test_relative_gap():
    assert relative_gap(2.0, 1.0) == 0.5
    assert relative_gap(-1.0, -4.0) == 0.75
    assert relative_gap(0.0, 0.0) == 0.0
