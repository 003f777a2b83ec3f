"""Measures a broker with `mqtick-load`: fan-out, and the limit of performance."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from mqtick.lab.runner.experiment import Experiment
from mqtick.lab.runner.summary import Statistics, SummaryRow
from mqtick.mqtt.broker import broker_from

FILE: Final = "mqtick-load.json"
LATENCY: Final = "latency by mqtick-load: the first copy's arrival minus the message's sending"
SKEW: Final = "skew by mqtick-load: the last copy's arrival minus the first one's"
LIMIT: Final = (
    "limit of performance by mqtick-load, messages a second to the broker, and the interval in "
    "which it lies with 95 % confidence"
)
MISSING: Final = (
    "mqtick-load is not installed here, so fan-out and limit of the brokers were not measured: "
    "make broker-programs, or the package mqtick-broker."
)
_MOST_MESSAGES: Final = 1000
_LIMIT: Final = ("--trial", "1", "--repeats", "3")
_FAN_S, _LIMIT_S = 300.0, 900.0
_INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class Limit:
    """How many messages a second a broker carries; `low` and `high` hold it with 95 % confidence.

    The interval is one of ratios: `high` is about as many times above `ingress` as `low` is below.
    """

    ingress: float
    low: float
    high: float

    HEAD: ClassVar[str] = "     limit      from        to"

    def as_text(self) -> str:
        """Return a line of the table below `HEAD`."""
        return "".join(f"{value:>10.0f}" for value in (self.ingress, self.low, self.high))


@dataclass(frozen=True, slots=True)
class Loaded:
    """What mqtick-load measured of a broker; `limit` is None where it was not sought."""

    rows: tuple[SummaryRow, ...] = ()
    limit: Limit | None = None
    notes: tuple[str, ...] = ()


def found() -> str | None:
    """Return the program's path; None if it is not installed."""
    places = (os.environ.get("PATH", ""), str(Path(sys.executable).parent))
    return shutil.which("mqtick-load", path=os.pathsep.join(places))


def measured(
    program: str, experiment: Experiment, folder: Path, *, limit: bool, note: Callable[[str], None]
) -> None:
    """Measure the broker of an experiment, and save the output in the run's folder.

    `limit`: whether to load the broker up to its limit.
    """
    broker = broker_from(experiment)
    sentences: list[str] = []
    result: dict[str, Any] = {"fan_out": {}, "limit": None, "sentences": sentences}
    if broker.scheme not in ("mqtt", "mqtts"):
        sentences.append(f"mqtick-load speaks mqtt:// and mqtts://, not {broker.scheme}://.")
    else:
        who = ["--mqtt", broker.version]
        for option, value in (
            ("--username", broker.username),
            ("--password-file", experiment.password_file),
            ("--ca-file", broker.ca_file),
            ("--certificate-file", broker.certificate_file),
            ("--certificate-key-file", broker.key_file),
        ):
            who += [option, value] if value else []
        at = broker.address

        def run(words: Sequence[str], within_s: float) -> Any:
            note(f"mqtick-load {words[0]}")
            return _printed([program, *words, *who, "--json"], within_s, sentences)

        messages = str(min(experiment.shots, _MOST_MESSAGES))
        for count in experiment.subscribers:
            fan = ["fanout", "--broker", at, "--subscribers", str(count), "--messages", messages]
            if printed := run([*fan, "--repeats", "1"], _FAN_S):
                result["fan_out"][str(count)] = printed
        if limit:
            result["limit"] = run(["limit", at, *_LIMIT], _LIMIT_S)
        else:
            sentences.append(
                "its limit was not sought, as it is not run for its turn (recipe, launch): others "
                "may use it."
            )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps(result, indent=1) + "\n")


def is_kept(folder: Path) -> bool:
    """Whether the run's folder has the measurement of its broker."""
    return (folder / FILE).exists()


def _printed(command: Sequence[str], within_s: float, sentences: list[str]) -> Any:
    """Return the JSON that a program printed; None, and a sentence, if it failed."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=within_s
        )
        if done.returncode == _INTERRUPTED:
            raise KeyboardInterrupt
        if done.returncode == 0:
            return json.loads(done.stdout)
        lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        said = lines[-1].removeprefix("mqtick-load: ")
    except subprocess.TimeoutExpired:
        said = f"it took more than {within_s:.0f} s"
    except (OSError, ValueError) as error:
        said = str(error)
    sentences.append(f"mqtick-load {command[1]}: {said}")
    return None


def loaded(folder: Path) -> Loaded:
    """Return what is kept in a run's folder."""
    try:
        kept = json.loads((folder / FILE).read_text())
        rows = []
        for count, printed in kept["fan_out"].items():
            lost = int(_median(printed, "lost"))
            for quantity, key in ((LATENCY, "broker_first_us"), (SKEW, "broker_skew_us")):
                values = Statistics.of([round(value * 1e9) for value in printed["lists"][key]])
                rows.append(SummaryRow(quantity, int(count), lost, 0, values, None))
        limit, notes = None, kept["sentences"]
        if printed := kept["limit"]:
            keys = ("limit_ingress", "limit_ingress_low", "limit_ingress_high")
            limit = Limit(*(_median(printed, key) for key in keys))
            notes += [one for one in printed["notes"] if "LOAD TOOL" in one]
        return Loaded(tuple(rows), limit, tuple(notes))
    except FileNotFoundError:
        return Loaded()
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        return Loaded(notes=(f"{folder / FILE} cannot be read: {error!r}",))


def _median(printed: Any, key: str) -> float:
    return float(next(row["median"] for row in printed["rows"] if row["key"] == key))
