"""Reads an experiment whose keys fit together: each fault is a sentence with its remedy."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from mqtick.lab.runner.experiment import Experiment
from mqtick.lab.scope.dialects import DIALECTS
from mqtick.protocol.topics import TopicTree
from mqtick.service.settings.load import SettingsError, load

_NODE = re.compile(r"server:(\d{1,3})|client:([A-Za-z0-9_.-]{1,16})")
_CROWD = re.compile(r"crowd:[A-Za-z0-9_.-]{1,16}")
_PINS = {"server": ("time", "pps"), "client": ("arrival", "pps")}


def load_experiment(
    path: str | os.PathLike[str] | None, overrides: Mapping[str, object] | None = None
) -> Experiment:
    """Read an experiment file; SettingsError, with a sentence, if it cannot be run."""
    experiment = load(Experiment, path, overrides)
    if fault := _fault(experiment):
        raise SettingsError(f"{'defaults' if path is None else os.fspath(path)}: {fault}")
    return experiment


def _fault(experiment: Experiment) -> str:
    """Return the first fault, "" if there is none."""
    checks: tuple[Callable[[Experiment], Iterator[str]], ...] = (
        _numbers,
        _channels,
        _instruments,
        _order,
        _one_origin,
    )
    return next((fault for each in checks for fault in each(experiment)), "")


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"there are: {', '.join(names)}" if names else "there are none"


def _numbers(experiment: Experiment) -> Iterator[str]:
    if experiment.kind != "clock":
        if not experiment.subscribers:
            yield "subscribers is empty, so there is nothing to measure; give numbers, as [2, 10]"
        if len(set(experiment.subscribers)) < len(experiment.subscribers):
            yield "subscribers names a number twice; raise shots for more of one N"
        least = 2 if experiment.order.last else 1
        for number in experiment.subscribers:
            if number < least:
                yield (
                    f"subscribers holds {number}, but the first and the last subscriber are "
                    "already 2; remove it"
                )
            if number > least and not experiment.crowd_nodes():
                yield (
                    f"{number} subscribers are wanted, {number - least} of them not "
                    "measured, but there is no crowd; set crowd.processes, or crowd.nodes"
                )
    if experiment.rounds > experiment.shots:
        yield (
            f"rounds is {experiment.rounds}, more than the {experiment.shots} shots of each N; "
            "every round needs at least one shot: lower rounds or raise shots"
        )
    if experiment.kind == "clock" and experiment.fire == "request":
        yield 'fire = "request" has no meaning for pps pins, which need no message; remove it'
    if experiment.fire == "schedule" and experiment.timeouts.trigger_s <= experiment.interval_s:
        yield (
            f"timeouts.trigger_s is {experiment.timeouts.trigger_s:g}, no longer than the "
            f"interval of {experiment.interval_s:g} s, so shots would be given up before the "
            "message comes; raise it"
        )
    try:
        TopicTree(experiment.prefix)
    except ValueError as error:
        yield f"prefix: {error}"
    for node in experiment.crowd.nodes:
        if not _CROWD.fullmatch(node):
            yield f'crowd.nodes holds {node!r}; write "crowd:NAME"'
    if len(set(experiment.crowd_nodes())) < len(experiment.crowd_nodes()):
        yield "crowd.nodes names a node twice, or one of the names crowd:localN of this host"


def _instruments(experiment: Experiment) -> Iterator[str]:
    if not experiment.instrument:
        yield "there is no instrument; add a table [instrument.NAME] with its resource"
    resources: dict[str, str] = {}
    for name, instrument in experiment.instrument.items():
        place = f"instrument.{name}"
        if not instrument.resource:
            yield f"{place} has no resource; give its address, as TCPIP::HOST::5025::SOCKET"
        if instrument.resource in resources:
            yield (
                f"{place} and instrument.{resources[instrument.resource]} have the same "
                "resource; put all channels of one instrument below one name"
            )
        resources[instrument.resource] = name
        if instrument.dialect not in ("auto", *DIALECTS):
            known = _nearest(instrument.dialect, DIALECTS)
            yield f"{place}.dialect is {instrument.dialect!r}, which is unknown: {known}"
        own = experiment.channels_of(name)
        if not own:
            yield f"{place} has no channel; add [channel.NAME] with instrument = {name!r}"
        if not instrument.trigger:
            yield f"{place} has no trigger; name one of its channels: {', '.join(own)}"
        elif instrument.trigger not in own:
            elsewhere = instrument.trigger in experiment.channel
            yield f"{place}.trigger names the channel {instrument.trigger!r}, " + (
                "which is on another instrument; each instrument needs its own"
                if elsewhere
                else f"which is not there: {_nearest(instrument.trigger, own)}"
            )


def _channels(experiment: Experiment) -> Iterator[str]:
    inputs: dict[tuple[str, int], str] = {}
    for name, channel in experiment.channel.items():
        place = f"channel.{name}"
        if channel.instrument not in experiment.instrument:
            known = _nearest(channel.instrument, experiment.instrument)
            yield f"{place} is on the instrument {channel.instrument!r}, which is unknown: {known}"
        taken = inputs.setdefault((channel.instrument, channel.input), name)
        if taken != name:
            yield (
                f"{place} and channel.{taken} are both on input {channel.input} of "
                f"{channel.instrument}; correct one"
            )
        node = _NODE.fullmatch(channel.node)
        if not node or int(node[1] or 0) > 255:
            yield f'{place}.node is {channel.node!r}; write "server:0" or "client:NAME"'
            continue
        kind = channel.node.partition(":")[0]
        if channel.pin not in _PINS[kind]:
            yield (
                f"{place} is the pin {channel.pin!r} of a {kind}, which has no such pin; it has "
                f"{' and '.join(_PINS[kind])}"
            )


def _order(experiment: Experiment) -> Iterator[str]:
    needs = {
        "latency": ("publisher", "first"),
        "skew": ("first", "last"),
        "clock": ("publisher",),
    }[experiment.kind]
    parts = experiment.measured()
    for part in needs:
        if part not in parts:
            yield f"kind {experiment.kind} needs order.{part}; name a channel there"
    for part, name in parts.items():
        if name not in experiment.channel:
            known = _nearest(name, experiment.channel)
            yield f"order.{part} names the channel {name!r}, which is not there: {known}"
            continue
        channel = experiment.channel[name]
        kind = channel.node.partition(":")[0]
        if experiment.kind == "clock":
            if part != "publisher":
                yield f"order.{part} has no meaning for kind clock, which has no subscribers"
        elif part == "publisher" and (kind, channel.pin) != ("server", "time"):
            yield f"order.publisher is {name}, but that is not the pin time of a server"
        elif part != "publisher" and (kind, channel.pin) != ("client", "arrival"):
            yield f"order.{part} is {name}, but that is not the pin arrival of a client"
    nodes = [experiment.channel[parts[part]].node for part in ("first", "last") if part in parts]
    if len(nodes) == 2 and nodes[0] == nodes[1]:
        yield f"order.first and order.last are both of {nodes[0]}; two clients are needed"
    if experiment.fire == "request" and "publisher" not in parts:
        yield 'fire = "request" needs order.publisher: the server that is asked for a message'
    if experiment.kind == "clock":
        for name, channel in experiment.channel.items():
            if channel.pin != "pps":
                yield f"kind clock compares pps pins, but channel.{name} is the pin {channel.pin}"
        if len(experiment.channel) < 2:
            yield "kind clock compares pps pins, but there is only one channel; add another"


def _one_origin(experiment: Experiment) -> Iterator[str]:
    """Check that compared instruments share a trigger edge: else instants cannot be compared."""
    names = (
        list(experiment.channel)
        if experiment.kind == "clock"
        else list(experiment.measured().values())
    )
    used = {experiment.channel[name].instrument for name in names}
    triggers = {}
    for instrument in used:
        trigger = experiment.channel[experiment.instrument[instrument].trigger]
        triggers[instrument] = (trigger.node, trigger.pin)
    if len(set(triggers.values())) > 1:
        yield (
            f"what is compared is spread over {', '.join(sorted(used))}, which trigger on "
            "different pins; wire one pin to a channel of each and let all trigger on it"
        )
