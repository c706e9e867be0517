"""Benchmarks: widemargin and its peers, timed in turns inside one run (``python -m benchmarks.run``)."""
