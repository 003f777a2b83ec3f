"""Read a Siglent of the :WAVeform set by pymeasure's SDS1000XHD."""

import sys

import numpy as np
from pymeasure.instruments.siglenttechnologies.siglent_sds1000xhd import SDS1000XHD

resource, out, *channels = sys.argv[1:]
# Without a termination character: it stops a read at the first sample that is a line feed. So
# every answer ends with a time-out, which is set short, for a busy machine all the same.
scope = SDS1000XHD(resource, visa_library="@py", timeout=800)
scope.adapter.connection.read_termination = "\n"
scope.adapter.connection.write_termination = "\n"
found = {}
for channel in channels:
    waveform = getattr(scope, f"wf_C{channel}")
    waveform.source = f"C{channel}"
    waveform.interval = 1
    waveform.point = 0
    found[f"t{channel}"], found[f"v{channel}"] = waveform.get_data()
np.savez(out, **found)
