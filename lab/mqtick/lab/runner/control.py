"""Sends commands to the running programs of an experiment, over MQTT; waits for their answers."""

from __future__ import annotations

import json
import queue
import secrets
import threading
from types import TracebackType
from typing import Any

from mqtick.mqtt.broker import Broker, refuse_dialect
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Loop
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.experiments import Parts
from mqtick.protocol.topics import TopicTree


class NodeError(Exception):
    """A node did not execute a command; the sentence says why and what to do next."""


class NodeSilentError(NodeError):
    """No answer, or no connection; unlike a node that refuses, a silent one may come back."""


class Control:
    """A connection to the broker for commands to nodes; may be used from any thread.

    Nodes are `client:NAME`, `server:N` and `crowd:NAME` (docs/protocol.md, section 10). The user
    name of `broker` needs the access list's lines for the lab. BrokerError if the broker cannot
    carry such messages.
    """

    def __init__(self, broker: Broker, prefix: str = "mqtick") -> None:
        refuse_dialect(broker, "an experiment")
        self.connections = 0
        """How often we connected: a change means that subscriptions were made again."""
        self._tree = TopicTree(prefix)
        self._loop = Loop()
        self._waiting: dict[str, tuple[str, Parts, queue.SimpleQueue[dict[str, Any]]]] = {}
        self._subscribed = threading.Event()
        self._granted = False
        self._thread: threading.Thread | None = None
        self._connection = Connection(
            self._loop,
            broker,
            "mqtick-lab",
            on_publish=self._on_publish,
            on_up=self._on_up,
            on_down=lambda _reason: self._subscribed.clear(),
            quiet=True,
        )

    def start(self, timeout_s: float = 5.0) -> None:
        """Connect and subscribe to the answers; NodeError if that takes too long."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="control", daemon=True)
            self._thread.start()
        if not self._subscribed.wait(timeout_s):
            why = self._connection.last_error or (
                f"{self._connection.address} did not answer within {timeout_s:g} s"
            )
            raise NodeSilentError(f"The nodes cannot be asked: {why}.")
        if not self._granted:
            raise NodeError(
                f"The nodes cannot be asked: {self._connection.address} refused the subscription "
                f"to {self._tree.all_answers()}; give this user the lab's lines of the access list "
                "(docs/protocol.md, section 10)."
            )

    def ask(
        self, node: str, do: str, timeout_s: float = 3.0, before_s: float = 0.0, **arguments: Any
    ) -> dict[str, Any]:
        """Send a command to a node and return its answer, without `id` and `ok`.

        NodeError if it refuses, or does not answer within `timeout_s`; `before_s`: how long it was
        asked already, for the error's text.
        """
        try:
            topic = self._tree.command(node)
        except ValueError as error:
            raise NodeError(str(error)) from None
        if not self._subscribed.is_set():
            raise NodeSilentError(
                f"{node} cannot be asked to {do}: {self._connection.last_error or 'not connected'}."
            )
        identity = secrets.token_hex(4)
        payload = json.dumps({"id": identity, "do": do, **arguments}).encode()
        answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._waiting[identity] = node, Parts(), answers
        self._loop.call_soon_threadsafe(lambda: self._send(topic, payload))
        try:
            answer = answers.get(timeout=timeout_s)
        except queue.Empty:
            raise NodeSilentError(self._silence(node, do, before_s + timeout_s)) from None
        finally:
            self._waiting.pop(identity, None)
        if answer.pop("ok", None) is not True:
            raise NodeError(f"{node} did not {do}: {answer.get('error', 'it gave no reason')}")
        answer.pop("id", None)
        return answer

    def _silence(self, node: str, do: str, timeout_s: float) -> str:
        """Describe the possible causes if a node does not answer."""
        if not self._connection.connected:
            return f"{node} was not asked to {do}: {self._connection.last_error}."
        setting = "" if node.startswith("crowd:") else ", does its configuration say experiments = "
        setting += "true" if setting else ""
        return (
            f"{node} did not answer to {do} within {timeout_s:.3g} s: is it running and connected "
            f"to {self._connection.address}{setting}, is the prefix {self._tree.prefix} on both "
            f"sides and does the broker's access list allow {self._tree.command(node)} and "
            f"{self._tree.answer(node)}?"
        )

    def close(self) -> None:
        """Disconnect and end the thread; pending commands get no answer."""
        if self._thread is None:
            self._loop.close()
            return
        self._loop.call_soon_threadsafe(self._end)
        self._thread.join(5.0)
        self._thread = None

    def __enter__(self) -> Control:
        self.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- in the loop's thread ----------------------------------------------------------------

    def _run(self) -> None:
        self._connection.start()
        self._loop.run()
        self._loop.close()

    def _send(self, topic: str, payload: bytes) -> None:
        self._connection.publish_unstamped(topic, payload)

    def _end(self) -> None:
        self._connection.close()
        self._loop.stop()

    def _on_up(self) -> None:
        self.connections += 1
        self._connection.subscribe([self._tree.all_answers()], self._on_subscribed)

    def _on_subscribed(self, granted: bool) -> None:
        self._granted = granted
        self._subscribed.set()

    def _on_publish(self, arrival: Arrival) -> None:
        try:
            node = self._tree.parse_answer(arrival.topic)
            message = json.loads(arrival.payload)
        except (DecodeError, ValueError, RecursionError):
            return
        if not isinstance(message, dict):
            return
        waiting = self._waiting.get(str(message.get("id")))
        if waiting is None or waiting[0] != node:
            return
        answer = waiting[1].add(message)
        if answer is not None and _is_shallow(answer):
            waiting[2].put(answer)


def _is_shallow(value: object, levels: int = 12) -> bool:
    """Whether a node's answer can be encoded again: Python's recursion is limited."""
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_is_shallow(each, levels - 1) for each in inner)
