"""How instants and durations are counted: `int`, in nanoseconds, instants since 1970-01-01 UTC."""

from typing import Final

__all__ = ["NS_PER_S"]

NS_PER_S: Final = 1_000_000_000
