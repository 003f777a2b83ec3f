"""Housekeeping of a running program: status file, systemd, metrics, garbage collection."""

from __future__ import annotations

import gc
import importlib.metadata
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from mqtick.service import realtime
from mqtick.service.metrics import Metric
from mqtick.service.metrics_http import MetricsServer, parse_address
from mqtick.service.settings.program import RealtimeKeys
from mqtick.service.status_file import StatusFile
from mqtick.service.systemd import Notifier

__all__ = ["TICK_NS", "Housekeeping", "check_metrics_listen", "status_path"]

_log = logging.getLogger(__name__)
_COLLECT_EVERY = 64
TICK_NS = (750_000_000, 500_000_000)
"""Delay and slack of `Housekeeping.tick`: once a second, when the program is awake anyway."""


def status_path(program: str, folder: str) -> Path:
    """Return the path of the program's status: in the configured folder, systemd's, or the usual.

    Users other than root have no /run/PROGRAM: their usual folder is below $XDG_RUNTIME_DIR.
    """
    if folder:
        return Path(folder) / "status.json"
    # The unit's RuntimeDirectory= sets this for the service itself, but not for a status command.
    own = os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    if own:
        return Path(own) / "status.json"
    usual = Path("/run") / program
    private = os.environ.get("XDG_RUNTIME_DIR", "")
    if private and not usual.exists() and os.geteuid() != 0:
        usual = Path(private) / program
    return usual / "status.json"


def check_metrics_listen(address: str) -> None:
    """Raise ValueError, with a sentence, for an address at which metrics cannot be served."""
    if address:
        try:
            parse_address(address)
        except ValueError as error:
            raise ValueError(f"metrics_listen: {error}") from None


def _info(program: str) -> Metric:
    """Return the series with the version as a label: always 1, as is usual for exporters."""
    labels = {"version": importlib.metadata.version("mqtick")}
    return Metric(f"{program.replace('-', '_')}_info", 1, "What runs here.", labels=labels)


class Housekeeping:
    """Call `start` once all is set up, `tick` about once a second, `stop` at the end; none raises.

    Create it before any thread, so that thread stacks are small if memory is locked.
    `status()` returns the status to write; `summary(status)` one line for systemd;
    `metrics(status)` the series for Prometheus.
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
        path = status_path(program, folder)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            _log.warning("the folder %s cannot be made: %s", path.parent, error)
        self.file = StatusFile(path, program)
        self._status, self._summary, self._keys = status, summary, keys
        self._notifier = Notifier()
        self._latest: dict[str, Any] = {}
        self._ticks = 0
        self._complaint: str | None = None
        self._server: MetricsServer | None = None
        if metrics_listen:
            info = _info(program)
            self._server = MetricsServer(metrics_listen, lambda: [info, *metrics(self._latest)])

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
        if self._server is not None:
            self._server.start()
        self.tick()
        if keys.quiet_garbage_collector:
            realtime.quiet_garbage_collector()
        self._notifier.ready(self._summary(self._latest))

    def tick(self) -> None:
        """Write the status, feed the watchdog, collect garbage now and then."""
        self._latest = self._status()
        complaint = self.file.write(self._latest)
        if complaint and complaint != self._complaint:
            _log.warning("%s", complaint)
        self._complaint = complaint
        self._notifier.status(self._summary(self._latest))
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
