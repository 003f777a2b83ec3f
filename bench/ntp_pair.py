"""Two chronyd on the loopback, one the other's NTP server: what NTP does in the same run.

Both read the same clock and steer nothing (-x), so the true offset is zero.
"""

from __future__ import annotations

import getpass
import os
import pwd
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from demo.local_broker import free_port, program


class NtpPair:
    """Server and client, started at once; without chrony, nothing."""

    def __init__(self, folder: Path) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._socket = ""
        chronyd = program("chronyd")
        if chronyd is None:
            return
        user = "nobody" if os.geteuid() == 0 else getpass.getuser()
        port = free_port()
        os.chmod(folder, 0o755)
        lines = {
            "ntp-server": f"port {port}\nlocal stratum 1\nallow 127.0.0.1\nbindaddress 127.0.0.1\n",
            "ntp-client": f"port 0\nserver 127.0.0.1 port {port} xleave minpoll 0 maxpoll 0\n",
        }
        for name, text in lines.items():
            place = folder / name
            place.mkdir(mode=0o700)
            if os.geteuid() == 0:
                os.chown(place, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
            (folder / f"{name}.conf").write_text(
                f"{text}cmdport 0\nbindcmdaddress {place}/socket\npidfile {place}/pid\n"
            )
            command = [chronyd, "-U", "-x", "-d", "-u", user, "-f", str(folder / f"{name}.conf")]
            if os.geteuid() == 0:
                command = [
                    "setpriv",
                    "--reuid",
                    user,
                    "--regid",
                    "nogroup",
                    "--clear-groups",
                    *command,
                ]
            self._processes.append(
                subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            self._socket = str(place / "socket")

    def errors_us(self, warm_up_s: float, seconds: float) -> Iterator[float]:
        """Yield, once a second, by how much the client believes the clocks differ."""
        if not self._processes:
            return
        time.sleep(warm_up_s)
        end = time.monotonic() + seconds
        chronyc = program("chronyc") or "chronyc"
        while time.monotonic() < end:
            found = subprocess.run(
                [chronyc, "-h", self._socket, "-c", "tracking"],
                capture_output=True,
                text=True,
                check=False,
            )
            fields = found.stdout.split(",")
            if len(fields) == 14 and fields[13].strip() == "Normal":
                yield float(fields[4]) * 1e6
            time.sleep(1)

    def stop(self) -> None:
        """End both."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()
