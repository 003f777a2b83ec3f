"""Reads a Rigol's memory with pymso5000 or pydho800, as text: RESOURCE OUT.npz CHANNEL...

Both have a socket of their own, and count channels from 0.
"""

import sys

import numpy as np
from labdevices.scpi import SCPIDeviceEthernet
from pydho800 import PYDHO800
from pymso5000 import MSO5000

resource, out, *channels = sys.argv[1:]
_, address, port, _ = resource.split("::")
probe = SCPIDeviceEthernet(address, int(port))
probe.connect()
driver = MSO5000 if "MSO5" in probe.scpiQuery("*IDN?") else PYDHO800
probe.disconnect()
arrays = {}
with driver(address, int(port), rawMode=True) as scope:
    for channel in channels:
        read = scope.query_waveform(int(channel) - 1)
        arrays[f"t{channel}"], arrays[f"v{channel}"] = read["x"], read["y"]
np.savez(out, **arrays)
