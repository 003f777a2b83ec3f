"""Read channels with pymeasure's driver of the Keysight DSOX1102G: RESOURCE OUT.npz CHANNEL..."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pymeasure

# By its file: the package around it imports drivers that want pandas.
path = Path(pymeasure.__file__).parent / "instruments" / "keysight" / "keysightDSOX1102G.py"
spec = importlib.util.spec_from_file_location("keysightDSOX1102G", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)

resource, out, *channels = sys.argv[1:]
scope = module.KeysightDSOX1102G(
    resource, read_termination="\n", write_termination="\n", visa_library="@py"
)
arrays = {}
for channel in channels:
    volts, preamble = scope.download_data(f"channel{channel}", points=62500)
    index = np.arange(len(volts)) - preamble["xreference"]
    arrays["t" + channel] = preamble["xorigin"] + index * preamble["xincrement"]
    arrays["v" + channel] = volts
np.savez(out, **arrays)
