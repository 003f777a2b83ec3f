"""chrony's SOCK reference clock: how selected measurements reach chronyd.

chronyd steers the clock; it is given measurements, one datagram each. The offset is *true time
minus system time* (positive: the system clock is slow), which is our reference minus local, and
the time stamp is always real CLOCK_REALTIME. Source: chrony, refclock_sock.c, struct sock_sample.

chronyd silently drops what it cannot use, while sendto() succeeds: a sample of another size,
one stamped in the future or older than two polls, one of an unsynchronised clock. So
`Verify` compares what was sent with what `chronyc sources` says was received.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Literal

from mqtick.service import chronyd_csv
from mqtick.service.chronyd_csv import ChronyVersion

_MAGIC = 0x534F434B  # "SOCK"

# The first version that takes both sizes on 32-bit systems (chrony commit badaa83).
_EITHER_SIZE = ChronyVersion(4, 4)


class Layout(Enum):
    """struct sock_sample, by the size of `time_t`; native byte order, no padding needed."""

    TIME64 = "=qqd4i"
    TIME32 = "=iid4i"

    @property
    def size(self) -> int:
        """Octets of one sample: 40 or 32."""
        return struct.calcsize(self.value)


def layout_for(chrony_version: ChronyVersion, long_size: int = struct.calcsize("l")) -> Layout:
    """Return the layout that this machine's chronyd takes.

    `long_size` is that of the C type in the same distribution (8 or 4), by default Python's own;
    the kernel's word size says nothing, because 32-bit systems run on 64-bit kernels. On 32-bit
    systems `time_t` may have either size. From 4.4 on, chronyd accepts both there; older ones
    accept only the size of their own build, which was 32 bits at that time.
    """
    is_time32 = long_size < 8 and chrony_version < _EITHER_SIZE
    return Layout.TIME32 if is_time32 else Layout.TIME64


def encode_sample(
    realtime_ns: int, offset_ns: int, leap: int = 0, layout: Layout = Layout.TIME64
) -> bytes:
    """Return one sample as chronyd reads it.

    `realtime_ns` is CLOCK_REALTIME at the measurement (truncated to microseconds, which costs a
    picosecond for each ppm of drift), `offset_ns` reference minus local, `leap` 0 none, 1
    insert, 2 delete. Raises ValueError, with a sentence, for what chronyd would drop or misread.
    """
    if leap not in {0, 1, 2}:
        raise ValueError(
            f"leap is {leap}, but only 0, 1 and 2 can be sent; "
            "a sample of an unsynchronised reference must not be made at all"
        )
    seconds, rest_ns = divmod(realtime_ns, 10**9)
    limit = 1 << (31 if layout is Layout.TIME32 else 63)
    if not 0 <= seconds < limit or abs(offset_ns) >= 1 << 63:
        raise ValueError(
            f"a sample at {realtime_ns} ns with offset {offset_ns} ns does not fit {layout.size} "
            "octets; the clock or the measurement is far off"
        )
    return struct.pack(
        layout.value, seconds, rest_ns // 1000, offset_ns / 10**9, 0, int(leap), 0, _MAGIC
    )


class Outcome(StrEnum):
    """The result of sending a sample, as far as the sender can tell."""

    SENT = "sent"
    MISSING = "missing"
    NO_PERMISSION = "no-permission"
    REFUSED = "refused"
    QUEUE_FULL = "queue-full"
    FAILED = "failed"


# This many unconfirmed samples are remembered one by one.
_MAXIMUM_PENDING = 256

_OUTCOMES = {
    errno.ENOENT: Outcome.MISSING,
    errno.ENOTDIR: Outcome.MISSING,
    errno.EACCES: Outcome.NO_PERMISSION,
    errno.EPERM: Outcome.NO_PERMISSION,
    errno.ECONNREFUSED: Outcome.REFUSED,
    errno.EAGAIN: Outcome.QUEUE_FULL,
    errno.ENOBUFS: Outcome.QUEUE_FULL,
}

_EXPLANATIONS = {
    Outcome.SENT: "the socket {path} takes the samples",
    Outcome.MISSING: (
        "the socket {path} is missing: chronyd is not running, or its configuration has no such "
        "refclock (mqtick-client chrony-config prints it); see: systemctl status chrony"
    ),
    Outcome.NO_PERMISSION: (
        "the socket {path} may not be written by this user; "
        "add its group to the service, as the README of the client describes"
    ),
    Outcome.REFUSED: (
        "nobody listens at the socket {path}: chronyd has ended and left it behind; "
        "samples flow again when it runs"
    ),
    Outcome.QUEUE_FULL: (
        "the socket {path} is full: chronyd does not read it, it is stopped or hangs; "
        "the sample is dropped, because a late one would be wrong"
    ),
    Outcome.FAILED: "the socket {path} cannot be used ({reason}); the sample is dropped",
}


class ChronySock:
    """Sends samples to one SOCK reference clock; never blocks, counts every outcome.

    Each sample goes out on an unconnected socket, so a restart of chronyd needs no attention.
    """

    def __init__(self, path: str | os.PathLike[str], layout: Layout = Layout.TIME64) -> None:
        """Only store the settings: chronyd may start later."""
        self.path = os.fspath(path)
        self.layout = layout
        self.counts = dict.fromkeys(Outcome, 0)
        self._socket: socket.socket | None = None
        self._reason = ""

    def send(self, realtime_ns: int, offset_ns: int, leap: int = 0) -> Outcome:
        """Send one sample, as `encode_sample` describes it; raises nothing but ValueError.

        SENT means that the kernel took it, not that chronyd can use it: see `Verify`.
        """
        sample = encode_sample(realtime_ns, offset_ns, leap, self.layout)
        try:
            if self._socket is None:
                self._socket = socket.socket(
                    socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
                )
            self._socket.sendto(sample, socket.MSG_DONTWAIT, self.path)
            outcome = Outcome.SENT
        except (OSError, ValueError) as error:
            number = error.errno if isinstance(error, OSError) else None
            outcome = _OUTCOMES.get(number or 0, Outcome.FAILED)
            self._reason = os.strerror(number) if number else str(error)
        self.counts[outcome] += 1
        return outcome

    def birth(self) -> tuple[int, int] | None:
        """Return an identity of the socket that changes when chronyd restarts; None: no socket."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def explain(self, outcome: Outcome) -> str:
        """Say in a sentence what an outcome means and what to do."""
        return _EXPLANATIONS[outcome].format(path=self.path, reason=self._reason)

    def close(self) -> None:
        """Release the socket; a later sample opens it again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


@dataclass(frozen=True, slots=True)
class FeedState:
    """Whether samples arrive at chronyd.

    Attributes:
        state: idle: none was sent; waiting: it is too early to say.
    """

    state: Literal["idle", "waiting", "arriving", "lost"]
    sentence: str


class Verify:
    """Compares the samples sent to a reference clock with those that chronyd has received.

    All instants are CLOCK_MONOTONIC nanoseconds of the caller, so no clock is read here.
    """

    def __init__(self, sock: ChronySock, refid: str) -> None:
        """Watch one reference clock, which chronyd shows under `refid`."""
        self._sock = sock
        self._refid = refid
        self._pending_ns: list[int] = []  # when samples were sent that are not confirmed yet
        self._spacing_ns = 0
        self._outcome: Outcome | None = None
        self._was_received = False

    def note(self, outcome: Outcome, monotonic_ns: int) -> None:
        """Remember what `ChronySock.send` returned, and when."""
        self._outcome = outcome
        pending = self._pending_ns
        if outcome is not Outcome.SENT:
            return
        if pending and monotonic_ns - pending[-1] < self._spacing_ns:
            return
        pending.append(monotonic_ns)
        if len(pending) > _MAXIMUM_PENDING:
            # Only the first matters for the waiting time: thin out the others.
            self._spacing_ns = 2 * (pending[-1] - pending[0]) // len(pending)
            del pending[1::2]

    def check(self, sources: Iterable[chronyd_csv.Source], monotonic_ns: int) -> FeedState:
        """Say whether chronyd takes the samples; `sources` was asked at `monotonic_ns`."""
        if self._outcome is None:
            return FeedState("idle", f"no sample was sent to {self._refid} yet")
        if self._outcome is not Outcome.SENT:
            return FeedState("lost", self._sock.explain(self._outcome))
        source = next((each for each in sources if each.name == self._refid), None)
        if source is None:
            return FeedState(
                "lost",
                f"chronyd has no reference clock {self._refid}, although the socket "
                f"{self._sock.path} is there: check the refid of its refclock line, restart chrony",
            )
        return self._compare(source, monotonic_ns)

    def _compare(self, source: chronyd_csv.Source, monotonic_ns: int) -> FeedState:
        poll_ns = int(2.0**source.poll * 1e9)
        if source.last_rx_s is None:
            if self._was_received:  # a new chronyd: samples that the old one received do not count
                self._pending_ns.clear()
            self._was_received = False
        else:
            self._was_received = True
            # LastRx is the time of the sample itself, which may be two polls old when it is sent,
            # and whole seconds.
            until_ns = monotonic_ns - source.last_rx_s * 10**9 + 2 * poll_ns + 10**9
            self._pending_ns = [sent_ns for sent_ns in self._pending_ns if sent_ns > until_ns]
        if not self._pending_ns:
            self._spacing_ns = 0
        waited_ns = monotonic_ns - self._pending_ns[0] if self._pending_ns else 0
        if waited_ns > 2 * poll_ns + 2 * 10**9:
            return FeedState("lost", self._complaint(source, waited_ns))
        if source.last_rx_s is None:
            return FeedState("waiting", f"chronyd has not reported a sample of {self._refid} yet")
        return FeedState(
            "arriving",
            f"chronyd takes the samples of {self._refid}: reach {source.reach:o} (octal), "
            f"last {source.last_rx_s} s ago; {source.state_meaning}",
        )

    def _complaint(self, source: chronyd_csv.Source, waited_ns: int) -> str:
        last = "never" if source.last_rx_s is None else f"{source.last_rx_s} s ago"
        return (
            f"chronyd takes no sample of {self._refid}: the socket {self._sock.path} has accepted "
            f"them for {waited_ns / 1e9:.0f} s, but reach is {source.reach:o} (octal) and the last "
            f"one was received {last}. chronyd silently drops a sample of another size than its "
            f"own ({self._sock.layout.size} octets are sent); one stamped in its future, or more "
            f"than {2.0 ** (source.poll + 1):g} s ago; fewer than 4 per poll before chrony 4.7 "
            "without 'filter 1'. Or another chronyd has taken over the socket's path. "
            "See: chronyc sources, and the refclock line in chrony's configuration"
        )
