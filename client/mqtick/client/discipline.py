"""Sends chronyd the best sample of each burst, to one reference clock per server.

chronyd averages and steers; nothing here filters over time (docs/accuracy.md says why).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mqtick.client.chrony import ChronySock, Outcome, Verify, layout_for
from mqtick.client.chrony_lines import POLL, refid_for
from mqtick.client.config import ChronyKeys
from mqtick.client.pending import WallSample
from mqtick.client.sample import Kind, Sample, SampleVerdict
from mqtick.client.track import Track
from mqtick.mqtt.loop import Loop
from mqtick.protocol.steps import StepDetector
from mqtick.protocol.time_types import NS_PER_S
from mqtick.service import ChronydError, ChronyVersion, chronyd

__all__ = ["Discipline"]

_FIRST_CHECK_NS = 10 * NS_PER_S
# chronyd selects a source after three polls with a sample, so a new source gets samples more often.
_START_NS = 32 * NS_PER_S
_START_SPACING_NS = NS_PER_S // 2
# chronyd drops samples that are older than two polls.
_LONGEST_NS = (2 ** (POLL + 1) - 2) * NS_PER_S


@dataclass(slots=True)
class _Feed:
    """One server's reference clock.

    Attributes:
        chronyd: The identity of chronyd's socket when it was last checked (`ChronySock.birth`).
        first_ns: When this socket took its first sample.
        sent_ns: When a sample was last sent to the socket.
        stepped: Bursts not sent, because the clock was stepped after they were measured.
    """

    track: Track
    sock: ChronySock
    verify: Verify
    steps: StepDetector
    burst: list[WallSample] = field(default_factory=list)
    collecting: bool = False
    last_realtime_ns: int = 0
    chronyd: tuple[int, int] | None = None
    first_ns: int | None = None
    sent_ns: int = 0
    stepped: int = 0
    sentence: str = "no sample was sent yet"
    outcome: Outcome | None = None


class Discipline:
    """Sends the best exchange of each burst to chronyd's SOCK reference clock of that server.

    If a server does not answer requests, its best broadcast within `broadcasts_ns` is sent instead,
    unless the time is known from another server that answers.
    """

    def __init__(
        self,
        keys: ChronyKeys,
        loop: Loop,
        *,
        burst_ns: int,
        broadcasts_ns: int,
        step_detector: Callable[[], StepDetector] = StepDetector,
    ) -> None:
        self._keys, self._loop, self._step_detector = keys, loop, step_detector
        self._burst_ns, self._broadcasts_ns = burst_ns, min(broadcasts_ns, _LONGEST_NS)
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
            sock = ChronySock(self._keys.socket.replace("{server}", str(shown)), self._layout)
            verify = Verify(sock, refid_for(shown))
            feed = self._feeds[shown] = _Feed(track, sock, verify, self._step_detector())
        feed.track = track
        return feed

    def on_sample(self, track: Track, wall: WallSample) -> None:
        """Take a judged sample; samples that the estimator refused never reach chronyd."""
        if not _may_steer(track, wall.sample) or self._knows_better(track, wall.sample):
            return
        feed = self._feed(track)
        feed.burst.append(wall)
        if not feed.collecting:
            feed.collecting = True
            feed.steps.look()  # notice steps from now on
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
        if wall.realtime_ns <= feed.last_realtime_ns:
            return
        if feed.steps.look():
            feed.stepped += 1  # chronyd would apply the old clock's offset to the new one
            return
        known = track.estimator.at(wall.sample.arrived_ns)
        if known.lower_ns is None or known.upper_ns is None or track.estimator.in_doubt:
            return  # the estimator has forgotten the sample, or newer samples contradict it
        feed.last_realtime_ns = wall.realtime_ns
        # An exchange delayed one way has a wide interval, and a middle far off. The estimator's
        # interval is narrower, because it uses the other exchanges, too.
        offset_ns = min(max(wall.sample.offset_ns, known.lower_ns), known.upper_ns)
        offset_ns -= wall.time_minus_raw_ns
        outcome = feed.sock.send(wall.realtime_ns, offset_ns, wall.sample.leap)
        feed.sent_ns = time.monotonic_ns()
        feed.verify.note(outcome, feed.sent_ns)
        if outcome is not Outcome.SENT:
            feed.sentence = feed.sock.explain(outcome)
        elif feed.outcome is not outcome:
            feed.sentence = "chronyd was not asked yet whether they arrive"
        if outcome is Outcome.SENT and feed.first_ns is None:
            feed.first_ns = feed.sent_ns
        feed.outcome = outcome

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
            feed.sentence = verdict(feed)

    def status(self) -> dict[str, object]:
        """Return, for each server, what was sent and what chronyd says of it."""
        return {
            str(number): {
                "socket": feed.sock.path,
                "sent": {
                    str(outcome): count for outcome, count in feed.sock.counts.items() if count
                },
                "stepped": feed.stepped,
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
    chronyd_now = feed.sock.birth()
    if chronyd_now != feed.chronyd:
        feed.chronyd, feed.first_ns = chronyd_now, None
    is_new = feed.first_ns is None or now_ns - feed.first_ns < _START_NS
    is_due = not feed.collecting and now_ns - feed.sent_ns > _START_SPACING_NS
    if chronyd_now and is_new and is_due:
        feed.track.wants_exchange = True


def _may_steer(track: Track, sample: Sample) -> bool:
    """Whether the estimator uses this sample, and the server is synchronised."""
    if sample.verdict is not SampleVerdict.USED or sample.leap == 3:
        return False
    return sample.kind.is_exchange or track.estimator.at(sample.local_ns).kind is Kind.ONE_WAY
