"""Read channels with QCoDeS' driver of the Tektronix DPO7000 series: RESOURCE OUT.npz CHANNEL..."""

import sys

import numpy as np
from qcodes.instrument_drivers.tektronix.DPO7200xx import TektronixDPO7000xx

resource, out, *channels = sys.argv[1:]
scope = TektronixDPO7000xx("scope", resource, terminator="\n", visalib="@py")
scope.write("HEADer 0")
scope.data.encoding("SRIbinary")
scope.waveform.bytes_per_sample(1)
scope.data.start_index(1)
scope.data.stop_index(1_000_000_000)
arrays = {}
for channel in channels:
    waveform = scope.channel[int(channel) - 1].waveform
    arrays["t" + channel] = waveform.trace_axis()
    arrays["v" + channel] = waveform.trace()
np.savez(out, **arrays)
