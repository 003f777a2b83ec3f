"""Read a Siglent of the WF? set by pymeasure's SDS1072CML."""

import sys

import numpy as np
from pymeasure.instruments.siglenttechnologies.siglent_sds1072cml import SDS1072CML

resource, out, *channels = sys.argv[1:]
scope = SDS1072CML(resource, visa_library="@py", timeout=1000)
scope.adapter.connection.read_termination = "\n"
scope.adapter.connection.write_termination = "\n"
scope.write("CHDR SHORT")  # it counts on 21 octets of header
scope.waveform_setup = {"sparsing": 0, "number": 0, "first": 0}
found = {}
for channel in channels:
    voltage = getattr(scope, f"channel_{channel}")
    found[f"t{channel}"], found[f"v{channel}"] = voltage.get_waveform()
np.savez(out, **found)
