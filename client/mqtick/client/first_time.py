"""The first time that a server states: if it is far from this host's clock, it must be confirmed.

Without keys a single message can state any time: the time of a test bench, of a replayed message,
of another time zone. The host's clock may be wrong as well, so a time far from it is not refused
for ever: it is believed when several samples agree on it. Formats in naive local time are the
exception: an error of whole quarters of an hour is taken for a wrong time zone, however often it
is stated.
"""

from __future__ import annotations

from dataclasses import dataclass

from mqtick.client.bracket import Growth
from mqtick.client.estimator import Estimator
from mqtick.client.jump import Candidates
from mqtick.client.plausibility import guaranteed
from mqtick.client.sample import Reason, Sample, SampleVerdict
from mqtick.protocol.time_types import NS_PER_S

_QUARTER_NS = 900 * NS_PER_S
# UTC+14 is the farthest (Kiribati); several zones lie at :30 and :45.
_FARTHEST_NS = 14 * 3600 * NS_PER_S
_NEAR_NS = 5 * NS_PER_S
"""By how much the two clocks may differ, apart from the time zone."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a server's time is not believed, and what to do."""

    reason: Reason
    says: str
    remedy: str


class FirstTime:
    """A filter in front of an estimator; every sample goes through `add`.

    `utc_offset_s`: how far the server's local time is assumed to be ahead of UTC, in formats that
    state local time; None for formats in UTC.
    """

    def __init__(
        self, estimator: Estimator, tolerance_ns: int, utc_offset_s: int | None = None
    ) -> None:
        self.trouble: Trouble | None = None
        """Why this filter refused the newest sample; None if it did not."""
        self._estimator, self._tolerance_ns = estimator, tolerance_ns
        self._utc_offset_s = utc_offset_s
        self._candidates = Candidates()
        self._believed = False

    def reset(self) -> None:
        """Forget what was confirmed: the next time counts as a first one again."""
        self.trouble, self._believed = None, False
        self._candidates.clear()

    def add(self, sample: Sample, time_minus_raw_ns: int) -> Sample:
        """Judge a sample; `time_minus_raw_ns`: the host's clock minus the local timeline."""
        if sample.authenticated or sample.verdict is SampleVerdict.REFUSED:
            return self._estimator.add(sample)
        self.trouble = self._zone(sample, time_minus_raw_ns) or self._far(sample, time_minus_raw_ns)
        if self.trouble is not None:
            return self._estimator.counters.count(sample.refused(self.trouble.reason))
        return self._estimator.add(sample)

    def _zone(self, sample: Sample, time_minus_raw_ns: int) -> Trouble | None:
        """Compare with the known time, else with this host's clock: finds summer time, too."""
        if self._utc_offset_s is None:
            return None
        known = self._estimator.at(sample.local_ns)
        of, here_ns = "this host's clock", time_minus_raw_ns
        if known.state.is_known and known.offset_ns is not None:
            of, here_ns = "the time as it was", known.offset_ns
        off_ns = sample.offset_ns - here_ns
        zone_s = round(off_ns / _QUARTER_NS) * 900
        near = abs(off_ns - zone_s * NS_PER_S) <= _NEAR_NS
        if zone_s == 0 or not near or abs(zone_s * NS_PER_S) > _FARTHEST_NS:
            return None
        hours = f"{abs(zone_s) / 3600:g} h {'ahead of' if zone_s > 0 else 'behind'} {of}"
        return Trouble(
            Reason.TIMEZONE,
            f"its time is {hours} ({off_ns / 1e9:+.3f} s); this looks like a timezone",
            f"set draft_utc_offset_s to {self._utc_offset_s + zone_s} where the server states "
            "local time; or, where this host's clock is kept in local time, set that to UTC",
        )

    def _far(self, sample: Sample, time_minus_raw_ns: int) -> Trouble | None:
        off_ns = sample.offset_ns - time_minus_raw_ns
        if self._believed or sample.lower_ns is None:
            return None  # believed, or impossible: the estimator judges it
        if abs(off_ns) <= self._tolerance_ns or self._is_confirmed(sample, sample.lower_ns):
            self._believed = True
            self._candidates.clear()
            return None
        settings = self._estimator.settings
        return Trouble(
            Reason.UNCONFIRMED,
            f"its time differs from this host's clock by {off_ns / 1e9:+.3f} s, more than "
            f"time_tolerance_s ({self._tolerance_ns / 1e9:g} s)",
            f"it is believed once {settings.confirm_samples} samples agree over "
            f"{settings.confirm_s:g} s; if it is the server that is wrong, stop it before then",
        )

    def _is_confirmed(self, sample: Sample, lower_ns: int) -> bool:
        settings, upper_ns = self._estimator.settings, sample.upper_ns
        if upper_ns is None:
            upper_ns = lower_ns + self._estimator.assumed_path_ns
        growth = Growth(rate=settings.frequency_limit_ppm * 1e-6)
        self._candidates.add(sample, guaranteed(sample, upper_ns, settings), growth)
        return bool(self._candidates.confirmed(settings.confirm_samples, settings.confirm_s))
