"""The memory budget: a string such as "2GiB" in, bytes out."""

from __future__ import annotations

import re
from numbers import Integral

_UNITS = {"": 1, "b": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}


def parse_memory(memory: str | int) -> int:
    """Bytes of "512MiB", "2GB", "1.5 GiB" or a plain number of bytes."""
    if isinstance(memory, Integral) and not isinstance(memory, bool) and memory > 0:
        return int(memory)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", str(memory).lower())
    if not match or isinstance(memory, bool) or (match[3] and not match[2]):
        raise ValueError(
            f'memory={memory!r} is not a size: give a string such as "2GiB" or "512MB", or a number of bytes.'
        )
    number, unit, binary = match.groups()
    size = int(float(number) * (1024 ** ("kmgt".index(unit) + 1) if binary else _UNITS[unit]))
    if size <= 0:
        raise ValueError(f"memory={memory!r} leaves no room at all: give a positive size.")
    return size
