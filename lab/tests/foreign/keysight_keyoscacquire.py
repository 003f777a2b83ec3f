"""Scale binary data with keyoscacquire: RESOURCE OUT.npz CHANNEL...

The questions are those of its `Oscilloscope`, which cannot be imported without matplotlib; what is
made of the answers is its own.
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pyvisa

found = importlib.util.find_spec("keyoscacquire")
path = Path(found.origin).parent / "dataprocessing.py"
spec = importlib.util.spec_from_file_location("dataprocessing", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)

resource, out, *channels = sys.argv[1:]
scope = pyvisa.ResourceManager("@py").open_resource(
    resource, read_termination="\n", write_termination="\n"
)
for command in (
    ":WAVeform:UNSigned OFF",
    ":WAVeform:BYTeorder LSBFirst",
    ":WAVeform:POINts:MODE RAW",
    ":WAVeform:POINts MAXimum",
    ":WAVeform:FORMat WORD",
):
    scope.write(command)
raw, preambles = [], []
for channel in channels:
    scope.write(f":WAVeform:SOURce CHAN{channel}")
    preambles.append(scope.query(":WAVeform:PREamble?"))
    raw.append(scope.query_binary_values(":WAVeform:DATA?", datatype="h", container=np.array))
times, volts = module.process_data(raw, preambles, "WORD", verbose_acquistion=False)
arrays = {}
for index, channel in enumerate(channels):
    arrays["t" + channel] = times[:, 0]
    arrays["v" + channel] = volts[:, index]
np.savez(out, **arrays)
