"""scikit-learn's face of the machines."""

from widemargin.estimators.optimal_margin import OptimalMarginClassifier
from widemargin.estimators.support_vector import SupportVectorClassifier

__all__ = ["OptimalMarginClassifier", "SupportVectorClassifier"]
