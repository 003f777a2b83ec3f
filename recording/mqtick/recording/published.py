"""Published figures, for reference lines next to ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SHORT: Final = "IEEJ Transactions 17(2), 2022"
SOURCE: Final = (
    "Yamamoto, Fukuhara, Nishi: Hardware MQTT broker and MQTT time synchronisation, "
    f"{SHORT}; means of 20 shots"
)


@dataclass(frozen=True, slots=True)
class Published:
    """Mean and standard deviation in us, of 20 shots each, by software and hardware broker."""

    software_mean_us: float
    software_deviation_us: float
    hardware_mean_us: float
    hardware_deviation_us: float


PUBLISHED: Final = {
    # With one subscriber; with two, the first is served as if it were alone.
    ("latency", 1): Published(462.2, 36.95, 87.37, 14.34),
    ("latency", 2): Published(462.2, 36.95, 87.37, 14.34),
    ("skew", 2): Published(47.43, 51.37, 13.78, 8.601),
    ("skew", 100): Published(340.0, 86.32, 19.92, 13.62),
}


def published_growth(quantity: str) -> tuple[float, float] | None:
    """Return what one more subscriber costs with a software and a hardware broker, in us.

    From the published means at 2 and 100 subscribers; None where these are not known.
    """
    two, hundred = PUBLISHED.get((quantity, 2)), PUBLISHED.get((quantity, 100))
    if two is None or hundred is None:
        return None
    return (
        (hundred.software_mean_us - two.software_mean_us) / 98,
        (hundred.hardware_mean_us - two.hardware_mean_us) / 98,
    )
