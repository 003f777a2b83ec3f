"""Debian's Chromium without a screen, driven through chromedriver (WebDriver over HTTP)."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

MISSING: Final = next(
    (
        f"{name} is not installed (Debian: apt install chromium chromium-driver)"
        for name in ("chromedriver", "chromium")
        if shutil.which(name) is None
    ),
    "",
)
_FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
_PATIENCE_S: Final = 30


class Browser:
    """One window of a browser; widths in CSS pixels."""

    def __init__(self, address: str, session: str) -> None:
        self._address = f"{address}/session/{session}"

    def open(self, path: Path) -> None:
        _ask("POST", f"{self._address}/url", {"url": path.resolve().as_uri()})

    def run(self, script: str) -> Any:
        """Return what a script returns."""
        return _ask("POST", f"{self._address}/execute/sync", {"script": script, "args": []})

    def command(self, name: str, **parameters: Any) -> Any:
        """Give a command of the DevTools protocol."""
        body = {"cmd": name, "params": parameters}
        return _ask("POST", f"{self._address}/goog/cdp/execute", body)

    def show(self, width: int, height: int, *, dark: bool = False, printed: bool = False) -> None:
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        media = "print" if printed else ""
        self.command("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def log(self, kind: str) -> list[dict[str, Any]]:
        """Return what was logged since it was asked last: "browser" or "performance"."""
        return list(_ask("POST", f"{self._address}/se/log", {"type": kind}))

    def requests(self) -> list[str]:
        """Return the addresses that were asked for since the last time."""
        messages = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser with a profile of its own, and end it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    driver = subprocess.Popen(
        [str(shutil.which("chromedriver")), f"--port={port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            _wait_for(address)
            session = _ask("POST", f"{address}/session", _wanted(profile))["sessionId"]
            try:
                window = Browser(address, session)
                window.run("location.replace('about:blank')")
                window.requests()
                yield window
            finally:
                _ask("DELETE", f"{address}/session/{session}")
    finally:
        driver.terminate()
        driver.wait(10)


def _wanted(profile: str) -> dict[str, Any]:
    options = {
        "binary": shutil.which("chromium"),
        "args": [*_FLAGS, f"--user-data-dir={profile}"],
        "perfLoggingPrefs": {"enableNetwork": True},
    }
    wanted = {
        "browserName": "chrome",
        "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        "goog:chromeOptions": options,
    }
    return {"capabilities": {"alwaysMatch": wanted}}


def _wait_for(address: str) -> None:
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            _ask("GET", f"{address}/status")
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def _ask(method: str, address: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    request.method = method
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_PATIENCE_S * 2) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{method} {address}: {error.read().decode()[:2000]}") from error
