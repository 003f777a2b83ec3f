"""What the roles gpio and tuning make of the boot files of a Raspberry Pi, on made-up trees.

One run of ansible-playbook takes seconds, so all trees are hosts of the same four runs: a check,
the change, the same again, and the way back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from playbook import Run, needs_ansible, play_tasks

pytestmark = [pytest.mark.fleet, needs_ansible]

CONFIG = """\
# For more options and information see
# http://rptl.io/configtxt

#dtparam=i2c_arm=on
dtparam=audio=on
camera_auto_detect=1
dtoverlay=vc4-kms-v3d
disable_overscan=1
arm_boost=1

[cm4]
otg_mode=1

[cm5]
dtoverlay=dwc2,dr_mode=host

[all]
"""
CMDLINE = (
    "console=serial0,115200 console=tty1 root=PARTUUID=4e639091-02 rootfstype=ext4 "
    "fsck.repair=yes rootwait quiet splash\n"
)
PI_4 = "raspberrypi,4-model-b brcm,bcm2711 "
PI_5 = "raspberrypi,5-model-b brcm,bcm2712 "
OUR_LINES = """\
# BEGIN mqtick
enable_uart=1
dtoverlay=pps-gpio,gpiopin=18
# END mqtick
"""
WANTED = {
    "gpio_settings": ["enable_uart=1"],
    "gpio_pps_line": 18,
    "tuning_isolated_cpus": "1",
    # as the command line and an INI inventory give them
    "gpio_reboot": "false",
    "tuning_reboot": "no",
}


@dataclass(frozen=True)
class Tree:
    """A host to be: which board, which files, which variables."""

    board: str
    config: bytes | None
    cmdline: bytes | None
    variables: dict[str, object]


TREES = {
    "pi4": Tree(PI_4, CONFIG.encode(), CMDLINE.encode(), WANTED),
    "no_last_line_end": Tree(PI_5, CONFIG.encode().rstrip(), CMDLINE.encode().rstrip(), WANTED),
    "dos_line_ends": Tree(PI_4, CONFIG.replace("\n", "\r\n").encode(), CMDLINE.encode(), WANTED),
    "nothing_wanted": Tree(PI_4, CONFIG.encode(), CMDLINE.encode(), {}),
    "no_pi_nothing_wanted": Tree("", None, None, {"tuning_isolated_cpus": "1"}),
}
REFUSED = {
    "no_pi": (Tree("acme,board ", CONFIG.encode(), None, WANTED), "this host is no Raspberry Pi"),
    "no_config": (Tree(PI_4, None, None, WANTED), "there is no config.txt in"),
    "line_without_value": (
        Tree(PI_4, CONFIG.encode(), None, {"gpio_settings": ["[pi4]"]}),
        "'[pi4]' (5 characters) is no line for config.txt",
    ),
    "line_too_long": (
        Tree(PI_4, CONFIG.encode(), None, {"gpio_settings": ["dtparam=" + "x" * 91]}),
        "(99 characters) is no line for config.txt",
    ),
    "two_lines_in_one": (
        Tree(PI_4, CONFIG.encode(), None, {"gpio_settings": ["a=1\nb=2"]}),
        "is no line for config.txt",
    ),
    "line_28": (
        Tree(PI_4, CONFIG.encode(), None, {"gpio_pps_line": 28}),
        "gpio_pps_line is 28, but the header of a Raspberry Pi has the lines 0 to 27",
    ),
    "cpu_0": (
        Tree(PI_4, None, CMDLINE.encode(), {"tuning_isolated_cpus": "0-1"}),
        "tuning_isolated_cpus is '0-1', but this host has the CPUs 0-",
    ),
    "cpu_999": (
        Tree(PI_4, None, CMDLINE.encode(), {"tuning_isolated_cpus": "999"}),
        "write a list such as 3 or 2-3",
    ),
    "isolated_by_hand": (
        Tree(PI_4, None, b"quiet isolcpus=2\n", {"tuning_isolated_cpus": "1"}),
        "isolates CPUs already: 'quiet isolcpus=2'",
    ),
    "two_lines_of_kernel": (
        Tree(PI_4, None, b"quiet\nsplash\n", {"tuning_isolated_cpus": "1"}),
        "has more than one line",
    ),
    "pigpiod_on_pi_5": (
        Tree(PI_5, CONFIG.encode(), None, {"gpio_pigpiod": True}),
        "there is no pigpiod for a Raspberry Pi 5",
    ),
    "pigpiod_on_no_pi": (
        Tree("", None, None, {"gpio_pigpiod": True}),
        "there is no pigpiod for a host that is no Raspberry Pi",
    ),
}
TASKS = [
    {
        "name": f"{role} {tasks}",
        "ansible.builtin.include_role": {"name": f"mqtick.fleet.{role}", "tasks_from": tasks},
        "when": when,
    }
    for role, tasks, when in (
        ("gpio", "check", "not away"),
        ("gpio", "config", "not away"),
        ("tuning", "isolate", "not away"),
        ("gpio", "pigpiod", "gpio_pigpiod | default(false) and not away"),
        ("gpio", "remove", "away"),
        ("tuning", "remove", "away"),
    )
]
HERE = {
    "ansible_connection": "local",
    "ansible_python_interpreter": "/usr/bin/python3",
    "ansible_facts": {"distribution": "Debian", "distribution_major_version": "12"},
    "fleet_broker_url": "mqtt://broker.lan",
    "fleet_fix_clock": False,
}


class Bench:
    """Trees in a folder, and the playbook over all of them."""

    def __init__(self, folder: Path, trees: dict[str, Tree]) -> None:
        self.folder, self.hosts = folder, {}
        for name, tree in trees.items():
            boot = folder / name
            boot.mkdir()
            # what role fleet finds out about a host
            fleet_host = {"board": tree.board, "config": "", "cmdline": ""}
            self.hosts[name] = {
                "fleet_host": fleet_host,
                **tree.variables,
            }
            for file, content in (("config", tree.config), ("cmdline", tree.cmdline)):
                if content is not None:
                    path = boot / f"{file}.txt"
                    path.write_bytes(content)
                    fleet_host[file] = str(path)

    def play(self, *flags: str, away: bool = False) -> Run:
        # What lies outside of the boot folder is this machine's own.
        names = ("gpio_rule_file", "gpio_pigpiod_drop_in", "tuning_unit", "tuning_program")
        extra = {"away": away} | {name: str(self.folder / "none" / name) for name in names}
        inventory = {"hosts": self.hosts, "vars": HERE}
        shown = {"ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml", "ANSIBLE_FORKS": "4"}
        return play_tasks(
            self.folder, TASKS, inventory, "-e", json.dumps(extra), *flags, environ=shown
        )

    def changed(self, run: Run) -> dict[str, int]:
        """Return the count of changes of each host; every one has to be without a failure."""
        assert run.recap.keys() == self.hosts.keys(), run.said
        assert not any(each["failed"] or each["unreachable"] for each in run.recap.values())
        return {name: counts["changed"] for name, counts in run.recap.items()}

    def files(self, name: str) -> tuple[bytes | None, bytes | None]:
        return tuple(  # type: ignore[return-value]
            file.read_bytes() if file.exists() else None
            for file in (self.folder / name / "config.txt", self.folder / name / "cmdline.txt")
        )


def test_boot_files_are_changed_once_and_given_back_octet_by_octet(tmp_path: Path) -> None:
    bench = Bench(tmp_path, TREES)
    before = {name: bench.files(name) for name in TREES}

    run = bench.play("--check", "--diff")
    assert {name: bench.files(name) for name in TREES} == before
    changes = {"pi4": 2, "no_last_line_end": 2, "dos_line_ends": 2}
    untouched = {"nothing_wanted": 0, "no_pi_nothing_wanted": 0}
    assert bench.changed(run) == changes | untouched
    assert "+dtoverlay=pps-gpio,gpiopin=18" in run.said

    run = bench.play()
    assert bench.changed(run) == changes | untouched
    for name in changes:
        config, cmdline = before[name]
        assert bench.files(name) == (
            OUR_LINES.encode() + config,
            b"isolcpus=1 nohz_full=1 rcu_nocbs=1 " + cmdline,
        )
    assert "pi4: config.txt has changed, which takes effect at the next boot." in run.said
    assert "pi4: cmdline.txt has changed, which takes effect at the next boot." in run.said
    assert "no_pi_nothing_wanted has no cmdline.txt in" in run.said
    for name in untouched:
        assert bench.files(name) == before[name]

    assert set(bench.changed(bench.play()).values()) == {0}
    assert bench.changed(bench.play(away=True)) == changes | untouched
    assert {name: bench.files(name) for name in TREES} == before


def test_what_cannot_be_done_is_a_sentence_and_changes_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {name: tree for name, (tree, _) in REFUSED.items()})
    before = {name: bench.files(name) for name in REFUSED}
    said = " ".join(bench.play().said.split())
    for name, (_, sentence) in REFUSED.items():
        assert sentence in said, name
        assert bench.files(name) == before[name], name
    assert said.count("failed=1") == len(REFUSED), said
