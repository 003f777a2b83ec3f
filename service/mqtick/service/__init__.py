"""mqtick: what both programs need as Linux services."""

from mqtick.service import chronyd
from mqtick.service.chronyd_csv import ChronydError, ChronyVersion, Leap, Source, Tracking
from mqtick.service.metrics import Metric
from mqtick.service.settings.schema import SettingsError
from mqtick.service.status_file import Status, StatusError, StatusFile, read_status
from mqtick.service.synchronised import why_not_synchronised

__all__ = [
    "ChronyVersion",
    "ChronydError",
    "Leap",
    "Metric",
    "SettingsError",
    "Source",
    "Status",
    "StatusError",
    "StatusFile",
    "Tracking",
    "chronyd",
    "read_status",
    "why_not_synchronised",
]
