"""widemargin: kernel classifiers that shape the whole margin, exact and with a certificate."""

from widemargin.estimators import OptimalMarginClassifier, SupportVectorClassifier
from widemargin.solvers import Certificate, Record

__version__ = "0.1.0"

__all__ = ["Certificate", "OptimalMarginClassifier", "Record", "SupportVectorClassifier"]
