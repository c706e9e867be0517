"""Where tasks run. An engine knows no word of margins: it is given a function and a list of items."""

from widemargin.engines.local import LocalEngine, check_cancelled

__all__ = ["LocalEngine", "check_cancelled"]
