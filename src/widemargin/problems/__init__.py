"""The mathematics: one dual a file. A problem knows its primal, dual, link and feasible set, and no solver or kernel.

Every machine here is the same animal. Coefficients g on the training rows give the scores f = K g, with
|w|^2 = g'Kg. A convex loss l_i of each score makes the pair

    min_w  P = 1/2 |w|^2 + sum_i l_i(f_i + b)          max_g  D = -1/2 g'Kg - sum_i l_i*(-g_i),   g feasible

and P - D >= 0 for every w and every feasible g (weak duality), which is what a certificate shows.
"""

from widemargin.problems.base import Problem
from widemargin.problems.hinge import Hinge
from widemargin.problems.odm import MarginDistribution

__all__ = ["Hinge", "MarginDistribution", "Problem"]
