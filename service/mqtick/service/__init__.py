"""mqtick: the service room, what both programs need as Linux services."""

from mqtick.service import chronyd, metrics, realtime, settings
from mqtick.service.chronyd_csv import ChronydError, ChronyVersion, Leap, Source, Tracking
from mqtick.service.metrics import Metric
from mqtick.service.metrics_http import MetricsError, MetricsServer
from mqtick.service.settings.schema import SchemaError, SettingsError, key, table
from mqtick.service.status_file import Status, StatusError, StatusFile, read_status
from mqtick.service.synchronised import SyncLimits, is_synchronised, why_not_synchronised
from mqtick.service.systemd import Notifier
from mqtick.service.units import microseconds_to_ns, milliseconds_to_ns, seconds_to_ns

__all__ = [
    "ChronyVersion",
    "ChronydError",
    "Leap",
    "Metric",
    "MetricsError",
    "MetricsServer",
    "Notifier",
    "SchemaError",
    "SettingsError",
    "Source",
    "Status",
    "StatusError",
    "StatusFile",
    "SyncLimits",
    "Tracking",
    "chronyd",
    "is_synchronised",
    "key",
    "metrics",
    "microseconds_to_ns",
    "milliseconds_to_ns",
    "read_status",
    "realtime",
    "seconds_to_ns",
    "settings",
    "table",
    "why_not_synchronised",
]
