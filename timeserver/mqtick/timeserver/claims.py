"""Decides which of two servers with the same number holds it, by messages that only servers sign.

Every client can sign time messages, and recorded ones can be sent again, so they do not prove that
a server is present. A server that hears time messages under its own number asks with a nonce. Each
server with that number answers with the nonce, signed with a key that no client has. The server
that has served longest goes on. Any other *stands by*: it publishes and answers nothing, keeps
asking, and serves again when no older server answers.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable

from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Timer
from mqtick.protocol.auth import Keys
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.precise import NONCE_OCTETS, Claim
from mqtick.protocol.time_types import NS_PER_S
from mqtick.timeserver.context import Context
from mqtick.timeserver.rate import Bucket

_log = logging.getLogger(__name__)
# Enough for a handful of servers that are configured with the same number.
_ANSWERS_PER_S = 8.0
_REMEMBERED_QUESTIONS = 64
_OLDER, _YOUNGER, _UNPROVEN = "older", "younger", "unproven"
_WHO_WITH_KEYS = (
    "Somebody has the broadcast key of a client or sends recorded messages, or the broker holds "
    "claims back: see who may write the time topic, and change the fleet key."
)
_WHO_WITHOUT = "Anybody who may write the time topic can do that: check the access list, use keys."
# A server that has just connected is silent for this long, to wait for an answer.
_ANSWER_NS = 200_000_000
# How long a status goes on to report a conflict that is over, so that people see it.
_MENTIONED_NS = 600 * NS_PER_S


class Claims:
    """Asks and answers for `number` on `topic`.

    `standing_by`: another server holds the number. `silent`: the same, or it is not known yet.
    `since()` is when this run could first serve, ns of its clock; None while it is not
    synchronised.
    """

    def __init__(
        self, context: Context, keys: Keys, timeout_ns: int, *, since: Callable[[], int | None]
    ) -> None:
        self.number, self.keys = context.number, keys
        self.topic = context.tree.claim(context.number)
        self.lot = secrets.randbits(32)
        self.strangers = 0
        """Time messages heard under our number that were not ours."""
        self._context, self._timeout_ns, self._since = context, timeout_ns, since
        self._asked: dict[bytes, int] = {}
        self._answered: deque[bytes] = deque(maxlen=_REMEMBERED_QUESTIONS)
        self._answers = Bucket(_ANSWERS_PER_S, _ANSWERS_PER_S, time.monotonic_ns())
        self._round: Timer | None = None
        self._ask_again = False
        self._older: Claim | None = None
        # When we asked the question that they last answered: they were present after that.
        self._older_ns = self._younger_ns = self._unproven_ns = -_MENTIONED_NS
        self._heard_ns = self._said_ns = -_MENTIONED_NS
        self._silent_until_ns = 0
        self._said = ""

    def connecting(self) -> None:
        """Be silent at first, for a limited time, because the subscription may not be granted."""
        self._silent_until_ns = time.monotonic_ns() + self._timeout_ns // 4

    def connected(self) -> None:
        """Ask at once: answers can be received from now on."""
        answer_ns = time.monotonic_ns() + _ANSWER_NS
        self._silent_until_ns = min(self._silent_until_ns, answer_ns)
        if self._round is not None:
            self._round.cancel()
            self._round = None
        self._ask()

    def stranger(self) -> None:
        """Note a time message under our number that is not ours; it proves nothing, so ask."""
        self.strangers += 1
        self._context.counters.refuse("number-in-use")
        self._heard_ns = time.monotonic_ns()
        self._ask()

    # -- asking and answering --------------------------------------------------------------

    def _ask(self) -> None:
        """Ask which servers have our number; if a question is pending, ask again after it."""
        self._ask_again = self._round is not None
        if self._ask_again:
            return
        now_ns = time.monotonic_ns()
        self._asked = {
            nonce: at_ns for nonce, at_ns in self._asked.items() if self._is_recent(at_ns)
        }
        nonce = secrets.token_bytes(NONCE_OCTETS)
        self._asked[nonce] = now_ns
        self._say(nonce)
        suspects = self._is_recent(self._heard_ns)
        self._round = self._context.loop.call_later(
            self._timeout_ns // 4, lambda: self._close(suspects=suspects)
        )

    def _say(self, nonce: bytes) -> None:
        claim = Claim(self.number, self.lot, self._since(), nonce)
        self._context.connection.publish_unstamped(
            self.topic, self.keys.sign(claim.body(), self.topic)
        )

    def on_claim(self, arrival: Arrival) -> None:
        """Take a question or an answer, which may be our own."""
        try:
            if arrival.retain:
                raise DecodeError("retained", "A retained claim is old by nature.")
            claim = Claim.decode(arrival.payload)
            if claim.server != self.number:
                raise DecodeError("server", "The claim names another number than its topic.")
            self.keys.verify(arrival.payload, arrival.topic)
            if claim.lot == self.lot:
                return
            asked_ns = self._asked.get(claim.nonce)
            if asked_ns is not None and self._is_recent(asked_ns):
                self._take_answer(claim, asked_ns)
            elif claim.nonce not in self._answered:
                if not self._answers.take(time.monotonic_ns()):
                    raise DecodeError("rate", "Asked too often; not answered.")
                self._answered.append(claim.nonce)
                self._say(claim.nonce)
                self._ask()
        except DecodeError as error:
            self._context.counters.refuse(error.reason)

    def _take_answer(self, claim: Claim, asked_ns: int) -> None:
        """Note a server with our number: it holds the fleet key, and was present after we asked."""
        if claim.rank < Claim(self.number, self.lot, self._since(), claim.nonce).rank:
            self._older, self._older_ns = claim, asked_ns
            return
        self._younger_ns = asked_ns
        if self._older is not None and self._older.lot == claim.lot:  # no longer synchronised
            self._older = None

    def _close(self, *, suspects: bool) -> None:
        """Evaluate a question, a quarter of the timeout after it; ask again if needed."""
        self._round = None
        if suspects and not self._is_recent(max(self._older_ns, self._younger_ns)):
            self._unproven_ns = self._heard_ns
        self._log_change()
        if self.standing_by or self._ask_again:
            self._ask()

    def _log_change(self) -> None:
        said, self._said = self._said, self._finding
        said_ns, self._said_ns = self._said_ns, time.monotonic_ns()
        if said == _OLDER != self._said:
            _log.warning("no older server answers for the number %d: serving again", self.number)
        if self._said and (self._said != said or self._said_ns - said_ns > _MENTIONED_NS):
            _log.warning("%s", self.says)

    # -- result ----------------------------------------------------------------------------

    def _is_recent(self, at_ns: int) -> bool:
        return time.monotonic_ns() - at_ns <= self._timeout_ns

    @property
    def standing_by(self) -> bool:
        """Whether a server that has served longer holds our number."""
        return self._older is not None and self._is_recent(self._older_ns)

    @property
    def silent(self) -> bool:
        """Whether we must not use our number: another server has it, or that is not known yet."""
        return self.standing_by or time.monotonic_ns() < self._silent_until_ns

    @property
    def _finding(self) -> str:
        if self.standing_by:
            return _OLDER
        latest_ns = max(self._younger_ns, self._unproven_ns)
        if time.monotonic_ns() - latest_ns >= _MENTIONED_NS:
            return ""
        return _YOUNGER if latest_ns == self._younger_ns else _UNPROVEN

    @property
    def says(self) -> str:
        """A sentence on other servers with our number; empty if none was found lately."""
        finding, number = self._finding, self.number
        if finding == _OLDER:
            return (
                f"another time server with the number {number} has served longer: this one stands "
                f"by, publishes and answers nothing, and takes over when that one is silent for "
                f"{self._timeout_ns / NS_PER_S:g} s; give it a number of its own with --number."
            )
        if finding == _YOUNGER:
            return (
                f"another time server with the number {number} stands by for this one; give it a "
                "number of its own with --number."
            )
        if finding == _UNPROVEN:
            ago_s = (time.monotonic_ns() - self._heard_ns) / NS_PER_S
            return (
                f"{self.strangers} time messages under the number {number} were not ours, the last "
                f"{ago_s:.0f} s ago, and no server answers for them; this one goes on. "
                f"{_WHO_WITH_KEYS if self.keys.keys else _WHO_WITHOUT}"
            )
        return ""
