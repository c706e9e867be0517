"""How the dual climbs until the gap is small, and the certificate that says how small it is."""

from widemargin.solvers.certificate import Certificate, combine
from widemargin.solvers.coordinate import CoordinateDescent
from widemargin.solvers.solution import Monitor, Record, Solution, Solver
from widemargin.solvers.solve import solve
from widemargin.solvers.subspace import SubspaceDescent
from widemargin.solvers.working_set import WorkingSet

__all__ = [
    "Certificate",
    "CoordinateDescent",
    "Monitor",
    "Record",
    "Solution",
    "Solver",
    "SubspaceDescent",
    "WorkingSet",
    "combine",
    "solve",
]
