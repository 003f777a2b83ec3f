"""mqtick: the client room.

For other programs on a host where mqtick-client runs: `now()` returns the present as an interval.
"""

from mqtick.client.interval import Now, NowError, now

__all__ = ["Now", "NowError", "now"]
