"""The Debian packages of the Python programs on a blank host: to a synchronised client and away."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from debian_packages import debian_packages
from fleet import PYTHON, RELEASE, ntp_server, snapshot
from hosts import KEPT, Host, Rig
from machine import what_is_missing
from playbook import PROJECT

from demo.local_programs import wait_until

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing() or "-"),
    pytest.mark.skipif(not shutil.which("chronyd"), reason="chronyd, the upstream, is missing"),
]
APT = "DEBIAN_FRONTEND=noninteractive apt-get --quiet=2 --yes --no-install-recommends"
NUMBERS = [f"python3-{name}" for name in ("numpy", "scipy", "pandas", "matplotlib")]


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built() -> list[Path]:
    """The packages of this checkout."""
    run(PROJECT / "packaging/programs.sh", PYTHON=str(PYTHON))
    return sorted((PROJECT / "build").glob("mqtick-*_all.deb"))


@pytest.fixture(scope="module")
def host(built: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host with these, the same as if of an earlier version, and what they need from Debian."""
    needed = debian_packages("packages", ["chrony", "mosquitto"])
    earlier = tmp_path_factory.mktemp("earlier")
    for file in built:
        tree = earlier / "tree"
        run("dpkg-deb", "-R", file, tree)
        version = run("dpkg-deb", "-f", file, "Version").strip()
        control = tree / "DEBIAN/control"
        control.write_text(control.read_text().replace(version, "0.0.9"))
        run("dpkg-deb", "--root-owner-group", "-b", tree, earlier)
        shutil.rmtree(tree)
    with Rig("debs", 91, ["h1"], RELEASE) as rig, ntp_server(rig, earlier.parent):
        (h1,) = rig.hosts
        h1.copy("/root/debs", needed[0].parent, *(file.name for file in needed))
        h1.copy("/root/earlier", earlier, *(file.name for file in earlier.iterdir()))
        h1.copy("/root/built", built[0].parent, *(file.name for file in built))
        upstream = f"server {rig.control} iburst minpoll 0 maxpoll 2"
        h1.run(f"mkdir -p /etc/chrony/conf.d && echo {upstream} >/etc/chrony/conf.d/upstream.conf")
        h1.run(f"{APT} install /root/debs/*.deb", timeout_s=600)
        yield h1


def is_synchronised(host: Host) -> bool:
    told = json.loads(host.run("mqtick-client status --json", check=False) or "{}")
    return bool(told.get("state") == "synchronised")


def state(host: Host, unit: str) -> str:
    return host.run(f"systemctl is-active {unit}; systemctl is-enabled {unit}", check=False)


def test_an_installation_ends_synchronised_an_upgrade_too_and_a_purge_leaves_nothing(
    host: Host,
) -> None:
    before = snapshot(host)
    host.run(f"{APT} install /root/earlier/mqtick-[ct]*.deb", timeout_s=300)
    wait_until(lambda: is_synchronised(host), "the client is synchronised", 60)
    # its other source is the one that the time server takes the time from
    selectable = re.compile("^#[*+-] MQT0", re.MULTILINE)
    wait_until(lambda: selectable.search(host.run("chronyc sources")), "chronyd takes it", 60)
    assert state(host, "mqtick-wait-sync") == "inactive\ndisabled\n"

    # what the administrator has changed stays
    host.run("echo '# mine' >>/etc/mqtick/client.toml; systemctl disable --now mqtick-timeserver")
    commit = host.run("mqtick-client --version")
    pid = host.run("systemctl show --value -p MainPID mqtick-client")
    host.run(f"{APT} install /root/built/mqtick-[ct]*.deb", timeout_s=300)
    assert host.run("mqtick-client --version") == commit
    assert "+g" in commit
    assert host.run("systemctl show --value -p MainPID mqtick-client") not in (pid, "0\n")
    assert host.run("tail -1 /etc/mqtick/client.toml") == "# mine\n"
    assert state(host, "mqtick-timeserver") == "inactive\ndisabled\n"

    # so does it after a removal, and the compiled modules go
    host.run(f"{APT} remove mqtick-common", timeout_s=300)
    assert host.run("find /usr -name '*mqtick*'") == ""
    assert host.run("tail -1 /etc/mqtick/client.toml") == "# mine\n"
    host.run(f"{APT} install /root/built/mqtick-[ct]*.deb", timeout_s=300)
    assert state(host, "mqtick-timeserver") == "inactive\ndisabled\n"
    host.run("systemctl start mqtick-timeserver")
    wait_until(lambda: is_synchronised(host), "the client is synchronised again", 60)

    # systemd remembers a service that has failed
    host.run("echo no TOML >>/etc/mqtick/client.toml; systemctl restart mqtick-client || :")
    host.run("touch /etc/mqtick/client.keys")
    host.run(f"{APT} purge 'mqtick-*'", timeout_s=300)
    assert snapshot(host) ^ before == set()
    assert host.run(f"find / -xdev -name '*mqtick*' -not -path '/root/*' -not -path {KEPT}") == ""


@pytest.mark.skipif(RELEASE == "bookworm", reason="its matplotlib is older than the reports need")
def test_the_bench_runs_with_the_modules_of_debian(host: Host) -> None:
    needed = debian_packages("numbers", [*NUMBERS, "python3-typing-extensions"])
    host.copy("/root/numbers", needed[0].parent, *(file.name for file in needed))
    host.run(f"{APT} install /root/numbers/*.deb /root/built/mqtick-[cl]*.deb", timeout_s=600)
    host.run("cd /root && mqtick-lab simulate --help && mqtick-lab run --example-config >run.toml")
    assert "0.1.0" in host.run("mqtick-report --version")
    samples = "".join(f"{n * 1e-6:.9f},{3.3 * (n > 50)},{3.3 * (n > 60)}\n" for n in range(100))
    host.run(
        f"cd /root && printf '%s' 'time,1,2\n{samples}' >shot.csv && mqtick-report look shot.csv"
    )


def test_two_builds_are_equal_octet_by_octet(built: list[Path]) -> None:
    assert "equal: " in run(PROJECT / "packaging/twice.sh", "packaging/programs.sh")
