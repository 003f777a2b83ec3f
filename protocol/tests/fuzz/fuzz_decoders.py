"""Throws bytes at every decoder of the messages; `make fuzz` runs it with atheris.

A decoder may return or raise DecodeError. What it returned must encode, and read the same again.
"""

import sys
from collections.abc import Callable
from typing import Any, get_args


def targets() -> list[Callable[[bytes], Any]]:
    """Return everything that takes bytes; the imports are late so that atheris can watch them."""
    from mqtick.protocol import draft2021, precise, text1451, time_types  # noqa: PLC0415
    from mqtick.protocol.auth import Keys  # noqa: PLC0415
    from mqtick.protocol.topics import TopicTree  # noqa: PLC0415

    tree, keys = TopicTree(), Keys((bytes(16),))

    def again(
        decode: Callable[[bytes], Any], encode: Callable[[Any], bytes]
    ) -> Callable[[bytes], None]:
        def run(data: bytes) -> None:
            value = decode(data)
            assert decode(encode(value)) == value

        return run

    def texts(read: Callable[[str], object]) -> Callable[[bytes], object]:
        return lambda data: read(data.decode("utf-8", "surrogateescape"))

    def properties(read: Callable[[list[tuple[str, str]]], object]) -> Callable[[bytes], object]:
        def run(data: bytes) -> object:
            lines = data.decode("latin-1").split("\n")
            return read([(line[:9].strip(), line[9:]) for line in lines])

        return run

    return [
        again(precise.decode, lambda message: message.body() + bytes(8)),
        *(kind.decode for kind in get_args(precise.Message)),
        again(time_types.decode_instance, time_types.encode_instance),
        again(time_types.decode_time_2007, time_types.encode_time_2007),
        time_types.decode_duration,
        again(text1451.decode_time, text1451.encode_time),
        again(text1451.decode_request, text1451.encode_request),
        text1451.decode_reply,
        texts(text1451.parse_seconds),
        texts(text1451.parse_reply_topic),
        again(draft2021.decode_fup, draft2021.encode_fup),
        properties(draft2021.decode_syn),
        properties(draft2021.decode_srq),
        properties(draft2021.decode_srs),
        texts(draft2021.parse_local),
        texts(tree.parse_time),
        texts(tree.parse_status),
        texts(tree.parse_request),
        texts(tree.parse_reply),
        texts(tree.parse_follow_up),
        lambda data: keys.verify(data[8:], data[:8].decode("latin-1"), data[:8]),
    ]


def throw(data: bytes, decoders: list[Callable[[bytes], Any]]) -> None:
    """Give `data` to every decoder."""
    from mqtick.protocol.errors import DecodeError  # noqa: PLC0415

    for decoder in decoders:
        try:
            decoder(data)
        except DecodeError as refusal:
            check(refusal.reason, str(refusal))


def check(reason: str, sentence: str) -> None:
    """A reason may label a counter, a sentence may stand in a log."""
    assert reason.isascii()
    assert reason.replace("-", "").isalnum()
    assert sentence.isprintable()
    assert len(sentence) < 400


def main() -> None:
    """Run until atheris has enough."""
    import atheris  # noqa: PLC0415

    with atheris.instrument_imports(include=["mqtick.protocol"]):
        decoders = targets()
    atheris.Setup(sys.argv, lambda data: throw(data, decoders))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
