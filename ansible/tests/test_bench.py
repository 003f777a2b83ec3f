"""A bench, as the playbook `bench` makes it of a fleet and takes it away again, on a real host.

It is broker, time server and client, is kept awake and watches itself, and has no pins: the one
that it drives is in memory. The lab host needs 80 MB more, which only a wheelhouse with BENCH=1
has, so that part is for those who have one: `make wheelhouse BENCH=1 TARGETS=bookworm-amd64` before
`make fleet-test`.
"""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet import RELEASE, snapshot, wheelhouse
from hosts import Host, Rig
from playbook import PROJECT, Run, needs_hosts, play, write_inventory

pytestmark = needs_hosts
LAB_WHEELHOUSE = PROJECT / "wheelhouse"
IN_MEMORY = {"backend": "memory", "line": 17, "mode": "pulse"}
Play = Callable[..., Run]


def has_lab_packages() -> bool:
    """Whether there is a wheelhouse with them, of this version."""
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    try:
        index = json.loads((LAB_WHEELHOUSE / "index.json").read_text())
        program, sets = index["program"], index["targets"][f"{RELEASE}-amd64"]["sets"]
    except (OSError, KeyError):
        return False
    return "lab" in sets and program.startswith(f"mqtick-{version}-")


LAB = "pi" if has_lab_packages() else "elsewhere"


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig("lab", 80, ["pi"], RELEASE) as rig:
        yield rig


@pytest.fixture(scope="module")
def host(rig: Rig) -> Host:
    return rig.host("pi")


@pytest.fixture(scope="module")
def blank(host: Host) -> set[str]:
    return snapshot(host)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("user")


@pytest.fixture(scope="module")
def run(rig: Rig, folder: Path) -> Play:
    """Run a playbook on the host; its clock is right by decision, so it needs no chrony."""

    def run(playbook: str, *arguments: str, lab: str = "elsewhere", **variables: Any) -> Run:
        groups = {
            "mqtick_broker": ["pi"],
            "mqtick_timeservers": {
                "pi": {"timeserver_number": 0, "timeserver_upstream": [{"kind": "trusted"}]}
            },
            "mqtick_clients": ["pi"],
            "mqtick_pins": ["pi"],
            "mqtick_bench": [lab],
            "mqtick_monitoring": ["pi"],
            "mqtick_realtime": ["pi"],
        }
        packages = wheelhouse(RELEASE) if lab == "elsewhere" else LAB_WHEELHOUSE
        variables |= {"fleet_offline": True, "fleet_wheelhouse": str(packages)}
        # Prometheus is big; the governor is that of this machine, and not the host's.
        variables |= {"monitoring_prometheus": False, "tuning_performance_governor": False}
        inventory = write_inventory(folder, rig, groups, **variables)
        return play(inventory, playbook, "--limit=pi", *arguments)

    return run


@pytest.fixture(scope="module")
def fleet(blank: set[str], host: Host, run: Play) -> set[str]:
    """What the host is like when `site` has run."""
    done = run("site")
    assert done.status == 0, done.said
    return snapshot(host)


def settings(host: Host, program: str) -> dict[str, Any]:
    return tomllib.loads(host.run(f"cat /etc/mqtick/{program}.toml"))


def since(host: Host) -> str:
    """Both programs run, and since when."""
    units = "mqtick-timeserver mqtick-client"
    assert host.run(f"systemctl is-active {units}", check=False).split() == 2 * ["active"]
    return host.run(f"systemctl show --property=ActiveEnterTimestampMonotonic {units}")


ASK_EACH_TARGET = """
import json, urllib.request
for entry in json.load(open("/etc/prometheus/mqtick/targets.json")):
    program, (target,) = entry["labels"]["program"], entry["targets"]
    text = urllib.request.urlopen(f"http://{target}/metrics", timeout=5).read().decode()
    print(program, f"mqtick_{program}_connected" in text)
"""


def test_it_is_kept_awake_and_watched_and_a_second_run_changes_nothing(
    fleet: set[str], host: Host, run: Play
) -> None:
    assert host.run("systemctl is-active mqtick-tuning").strip() == "active"
    found = host.run(f"/opt/mqtick/bin/python -c {shlex.quote(ASK_EACH_TARGET)}")
    assert found.splitlines() == ["client True", "timeserver True"]
    again = run("site", "--tags", "tuning,monitoring")
    assert again.status == 0, again.said
    assert again.recap["pi"]["changed"] == 0, again.said
    assert "scrape.yml has below scrape_configs" in again.sentences


def test_a_host_without_such_a_pin_gets_a_sentence_and_its_programs_go_on(
    fleet: set[str], host: Host, run: Play
) -> None:
    before = since(host)
    said = run("bench")  # bench_pin: gpiod
    assert said.status != 0
    assert "pi cannot give mqtick-timeserver the pin that it is to drive" in said.sentences
    assert "There is no GPIO chip" in said.sentences
    assert "timeserver_settings: {pin: {backend: none}}" in said.sentences
    assert since(host) == before
    assert "pin" not in settings(host, "timeserver")


def test_programs_of_a_bench_obey_experiments_and_a_second_run_changes_nothing(
    fleet: set[str], host: Host, run: Play
) -> None:
    done = run("bench", bench_pin=IN_MEMORY)
    assert done.status == 0, done.said
    for program in ("timeserver", "client"):
        assert settings(host, program)["experiments"] is True
        assert settings(host, program)["pin"] == IN_MEMORY
    assert "user mqtick-lab" in host.run("cat /etc/mosquitto/mqtick.acl")
    before = since(host)
    again = run("bench", bench_pin=IN_MEMORY)
    assert again.status == 0, again.said
    assert again.recap["pi"]["changed"] == 0, again.said
    assert since(host) == before


def test_without_the_bench_it_is_the_fleet_that_it_was(
    fleet: set[str], host: Host, run: Play
) -> None:
    done = run("bench", "-e", "bench_state=absent")
    assert done.status == 0, done.said
    since(host)
    assert snapshot(host) == fleet


@pytest.mark.skipif(LAB != "pi", reason="make wheelhouse BENCH=1 brings its packages")
def test_a_lab_host_sees_instruments_and_a_second_run_changes_nothing(
    fleet: set[str], host: Host, run: Play
) -> None:
    done = run("bench", lab=LAB, bench_pin=IN_MEMORY)
    assert done.status == 0, done.said
    assert "(simulated)" in host.run("mqtick-lab scope identify sigrok:demo")
    libraries = "import pyvisa; print(pyvisa.ResourceManager('@py'))"
    assert "Visa Library at py" in host.run(f'/opt/mqtick/bin/python -c "{libraries}" 2>/dev/null')
    again = run("bench", lab=LAB, bench_pin=IN_MEMORY)
    assert again.status == 0, again.said
    assert again.recap["pi"]["changed"] == 0, again.said


def test_when_all_is_taken_away_the_host_is_what_it_was(
    blank: set[str], fleet: set[str], host: Host, run: Play
) -> None:
    done = run("remove", "-e", "remove_confirm=yes", lab=LAB)
    assert done.status == 0, done.said
    assert without_versions(snapshot(host)) == without_versions(blank)


def without_versions(lines: set[str]) -> set[str]:
    """What sigrok needs may have brought packages of the host up to date; they stay so."""
    return {" ".join(line.split()[:2]) if line.startswith("package") else line for line in lines}
