"""The client's status as metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mqtick.service import Metric


def _gap_ns(values: Mapping[str, Any], server: str) -> int:
    """Return the largest gap between the server's interval and another's; 0: all of them meet."""
    gaps = (row["gap_ns"] for row in values["disagreements"] if server in row["servers"])
    return max(gaps, default=0)


def metrics(values: Mapping[str, Any]) -> list[Metric]:
    """Return the Prometheus metrics of a status."""
    found = [
        Metric("mqtick_client_connected", float(values["connected"]), "1 while connected."),
        Metric(
            "mqtick_client_synchronised",
            float(values["state"] == "synchronised"),
            "1 while synchronised.",
        ),
        Metric(
            "mqtick_client_holdover",
            float(values["state"] == "holdover"),
            "1 while the time is known from earlier samples only.",
        ),
        Metric(
            "mqtick_client_clock_error_seconds",
            None if values["clock_error_ns"] is None else values["clock_error_ns"] / 1e9,
            "The most by which this clock can be wrong, according to the server in use.",
        ),
        Metric(
            "mqtick_client_follow_unsigned",
            float(values["follow_unsigned"]),
            "1 if formats without tags are followed although there are keys.",
        ),
        Metric(
            "mqtick_client_broker_fills",
            float(values["broker_fills"]),
            "1 while the broker says how long each message was in it.",
        ),
        Metric(
            "mqtick_client_name_heard_twice",
            float(values["name_heard_twice"]),
            "1 while another client asks under this one's name.",
        ),
        Metric("mqtick_client_clock_steps_total", values["clock_steps"], "Steps seen.", "counter"),
        Metric(
            "mqtick_client_unasked_total",
            values["unasked"],
            "Connections ended because the broker sent what it must not.",
            "counter",
        ),
    ]
    for index, row in enumerate(values["servers"]):
        labels = {"server": row["format"] if row["server"] is None else str(row["server"])}
        in_use = float(index == values["chosen"])
        text = "1 for the server in use."
        found.append(Metric("mqtick_client_server_in_use", in_use, text, "gauge", labels))
        for name, value, text in (
            ("offset", row["offset_ns"], "Server minus this clock."),
            ("bound", row["bound_ns"], "The most by which the offset can be wrong."),
            (
                "narrow_bound",
                row["narrow_bound_ns"],
                "The same if the broker is honest and links are symmetric.",
            ),
            ("root_distance", row["root_distance_ns"], "Bound of the server's own error."),
            ("delay", row["delay_ns"], "Round trip to the server and back."),
            (
                "disagreement",
                _gap_ns(values, labels["server"]),
                "From this server's interval to the farthest that does not meet it; 0: all do.",
            ),
            ("sample_age", row["age_ns"], "Time since the newest sample in use."),
        ):
            seconds = None if value is None else value / 1e9
            found.append(Metric(f"mqtick_client_{name}_seconds", seconds, text, "gauge", labels))
        for name, text in (
            ("jumps", "Changes of the offset that later samples confirmed."),
            ("resets", "How often all samples were forgotten."),
        ):
            what = f"mqtick_client_{name}_total"
            found.append(Metric(what, row[name], text, "counter", labels))
        for verdict in row["verdicts"]:
            which = {name: verdict[name] for name in ("kind", "verdict", "reason")}
            found.append(
                Metric(
                    "mqtick_client_samples_total",
                    verdict["count"],
                    "Samples, by what became of them.",
                    "counter",
                    {**labels, **which},
                )
            )
    for number, feed in values.get("chrony", {}).items():
        for outcome, count in feed["sent"].items():
            text = "Samples given to chronyd, by what became of them."
            labels = {"server": number, "outcome": outcome}
            found.append(Metric("mqtick_client_chrony_total", count, text, "counter", labels))
        for reason, count in feed["withheld"].items():
            text, labels = "Bursts withheld from chronyd.", {"server": number, "reason": reason}
            name = "mqtick_client_chrony_withheld_total"
            found.append(Metric(name, count, text, "counter", labels))
    for reason, count in sorted(values["refused"].items()):
        text = "Messages refused, by reason."
        found.append(
            Metric("mqtick_client_refused_total", count, text, "counter", {"reason": reason})
        )
    return found
