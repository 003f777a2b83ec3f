"""Read channels with Tektronix' own tm_devices: RESOURCE OUT.npz CHANNEL...

It gives codes, which are scaled here by the numbers that it asks for by its own commands.
"""

import sys

import numpy as np
from tm_devices import DeviceManager
from tm_devices.helpers import PYVISA_PY_BACKEND

resource, out, *channels = sys.argv[1:]
_, host, port, _ = resource.split("::")
arrays = {}
with DeviceManager(verbose=False) as manager:
    manager.visa_library = PYVISA_PY_BACKEND
    manager.disable_device_command_checking()
    scope = manager.add_scope(host, connection_type="SOCKET", port=int(port))
    for channel in channels:
        scope.commands.data.start.write(1)
        scope.commands.data.stop.write(1_000_000_000)
        scope.commands.data.width.write(2)
        codes = np.array(scope.curve_query(int(channel)))
        head = scope.commands.wfmoutpre
        scale, zero, offset, interval, start, point = (
            float(part.query())
            for part in (head.ymult, head.yzero, head.yoff, head.xincr, head.xzero, head.pt_off)
        )
        arrays["t" + channel] = start + (np.arange(codes.size) - point) * interval
        arrays["v" + channel] = zero + scale * (codes.reshape(-1) - offset)
np.savez(out, **arrays)
