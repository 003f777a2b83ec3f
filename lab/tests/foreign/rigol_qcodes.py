"""Reads a Rigol's memory with the QCoDeS driver for the DS1074Z: RESOURCE OUT.npz CHANNEL...

It reads whatever :WAVeform:MODE, :STARt and :STOP are set to, and asks for the scale before it sets
source and format: so these are set here.
"""

import sys

import numpy as np
from qcodes.instrument_drivers.rigol import RigolDS1074Z

resource, out, *channels = sys.argv[1:]
scope = RigolDS1074Z("scope", resource, visalib="@py")
scope.write(":WAVeform:FORMat WORD")
arrays = {}
for channel in channels:
    scope.data_source(f"ch{channel}")
    arrays[f"v{channel}"] = getattr(scope.channels, f"ch{channel}").trace.get_raw()
    arrays[f"t{channel}"] = scope.time_axis()
scope.close()
np.savez(out, **arrays)
