"""The doctor's findings about what it heard on the broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from mqtick.client.disagreement import Disagreement
from mqtick.client.doctor.client import REMEDIES
from mqtick.client.doctor.listen import Heard
from mqtick.client.first_time import Trouble
from mqtick.client.sample import Reason
from mqtick.service import broker_checks
from mqtick.service.check import Check, check_refusals, fail, ok, warn


def check_subscriptions(heard: Heard, format_: str) -> Check:
    """Check that the broker granted each subscription; `format_` is the setting."""
    precise = format_ == "precise" or (format_ == "auto" and bool(heard.servers))
    unneeded = heard.foreign_topics if precise else ()
    return broker_checks.check_subscriptions(
        heard.granted, heard.link.refusal_remedy, unneeded=unneeded
    )


def check_statuses(heard: Heard) -> Iterator[Check]:
    """Check that the broker retains the servers' status messages for later subscribers."""
    for number, server in sorted(heard.servers.items()):
        if server.times and not server.announced:
            remedy = (
                "does the broker keep retained messages, and let the time server write PREFIX/s/"
                f"{number} and us read it? (one that has just started says it within seconds)"
            )
            yield warn(f"status of server {number}", "not kept by the broker", "retained", remedy)


def check_times(heard: Heard, format_: str, listen_s: float) -> Iterator[Check]:
    """Check which servers' time was heard; `format_` is the setting."""
    precise = {number: server for number, server in heard.servers.items() if server.times}
    formats = sorted(heard.foreign)
    for number, server in sorted(precise.items()):
        name = f"time of server {number}"
        value = f"precise, {server.times} in {listen_s:g} s, stratum {server.stratum}"
        if server.leap == 3:
            remedy = "mqtick-timeserver status on that host: its chronyd has no source"
            yield warn(name, f"{value}, not synchronised", "synchronised", remedy)
        else:
            yield ok(name, f"{value}, synchronised")
    for number, server in sorted(heard.servers.items()):
        if server.retained:
            topic = f"mosquitto_pub -t PREFIX/t/{number} -r -n"
            yield warn(f"time of server {number}", "retained by somebody", "none retained", topic)
    if formats:
        yield ok("other formats", ", ".join(formats))
    wanted = formats if format_ not in ("auto", "precise") else sorted(precise)
    if format_ == "auto":
        wanted = wanted or formats
    if not wanted or (format_ in ("1451.1.6", "draft-2021") and format_ not in formats):
        remedy = (
            "is a time server up (mqtick-timeserver status), with the same prefix? does the "
            "broker's access list let it write, and us read, PREFIX/t/+?"
        )
        yield fail("time messages", f"none in {listen_s:g} s", f"some, format {format_}", remedy)


def check_agreement(found: Iterable[Disagreement]) -> Iterator[Check]:
    """Check that no server's interval excludes another's: then one of them is wrong."""
    for each in found:
        yield fail(
            f"servers {' and '.join(each.servers)}",
            f"at least {each.gap_ns / 1e6:.3f} ms apart, bounds and root distances included",
            "intervals that meet",
            "one of them is wrong: on their hosts, mqtick-timeserver status and chronyc sources "
            "show what each goes by",
        )


def check_belief(troubles: Mapping[str, Trouble]) -> Iterator[Check]:
    """Check that the time of each server is near enough to this host's clock to be believed."""
    for server, trouble in troubles.items():
        say = fail if trouble.reason == Reason.TIMEZONE else warn
        expected = "a time near this host's clock"
        name = f"time of server {server}" if server.isdigit() else f"time by {server}"
        yield say(name, trouble.says, expected, trouble.remedy)


def check_exchanges(heard: Heard, *, use_two_way: bool) -> Iterator[Check]:
    """Check that servers answer us: only exchanges bound the time on both sides."""
    if use_two_way:
        for number, server in sorted(heard.servers.items()):
            name = f"exchange with server {number}"
            if server.exchanges and server.least_delay_ns is not None:
                echo = f", {server.echoes} with echo" if server.echoes else ", none with echo"
                delay = f"round trip {server.least_delay_ns / 1000:.0f} us"
                yield ok(name, f"{server.exchanges} answered{echo}, {delay}")
            elif server.leap != 3:
                remedy = (
                    f"access list: may we write PREFIX/q/{number}/NAME, and read r and f, and the "
                    "server the other way round? keys; rate limit"
                )
                yield fail(name, "no answer that counts", "an answer", remedy)
    refused = Counter(heard.refused)
    if not use_two_way:  # then the doctor itself made no exchange
        del refused["before-exchange"]
    yield from check_refusals("refused while listening", refused, REMEDIES)
