"""The doctor's findings about a broker, from its measurements; no I/O."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from mqtick.lab.brokers.measured import Measured, Probe
from mqtick.lab.brokers.patterns import (
    Steps,
    fan_out,
    find_flush,
    find_steps,
    quantile,
)
from mqtick.mqtt.link import NO_DOTS
from mqtick.mqtt.pairs import find_hold
from mqtick.service.broker_checks import check_hold, check_link, check_subscriptions
from mqtick.service.check import Check, fail, ok, warn

# Probes are as long as a time message; the status of a server has some hundreds of octets.
_STATUS_OCTETS = 1024
_ENOUGH = 10


def examine(measured: Measured) -> Iterator[Check]:
    """Yield the findings, in the order in which people should read them."""
    yield from check_link(measured.link, "connection", needs_stamps=measured.has_tcp)
    if not measured.link.connected:
        return
    access = (
        f"let this user publish to and read {measured.topic.rsplit('/', 2)[0]}/#, "
        "or name another --prefix"
    )
    if measured.refused:
        granted = dict.fromkeys(measured.refused, False)
        remedy = measured.link.refusal_remedy if measured.link.lease_s else access
        yield check_subscriptions(granted, remedy)
        return
    reached = [probe for probe in measured.probes if probe.arrived_ns]
    if not reached:
        value = f"nothing came back on {measured.topic}"
        yield fail("messages", value, "all of them", f"{access}; the broker did not refuse it")
        return
    if measured.error:
        yield fail("connection", measured.error, "one that lasts", "look in the broker's log")
    yield from _losses(measured)
    yield from _latency(measured, reached)
    nodelay = _hold(measured)
    yield nodelay
    flushing = _flush(reached)
    yield flushing
    if "FAIL" not in (nodelay.result, flushing.result):  # each of these explains late messages
        yield _steps(reached)
    yield _sequence(measured)
    yield from _fan_out(measured)
    yield from _features(measured)


def _losses(measured: Measured) -> Iterator[Check]:
    places = range(len(measured.filters))
    deaf = [n for n in places if not any(n in probe.arrived_ns for probe in measured.probes)]
    for place in deaf:
        yield warn(
            "subscriptions",
            f"{measured.filters[place]} was granted, but nothing arrived",
            "messages",
            "the broker does not support this filter, or its access list forbids it; mqtick's echo "
            "needs #",
        )
    expected = (len(places) - len(deaf)) * len(measured.probes)
    came = sum(len(probe.arrived_ns) for probe in measured.probes)
    lost_whole = sum(not probe.arrived_ns for probe in measured.probes)
    if came == expected:
        yield ok("messages", f"all {came} arrived ({len(measured.probes)} to {len(places)})")
        return
    value = f"{expected - came} of {expected} lost"
    if lost_whole:
        value += f", {lost_whole} of {len(measured.probes)} at every subscriber"
    yield fail(
        "messages",
        value,
        "none lost",
        "QoS 0 is lost where a queue is full: Mosquitto max_queued_messages, "
        "max_queued_bytes; a rate limit of the broker; a bridge or proxy in between",
    )


def _latency(measured: Measured, reached: Sequence[Probe]) -> Iterator[Check]:
    first = [min(probe.arrived_ns.values()) - probe.sent_ns for probe in reached]
    last = [max(probe.arrived_ns.values()) - probe.sent_ns for probe in reached]
    yield ok(
        "latency",
        f"first of {len(measured.filters)} subscribers {_spread(first)}, last {_spread(last)}",
    )


def _spread(delays_ns: Sequence[int]) -> str:
    return f"median {_time(quantile(delays_ns, 0.5))}, p99 {_time(quantile(delays_ns, 0.99))}"


def _time(duration_ns: float) -> str:
    """Format a duration with three digits."""
    if abs(duration_ns) < 1_000_000:
        return f"{duration_ns / 1e3:.3g} us"
    return f"{duration_ns / 1e6:.3g} ms" if abs(duration_ns) < 1e9 else f"{duration_ns / 1e9:.3g} s"


def _hold(measured: Measured) -> Check:
    if not measured.has_tcp:
        return ok("TCP_NODELAY", "not needed on a Unix socket")
    return check_hold("TCP_NODELAY", find_hold(measured.pairs_ns), "FAIL")


def _firsts(reached: Sequence[Probe]) -> list[tuple[int, int]]:
    return [(probe.sent_ns, min(probe.arrived_ns.values())) for probe in reached]


def _flush(reached: Sequence[Probe]) -> Check:
    flush = find_flush(_firsts(reached))
    if flush.found:
        return fail(
            "flushing",
            f"messages leave only every {_time(flush.period_ns)}: {flush.coherence:.0%} at one "
            "phase, whenever they were sent",
            "at once",
            "Moquette: buffer_flush_millis immediate; other brokers: docs/brokers.md",
        )
    return ok("flushing", f"no beat in {len(reached)} arrivals")


def _steps(reached: Sequence[Probe]) -> Check:
    steps = find_steps([arrived - sent for sent, arrived in _firsts(reached)])
    if steps.found:
        return fail("delayed acknowledgements", _histogram(steps), "no such steps", _STEPS_REMEDY)
    if steps.late > max(3, steps.messages // 10):
        return warn(
            "late messages",
            f"{steps.late} of {steps.messages} came 5 ms or more behind the fast ones, in no "
            "known pattern",
            "at most one in ten",
            "a busy host, garbage collection, a wireless link: repeat it on a quiet host",
        )
    return ok("delayed acknowledgements", f"no steps: {_histogram(steps)}")


_STEPS_REMEDY = (
    "something between publisher and subscriber waits for an acknowledgement: set "
    "TCP_NODELAY at broker, bridge, load balancer and proxy"
)


def _histogram(steps: Steps) -> str:
    parts = ", ".join(f"{count} by about {step} ms" for step, count in steps.by_step.items())
    late = f"{steps.late} of {steps.messages} messages late by 5 ms or more"
    return f"{late} ({parts})" if parts else late


def _sequence(measured: Measured) -> Check:
    name = "order of messages"
    numbers = measured.sequence
    turned = sum(later < before for before, later in itertools.pairwise(numbers))
    if turned:
        return fail(
            name,
            f"{turned} of {len(numbers)} came before one sent earlier",
            "the order of sending (MQTT 5.0, 4.6)",
            "a cluster, bridge or proxy that uses several paths: keep one topic on one path",
        )
    return ok(name, f"kept in all {len(numbers)}")


def _fan_out(measured: Measured) -> Iterator[Check]:
    count = len(measured.filters)
    whole = [
        [probe.arrived_ns[place] for place in range(count)]
        for probe in measured.alone()
        if len(probe.arrived_ns) == count and not probe.unsure
    ]
    found = fan_out(whole)
    name = "order of subscribers"
    if found is None or found.messages < _ENOUGH:
        yield ok(name, f"not known: only {len(whole)} messages came to all {count} one by one")
        return
    value = f"that of subscription, exact then + then #, in {found.kept} of {found.messages}"
    if found.is_kept:
        yield ok(name, value)
    else:
        yield warn(
            name,
            f"{value}; "
            + (
                "always a different one"
                if found.orders == 1
                else f"{found.orders} different orders"
            ),
            "all of them",
            "mqtick detects this too and offers no echo: clients fall back on the two-way exchange",
        )
    yield ok(
        "fan-out",
        f"last of {count} {_time(found.spread_ns)} after the first (p99 "
        f"{_time(found.worst_spread_ns)}), {_time(found.slope_ns)} for each additional subscriber",
    )


def _features(measured: Measured) -> Iterator[Check]:
    if measured.retained:
        yield ok("retained messages", "kept")
    elif measured.retained is not None:
        yield warn(
            "retained messages",
            "not kept",
            "kept",
            "a server's status is seen only by those connected when it is sent",
        )
    if measured.dotted is False:
        yield warn(
            "topics with a dot",
            "not carried",
            "carried, because 1451.1.6 has such topics",
            f'mqtick-timeserver: formats = ["precise"]; {NO_DOTS}',
        )
    octets, tried = measured.payload_octets, measured.payload_tried
    if not tried:
        return
    if octets >= tried:
        yield ok("payload", f"{octets} octets came through; larger ones were not tried")
    elif octets < _STATUS_OCTETS:
        remedy = "time works; but a server's status is longer"
        yield warn("payload", f"at most {octets} octets", f"{_STATUS_OCTETS}", remedy)
    else:
        yield ok("payload", f"{octets} octets came through, {tried} did not")


def verdict(checks: Sequence[Check]) -> tuple[bool, str]:
    """Return whether the broker is good, and one sentence about it."""
    faults = [check.name for check in checks if check.result == "FAIL"]
    remarks = [check.name for check in checks if check.result == "WARN"]
    if faults:
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        return False, f"{count}: {', '.join(faults)}"
    if remarks:
        return True, f"good, but note: {', '.join(remarks)}"
    return True, "good"
