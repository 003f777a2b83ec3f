"""Sends chronyd the best sample of each burst, to one reference clock per server.

chronyd averages and steers; nothing here filters over time (docs/accuracy.md says why).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from mqtick.client.chrony import ChronySock, Outcome, Verify, layout_for
from mqtick.client.chrony_lines import DELAYS_NS, POLL, delay_for, refid_for, socket_of
from mqtick.client.config import ChronyKeys
from mqtick.client.estimate import Estimate
from mqtick.client.pending import WallSample
from mqtick.client.sample import Kind, Sample, SampleVerdict
from mqtick.client.track import Track
from mqtick.client.unknown import why_unknown
from mqtick.mqtt.loop import Loop
from mqtick.protocol.time_types import NS_PER_S
from mqtick.service import ChronydError, ChronyVersion, chronyd

_FIRST_CHECK_NS = 10 * NS_PER_S
# chronyd selects a source after three polls with a sample, so a new source gets samples more often.
_START_NS = 32 * NS_PER_S
_START_SPACING_NS = NS_PER_S // 2
_MOST_SOCKETS = 16
# A clock that is further off than this, for longer than a chronyd needs to select its source, is
# not stepped any more. chronyd then slews by at most this share (maxslewrate, its default).
_GROSS_NS = NS_PER_S // 10
_MOST_SLEW = 1 / 12
# chronyd drops samples that are older than two polls.
_LONGEST_NS = (2 ** (POLL + 1) - 2) * NS_PER_S


@dataclass(slots=True)
class _Feed:
    """One server's reference clocks, of which one is in use.

    Attributes:
        delay_ns: The `delay` of the reference clock in use.
        changes: How often the clock had been set when the burst began.
        last_local_ns: When the last sample arrived, on the local timeline, which no step moves.
        fed: When a socket took its first sample, by its identity (`ChronySock.birth`).
        sent_ns: When a sample was last sent to the socket.
        offset_ns: The offset that was sent last: reference minus system clock.
        bound_ns: How far that offset may be wrong until the next one, the server's root distance
            included.
        withheld: Bursts of which nothing was sent, by the reason.
        withholds: Whether nothing was sent of the last burst.
    """

    track: Track
    sock: ChronySock
    verify: Verify
    delay_ns: int = DELAYS_NS[0]
    burst: list[WallSample] = field(default_factory=list)
    collecting: bool = False
    changes: int = 0
    last_local_ns: int | None = None
    fed: dict[tuple[int, int], int] = field(default_factory=dict)
    sent_ns: int = 0
    offset_ns: int = 0
    bound_ns: int = 0
    withheld: Counter[str] = field(default_factory=Counter)
    withholds: bool = False
    sentence: str = "no sample was sent yet"
    outcome: Outcome | None = None

    def withhold(self, reason: str, sentence: str = "") -> None:
        """Count a burst of which nothing is sent; the sentence says why, if it may last."""
        self.withheld[reason] += 1
        self.withholds = True
        if sentence:
            self.sentence, self.outcome = f"nothing is sent: {sentence}", None

    def is_new(self, now_ns: int) -> bool:
        """Whether this socket has not had samples for long."""
        first_ns = self.fed.get(self.sock.birth() or (0, 0))
        return first_ns is None or now_ns - first_ns < _START_NS

    def clock_says(self, now_ns: int) -> str:
        """Say so if the clock is grossly wrong, although chronyd takes the samples."""
        off_ns = abs(self.offset_ns)
        if self.is_new(now_ns) or off_ns <= self.bound_ns + _GROSS_NS:
            return ""
        where = "behind" if self.offset_ns > 0 else "ahead of"
        return (
            f"this clock is {off_ns / 1e9:.1f} s {where} the time, and chronyd does not step it "
            "(makestep is used up, or not in chrony.conf): slewing it takes at least "
            f"{off_ns / _MOST_SLEW / 1e9:.0f} s; to set it now: chronyc makestep"
        )


class Discipline:
    """Sends the best exchange of each burst to one of chronyd's reference clocks of that server.

    Nothing is sent while the estimator itself does not know the time.

    If a server does not answer requests, its best broadcast within `broadcasts_ns` is sent instead,
    unless the time is known from another server that answers.

    `clock_changes(look)` returns how often the clock was set, or the host slept, up to the last
    look, which was made when the sample was taken; `look`: look now.
    """

    def __init__(
        self,
        keys: ChronyKeys,
        loop: Loop,
        *,
        interval_ns: int,
        burst_ns: int,
        broadcasts_ns: int,
        clock_changes: Callable[[bool], int],
    ) -> None:
        self._keys, self._loop, self._clock_changes = keys, loop, clock_changes
        self._burst_ns, self._broadcasts_ns = burst_ns, min(broadcasts_ns, _LONGEST_NS)
        # Their distance varies by a fifth.
        self._until_next_ns = interval_ns * 5 // 4 + burst_ns
        self._feeds: dict[int, _Feed] = {}
        self._checking = False
        first_check_ns = min(int(keys.check_interval_s * NS_PER_S), _FIRST_CHECK_NS)
        self._check_at_ns = time.monotonic_ns() + first_check_ns
        try:
            self._layout = layout_for(chronyd.version())
        except ChronydError:
            self._layout = layout_for(ChronyVersion(4, 7))

    def _feed(self, track: Track) -> _Feed:
        shown = track.number or 0  # the format without numbers has only one server
        feed = self._feeds.get(shown)
        if feed is None:
            path = socket_of(self._keys.socket, shown, DELAYS_NS[0])
            sock = ChronySock(path, self._layout)
            verify = Verify(sock, refid_for(shown))
            feed = self._feeds[shown] = _Feed(track, sock, verify)
        feed.track = track
        return feed

    def on_sample(self, track: Track, wall: WallSample) -> None:
        """Take a judged sample; samples that the estimator refused never reach chronyd."""
        if not _may_steer(track, wall.sample) or self._knows_better(track, wall.sample):
            return
        feed = self._feed(track)
        feed.burst.append(wall)
        if not feed.collecting:
            feed.collecting, feed.changes = True, self._clock_changes(False)
            is_exchange = wall.sample.kind.is_exchange
            wait_ns = self._burst_ns if is_exchange else self._broadcasts_ns
            self._loop.call_later(wait_ns, lambda: self._send(track, feed))

    def _knows_better(self, track: Track, sample: Sample) -> bool:
        """Whether this server has sent broadcasts only, and another has a measured bound."""
        return track.estimator.at(sample.local_ns).assumed and any(
            feed.track.estimator.at(sample.local_ns).is_measured for feed in self._feeds.values()
        )

    def _send(self, track: Track, feed: _Feed) -> None:
        burst, feed.burst, feed.collecting = feed.burst, [], False
        wall = min(burst, key=lambda wall: wall.sample.order_in_burst)
        local_ns = wall.sample.arrived_ns
        known = track.estimator.at(local_ns)
        if feed.last_local_ns is not None and local_ns <= feed.last_local_ns:
            feed.withhold("not-newer")
        elif not known.state.is_known:
            feed.withhold("unsynchronised", why_unknown(track.estimator, local_ns))
        elif known.lower_ns is not None and known.upper_ns is not None:
            # An exchange delayed one way has a wide interval, and a middle far off. The estimator's
            # interval is narrower, because it uses the other exchanges, too.
            offset_ns = min(max(wall.sample.offset_ns, known.lower_ns), known.upper_ns)
            bound_ns = max(known.upper_ns - offset_ns, offset_ns - known.lower_ns)
            bound_ns += known.root_distance_ns + self._growth_ns(feed, known)
            self._hand_over(feed, wall, offset_ns, bound_ns)

    def _growth_ns(self, feed: _Feed, known: Estimate) -> int:
        """How much wider the interval will be when chronyd gets the next sample, on each side.

        What chronyd states grows more slowly than that while the frequency is not known.
        """
        wait_ns = _START_SPACING_NS if feed.is_new(time.monotonic_ns()) else self._until_next_ns
        later = feed.track.estimator.at(known.local_ns + wait_ns)
        return max((later.half_width_ns or 0) - (known.half_width_ns or 0), 0)

    def _hand_over(self, feed: _Feed, wall: WallSample, offset_ns: int, bound_ns: int) -> None:
        """Send an offset on the local timeline to the narrowest reference clock that covers it."""
        delay_ns = delay_for(bound_ns)
        if delay_ns is None:
            limit_s, bound_s = DELAYS_NS[-1] / 2e9, bound_ns / 1e9
            sentence = f"the bound is {bound_s:.3f} s, more than chronyd is told ({limit_s:g} s)"
            feed.withhold("uncovered", sentence)
            return
        if self._clock_changes(True) != feed.changes:
            # chronyd would apply the old clock's offset to the new one. If it is set after this
            # line, nobody can help it: chronyd reads the sample later still.
            feed.withhold("clock-stepped")
            return
        if delay_ns != feed.delay_ns:
            self._change_delay(feed, delay_ns)
        feed.withholds, feed.last_local_ns = False, wall.sample.arrived_ns
        feed.offset_ns, feed.bound_ns = offset_ns - wall.time_minus_raw_ns, bound_ns
        outcome = feed.sock.send(wall.realtime_ns, feed.offset_ns, wall.sample.leap)
        feed.sent_ns = time.monotonic_ns()
        feed.verify.note(outcome, feed.sent_ns)
        if outcome is not Outcome.SENT:
            feed.sentence = feed.sock.explain(outcome)
        elif feed.outcome is not outcome:
            feed.sentence = "chronyd was not asked yet whether they arrive"
        if outcome is Outcome.SENT and (socket := feed.sock.birth()) is not None:
            feed.fed.setdefault(socket, feed.sent_ns)
            if len(feed.fed) > _MOST_SOCKETS:
                del feed.fed[next(iter(feed.fed))]
        feed.outcome = outcome

    def _change_delay(self, feed: _Feed, delay_ns: int) -> None:
        """Use another reference clock."""
        shown = feed.track.number or 0
        feed.delay_ns = delay_ns
        feed.sock.path = socket_of(self._keys.socket, shown, delay_ns)
        feed.verify = Verify(feed.sock, refid_for(shown, delay_ns))

    def tick(self) -> None:
        """Notice a new chronyd; now and then ask it, in a thread, whether the samples arrive."""
        now_ns = time.monotonic_ns()
        for feed in self._feeds.values():
            _see_to_start(feed, now_ns)
        interval_ns = int(self._keys.check_interval_s * NS_PER_S)
        if not interval_ns or self._checking or now_ns < self._check_at_ns:
            return
        self._checking, self._check_at_ns = True, now_ns + interval_ns
        threading.Thread(target=self._check, name="chronyc", daemon=True).start()

    def _check(self) -> None:
        try:
            sources = chronyd.sources(host=self._keys.host or None, port=self._keys.port)
        except ChronydError as error:
            sentence = str(error)
            self._loop.call_soon_threadsafe(lambda: self._checked(lambda _feed: sentence))
        else:
            now_ns = time.monotonic_ns()
            self._loop.call_soon_threadsafe(
                lambda: self._checked(lambda feed: feed.verify.check(sources, now_ns).sentence)
            )

    def _checked(self, verdict: Callable[[_Feed], str]) -> None:
        self._checking = False
        for feed in self._feeds.values():
            if not feed.withholds:
                feed.sentence = verdict(feed)

    def status(self) -> dict[str, object]:
        """Return, for each server, what was sent and what chronyd says of it.

        `clock_offset_ns` (reference minus system clock) is within `clock_bound_ns`, as last sent.
        """
        now_ns = time.monotonic_ns()
        return {
            str(number): {
                "socket": feed.sock.path,
                "refid": refid_for(number, feed.delay_ns),
                "delay_ns": feed.delay_ns,
                "sent": {
                    str(outcome): count for outcome, count in feed.sock.counts.items() if count
                },
                "withheld": dict(feed.withheld),
                "clock_offset_ns": feed.offset_ns if feed.last_local_ns is not None else None,
                "clock_bound_ns": feed.bound_ns if feed.last_local_ns is not None else None,
                "clock_says": feed.clock_says(now_ns),
                "says": feed.sentence,
            }
            for number, feed in self._feeds.items()
        }

    def close(self) -> None:
        """Release the sockets."""
        for feed in self._feeds.values():
            feed.sock.close()


def _see_to_start(feed: _Feed, now_ns: int) -> None:
    """Have a request sent every second or two until a new chronyd knows the time."""
    is_due = not feed.collecting and now_ns - feed.sent_ns > _START_SPACING_NS
    if is_due and not feed.withholds and feed.sock.birth() and feed.is_new(now_ns):
        feed.track.wants_exchange = True


def _may_steer(track: Track, sample: Sample) -> bool:
    """Whether the estimator uses this sample, and the server is synchronised."""
    if sample.verdict is not SampleVerdict.USED or sample.leap == 3:
        return False
    return sample.kind.is_exchange or track.estimator.at(sample.local_ns).kind is Kind.ONE_WAY
