"""Filters for keys, accounts and the broker's files; what they do is in module_utils."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.mqtick.fleet.plugins.module_utils import (
    accounts,
    certificates,
    passwords,
    secrets,
)


def _sentence(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except (accounts.InventoryError, secrets.SecretsError) as error:
            raise AnsibleFilterError(str(error)) from None

    return call


class FilterModule:
    """Names as they are used in templates."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return them."""
        found = {
            "client_name": accounts.client_name,
            "fleet_accounts": accounts.fleet_accounts,
            "account_names": accounts.account_names,
            "access_list": accounts.access_list,
            "certificate_names": certificates.certificate_names,
            "printed_names": certificates.printed_names,
            "mosquitto_passwords": passwords.mosquitto_passwords,
            "server_key_file": secrets.server_key_file,
            "client_key_file": secrets.client_key_file,
        }
        return {name: _sentence(function) for name, function in found.items()}
