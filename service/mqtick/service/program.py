"""Housekeeping of a running program: status file, systemd, metrics, garbage collection."""

from __future__ import annotations

import gc
import importlib.metadata
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from mqtick.service import realtime
from mqtick.service.metrics import Metric
from mqtick.service.page_server import MetricsServer, parse_address
from mqtick.service.settings.program import RealtimeKeys
from mqtick.service.status_file import StatusFile, status_path
from mqtick.service.systemd import Notifier

_log = logging.getLogger(__name__)
_COLLECT_EVERY = 64
TICK_NS = (750_000_000, 500_000_000)
"""Delay and slack of `Housekeeping.tick`: once a second, when the program is awake anyway."""


def check_metrics_listen(address: str) -> None:
    """Raise ValueError, with a sentence, for an address at which metrics cannot be served."""
    if address:
        try:
            parse_address(address)
        except ValueError as error:
            raise ValueError(f"metrics_listen: {error}") from None


def _troubles(first: str, values: Mapping[str, Any]) -> Iterable[Metric]:
    """Return one series for each part that does not work."""
    text = "1 for a part that does not work: the status says why."
    for part in values.get("troubles", {}):
        yield Metric(f"{first}_trouble", 1, text, labels={"part": part})


def trouble_lines(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a status about parts that do not work."""
    for part, why in values.get("troubles", {}).items():
        yield f"{part:<17} does not work: {why}"


class Part(Protocol):
    """An optional part of a program: whatever is wrong with it, the program goes on."""

    @property
    def trouble(self) -> str:
        """Why it does not work, a sentence; empty if it works."""

    def tend(self) -> None:
        """Try again if it does not work. Called about once a second; never waits, never raises."""


class Housekeeping:
    """Call `start` once all is set up, `tick` about once a second, `stop` at the end; none raises.

    Create it before any thread, so that thread stacks are small if memory is locked.
    `status()` returns the status to write; `summary(status)` one line for systemd;
    `metrics(status)` the series for Prometheus. Each of `parts` is tended at each tick; what is
    wrong with it is in `troubles` of the status, a metric, and the line for systemd.
    """

    def __init__(
        self,
        program: str,
        folder: str,
        metrics_listen: str,
        keys: RealtimeKeys,
        *,
        status: Callable[[], dict[str, Any]],
        summary: Callable[[Mapping[str, Any]], str],
        metrics: Callable[[Mapping[str, Any]], Iterable[Metric]],
    ) -> None:
        if keys.lock_memory:
            realtime.small_stacks()
        self.file = StatusFile(status_path(program, folder), program)
        self._status, self._summary, self._keys = status, summary, keys
        self._notifier = Notifier()
        self.latest: dict[str, Any] = {}
        """The status as it was written last."""
        self._ticks = 0
        self._complaint: str | None = None
        self.parts: dict[str, Part] = {}
        self._server: MetricsServer | None = None
        if metrics_listen:
            first = program.replace("-", "_")
            version = {"version": importlib.metadata.version("mqtick")}
            info = Metric(f"{first}_info", 1, "What runs here.", labels=version)
            self._server = self.parts["metrics"] = MetricsServer(
                metrics_listen,
                lambda: [info, *_troubles(first, self.latest), *metrics(self.latest)],
            )

    def start(self) -> None:
        """Apply the real-time settings, serve metrics, tell systemd that we are ready."""
        keys = self._keys
        done = [
            realtime.lock_memory() if keys.lock_memory else None,
            realtime.pin_to_cpus(keys.cpus) if keys.cpus else None,
            realtime.expect_fifo() if keys.expect_fifo else None,
        ]
        for sentence in filter(None, done):
            _log.info("%s", sentence)
        self.tick()
        if keys.quiet_garbage_collector:
            realtime.quiet_garbage_collector()
        self._notifier.ready(self._summary(self.latest))

    def tick(self) -> None:
        """Tend the parts, write the status, feed the watchdog, collect garbage now and then."""
        for part in self.parts.values():
            part.tend()
        troubles = {name: part.trouble for name, part in self.parts.items() if part.trouble}
        if self._complaint:
            troubles["status file"] = self._complaint
        self.latest = {**self._status(), "troubles": troubles}
        complaint = self.file.write(self.latest)
        if complaint and complaint != self._complaint:
            _log.warning("%s", complaint)
        self._complaint = complaint
        self._notifier.status("; ".join((self._summary(self.latest), *troubles.values())))
        self._notifier.watchdog()
        self._ticks += 1
        if self._keys.quiet_garbage_collector and self._ticks % _COLLECT_EVERY == 0:
            gc.collect()  # the tick is called when nothing else is due

    def stop(self) -> None:
        """Tell systemd, stop serving metrics."""
        self._notifier.stopping()
        if self._server is not None:
            self._server.stop()
        self._notifier.close()
