"""`make install-server`, `make install-client` and `make uninstall` on a real systemd host.

Here, because the hosts are: tests/test_install.py has what can be seen without one.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from debian_packages import debian_packages
from fleet import PYTHON, RELEASE, snapshot
from hosts import Host, Rig
from playbook import PROJECT, needs_hosts

pytestmark = needs_hosts
CHECKOUT = "/root/a checkout"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host with chrony, a broker, Python's virtual environments and the checkout."""
    packages = debian_packages("by-hand", ["chrony", "mosquitto", "python3-venv"])
    wheels, folder = tmp_path_factory.mktemp("wheels"), PROJECT / "requirements"
    lists = [f"--requirement={folder / name}.txt" for name in ("build", "gpiod", "service")]
    version = "--python-version=" + {"bookworm": "3.11", "trixie": "3.13"}[RELEASE]
    fetch = [PYTHON, "-m", "pip", "download", "--quiet", "--only-binary=:all:", version]
    subprocess.run([*fetch, f"--dest={wheels}", *lists], check=True)
    with Rig("hand", 81, ["pi"], RELEASE) as rig:
        (pi,) = rig.hosts
        pi.copy("/root/debs", packages[0].parent, *(file.name for file in packages))
        pi.copy("/root/wheels", wheels, *(file.name for file in wheels.iterdir()))
        listed = ["git", "-C", str(PROJECT), "ls-files"]
        names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split(
            "\n"
        )
        pi.copy(CHECKOUT, PROJECT, *filter(None, names))
        apt = "DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends"
        pi.run(f"{apt} -qq /root/debs/*.deb && rm -r /root/debs", timeout_s=300)
        yield pi


def install(host: Host, *arguments: str) -> str:
    """Run the installer there."""
    pip = "PIP_NO_INDEX=1 PIP_FIND_LINKS=/root/wheels"
    return host.run(f"{pip} '{CHECKOUT}/scripts/install.sh' {' '.join(arguments)}", timeout_s=300)


def test_what_is_installed_runs_and_goes_without_a_trace(host: Host) -> None:
    before = snapshot(host)
    install(host, "server", "--broker", "mqtt://localhost")
    install(host, "client", "--broker", "mqtt://localhost", "--number", "0,7")
    for unit in ("mqtick-timeserver", "mqtick-client"):
        assert host.run(f"systemctl is-active {unit}").strip() == "active"
    sockets = host.run("stat -c '%n %G' /run/chrony.mqtick*.sock").splitlines()
    delays = ("", ".20ms", ".100ms", ".1000ms")
    assert set(sockets) == {
        f"/run/chrony.mqtick{n}{delay}.sock mqtick" for n in (0, 7) for delay in delays
    }
    # systemd remembers a service that has failed, chronyd keeps a socket that is not needed.
    host.run("echo no TOML >>/etc/mqtick/timeserver.toml; systemctl restart mqtick-timeserver || :")
    assert host.run("systemctl is-failed mqtick-timeserver").strip() == "failed"
    install(host, "client", "--number", "0")
    host.run("/opt/mqtick/scripts/install.sh uninstall")
    assert snapshot(host) ^ before == set()
    assert "nothing to remove" in install(host, "uninstall")
