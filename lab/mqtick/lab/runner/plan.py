"""The plan of a run: the numbers of subscribers, in random order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mqtick.lab.runner.experiment import Experiment

_BRING_UP_S = 2.0
_PER_SUBSCRIBER_S = 0.002
_READ_S = 0.3


@dataclass(frozen=True, slots=True)
class Batch:
    """A block: shots that are taken one after another with the same subscribers.

    `first` is the number of its first shot; shots are numbered from 1 over the whole plan.
    """

    round: int
    subscribers: int
    shots: int
    first: int

    def numbers(self) -> Iterator[int]:
        """Yield the numbers of its shots."""
        yield from range(self.first, self.first + self.shots)


def make_plan(subscribers: Sequence[int], shots: int, rounds: int, seed: int) -> tuple[Batch, ...]:
    """Draw the order: each round has all N once, each N gets `shots` over all rounds.

    The same arguments give the same plan.
    """
    blocks: list[Batch] = []
    number = 1
    for turn in range(rounds):
        order = list(subscribers)
        random.Random(f"mqtick {seed} {turn}").shuffle(order)
        count = shots * (turn + 1) // rounds - shots * turn // rounds
        for each in order:
            if count:
                blocks.append(Batch(turn + 1, each, count, number))
            number += count
    return tuple(blocks)


def plan_of(experiment: Experiment) -> tuple[Batch, ...]:
    """Draw the order of an experiment; with kind clock there are no subscribers (N is 0)."""
    subscribers = (0,) if experiment.kind == "clock" else experiment.subscribers
    return make_plan(subscribers, experiment.shots, experiment.rounds, experiment.seed)


def plan_to_json(plan: Sequence[Batch]) -> list[dict[str, Any]]:
    """Write a plan for run.json."""
    return [asdict(block) for block in plan]


def plan_from_json(content: object) -> tuple[Batch, ...]:
    """Read a plan of run.json; ValueError if it is not one."""
    try:
        if not isinstance(content, list):
            raise TypeError("it is not a list")
        plan = tuple(Batch(**block) for block in content)
        if not all(type(value) is int for block in plan for value in asdict(block).values()):
            raise TypeError("a number is not valid")
        return plan
    except TypeError as error:
        raise ValueError(f"The plan in run.json is not valid ({error}).") from None


def expected_s(experiment: Experiment, plan: Sequence[Batch]) -> float:
    """Estimate how long the plan takes, in s."""
    each_s = max(experiment.interval_s, _READ_S)
    return sum(
        block.shots * each_s + _BRING_UP_S + _PER_SUBSCRIBER_S * block.subscribers for block in plan
    )


def describe_plan(experiment: Experiment, plan: Sequence[Batch]) -> str:
    """Describe what a run would do."""
    shots = sum(block.shots for block in plan)
    lines = [
        f"{experiment.title or 'Untitled'}: {experiment.kind}, {shots} shots, about "
        f"{_duration(expected_s(experiment, plan))} (broker {experiment.broker})",
        "",
        "wired:",
    ]
    for name, instrument in experiment.instrument.items():
        lines.append(
            f"  {name} ({instrument.resource}), {instrument.span_us:g} us, triggered by "
            f"{instrument.trigger} {instrument.trigger_slope} at {instrument.trigger_level_v:g} V"
        )
        for channel_name, channel in experiment.channels_of(name).items():
            parts = [part for part, of in experiment.measured().items() if of == channel_name]
            part = f", {' and '.join(parts)}" if parts else ""
            lines.append(
                f"    input {channel.input}: {channel_name}, pin {channel.pin} of "
                f"{channel.node}{part}"
            )
    if experiment.kind != "clock":
        lines += ["", f"subscribe in this order: {' - '.join(_order(experiment))}"]
    lines += ["", "order of measurement:"]
    for block in plan:
        subscribers = f"N = {block.subscribers}, " if experiment.kind != "clock" else ""
        lines.append(
            f"  round {block.round}: {subscribers}shots {block.first} to "
            f"{block.first + block.shots - 1}"
        )
    return "\n".join(lines)


def _order(experiment: Experiment) -> list[str]:
    parts = experiment.measured()
    nodes = {part: experiment.channel[name].node for part, name in parts.items()}
    order = [nodes["first"]] if "first" in nodes else []
    others = f"the others from {len(experiment.crowd_nodes())} crowd processes"
    order += [others] if experiment.crowd_nodes() else []
    return order + ([nodes["last"]] if "last" in nodes else [])


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
