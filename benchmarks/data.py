"""The benchmark sets: shuffled, split 80/20, features scaled to [0, 1], labels -1 and +1."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import MinMaxScaler

SETS = ("phishing", "a9a", "ijcnn1", "cod_rna_scaled")
GENERATED = "generated"
SEED = 20240


@dataclass(frozen=True)
class Problem:
    """One set, ready to fit; ``gamma`` is the number that gamma="scale" stands for, the same for every side."""

    name: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    gamma: float

    def __str__(self) -> str:
        (n, d), share = self.X.shape, np.mean(self.y > 0)
        return (
            f"{self.name}: {n:,} rows x {d} features ({self.X.dtype}), {share:.0%} positive, "
            f"{len(self.y_test):,} test rows, gamma {self.gamma:.4g}"
        )


def folder() -> Path:
    """Where the .npz files are: WIDEMARGIN_DATA, else ../shared/data beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("WIDEMARGIN_DATA") or beside)


def at_hand(names: list[str]) -> list[str]:
    """Those of the named sets that can be loaded here, in the order given."""
    return [name for name in names if name == GENERATED or (folder() / f"{name}.npz").is_file()]


def load(name: str, rows: int | None = None) -> Problem:
    """The named set; with ``rows``, a stratified sample of that many rows before the split."""
    X, y = _generated() if name == GENERATED else _read(folder() / f"{name}.npz")
    if rows is not None and rows < len(y):
        X, _, y, _ = train_test_split(X, y, train_size=rows, stratify=y, random_state=SEED)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, stratify=y, random_state=SEED)
    scaler = MinMaxScaler().fit(X)
    X, X_test = (np.ascontiguousarray(scaler.transform(part)) for part in (X, X_test))
    return Problem(name, X, y, X_test, y_test, gamma=float(1 / (X.shape[1] * X.var())))


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(path) as stored:
        if "X" in stored:
            X = stored["X"]
        else:
            X = csr_matrix((stored["data"], stored["indices"], stored["indptr"]), shape=stored["shape"]).toarray()
        return X.astype(np.float64), np.where(stored["y"] > 0, 1, -1)


def _generated() -> tuple[np.ndarray, np.ndarray]:
    X, y = make_classification(10_000, 20, n_informative=8, n_clusters_per_class=4, flip_y=0.03, random_state=SEED)
    return X, np.where(y > 0, 1, -1)
