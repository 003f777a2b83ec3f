"""The common parts of both command lines: configuration flags, log lines, exit codes."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import enum
import importlib.metadata
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from mqtick.service.settings.load import load
from mqtick.service.settings.schema import SettingsError
from mqtick.service.settings.text import (
    add_flags,
    commented_example,
    overrides_from,
    render,
)
from mqtick.service.status_file import Status, StatusError, read_status, status_path

T = TypeVar("T")


class Exit(enum.IntEnum):
    """Exit codes of every mqtick program."""

    GOOD = 0
    FAILED = 1
    WRONG_USE = 2
    NOT_SYNCHRONISED = 3
    LIMIT_NOT_MET = 4


def fail(error: str | Exception, code: Exit = Exit.FAILED) -> Exit:
    """Print an error to standard error, and return the exit code."""
    if isinstance(error, OSError) and error.filename:
        error = f"{error.filename}: {error.strerror}"
    red, plain = ("\033[31m", "\033[0m") if _colours() else ("", "")
    print(f"{red}error:{plain} {error}", file=sys.stderr)
    return code


@contextlib.contextmanager
def needing(extra: str) -> Iterator[None]:
    """End the program with one sentence if a package of this extra cannot be imported within."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("mqtick"):
            raise
        said = f"the Python package {missing.name} is not installed; mqtick[{extra}] brings it"
        raise SystemExit(fail(said)) from missing


def _colours() -> bool:
    return sys.stderr.isatty() and "NO_COLOR" not in os.environ


def carry_out(
    call: Callable[[], int], refusals: Mapping[type[Exception], Exit] | None = None
) -> int:
    """Call a command and return its exit code.

    `refusals` are exceptions whose text is enough for a user, with their exit codes; if two match,
    the first counts.
    """
    try:
        try:
            return call()
        finally:  # also if argparse has printed its help and ends the program
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader has ended; the buffered rest must not raise at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.GOOD
    except tuple(refusals or ()) as error:
        codes = (refusals or {}).items()
        return fail(error, next(code for kind, code in codes if isinstance(error, kind)))


def show_status(
    program: str, folder: str, lines: Callable[[Status], Iterable[str]], *, as_json: bool
) -> Exit:
    """Print the last status of a program; returns GOOD if it runs and is synchronised."""
    try:
        found = read_status(status_path(program, folder), program)
        if as_json:
            about = {"age_ns": found.age_ns, "pid": found.pid}
            text = json.dumps({**about, **found.values}, indent=1)
        else:
            text = "\n".join(lines(found))
    except StatusError as error:
        return fail(error, Exit.NOT_SYNCHRONISED)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        return fail(
            f"the status was written by another version of {program} ({error!r}): restart it",
            Exit.NOT_SYNCHRONISED,
        )
    print(text)
    good = not found.is_old and found.values.get("state") == "synchronised"
    return Exit.GOOD if good else Exit.NOT_SYNCHRONISED


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence, without the usage text of all flags before it."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        # Text that begins like a negative number is a value: its parser can report what is wrong.
        self._negative_number_matcher = re.compile("-[0-9]")

    def error(self, message: str) -> NoReturn:
        """Print the error and the remedy, and end with exit code 2."""
        unknown = re.match("unrecognized arguments: (--[^ =]+)", message)
        known = set(self._flags()) - {unknown[1]} if unknown else set()
        near = difflib.get_close_matches(unknown[1], known, n=1) if unknown else []
        meant = f"; did you mean {near[0]}?" if near else ""
        raise SystemExit(fail(f"{message}{meant} (help: {self.prog} -h)", Exit.WRONG_USE))

    def _flags(self) -> Iterator[str]:
        """Yield the flags of this command, and of those below it."""
        for action in self._actions:
            yield from action.option_strings
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    yield from parser._flags()


def make_parser(program: str, description: str, examples: str) -> argparse.ArgumentParser:
    """Return a parser with --version and examples at the end of --help."""
    parser = Parser(
        prog=program,
        description=description,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = importlib.metadata.version("mqtick")
    parser.add_argument("--version", action="version", version=f"{program} {version}")
    return parser


def with_default_command(
    parser: argparse.ArgumentParser, arguments: Sequence[str], commands: Sequence[str]
) -> list[str]:
    """Put `run` in front of arguments that name no command, so that flags alone run the program."""
    words = list(arguments)
    if words and words[0] in (*commands, "-h", "--help", "--version"):
        return words
    if words and not words[0].startswith("-"):
        parser.error(f"there is no command {words[0]!r}: choose one of {', '.join(commands)}")
    return ["run", *words]


def add_run_flags(parser: argparse.ArgumentParser, cls: type, default: str) -> None:
    """Add --config, --print-config, --check-config, --example-config and one flag per key.

    There are more than a hundred keys: only --help-settings lists their flags.
    """
    parser.add_argument(
        "--config",
        metavar="FILE",
        help=f"configuration file; default: {default} if it exists",
    )
    parser.add_argument(
        "--print-config", action="store_true", help="print the complete configuration and exit"
    )
    parser.add_argument(
        "--check-config", action="store_true", help="check the configuration and exit"
    )
    parser.add_argument(
        "--example-config",
        action="store_true",
        help="print a configuration file with every key commented out and exit",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log more")
    settings = parser.add_argument_group(
        "settings",
        "Each key of the configuration is also a flag, as in --broker mqtt://broker.lan.",
    )
    settings.add_argument(
        "--help-settings", action=_SettingsHelp, cls=cls, help="list them with their meaning"
    )
    add_flags(parser, cls, hidden=True)


class _SettingsHelp(argparse.Action):
    """Prints the flags of all settings, and exits."""

    def __init__(self, *args: Any, cls: type, **keywords: Any) -> None:
        super().__init__(*args, **{**keywords, "nargs": 0})
        self._cls = cls

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        listing = Parser(prog=parser.prog, usage="%(prog)s [FLAG ...]", add_help=False)
        add_flags(listing, self._cls)
        listing.print_help()
        parser.exit()


def read_settings(
    args: argparse.Namespace,
    cls: type[T],
    default: str,
    check: Callable[[T], object] = lambda _settings: None,
) -> T | Exit:
    """Return the settings, or the exit code if a flag asked only to print or check them.

    `check` checks combinations of values, and the files that they name; it raises ValueError or
    OSError.
    """
    logging.basicConfig(
        level=logging.DEBUG if args.verbose else logging.INFO,
        format="%(levelname)s %(message)s",
        stream=sys.stderr,
    )
    if args.example_config:
        print(commented_example(cls), end="")
        return Exit.GOOD
    path = args.config
    if path is None and Path(default).exists():
        path = default
    try:
        settings = load(cls, path, overrides_from(args))
    except SettingsError as error:
        return fail(str(error), Exit.WRONG_USE)
    if args.print_config:
        print(render(settings), end="")
        return Exit.GOOD
    if args.check_config:
        try:
            check(settings)
        except (OSError, ValueError) as error:
            return fail(error, Exit.FAILED if isinstance(error, OSError) else Exit.WRONG_USE)
        print(f"the configuration is good ({path or 'defaults and flags only'})")
        return Exit.GOOD
    return settings
