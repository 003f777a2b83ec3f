"""The capabilities of a logic analyser, from `sigrok-cli --show`, and its resource name."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from mqtick.lab.scope.conversation import InstrumentError

_SCHEME: Final = "sigrok"
# Options that sigrok-cli expects with --driver; all others belong to --config.
_SCAN_OPTIONS: Final = frozenset(
    ("conn", "serialcomm", "logic_channels", "analog_channels", "limit_frames", "force_detect")
)
_TRIGGERS: Final = ("auto", "driver", "software")
_UNITS: Final = {"Hz": 1, "kHz": 10**3, "MHz": 10**6, "GHz": 10**9}
_ASK_S: Final = 15.0  # a device without firmware gets it first, and comes back on the bus

# fx2lafw offers 48 MHz, but one octet per sample is then more than USB 2 carries without gaps, and
# refuses more than 12 MHz where samples have two octets (libsigrok, fx2lafw/protocol.c).
_FX2_HZ: Final = 24_000_000
_FX2_WIDE_HZ: Final = 12_000_000
_SAME: Final = 1e-9
"""How far a rate computed from points and span may be from the intended one, as a share."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A logic analyser by its name: "sigrok:DRIVER", and options as in "sigrok:fx2lafw:conn=1.30".

    Options are sigrok's own (those for finding the device, and those for setting it up, such as
    `voltage_threshold` or the demo's `pattern`), and `trigger`: "driver", "software" or "auto".
    """

    driver: str
    scan: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    trigger: str = "auto"

    @classmethod
    def parse(cls, text: str) -> Resource:
        """Parse a resource; InstrumentError if it is not one."""
        scheme, driver, *options = [*text.split(":"), ""][: max(2, text.count(":") + 1)]
        if scheme != _SCHEME or not re.fullmatch(r"[A-Za-z0-9-]+", driver):
            raise InstrumentError(
                f"{text!r} names no logic analyser; examples: sigrok:fx2lafw, "
                "sigrok:fx2lafw:conn=1.30, sigrok:demo. `sigrok-cli --scan` finds what is there."
            )
        scan, config, trigger = [], [], "auto"
        for option in options:
            key, equals, value = option.partition("=")
            if not (key and equals and value):
                raise InstrumentError(
                    f"{option!r} in {text!r} is not an option; options are written key=value, as "
                    "in sigrok:fx2lafw:conn=1.30."
                )
            if key == "trigger":
                trigger = value
            elif key in _SCAN_OPTIONS:
                scan.append(option)
            elif key == "pattern":  # the demo's, which belongs to its logic channels
                config.append(f"channel_group=Logic:{option}")
            else:
                config.append(option)
        if trigger not in _TRIGGERS:
            raise InstrumentError(
                f"trigger={trigger} in {text!r} is not one of {', '.join(_TRIGGERS)}."
            )
        if driver == "demo" and not any(o.startswith("logic_channels=") for o in scan):
            scan.append("logic_channels=16")
        if driver == "demo" and not any(o.startswith("analog_channels=") for o in scan):
            scan.append("analog_channels=0")
        return cls(driver, tuple(scan), tuple(config), trigger)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments with which sigrok-cli finds the device."""
        return ("--driver", ":".join((self.driver, *self.scan)))


