"""scikit-learn's rules and tools: its own checks, cloning, pickling, searching, and every kind of table and label."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, make_classification
from sklearn.metrics import make_scorer, roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.multiclass import OneVsOneClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from widemargin import OptimalMarginClassifier, SupportVectorClassifier

MACHINES = [OptimalMarginClassifier, SupportVectorClassifier]
both = pytest.mark.parametrize("Machine", MACHINES)


@parametrize_with_checks([Machine(solver=solver) for Machine in MACHINES for solver in ("auto", "coordinate")])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture
def two_classes():
    return make_classification(240, 6, flip_y=0.1, random_state=0)


@pytest.fixture
def iris():
    X, y = load_iris(return_X_y=True)
    return MinMaxScaler().fit_transform(X), y


@both
def test_parameters_are_kept_as_given(Machine):
    given = {"C": np.float32(3), "kernel": "poly", "degree": 2, "class_weight": {0: 1, 1: 2}, "memory": "64MiB"}
    machine = Machine(**given)
    assert is_classifier(machine)
    assert {name: machine.get_params()[name] for name in given} == given
    assert machine.get_params()["class_weight"] is given["class_weight"]
    machine.set_params(C=0.5, tol=1e-2).fit(*make_classification(60, random_state=0))
    assert machine.get_params() == {**Machine(**given).get_params(), "C": 0.5, "tol": 1e-2}
    with pytest.raises(ValueError, match="Invalid parameter 'nu' for estimator"):
        machine.set_params(nu=0.5)


@both
def test_svcs_names_keep_their_defaults(Machine):
    ours, theirs = Machine(7.0).get_params(), SVC(C=7.0).get_params()
    shared = ["C", "kernel", "gamma", "degree", "coef0", "tol", "class_weight", "random_state"]
    assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}
    own = {"plan": None, "engine": "local", "n_jobs": None, "memory": "2GiB", "device": "cpu", "time_budget": None}
    assert own.items() <= ours.items()


@both
def test_a_clone_has_the_parameters_and_not_the_fit(Machine, two_classes):
    machine = Machine(C=2.0, gamma=0.3).fit(*two_classes)
    copy = clone(machine)
    assert copy.get_params() == machine.get_params()
    assert not hasattr(copy, "dual_coef_")
    np.testing.assert_array_equal(copy.fit(*two_classes).dual_coef_, machine.dual_coef_)


@both
@pytest.mark.parametrize("kernel", ["rbf", "poly", "precomputed"])
def test_a_pickle_predicts_the_same_and_is_no_larger_than_its_support(Machine, kernel, two_classes):
    X, y = two_classes
    X = rbf_kernel(X) if kernel == "precomputed" else X
    machine = Machine(kernel=kernel).fit(X, y)
    restored = pickle.loads(stored := pickle.dumps(machine))
    np.testing.assert_array_equal(restored.decision_function(X), machine.decision_function(X))
    assert restored.certificate_ == machine.certificate_
    arrays = (machine.support_vectors_, machine.dual_coef_, machine.support_)
    assert len(stored) < sum(array.nbytes for array in arrays) + 6000  # no training set, no kernel matrix


@both
def test_search_within_a_pipeline(Machine, two_classes):
    X, y = two_classes
    grid = {f"{Machine.__name__.lower()}__C": [1e-6, 1.0], f"{Machine.__name__.lower()}__kernel": ["linear", "rbf"]}
    search = GridSearchCV(make_pipeline(StandardScaler(), Machine()), grid, scoring="roc_auc", cv=3).fit(X * 1e3, y)
    scores = cross_val_score(search.best_estimator_, X * 1e3, y, cv=3, scoring=make_scorer(roc_auc_score))
    assert search.best_score_ > 0.85
    assert scores.min() > 0.75
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@both
def test_cross_validation_cuts_a_given_kernel_in_rows_and_columns(Machine, two_classes):
    X, y = two_classes
    given = cross_val_score(Machine(kernel="precomputed"), rbf_kernel(X, gamma=0.1), y, cv=3)
    np.testing.assert_allclose(given, cross_val_score(Machine(gamma=0.1), X, y, cv=3), rtol=0, atol=1e-12)


@both
def test_meta_estimators(Machine, iris):
    X, y = iris
    assert CalibratedClassifierCV(Machine(), cv=3).fit(X, y).score(X, y) > 0.9
    assert OneVsOneClassifier(Machine(C=10)).fit(X, y).score(X, y) > 0.9
    assert (cross_val_predict(Machine(C=10), X, y, method="decision_function", cv=3).argmax(axis=1) == y).mean() > 0.9


@both
def test_labels_of_any_kind_in_any_order(Machine, iris):
    X, y = iris
    names = np.array(["virginica", "setosa", "versicolor"])  # sorted: setosa 1, versicolor 2, virginica 0
    expected = Machine().fit(X, y)
    for labels in (names[y], names[y].astype(object), list(names[y]), np.array([7.0, -3.0, 2.0])[y]):
        machine = Machine().fit(X, labels)
        np.testing.assert_array_equal(machine.classes_, np.unique(labels))
        scores = machine.decision_function(X)
        np.testing.assert_allclose(scores[:, [2, 0, 1]], expected.decision_function(X), atol=1e-2)
        assert machine.score(X, labels) == pytest.approx(expected.score(X, y), abs=0.01)
        assert machine.predict(X).dtype == machine.classes_.dtype
        np.testing.assert_array_equal(machine.classes_[scores.argmax(axis=1)], machine.predict(X))


@both
def test_two_classes_have_one_score_positive_for_the_second(Machine, two_classes):
    X, y = two_classes
    machine = Machine(tol=1e-6).fit(X, y)
    mirrored = Machine(tol=1e-6).fit(X, np.where(y == 1, "ham", "spam"))
    assert machine.decision_function(X).shape == (240,)
    assert machine.dual_coef_.shape == (1, len(machine.support_))
    assert machine.intercept_.shape == (1,)
    np.testing.assert_array_equal(machine.predict(X), (machine.decision_function(X) > 0).astype(int))
    np.testing.assert_allclose(mirrored.decision_function(X), -machine.decision_function(X), atol=1e-2)


@both
@pytest.mark.parametrize("labels", [[True, False], [1, -1], [np.int8(5), np.int8(3)]])
def test_booleans_and_signs(Machine, labels, two_classes):
    X, y = two_classes
    y = np.array(labels)[y]
    machine = Machine().fit(X, y)
    assert machine.predict(X).dtype == y.dtype
    assert machine.score(X, y) > 0.85


@both
def test_a_table_names_the_features(Machine, two_classes):
    X, y = two_classes
    table = pd.DataFrame(X, columns=[f"sensor {i}" for i in range(6)])
    machine = Machine().fit(table, pd.Series(y))
    assert machine.n_features_in_ == 6
    np.testing.assert_array_equal(machine.feature_names_in_, table.columns)
    np.testing.assert_array_equal(machine.predict(table), Machine().fit(X, y).predict(X))
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        machine.predict(X)
    with pytest.raises(ValueError, match=r"feature names should match those that were passed during fit"):
        machine.predict(table.iloc[:, ::-1])
    assert not hasattr(machine.fit(X, y), "feature_names_in_")


@both
@pytest.mark.parametrize("kernel", ["linear", "rbf", "laplacian", "poly"])
@pytest.mark.parametrize("container", [sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.coo_array])
def test_sparse_rows_stay_sparse_and_mean_the_same(Machine, kernel, container, two_classes):
    X, y = two_classes
    X = np.where(np.abs(X) > 0.5, X, 0)
    dense = Machine(kernel=kernel, gamma=0.1, tol=1e-6).fit(X, y)
    sparse = Machine(kernel=kernel, gamma=0.1, tol=1e-6).fit(container(X), y)
    assert sp.issparse(sparse.support_vectors_)
    assert sparse.support_vectors_.format == "csr"
    np.testing.assert_allclose(sparse.decision_function(container(X)), dense.decision_function(X), atol=1e-3)
    np.testing.assert_allclose(sparse.decision_function(X), dense.decision_function(X), atol=1e-3)


@both
@pytest.mark.parametrize("container", [np.asarray, np.asfortranarray, sp.csr_matrix])
def test_single_precision_stays_single(Machine, container, iris):
    X, y = iris
    single = container(X.astype(np.float32))
    machine = Machine(tol=1e-6).fit(single, y)
    assert machine.support_vectors_.dtype == np.float32
    assert machine.decision_function(single).dtype == np.float64
    double = Machine(tol=1e-6).fit(X.astype(np.float32).astype(np.float64), y)
    np.testing.assert_allclose(machine.decision_function(single), double.decision_function(X), atol=2e-3)


@both
def test_other_numbers_become_float64(Machine, two_classes):
    X, y = two_classes
    whole = np.rint(3 * X)
    expected = Machine().fit(whole, y)
    for dtype in (np.int64, np.int8, object, np.float16):
        machine = Machine().fit(whole.astype(dtype), y)
        assert machine.support_vectors_.dtype == np.float64
        np.testing.assert_array_equal(machine.decision_function(whole.astype(dtype)), expected.decision_function(whole))
