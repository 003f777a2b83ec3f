"""mqtick-report begins here: outside its package, which cannot be imported without numpy."""

from mqtick.service.commandline import needing

with needing("analysis"):
    from mqtick.analysis.cli import main

__all__ = ["main"]
