from __future__ import annotations

from dataclasses import replace

import pytest

from mqtick.service.chronyd_csv import Leap, Tracking
from mqtick.service.synchronised import why_not_synchronised

GOOD = Tracking(
    refid="C0000201",
    name="192.0.2.1",
    stratum=2,
    reference_time_ns=1_795_201_930_000_000_000,
    offset_reference_minus_local_ns=-20_000,
    last_offset_reference_minus_local_ns=15_000,
    rms_offset_ns=20_000,
    frequency_reference_minus_local_ppm=3.2,
    residual_frequency_ppm=0.0,
    skew_ppm=0.1,
    root_delay_ns=1_000_000,
    root_dispersion_ns=200_000,
    update_interval_s=64.0,
    leap=Leap.NORMAL,
)


AT_LIMIT = replace(GOOD, root_dispersion_ns=100_000_000 - 500_000 - 20_000)


@pytest.mark.parametrize(
    "tracking",
    [
        GOOD,
        replace(GOOD, leap=Leap.INSERT),
        replace(GOOD, stratum=15, skew_ppm=100.0),
        AT_LIMIT,  # a limit itself is still good
    ],
)
def test_a_clock_that_follows_its_source_is_synchronised(tracking: Tracking) -> None:
    assert why_not_synchronised(tracking) is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"leap": Leap.UNSYNCHRONISED}, "has selected no source yet"),
        ({"refid": "00000000"}, "has selected no source yet"),
        ({"refid": "7F7F0101"}, "chronyd is in local mode"),
        ({"stratum": 16}, "the stratum is 16, but must be from 1 to 15"),
        ({"stratum": 0}, "the stratum is 0"),
        ({"skew_ppm": 101.0}, "uncertain by 101 ppm, but at most 100 ppm are allowed"),
        (
            {"root_dispersion_ns": 10**9},
            "error may be 1.00052 s (root distance), but at most 0.1 s",
        ),
        ({"root_delay_ns": 2 * 10**8}, "root distance"),
        ({"offset_reference_minus_local_ns": -(10**9)}, "root distance"),
        ({"root_dispersion_ns": AT_LIMIT.root_dispersion_ns + 1}, "root distance"),
        # After a start, as measured with chrony 4.3.
        ({"skew_ppm": 1e6, "root_dispersion_ns": 1_150_000_000}, "uncertain by 1e+06 ppm"),
    ],
)
def test_normal_alone_is_not_believed(changed: dict[str, object], said: str) -> None:
    assert said in str(why_not_synchronised(replace(GOOD, **changed)))  # type: ignore[arg-type]
