"""Names in a certificate: as OpenSSL takes them, and as it prints them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

_PRINTED = re.compile(r"(?:DNS|IP Address):([^,\s]+)")


def certificate_names(names: Iterable[object]) -> list[str]:
    """Return `DNS:NAME` and `IP:ADDRESS`, each once and sorted: the values of subjectAltName."""
    return sorted({_entry(str(name)) for name in names if str(name)})


def printed_names(text: str) -> list[str]:
    """Return the same from what `openssl x509 -ext subjectAltName` prints."""
    return certificate_names(_PRINTED.findall(text))


def _entry(name: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name.lower()}"
