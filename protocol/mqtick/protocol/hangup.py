"""SIGHUP makes a running program read its key file again: keys change, nothing else does."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable

from mqtick.protocol.auth import KeyFileError, Keyring, load_key_file

_log = logging.getLogger("mqtick.keys")


def read_keys_on_hangup(
    call_on_signal: Callable[[signal.Signals, Callable[[], None]], None],
    path: str,
    use: Callable[[Keyring], None],
) -> None:
    """On each SIGHUP call `use` with the keys that `path` holds then.

    A file that cannot be used is reported, and the keys stay; they also stay without a `path`.
    """

    def read_again() -> None:
        if not path:
            _log.warning("SIGHUP: keys_file is not set, so there is nothing to read again.")
            return
        try:
            use(load_key_file(path))
        except KeyFileError as error:
            _log.error("SIGHUP: %s The keys that were loaded before stay in use.", error)
        except OSError as error:
            _log.error(
                "SIGHUP: %s: %s. The keys that were loaded before stay in use.",
                path,
                error.strerror,
            )
        else:
            _log.info("SIGHUP: the keys were read again from %s", path)

    call_on_signal(signal.SIGHUP, read_again)
