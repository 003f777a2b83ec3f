"""Read channels with QCoDeS' driver of the Tektronix TPS2012: RESOURCE OUT.npz CHANNEL..."""

import sys

import numpy as np
from qcodes.instrument_drivers.tektronix import TektronixTPS2012

resource, out, *channels = sys.argv[1:]
scope = TektronixTPS2012("scope", resource, terminator="\n", visalib="@py")
# It takes the octets for text with its line end, as USB leaves it there, and the data for unsigned
# words, high octet first.
scope.visa_handle.encoding = "latin-1"
ask_raw = scope.ask_raw
scope.ask_raw = lambda command: ask_raw(command) + "\n"
scope.write("HEADer 0")
scope.write("DATa:ENCdg RPBinary")
scope.write("DATa:WIDth 2")
scope.write("DATa:STARt 1")
scope.write("DATa:STOP 2500")
arrays = {}
for channel in channels:
    part = getattr(scope, f"ch{channel}")
    part.curvedata.prepare_curvedata()
    arrays["t" + channel] = np.array(part.curvedata.setpoints[0])
    arrays["v" + channel] = part.curvedata.get()
np.savez(out, **arrays)
