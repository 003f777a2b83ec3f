"""Read a Siglent of the WF? set by pymeasure's LeCroyT3DSO1204, which is the same instrument."""

import sys

import numpy as np
from pymeasure.instruments.lecroy import LeCroyT3DSO1204

resource, out, *channels = sys.argv[1:]
scope = LeCroyT3DSO1204(resource, visa_library="@py", timeout=1000)
scope.adapter.connection.read_termination = "\n"
scope.adapter.connection.write_termination = "\n"
scope.WRITE_INTERVAL_S = 0.0


def whole_message(src, num_bytes):
    """Read by length, as USBTMC would; on a socket it has no way to know the end."""
    scope.write(f"{src}:WF? DAT2")
    return np.frombuffer(scope.read_bytes(num_bytes), np.uint8)


scope._digitize = whole_message
found = {}
for channel in channels:
    volts, times, _ = scope.download_waveform(f"C{channel}", requested_points=0, sparsing=1)
    found[f"t{channel}"], found[f"v{channel}"] = times, volts
np.savez(out, **found)
