"""The topic tree of the precise format, both ways, and the access list that guards it.

Below a prefix P (`mqtick` unless configured), for server number n and a client's name:

* `P/t/n` time, `P/s/n` status: from the server to all;
* `P/s/c/NAME` status of a client: from the client to whoever watches the fleet;
* `P/q/n/NAME` request: from the client, to the server and back to the client itself;
* `P/r/n/NAME` reply: from the server to that client, and to the server's two echo connections;
* `P/f/n/NAME` follow-up and echo: from the server to that client;
* `P/l/n` loop: from the server to itself;
* `P/o/n/orderK`, K 0 to 9: from the server to itself;
* `P/o/n/claim`: from the server to another one that is configured with the same number;
* `P/x/KIND/NAME` command of an experiment's runner to a node, `P/y/KIND/NAME` the node's answer.

No topic has more than 32 octets, so that the published hardware broker carries it. Bad values from
a configuration raise `ValueError`; topics from the network raise `DecodeError` only.
"""

import enum
import re
from dataclasses import dataclass
from typing import Final

from mqtick.protocol.errors import DecodeError, shown

MAX_TOPIC_OCTETS: Final = 32
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,16}")
_PREFIX: Final = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")
_NODE_KINDS: Final = {"client": "c", "server": "s", "crowd": "w"}
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,2}")
_MAX_PREFIX: Final = MAX_TOPIC_OCTETS - len("/r/255/x")


class TopicKind(enum.StrEnum):
    """The kind of messages on a topic; the value is its level in the topic."""

    TIME = "t"
    STATUS = "s"
    REQUEST = "q"
    REPLY = "r"
    FOLLOW_UP = "f"
    LOOP = "l"
    CLIENT_LOOP = "c"
    ORDER = "o"
    COMMAND = "x"
    ANSWER = "y"


_KINDS: Final = {f"/{kind}/": kind for kind in TopicKind}


def says_gone(status: bytes) -> bool:
    """Tell whether a server's retained status is the one that it leaves behind when it ends."""
    return b'"state":"gone"' in status[:64].replace(b" ", b"")


def topic_fault(text: str, max_octets: int) -> str | None:
    """Say what keeps `text` from standing in a topic name (MQTT 5, 1.5.4 and 4.7), if anything."""
    if not text:
        return "is empty"
    try:
        octets = len(text.encode())
    except UnicodeEncodeError:
        return "is not UTF-8"
    if octets > max_octets:
        return f"has {octets} octets, more than {max_octets}"
    for character in text:
        if character in "+#":
            return f"contains the wildcard {character}"
        if character < " " or "\x7f" <= character <= "\x9f":
            return f"contains the control character U+{ord(character):04X}"
    return None


