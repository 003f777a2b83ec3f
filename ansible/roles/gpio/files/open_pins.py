"""Open pins as a program would, and close them: the program's name, a JSON list of its tables.

What the program holds already is not touched, since opening it again could move the pin.
"""

import dataclasses
import json
import sys
import tomllib
from pathlib import Path

from mqtick.pins import PinError, PinSettings, open_line
from mqtick.service.settings.program import PinKeys


def line_of(table: dict[str, object]) -> tuple[object, object]:
    """Which line it is, whatever is done with it."""
    return table.get("backend"), table.get("line", PinKeys().line)


program, wanted = sys.argv[1], json.loads(sys.argv[2])
held = []
if Path(f"/run/{program}/status.json").exists():  # it runs
    settings = Path(f"/etc/mqtick/{program.removeprefix('mqtick-')}.toml").read_text()
    tables = tomllib.loads(settings)
    held = [tables[name] for name in ("pin", "pps") if name in tables]
for table in wanted:
    if table in held:
        continue
    try:
        keys = PinKeys(**table)
        if keys.backend != "none":
            open_line(PinSettings(**dataclasses.asdict(keys))).close()
    except TypeError:
        pass  # a key that there is not: the check of the configuration names it
    except PinError as error:
        # The other program of the host has the same name there. What this one holds itself, with
        # other settings, it gives back when it starts anew.
        its_own = line_of(table) in map(line_of, held)
        if not (its_own and "in use by 'mqtick'" in str(error)):
            sys.exit(str(error))
