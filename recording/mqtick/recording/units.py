"""Units of time as numbers of one another, and the type of a row of values."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

FS_PER_NS: Final = 10**6
FS_PER_US: Final = 10**9
FS_PER_S: Final = 10**15
NS_PER_US: Final = 10**3
NS_PER_S: Final = 10**9

Floats = npt.NDArray[np.float64]
