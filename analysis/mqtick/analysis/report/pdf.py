"""The report as PDF: the page, printed by a Chromium where there is one."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from mqtick.recording.shot import replace_file

_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS: Final = (
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--no-first-run",
    # The page asks for nothing; the browser by itself would.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--no-pdf-header-footer",
)
_PATIENCE_S: Final = 120.0


def print_page(html: Path, pdf: Path) -> str:
    """Print a page into `pdf`; return "", or a sentence that says why there is no PDF.

    A PDF that was there before is replaced, or removed where none can be made: it would show
    another report.

    Raises:
        OSError: when the PDF cannot be written or removed.
    """
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    octets = b""
    why = "neither Chromium nor Chrome is installed"
    if browser is not None:
        octets, why = _printed(browser, html)
    if octets:
        replace_file(pdf, octets)
        return ""
    pdf.unlink(missing_ok=True)
    return f"no {pdf.name}: {why}; any browser prints {html.name}"


def _printed(browser: str, html: Path) -> tuple[bytes, str]:
    """Return the PDF, or why there is none."""
    # Beside the page, because a Chromium that is a snap sees nothing of /tmp.
    with tempfile.TemporaryDirectory(
        dir=html.parent, prefix="printing-", ignore_cleanup_errors=True
    ) as own:
        made = Path(own).resolve() / "page.pdf"
        # Chromium's sandbox refuses to run as root.
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        profile = [f"--user-data-dir={made.with_name('profile')}", f"--print-to-pdf={made}"]
        try:
            subprocess.run(
                [browser, *_FLAGS, *root, *profile, html.resolve().as_uri()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
                timeout=_PATIENCE_S,
            )
            return made.read_bytes(), "it is empty"
        except subprocess.TimeoutExpired:
            return b"", f"{browser} did not print the page within {_PATIENCE_S:.0f} s"
        except (OSError, subprocess.CalledProcessError):
            return b"", f"{browser} did not print the page"