def check_client_name(name: str) -> str:
    """Return `name` if a client may have it: 1 to 16 letters, digits, `_`, `.` or `-`."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{shown(name)} is not a client name: it takes 1 to 16 of A-Z, a-z, 0-9, '_', '.', "
            "'-', because it is part of topics of at most 32 octets. Choose another name."
        )
    return name


@dataclass(frozen=True, slots=True)
class TopicTree:
    """All topics below `prefix`: 1 to 24 octets of letters, digits, `_`, `.`, `-`, in levels.

    With a prefix of at most 9 octets every client name fits; a longer one shortens the names.
    """

    prefix: str = "mqtick"

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix) or len(self.prefix) > _MAX_PREFIX:
            raise ValueError(
                f"{shown(self.prefix)} is not a topic prefix: it takes levels of A-Z, a-z, 0-9, "
                f"'_', '.', '-' with '/' between them, {_MAX_PREFIX} octets at most. Choose "
                "another prefix, the same for all programs."
            )

    def time(self, server: int) -> str:
        """Where server number `server` publishes the time."""
        return self._topic("t", server)

    def status(self, server: int) -> str:
        """Where the server's retained status is (JSON, also its last will)."""
        return self._topic("s", server)

    def client_status(self, client: str) -> str:
        """Where a client's retained status is (JSON, also its last will)."""
        return _short(f"{self.prefix}/s/c/{check_client_name(client)}")

    def request(self, server: int, client: str) -> str:
        """Where `client` publishes requests."""
        return self._topic("q", server, client)

    def reply(self, server: int, client: str) -> str:
        """Where the server answers `client`; client and first echo connection subscribe to it."""
        return self._topic("r", server, client)

    def follow_up(self, server: int, client: str) -> str:
        """Where follow-ups and echo messages go: not the reply topic, so no echo receives them."""
        return self._topic("f", server, client)

    def loop(self, server: int) -> str:
        """Where the server sends itself messages that measure its path through the broker."""
        return self._topic("l", server)

    def client_loop(self, client: str) -> str:
        """Where a client sends itself messages that measure its path through the broker."""
        return f"{self.prefix}/c/{check_client_name(client)}"

    def order(self, server: int, turn: int) -> str:
        """Where the server finds out in which order the broker delivers; a new topic each time."""
        return f"{self._topic('o', server)}/order{turn % 10}"

    def claim(self, server: int) -> str:
        """Where servers that are configured with the same number decide which of them holds it."""
        return f"{self._topic('o', server)}/claim"

    def all_orders(self, server: int) -> str:
        """Return the last echo's filter for the order; the same depth as a reply topic."""
        return f"{self._topic('o', server)}/#"

    def command(self, node: str) -> str:
        """Where a runner of experiments tells `client:NAME`, `server:N` or `crowd:NAME` to act."""
        return self._node_topic("x", node)

    def answer(self, node: str) -> str:
        """Where that node answers."""
        return self._node_topic("y", node)

    def all_answers(self) -> str:
        """Return the filter with which the runner receives every node's answers."""
        return f"{self.prefix}/y/+/+"

    def parse_answer(self, topic: str) -> str:
        """Return the node that answers on a topic."""
        kind, _, name = topic.removeprefix(f"{self.prefix}/y/").partition("/")
        for node_kind, letter in _NODE_KINDS.items():
            node = f"{node_kind}:{name}"
            if kind == letter and _node_fault(node) is None and self.answer(node) == topic:
                return node
        raise DecodeError("topic", f"{shown(topic)} is not {self.prefix}/y/KIND/NAME; ignored.")

    def all_times(self) -> str:
        """Return the filter for the time of every server."""
        return f"{self.prefix}/t/+"

    def all_statuses(self) -> str:
        """Return the filter for the status of every server."""
        return f"{self.prefix}/s/+"

    def all_client_statuses(self) -> str:
        """Return the filter for the status of every client."""
        return f"{self.prefix}/s/c/+"

    def all_requests(self, server: int) -> str:
        """Return the filter with which a server receives every client's requests."""
        return f"{self._topic('q', server)}/+"

    def all_replies(self, server: int) -> str:
        """Return the filter of the last echo; `#`, because brokers deliver to `#` last."""
        return f"{self._topic('r', server)}/#"

    def all_follow_ups(self, client: str) -> str:
        """Return the filter with which a client receives every server's follow-ups to it."""
        return f"{self.prefix}/f/+/{client}"

    def kind_of(self, topic: str) -> TopicKind | None:
        """Return the kind of messages on a topic; None: the topic is not of this tree."""
        end = len(self.prefix)
        return _KINDS.get(topic[end : end + 3]) if topic.startswith(self.prefix) else None

    def parse_time(self, topic: str) -> int:
        """Return the server number of a time topic."""
        return self._parse("t", topic, 1)[0]

    def parse_status(self, topic: str) -> int:
        """Return the server number of a status topic."""
        return self._parse("s", topic, 1)[0]

    def parse_client_status(self, topic: str) -> str:
        """Return the client's name of its status topic."""
        head = f"{self.prefix}/s/c/"
        name = topic.removeprefix(head)
        if topic.startswith(head) and _NAME.fullmatch(name):
            return name
        raise DecodeError("topic", f"{shown(topic)} is not {head}NAME; ignored.")

    def parse_request(self, topic: str) -> tuple[int, str]:
        """Return server number and client name of a request topic."""
        return self._parse("q", topic, 2)

    def parse_reply(self, topic: str) -> tuple[int, str]:
        """Return server number and client name of a reply topic."""
        return self._parse("r", topic, 2)

    def parse_follow_up(self, topic: str) -> tuple[int, str]:
        """Return server number and client name of a follow-up topic."""
        return self._parse("f", topic, 2)

    def _topic(self, kind: str, server: int, client: str | None = None) -> str:
        if not 0 <= server <= 255:
            raise ValueError(f"The server number is {server}; it is 0 to 255. Choose another one.")
        topic = f"{self.prefix}/{kind}/{server}"
        if client is not None:
            topic = f"{topic}/{check_client_name(client)}"
        return _short(topic)

    def _node_topic(self, direction: str, node: str) -> str:
        fault = _node_fault(node)
        if fault is not None:
            raise ValueError(fault)
        kind, _, name = node.partition(":")
        return _short(f"{self.prefix}/{direction}/{_NODE_KINDS[kind]}/{name}")

    def _parse(self, kind: str, topic: str, levels: int) -> tuple[int, str]:
        head = f"{self.prefix}/{kind}/"
        number, *names = topic.removeprefix(head).split("/")
        if (
            topic.startswith(head)
            and len(topic) <= MAX_TOPIC_OCTETS
            and len(names) == levels - 1
            and _NUMBER.fullmatch(number)
            and int(number) <= 255
            and all(_NAME.fullmatch(name) for name in names)
        ):
            return int(number), names[0] if names else ""
        raise DecodeError(
            "topic", f"{shown(topic)} is not {head}NUMBER{'/NAME' * (levels - 1)}; ignored."
        )


