"""Set keys in a commented example: the example on standard input, the result on standard output.

Usage: mqtick-client run --example-config | write_config.py KEY=VALUE... [TABLE.KEY=VALUE...]
A value is text, except true, false and whole numbers. The example says what each key means, so the
comments stay. Exit code 1 with a sentence if the example does not know a key.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator

PLAIN = re.compile(r"true|false|\d+")


def toml(value: str) -> str:
    """Write a value as TOML; a JSON string is a TOML basic string too."""
    return value if PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)


def with_values(example: Iterable[str], values: dict[str, str]) -> Iterator[str]:
    """Yield the example's lines with the keys set; takes what it has used out of `values`."""
    table = ""
    for line in example:
        if found := re.match(r"\[(.+)\]", line):
            table = found[1] + "."
        found = re.match(r"#(\w+) = ", line)
        value = values.pop(table + found[1], None) if found else None
        yield line if found is None or value is None else f"{found[1]} = {toml(value)}\n"


def main(arguments: list[str]) -> int:
    """Run the command line; returns the exit code."""
    values = dict(argument.split("=", 1) for argument in arguments)
    lines = list(with_values(sys.stdin, values))
    if values:
        print(f"the example has no key {', '.join(values)}", file=sys.stderr)
        return 1
    sys.stdout.writelines(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
