"""What the kernel is (functions), where its arguments come from (points), and who computes its rows (rows)."""

from widemargin.kernels.functions import NAMES, Kernel, make_kernel
from widemargin.kernels.memory import parse_memory
from widemargin.kernels.points import Points, is_sparse
from widemargin.kernels.rows import GivenRows, KernelRows, Rows, TooLittleMemoryError, cross_product, given_product

__all__ = [
    "NAMES",
    "GivenRows",
    "Kernel",
    "KernelRows",
    "Points",
    "Rows",
    "TooLittleMemoryError",
    "cross_product",
    "given_product",
    "is_sparse",
    "make_kernel",
    "parse_memory",
]
