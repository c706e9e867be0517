"""Train both machines on three data sets and print accuracy, seconds and certificate.

The features are scaled to [0, 1] and a fifth of the rows is kept aside for the test.
"""

from time import perf_counter

from sklearn.base import ClassifierMixin, clone
from sklearn.datasets import load_breast_cancer, load_digits, make_moons
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import MinMaxScaler

from widemargin import OptimalMarginClassifier, SupportVectorClassifier

DATA = {
    "breast cancer": load_breast_cancer(return_X_y=True),
    "digits": load_digits(return_X_y=True),
    "two moons": make_moons(5000, noise=0.3, random_state=0),
}
MACHINES = [OptimalMarginClassifier(), SupportVectorClassifier()]
COLUMNS = "{:14} {:24} {:>6} {:>8} {:>8} {:>9}  {}"


def split(X, y):
    """Four fifths to train on, one to test on, scaled by what the training rows show."""
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, stratify=y, random_state=0)
    scaler = MinMaxScaler().fit(X_train)
    return scaler.transform(X_train), scaler.transform(X_test), y_train, y_test


def warm_up(machine: ClassifierMixin) -> None:
    """Fit a few rows of each set: a process's first fit compiles its loops, or loads them from Numba's cache."""
    for X, y in DATA.values():
        few, _, labels, _ = train_test_split(X, y, train_size=100, stratify=y, random_state=0)
        clone(machine).fit(few, labels).predict(few)


def main() -> None:
    print("Warming up on a few rows (the first run compiles, later ones load from disk) ...", flush=True)
    start = perf_counter()
    for machine in MACHINES:
        warm_up(machine)
    print(f"{perf_counter() - start:.1f} s, not counted below.\n")

    print(COLUMNS.format("data", "machine", "rows", "accuracy", "seconds", "gap", "status"))
    for data, (X, y) in DATA.items():
        X_train, X_test, y_train, y_test = split(X, y)
        for machine in map(clone, MACHINES):
            start = perf_counter()
            machine.fit(X_train, y_train)
            seconds = perf_counter() - start
            accuracy, certificate = machine.score(X_test, y_test), machine.certificate_
            figures = f"{accuracy:.4f}", f"{seconds:.3f}", f"{certificate.relative_gap:.1e}", certificate.status
            print(COLUMNS.format(data, type(machine).__name__, len(y_train), *figures), flush=True)

    print("\nThe gap bounds the error: the model's objective is within that fraction of the best there is.")


if __name__ == "__main__":
    main()