@dataclass(frozen=True, slots=True)
class Offer:
    """The capabilities of a device.

    Attributes:
        name: sigrok's name of the device.
        channels: names of its logic channels; the first is our channel 1.
        rates_hz: sample rates, ascending; or the lowest and the highest if `step_hz` is not 0.
        step_hz: step between the rates of a range, 0 for a list.
        matches: what it can trigger on: "0", "1", "r", "f", "e".
        options: names of its settings.
    """

    name: str
    channels: tuple[str, ...]
    rates_hz: tuple[int, ...]
    step_hz: int
    matches: frozenset[str]
    options: frozenset[str]

    def rate_hz(self, wanted_hz: float, driver: str = "", *, wide: bool = False) -> int:
        """Return the highest rate that is not above the wanted one, else the lowest.

        `wide`: a channel above 8 is recorded.
        """
        limit = float("inf")
        if driver == "fx2lafw":
            limit = _FX2_WIDE_HZ if wide else _FX2_HZ
        wanted_hz = min(wanted_hz * (1 + _SAME), limit)
        lowest, highest = self.rates_hz[0], self.rates_hz[-1]
        if self.step_hz:
            steps = int((min(wanted_hz, highest) - lowest) // self.step_hz)
            return lowest + max(0, steps) * self.step_hz
        return max((rate for rate in self.rates_hz if rate <= wanted_hz), default=lowest)


def parse_show(text: str, resource: Resource) -> Offer:
    """Parse the output of `sigrok-cli --driver ... --show`; InstrumentError if unusable."""
    heads = re.findall(r"^(\S+) - (.+?) with \d+ channels?: (.+)$", text, re.MULTILINE)
    if len(heads) > 1:
        places = ", ".join(place for place, _, _ in heads)
        raise InstrumentError(
            f"{len(heads)} devices answer to {resource.driver}: {places}. Say which: "
            f"{_SCHEME}:{heads[0][0]}."
        )
    if not heads:
        raise InstrumentError(
            f"sigrok-cli found no {resource.driver} ({_last(text)}). Is it plugged in, and may "
            "this user open it (udev rules, group plugdev)? `sigrok-cli --scan` says what it sees."
        )
    # The address (conn=bus.address) changes each time it is plugged in; the name does not.
    _, name, listed = heads[0]
    group = re.search(r"^ +Logic: channels (.+)$", text, re.MULTILINE)
    channels = tuple((group.group(1) if group else listed).split())
    rates, step_hz = _rates(text)
    if not rates:
        raise InstrumentError(
            f"{name} offers no sample rates, so its samples would have no times; it is not a "
            "logic analyser that can be used here."
        )
    matches = re.search(r"Supported triggers:((?: [01rfe])*)", text)
    return Offer(
        name=name,
        channels=channels,
        rates_hz=rates,
        step_hz=step_hz,
        matches=frozenset(matches.group(1).split()) if matches else frozenset(),
        options=frozenset(re.findall(r"^ {4,}([a-z_]+)(?::| [-(])", text, re.MULTILINE)),
    )


def _rates(text: str) -> tuple[tuple[int, ...], int]:
    number = r"([0-9.]+) ([kMG]?Hz)"
    found = re.search(rf"samplerate \({number} - {number} in steps of {number}\)", text)
    if found:
        low, high, step = (_hz(*found.group(n, n + 1)) for n in (1, 3, 5))
        return (low, high), step
    listed = re.search(rf"samplerate - supported samplerates:((?:\s+{number}[^\n]*)+)", text)
    if listed is None:
        return (), 0
    return tuple(sorted(_hz(*pair) for pair in re.findall(number, listed.group(1)))), 0


def _hz(number: str, unit: str) -> int:
    return int(Fraction(number) * _UNITS[unit])


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else "it said nothing"


def program_version(program: str) -> str:
    """Return sigrok-cli's version; InstrumentError when it is not installed."""
    if shutil.which(program) is None:
        raise InstrumentError(
            f"The program {program} is not installed, but logic analysers are reached through it: "
            "sudo apt install sigrok-cli."
        )
    return _run([program, "--version"])[0].splitlines()[0].strip()


def ask(program: str, resource: Resource) -> Offer:
    """Ask the device for its capabilities."""
    said, complaint = _run([program, *resource.arguments, "--show"])
    return parse_show(f"{said}\n{complaint}", resource)


def _run(command: list[str]) -> tuple[str, str]:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASK_S,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired as error:
        raise InstrumentError(
            f"{' '.join(command)} did not end within {_ASK_S:g} s; unplug the device and plug it "
            "in again."
        ) from error
    except OSError as error:
        raise InstrumentError(f"{command[0]} cannot be run ({error.strerror}).") from error
    return done.stdout or "\n", done.stderr