def _short(topic: str) -> str:
    """Return a topic that every broker carries."""
    if len(topic) > MAX_TOPIC_OCTETS:
        raise ValueError(
            f"The topic {topic} has {len(topic)} octets, more than {MAX_TOPIC_OCTETS}. "
            f"Shorten the prefix or the name by {len(topic) - MAX_TOPIC_OCTETS}."
        )
    return topic


def _node_fault(node: str) -> str | None:
    """Say what keeps `node` from being the name of a node in experiments, if anything."""
    kind, _, name = node.partition(":")
    if kind == "server" and _NUMBER.fullmatch(name) and int(name) <= 255:
        return None
    if kind in _NODE_KINDS and kind != "server" and _NAME.fullmatch(name):
        return None
    return (
        f"{shown(node)} is not a node: write client:NAME, server:N (0 to 255) or crowd:NAME, where "
        "NAME takes 1 to 16 of A-Z, a-z, 0-9, '_', '.', '-'."
    )


def acl(tree: TopicTree, server_user: str, lab_user: str = "") -> str:
    """Return the access list of `tree` for Mosquitto's `acl_file`.

    `server_user` is the MQTT user name of the time server. A client's user name must be its client
    name; the `pattern` lines give each client its own request and reply topics and no others.
    `lab_user`: the user name that runs experiments; empty: no user may, and no program answers.
    """
    _check_user(server_user)
    if lab_user:
        _check_user(lab_user)
    prefix = tree.prefix
    server_lines = lab_lines = node_lines = ""
    if lab_user:
        server_lines = f"topic read {prefix}/x/s/+\ntopic write {prefix}/y/s/+\n"
        # The last two are for crowds that a runner starts on its own host, with its own account.
        lab_lines = (
            f"\nuser {lab_user}\ntopic write {prefix}/x/+/+\ntopic read {prefix}/y/+/+\n"
            f"topic read {prefix}/x/w/+\ntopic write {prefix}/y/w/+\n"
        )
        node_lines = "".join(
            f"pattern read {prefix}/x/{kind}/%u\npattern write {prefix}/y/{kind}/%u\n"
            for kind in ("c", "w")
        )
    return f"""\
user {server_user}
topic write {prefix}/t/+
topic write {prefix}/s/+
topic read {prefix}/q/+/+
topic readwrite {prefix}/l/+
topic readwrite {prefix}/o/+/+
topic readwrite {prefix}/r/+/+
topic write {prefix}/f/+/+
{server_lines}{lab_lines}
pattern read {prefix}/t/+
pattern read {prefix}/s/+
pattern write {prefix}/s/c/%u
pattern readwrite {prefix}/c/%u
pattern write {prefix}/q/+/%u
pattern read {prefix}/r/+/%u
pattern read {prefix}/f/+/%u
{node_lines}"""


def _check_user(user: str) -> None:
    fault = topic_fault(user, 64)
    if fault or user != user.strip():
        raise ValueError(
            f"The user name {shown(user)} {fault or 'begins or ends with a space'}; "
            "Mosquitto would not match it. Choose another one."
        )
