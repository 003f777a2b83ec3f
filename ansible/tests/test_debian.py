"""An offline host gets exactly the Debian packages that it lacks, and loses exactly those again."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from ansible_collections.mqtick.fleet.plugins.module_utils.debian import (
    DebianError,
    Package,
    files_needed,
    installed_packages,
    only_for_us,
    refusal,
    time_daemons,
    what_apt_would_do,
    with_transitional,
    words_of_apt,
)
from ansible_collections.mqtick.fleet.plugins.module_utils.record import Record
from ansible_collections.mqtick.fleet.plugins.module_utils.wheelhouse_index import packages_file
from playbook import needs_ansible, play_tasks


def installed(*lines: tuple[str, str, str, str]) -> dict[str, Package]:
    """Packages of a host: name, version, what it provides, what it needs."""
    return installed_packages(
        "".join(f"installed\t{n}\t{v}\tamd64\t{p}\t\t{d}\n" for n, v, p, d in lines)
    )


Lines = list[tuple[str, str, str, str]]


def run(*command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "LC_ALL": "C", **environ}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def chosen(folder: Path, wanted: list[str], host: Lines, cache: Lines) -> list[str]:
    """What a real apt takes of a wheelhouse for a host that has no more than these packages."""
    status = folder / "status"
    status.write_text(
        "\n".join(
            f"Package: {name}\nStatus: install ok installed\nVersion: {version}\n"
            "Architecture: all\nMaintainer: a\nDescription: a\n"
            + (f"Provides: {provides}\n" if provides else "")
            + (f"Depends: {depends}\n" if depends else "")
            for name, version, provides, depends in host
        )
    )
    keys = ("package", "version", "provides", "depends")
    debs = (
        dict(zip(keys, line, strict=True))
        | {"architecture": "all", "file": f"{line[0]}.deb", "size": 9, "sha256": "0" * 64}
        for line in cache
    )
    more = f'Dir::State::status "{status}";'
    files = files_needed(wanted, packages_file(debs), run, more)
    return sorted(file.partition("_")[0] for file in files)


@pytest.mark.needs("apt-get")
def test_only_what_the_host_lacks_is_sent(tmp_path: Path) -> None:
    host = [("libc6", "2.36", "", ""), ("debconf", "1.5", "debconf-2.0", "")]
    cache = [
        ("chrony", "4.3", "time-daemon", "libc6 (>= 2.34), libcap2, debconf | debconf-2.0"),
        ("libcap2", "1:2.66", "", "libc6 (>= 2.14)"),
        ("libc6", "2.36", "", ""),
        ("mosquitto", "2.0", "", ""),
    ]
    assert chosen(tmp_path, ["chrony"], host, cache) == ["chrony", "libcap2"]


@pytest.mark.needs("apt-get")
def test_a_library_that_is_too_old_is_replaced_with_all_that_is_bound_to_it(tmp_path: Path) -> None:
    host = [
        ("systemd", "252.33", "", "libsystemd-shared (= 252.33)"),
        ("libsystemd-shared", "252.33", "", ""),
        ("udev", "252.33", "", ""),
    ]
    cache = [
        ("systemd-timesyncd", "252.39", "", "libsystemd-shared (= 252.39)"),
        ("libsystemd-shared", "252.39", "", ""),
        ("systemd", "252.39", "", "libsystemd-shared (= 252.39)"),
        ("udev", "252.39", "", ""),
    ]
    assert chosen(tmp_path, ["systemd-timesyncd"], host, cache) == [
        "libsystemd-shared", "systemd", "systemd-timesyncd",
    ]  # fmt: skip


@pytest.mark.needs("apt-get")
def test_what_nobody_has_is_named(tmp_path: Path) -> None:
    with pytest.raises(DebianError, match="Unable to locate package gpsd"):
        chosen(tmp_path, ["gpsd"], [], [("chrony", "4.3", "", "")])
    with pytest.raises(DebianError, match=r"chrony : Depends: libc6 \(>= 2\.36\)"):
        chosen(tmp_path, ["chrony"], [], [("chrony", "4.3", "", "libc6 (>= 2.36)")])


@pytest.mark.needs("apt-get")
@needs_ansible
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mqtick-nothing", "mqtick-never"])
def test_the_host_is_asked_what_it_needs_of_the_wheelhouse(tmp_path: Path, name: str) -> None:
    deb = {"package": "mqtick-nothing", "version": "1", "architecture": "all", "size": 1}
    deb |= {"file": "mqtick-nothing_1_all.deb", "sha256": hashlib.sha256(b"a").hexdigest()}
    house = tmp_path / "debs/t"
    house.mkdir(parents=True)
    (house / "mqtick-nothing_1_all.deb").write_bytes(b"a")
    entry = {"sets": {}, "missing": {}, "debs": [deb]}
    index = {"format": 1, "pip": "", "wheels": {}, "targets": {"t": entry}}
    (tmp_path / "index.json").write_text(json.dumps(index))
    wanted = {"names": [name], "wheelhouse": str(tmp_path), "target": "t"}
    here = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
    task = {"mqtick.fleet.packages": {**wanted, "record": str(tmp_path / "record")}}
    run = play_tasks(tmp_path, [task], {"hosts": {"h": here}}, "--check", "-v")
    if name == "mqtick-nothing":
        assert run.recap["h"]["changed"] == 1, run.said
    else:
        assert "has not all that mqtick-never needs on this host: E: Unable" in run.sentences


@pytest.mark.parametrize(
    ("status", "there"),
    [("config-files", False), ("not-installed", False), ("installed", True),
     ("triggers-pending", True), ("unpacked", True)],
)  # fmt: skip
def test_a_package_is_there_from_unpacking_to_removal(status: str, there: bool) -> None:
    assert bool(installed_packages(f"{status}\tdbus\t1.14\tamd64\t\t\t\n")) is there


def test_a_package_that_something_else_needs_by_now_stays() -> None:
    host = installed(
        ("mosquitto", "2", "", "libmosquitto1, libcjson1"),
        ("libmosquitto1", "2", "", "libssl3"),
        ("libcjson1", "1", "", ""),
        ("their-program", "1", "", "libmosquitto1"),
    )
    added = {"mosquitto", "libmosquitto1", "libcjson1", "gone-long-ago"}
    assert only_for_us(added, host) == ["libcjson1", "mosquitto"]


def test_nothing_but_another_time_daemon_may_go_for_a_package_that_comes() -> None:
    host = installed(
        ("systemd-timesyncd", "252", "time-daemon", ""),
        ("ntpsec", "1.2", "ntp, time-daemon", ""),
        ("python3", "3.11", "", "libpython3.11-stdlib (= 3.11)"),
    )
    assert time_daemons(host) == {"systemd-timesyncd", "ntpsec"}


def test_an_empty_package_that_needs_nothing_but_the_time_daemon_may_go_with_it() -> None:
    host = installed(
        ("ntpsec", "1.2.2", "time-daemon", "libc6 (>= 2.34)"),
        ("libc6", "2.36", "", ""),
        ("ntp", "1:4.2.8", "", "ntpsec"),
        ("their-clock", "1", "", "ntp"),
        ("their-program", "1", "", "ntp, libc6"),
        ("their-other", "1", "", "ntp | libc6"),
        ("their-third", "1", "", ""),
    )
    may_go = with_transitional(time_daemons(host), host)
    assert may_go == {"ntpsec", "ntp", "their-clock"}
    assert refusal(["ntp", "ntpsec"], may_go) == ""
    assert "would also remove their-program. Nothing was changed" in refusal(
        ["ntp", "ntpsec", "their-program"], may_go
    )


def test_what_would_go_with_our_packages_is_told_as_what_needs_them() -> None:
    said = refusal(["chrony", "theirs"], {"chrony"}, restoring=True)
    assert said.startswith("apt would also remove theirs, which needs what this collection has")
    assert "wheelhouse" not in said


def test_the_record_is_the_difference_between_before_and_now(tmp_path: Path) -> None:
    record = Record(tmp_path / "mqtick-fleet")
    record.begin({"base", "timesyncd"}, ["chrony"], ["timesyncd"])
    record.end({"base", "chrony"})
    record.begin({"base", "chrony"}, ["mosquitto"], [])
    record.end({"base", "chrony", "mosquitto"})
    assert (record.added, record.removed) == ({"chrony", "mosquitto"}, {"timesyncd"})
    record.begin({"base", "chrony", "mosquitto"}, ["timesyncd"], ["chrony", "mosquitto"])
    record.end({"base", "timesyncd"})
    assert (record.added, record.removed) == (set(), set())


def test_an_interrupted_run_is_counted_by_the_next(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.begin({"base"}, ["libcap2", "chrony"], [])
    assert record.is_half_finished  # killed after the first package; this is the next run
    record.end({"base", "libcap2"})
    assert not record.is_half_finished
    record.begin({"base", "libcap2"}, ["chrony"], [])
    record.end({"base", "libcap2", "chrony"})
    assert record.added == {"libcap2", "chrony"}


def test_what_others_install_and_remove_meanwhile_is_not_ours(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.begin({"base", "timesyncd", "old-kernel"}, ["chrony"], ["timesyncd"])
    record.end({"base", "chrony", "postgresql"})  # days later, after an interruption
    assert (record.added, record.removed) == ({"chrony"}, {"timesyncd"})


def test_a_simulation_of_apt_is_read() -> None:
    told = (
        "Remv systemd-timesyncd [252.39]\n"
        "Inst libc6 [2.36-1] (2.36-2 Debian:12 [amd64])\n"
        "Inst chrony (4.3-2 Debian:12 [amd64])\nConf chrony (4.3-2 Debian:12 [amd64])\n"
    )
    assert what_apt_would_do(told) == (["chrony"], ["systemd-timesyncd"])


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "disk .* is full"),
        ("dpkg: error processing archive x: No space left on device", "disk .* is full"),
        (
            "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt)",
            "wait until",
        ),
        ("E: Unable to locate package chrony", "fleet_offline: true"),
        ("E: Failed to fetch x  Temporary failure resolving 'x'", "fleet_offline: true"),
        ("E: Release file for x is not valid yet (invalid for another 2y)", "clock .* is wrong"),
        ("E: Sub-process /usr/bin/dpkg returned an error code (1)", "Run this again when"),
    ],
)
def test_what_apt_says_comes_with_what_to_do(words: str, remedy: str) -> None:
    said = words_of_apt(f"Reading package lists...\n{words}\n")
    assert said.startswith(words)
    assert re.search(remedy, said)
