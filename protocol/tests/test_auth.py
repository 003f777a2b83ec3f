"""Key files, derived keys and tags."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.protocol import auth
from mqtick.protocol.auth import KeyFileError, Keyring, Keys
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.precise import tag_of, without_trailer

VECTORS = json.loads((Path(__file__).parent / "vectors" / "precise.json").read_text())
FLEET = bytes.fromhex(VECTORS["keys"]["fleet"])
OTHER = bytes(range(32, 64))
keys = st.binary(min_size=16, max_size=64)
bodies = st.binary(min_size=12, max_size=24)
topics = st.sampled_from(["mqtick/t/0", "mqtick/r/0/kitchen-1"])
contexts = st.just(b"") | st.binary(min_size=8, max_size=8)


def hmac_sha256(key: bytes, text: bytes) -> bytes:
    """HMAC as RFC 2104 writes it, for keys of at most 64 octets."""
    inner = bytes(octet ^ 0x36 for octet in key.ljust(64, b"\0"))
    outer = bytes(octet ^ 0x5C for octet in key.ljust(64, b"\0"))
    return hashlib.sha256(outer + hashlib.sha256(inner + text).digest()).digest()


def test_the_hmac_of_these_tests_is_that_of_rfc_4231() -> None:
    assert hmac_sha256(b"Jefe", b"what do ya want for nothing?").hex() == (
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    )


def test_keys_are_derived_as_the_document_says() -> None:
    broadcast, client = VECTORS["keys"]["broadcast"], VECTORS["keys"]["client"]
    assert auth.derive_broadcast_key(FLEET).hex() == broadcast
    assert auth.derive_client_key(FLEET, "kitchen-1").hex() == client
    assert auth.derive_server_key(FLEET).hex() == VECTORS["keys"]["server"]
    assert hmac_sha256(FLEET, b"mqtick server").hex() == VECTORS["keys"]["server"]
    assert hmac_sha256(FLEET, b"mqtick broadcast").hex() == broadcast
    assert hmac_sha256(FLEET, b"mqtick client kitchen-1").hex() == client


TAGGED = [vector for vector in VECTORS["messages"] if vector["kind"] != "Loop"]


@pytest.mark.parametrize("vector", TAGGED, ids=lambda vector: vector["name"])
def test_a_tag_covers_topic_context_and_body(vector: dict[str, Any]) -> None:
    payload, context = bytes.fromhex(vector["hex"]), bytes.fromhex(vector["context"])
    ring = Keyring((FLEET,)) if vector["key"] else Keyring()
    held = {"Time": ring.broadcast, "Claim": ring.server}.get(
        vector["kind"], lambda: ring.client("kitchen-1")
    )()
    trailer = bytes(16 if payload[0] >> 4 == 2 else 0)
    end = len(payload) - len(trailer)
    body, tag = payload[: end - 8], payload[end - 8 : end]
    assert held.sign(body, vector["topic"], context) == payload == body + tag + trailer
    held.verify(payload, vector["topic"], context)
    held.verify(payload[:end] + bytes(range(len(trailer))), vector["topic"], context)
    assert tag_of(payload) == tag
    if vector["key"]:
        text = vector["topic"].encode() + b"\0" + context + body
        assert text == bytes.fromhex(vector["authenticated"])
        assert hmac_sha256(held.keys[0], text)[:8] == tag


@given(keys, bodies, topics, contexts, st.data())
def test_any_flipped_bit_of_payload_topic_or_context_is_refused(
    key: bytes, body: bytes, topic: str, context: bytes, data: st.DataObject
) -> None:
    held = Keys((key,))
    payload = held.sign(body, topic, context)
    held.verify(payload, topic, context)
    said = without_trailer(payload)
    parts = [said, topic.encode(), context]
    which = data.draw(st.sampled_from([i for i, part in enumerate(parts) if part]))
    bit = data.draw(st.integers(0, 8 * len(parts[which]) - 1))
    changed = bytearray(parts[which])
    changed[bit // 8] ^= 1 << bit % 8
    parts[which] = bytes(changed)
    # A flipped bit may make the topic something that is not UTF-8; no broker carries that.
    flipped = parts[1].decode("utf-8", "replace")
    with pytest.raises(DecodeError) as refusal:
        held.verify(parts[0] + payload[len(said) :], flipped, parts[2])
    # Taken for the other version, it may be too short for a tag.
    assert refusal.value.reason == "tag" or (changed[0] ^ said[0]) & 0xF0


@given(keys, keys, bodies)
def test_another_key_does_not_verify(key: bytes, other: bytes, body: bytes) -> None:
    # HMAC pads keys with zeros, so keys that differ in zeros at the end are the same key.
    if key.ljust(64, b"\0") == other.ljust(64, b"\0"):
        return
    with pytest.raises(DecodeError) as refusal:
        Keys((other,)).verify(Keys((key,)).sign(body, "t"), "t")
    assert refusal.value.reason == "tag"


def test_a_topic_that_is_not_utf_8_fails_as_a_tag_does() -> None:
    with pytest.raises(DecodeError):
        Keys((FLEET,)).verify(bytes(20), "\ud800")


def test_an_unsigned_message_is_refused_by_name_where_there_are_keys() -> None:
    with pytest.raises(DecodeError, match="unsigned") as refusal:
        Keys((FLEET,)).verify(Keys().sign(bytes(24), "mqtick/t/0"), "mqtick/t/0")
    assert refusal.value.reason == "unsigned"


def test_without_keys_tags_are_zero_and_every_tag_passes() -> None:
    assert Keys().sign(b"body", "t") == b"body" + bytes(8)
    Keys().verify(Keys((FLEET,)).sign(b"body", "t"), "t")


@given(st.binary(max_size=7))
def test_a_payload_without_room_for_a_tag_is_refused(payload: bytes) -> None:
    for held in (Keys(), Keys((FLEET,))):
        with pytest.raises(DecodeError) as refusal:
            held.verify(payload, "t")
        assert refusal.value.reason == "length"


def test_in_a_rotation_the_first_key_signs_and_both_verify() -> None:
    ring = Keyring.from_text(f"fleet {OTHER.hex()}\nfleet {FLEET.hex()} # until Friday\n")
    for new, old, both in (
        (Keyring((OTHER,)).broadcast(), Keyring((FLEET,)).broadcast(), ring.broadcast()),
        (Keyring((OTHER,)).client("a"), Keyring((FLEET,)).client("a"), ring.client("a")),
    ):
        both.verify(old.sign(b"body", "t"), "t")
        both.verify(new.sign(b"body", "t"), "t")
        new.verify(both.sign(b"body", "t"), "t")
        with pytest.raises(DecodeError):
            old.verify(both.sign(b"body", "t"), "t")


def test_a_client_needs_only_its_derived_keys() -> None:
    text = f"""
    # kitchen-1
    broadcast {VECTORS["keys"]["broadcast"]}
    client {VECTORS["keys"]["client"].upper()}
    """
    client, server = Keyring.from_text(text), Keyring((FLEET,))
    assert client.broadcast().keys == server.broadcast().keys
    assert client.client("kitchen-1").keys == server.client("kitchen-1").keys
    assert server.client("kitchen-2").keys != server.client("kitchen-1").keys


def test_a_listener_with_the_broadcast_key_alone_cannot_exchange() -> None:
    ring = Keyring.from_text(f"broadcast {FLEET.hex()}")
    assert ring.broadcast().keys == (FLEET,)
    with pytest.raises(KeyFileError, match="no `client` line"):
        ring.client("kitchen-1")


@pytest.mark.parametrize("line", ["broadcast", "client"])
def test_the_keys_of_a_client_cannot_claim_a_number(line: str) -> None:
    with pytest.raises(KeyFileError, match="no `fleet` line"):
        Keyring.from_text(f"{line} {FLEET.hex()}").server()
    assert Keyring().server().keys == ()


GOOD = FLEET.hex()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "holds no key"),
        ("# nothing yet\n", "holds no key"),
        (f"\nflet {GOOD}", "Line 2 is not `fleet HEX`"),
        ("fleet", "Line 1 is not `fleet HEX`"),
        (f"fleet {GOOD} {GOOD}", "Line 1 is not `fleet HEX`"),
        ("fleet xyz", "not pairs of hexadecimal digits"),
        ("fleet 123", "not pairs of hexadecimal digits"),
        ("fleet " + "0" * 30, "15 octets; 16 to 64"),
        ("fleet " + "0" * 130, "65 octets; 16 to 64"),
        (f"fleet {GOOD}\n" * 3, "Line 3 is a third `fleet` line"),
        (f"fleet {GOOD}\nbroadcast {GOOD}", "both fleet keys and derived ones"),
    ],
)
def test_a_key_file_that_is_in_doubt_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(KeyFileError, match=sentence) as refusal:
        Keyring.from_text(text)
    assert GOOD not in str(refusal.value)


def test_keys_are_never_printed() -> None:
    ring = Keyring.from_text(f"fleet {GOOD}")
    assert repr(ring) == "Keyring(fleet=1, broadcast=0, client=0)"
    assert repr(ring.broadcast()) == "Keys(1)"


def test_a_key_file_open_to_others_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"fleet {GOOD}\n")
    for mode in (0o600, 0o640, 0o440):
        path.chmod(mode)
        assert auth.load_key_file(path).fleet == (FLEET,)
    for mode in (0o644, 0o602, 0o604):
        path.chmod(mode)
        with pytest.raises(KeyFileError, match=rf"mode {mode:04o}.*chmod o= "):
            auth.load_key_file(path)


def test_a_key_file_that_is_no_such_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.touch(0o600)
    for octets, sentence in ((b"fleet \xff", "not ASCII"), (b"#" * 65_537, "at most 65536")):
        path.write_bytes(octets)
        with pytest.raises(KeyFileError, match=sentence):
            auth.load_key_file(path)
    path.write_text("fleet 00\n")
    with pytest.raises(KeyFileError, match=r"keys: Line 1"):
        auth.load_key_file(path)
    with pytest.raises(KeyFileError, match="is not a file"):
        auth.load_key_file(os.devnull)
    with pytest.raises(FileNotFoundError):
        auth.load_key_file(tmp_path / "missing")
