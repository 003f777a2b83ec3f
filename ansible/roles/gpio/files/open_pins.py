"""Open pins as a program would, and close them: the program's name, a JSON list of its tables.

What the program holds already is not touched, since opening it again could move the pin.
"""

import dataclasses
import json
import sys
import tomllib
from pathlib import Path

from mqtick.pins import PinError, PinSettings, open_line
from mqtick.service.program_settings import PinKeys

program, wanted = sys.argv[1], json.loads(sys.argv[2])
held = []
if Path(f"/run/{program}/status.json").exists():  # it runs
    settings = Path(f"/etc/mqtick/{program.removeprefix('mqtick-')}.toml").read_text()
    held = [tomllib.loads(settings).get(name) for name in ("pin", "pps")]
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
        if "in use by 'mqtick'" not in str(error):  # held with other settings
            sys.exit(str(error))
