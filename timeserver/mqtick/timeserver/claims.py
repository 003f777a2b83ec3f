"""Which of two servers with the same number holds it: decided by what only servers can sign.

Every client can sign time messages, and recorded ones can be sent again, so neither proves who is
there. A server that hears somebody under its number asks, with a nonce; whoever has the number
answers with the nonce, and with the key that no client has. The one that has served longer goes on.
The other one *stands by*: it says nothing, keeps asking, and goes on when nobody older answers.
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

__all__ = ["Claims"]

_log = logging.getLogger(__name__)
# Ours, and those of a handful of servers that were all given the same number.
_ANSWERS_PER_S = 8.0
_REMEMBERED_QUESTIONS = 64
_OLDER, _YOUNGER, _UNPROVEN = "older", "younger", "unproven"
_WHO_WITH_KEYS = (
    "Somebody has the broadcast key of a client or sends recorded messages, or the broker holds "
    "claims back: see who may write the time topic, and change the fleet key."
)
_WHO_WITHOUT = "Anybody who may write the time topic can do that: check the access list, use keys."
# How long an answer may take to reach a server that just connected, which is silent until then.
_ANSWER_NS = 200_000_000
# How long a status reports what is over: somebody has to see it.
_MENTIONED_NS = 600 * NS_PER_S


class Claims:
    """Asks and answers for `number` on `topic`.

    `standing_by` says whether another one holds it, `silent` also whether that is not known yet.
    `since()` is when this run could first serve, ns of its clock, None while it is not
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
        # When the question that they last answered was asked: they were there after that.
        self._older_ns = self._younger_ns = self._unproven_ns = -_MENTIONED_NS
        self._heard_ns = self._said_ns = -_MENTIONED_NS
        self._silent_until_ns = 0
        self._said = ""

    def connecting(self) -> None:
        """Be silent at first, but not for ever if the subscription is never granted."""
        self._silent_until_ns = time.monotonic_ns() + self._timeout_ns // 4

    def connected(self) -> None:
        """Ask at once: answers can be heard from now on."""
        answer_ns = time.monotonic_ns() + _ANSWER_NS
        self._silent_until_ns = min(self._silent_until_ns, answer_ns)
        if self._round is not None:
            self._round.cancel()
            self._round = None
        self._ask()

    def stranger(self) -> None:
        """Take note of a time message under our number that is not ours; it proves nothing."""
        self.strangers += 1
        self._context.counters.refuse("number-in-use")
        self._heard_ns = time.monotonic_ns()
        self._ask()

    # -- asking and answering --------------------------------------------------------------

    def _ask(self) -> None:
        """Ask who has our number; if that was asked just now, a little later."""
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
        """Take a question or an answer, our own among them."""
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
        """Somebody who holds the fleet key has our number, and was there after we asked."""
        if claim.rank < Claim(self.number, self.lot, self._since(), claim.nonce).rank:
            self._older, self._older_ns = claim, asked_ns
            return
        self._younger_ns = asked_ns
        if self._older is not None and self._older.lot == claim.lot:  # it lost its reference
            self._older = None

    def _close(self, *, suspects: bool) -> None:
        """A quarter of the timeout after a question, say what came of it; ask again if need be."""
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

    # -- what came of it -------------------------------------------------------------------

    def _is_recent(self, at_ns: int) -> bool:
        return time.monotonic_ns() - at_ns <= self._timeout_ns

    @property
    def standing_by(self) -> bool:
        """Whether a server that has served longer holds our number."""
        return self._older is not None and self._is_recent(self._older_ns)

    @property
    def silent(self) -> bool:
        """Whether nothing may be said under our number: another has it, or we have yet to ask."""
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
        """A sentence on who else has our number; empty if nobody was found lately."""
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
