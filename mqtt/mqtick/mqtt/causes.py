"""Why there is no connection: the causes that programs distinguish, and the remedies."""

from __future__ import annotations

import enum
import errno
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Final

# OpenSSL, x509_vfy.h: X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED
_DATE_ERRORS = (9, 10)
# X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH
_NAME_ERRORS = (62, 64)
# Errors that only X509_V_FLAG_X509_STRICT raises: X509_V_ERR_PATHLEN_INVALID_FOR_NON_CA to
# X509_V_ERR_EXTENSIONS_REQUIRE_VERSION_3. ssl.create_default_context sets it from Python 3.13 on.
_STRICT_ERRORS = range(80, 94)
# OpenSSL, sslerr.h: the alerts with which a broker requests or refuses our certificate.
_ALERTS_ABOUT_OURS = (
    "SSLV3_ALERT_BAD_CERTIFICATE",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED",
    "TLSV1_ALERT_UNKNOWN_CA",
)


@enum.unique
class Cause(enum.Enum):
    """Why there is no connection; the value is the remedy.

    TIMED_OUT: the connection was not accepted. SILENT: it was accepted, but no answer came.
    UNKNOWN: no other cause fits, for instance if an established connection broke.
    """

    CREDENTIALS = "--username and --password-file, or the keys: does the broker know them?"
    IDENTIFIER = "client_id: the one that the broker binds to the account, or a shorter one"
    RETAINED = "the broker takes no retained messages, or none at QoS 1: its limits"
    UNASKED = "the broker, or who answers in its place, is broken or hostile: see what it sent"
    VERSION = "mqtt_version: the broker does not speak this one"
    BUSY = "the broker takes no more connections now: its limits, and its log"
    AUTHORITY = "--ca-file, or the key: who signed the broker's certificate?"
    DATES = "is the system clock right? otherwise renew the broker's certificate"
    NAME = "write the broker's address by a name that is in its certificate"
    EXTENSIONS = "make new ones: docs/operations.md, an authority of your own, has the commands"
    OUR_CERTIFICATE = "certificate_file: the broker wants one, or does not know who signed ours"
    TLS = "mqtts:// to a port without TLS, or a protocol that one side does not know"
    HOST_UNKNOWN = "the host's name: does `getent hosts NAME` find it?"
    NOBODY_LISTENS = "is the broker up? Mosquitto accepts other hosts only with `listener`"
    UNREACHABLE = "is the network up, and is there a route to the broker's host?"
    TIMED_OUT = "is the broker's host up, and does a firewall let the connection through?"
    SILENT = (
        "does MQTT live on this port, with TLS (mqtts://), WebSocket (ws://) or UDP (mqtt+udp://)?"
    )
    HUNG_UP = "does MQTT live on this port? if so, the broker's log says why it hangs up"
    NOT_MQTT = "what answers on this port is not MQTT, or not over this transport"
    UNKNOWN = "try mosquitto_sub -h HOST -t 'mqtick/#' -v from this host, and the broker's log"


# MQTT 5.0, 2.4; paho-mqtt translates the return codes of MQTT 3.1.1, 3.2.2.3.
_REFUSALS: Final[Mapping[int, Cause]] = {
    0x84: Cause.VERSION,
    0x85: Cause.IDENTIFIER,
    0x86: Cause.CREDENTIALS,
    0x87: Cause.CREDENTIALS,
    0x88: Cause.BUSY,
    0x89: Cause.BUSY,
    0x8C: Cause.CREDENTIALS,
    0x97: Cause.BUSY,
    0x9A: Cause.RETAINED,
    0x9B: Cause.RETAINED,
    0x9F: Cause.BUSY,
}


def cause_of_refusal(reason: int) -> Cause:
    """Return the cause behind the reason code of a CONNACK or DISCONNECT."""
    return _REFUSALS.get(reason, Cause.UNKNOWN)


def cause_of(error: Exception) -> Cause:
    """Return the cause behind an exception that connecting raised."""
    match error:
        case ssl.SSLCertVerificationError():
            return _cause_of_code(error.verify_code)
        case ssl.SSLError():
            return Cause.OUR_CERTIFICATE if error.reason in _ALERTS_ABOUT_OURS else Cause.TLS
        case socket.gaierror():
            return Cause.HOST_UNKNOWN
        case TimeoutError():
            return Cause.TIMED_OUT
        case ConnectionRefusedError() | FileNotFoundError():  # the latter: a Unix socket
            return Cause.NOBODY_LISTENS
        case OSError(errno=errno.EHOSTUNREACH | errno.ENETUNREACH | errno.ENETDOWN):
            return Cause.UNREACHABLE
        case OSError() if not isinstance(error, ConnectionError):
            return Cause.UNKNOWN
    return Cause.NOT_MQTT  # paho-mqtt raises many types if the answer is not WebSocket


def _cause_of_code(code: int) -> Cause:
    if code in _DATE_ERRORS:
        return Cause.DATES
    if code in _NAME_ERRORS:
        return Cause.NAME
    return Cause.EXTENSIONS if code in _STRICT_ERRORS else Cause.AUTHORITY


def why_not_connected(error: Exception) -> str:
    """Say why a connection could not be made; if dates are the reason, also give the clock's."""
    said = str(error) or type(error).__name__
    cause = cause_of(error)
    if cause is Cause.DATES:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return f"{said}; this machine's clock says {now}"
    if cause is Cause.EXTENSIONS:
        return (
            f"{said}; Python 3.13 and newer refuse certificates and authorities that lack what "
            "RFC 5280 requires, which older ones accepted; docs/operations.md (an authority of "
            "your own) has the commands that make good ones"
        )
    return said
