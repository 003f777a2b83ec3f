"""Compute deviations with allantools: X.npy TAU0_S OUT.json MEASURE FACTOR...

X.npy holds the time error in s; MEASURE is `mtie`, `tdev` or `oadev`. OUT.json has the
factors that were computed, and the values.
"""

import json
import sys

import allantools
import numpy as np

path, tau0_s, out, measure, *factors = sys.argv[1:]
x = np.load(path)
rate = 1 / float(tau0_s)
taus = np.array([int(factor) for factor in factors]) * float(tau0_s)
tau_s, values, _, _ = getattr(allantools, measure)(x, rate=rate, data_type="phase", taus=taus)
with open(out, "w") as file:
    json.dump(
        {
            "factors": np.rint(np.asarray(tau_s) * rate).astype(int).tolist(),
            "values": np.asarray(values).tolist(),
        },
        file,
    )
