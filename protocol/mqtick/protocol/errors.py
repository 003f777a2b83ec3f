"""The one exception of all code that decodes messages from the network."""

_SHOWN = 48


class DecodeError(ValueError):
    """A received message is refused; the receiver counts the reason and ignores the message.

    `reason` is a short slug without any text of the sender, so it may label a counter
    (docs/protocol.md lists all). `str()` is a sentence: what, which value, which limit.
    """

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(reason, sentence)
        self.reason = reason
        self.sentence = sentence

    def __str__(self) -> str:
        return self.sentence


def shown(value: object) -> str:
    """Return `value` for quotation in a sentence: escaped, and cut so that logs stay readable."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
