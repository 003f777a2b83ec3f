"""Debian packages for hosts without Internet: fetched by a private apt, for any release.

The mirrors are those of this machine's own apt. Its state, its lists and its cache stay as they
are; the private apt has folders of its own, and needs no root.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wheelhouse_index import FIELDS, WheelhouseError, read_index, sha256_of

# With what each of them needs, down to the C library: a host takes what it lacks.
PACKAGES = ["chrony", "mosquitto", "systemd-timesyncd", "ethtool", "iw"]
# systemd-timesyncd, when it comes back, wants its own version of systemd, and these want that too.
PACKAGES += ["libnss-systemd", "libpam-systemd", "systemd-resolved", "systemd-sysv", "udev"]
# sigrok-cli needs a library of Python's, to whose version the Python of the host is bound.
BENCH_PACKAGES = ["sigrok-cli", "sigrok-firmware-fx2lafw", "python3", "prometheus"]
INSTALL = ("-qq", "--yes", "--no-install-recommends", "install")
DISTRIBUTION = {"bookworm": "debian", "trixie": "debian", "noble": "ubuntu"}
KEYRING = "/usr/share/keyrings/{}-archive-keyring.gpg"
PAUSES_S = (5, 20)
# apt's words for a list that is not the one that was signed.
MISMATCH = ("Hash Sum mismatch", "Size mismatch", "unexpected size")


class NoDebsError(Exception):
    """This machine can never fetch Debian packages for a target; the message says why."""


def run(*command: str, **environment: str) -> str:
    """Run a program and return what it printed."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"LC_ALL": "C"} | environment,
    )
    if done.returncode != 0:
        words = [line for line in done.stderr.splitlines() if line.startswith(("E:", "W:"))]
        raise WheelhouseError(f"{command[0]}: {' '.join(words[-3:]) or done.stderr[-500:].strip()}")
    return done.stdout


def release_of_this_machine() -> dict[str, str]:
    """Read /etc/os-release."""
    lines = Path("/etc/os-release").read_text().splitlines()
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}


def sources(release: str, architecture: str) -> str:
    """Return sources for another release, from the mirrors of this machine."""
    if not shutil.which("apt-get"):
        raise NoDebsError("this machine has no apt, so Debian packages cannot be fetched here")
    here = release_of_this_machine()
    if here.get("ID") != DISTRIBUTION[release]:
        raise NoDebsError(
            f"no Debian packages: the apt of this machine ({here.get('ID')}) has no mirror of "
            f"{DISTRIBUTION[release].capitalize()}; hosts of that kind need a way to their own "
            "mirror (fleet_offline: false), or make the wheelhouse on such a machine"
        )
    if here["ID"] == "ubuntu" and (architecture == "amd64") != (
        (ours := run("dpkg", "--print-architecture").strip()) == "amd64"
    ):
        raise NoDebsError(
            f"no Debian packages: Ubuntu keeps those for {architecture} on other mirrors than "
            f"those for {ours}, this machine's; hosts of that kind need a way to their own mirror "
            "(fleet_offline: false), or make the wheelhouse on such a machine"
        )
    own = here["VERSION_CODENAME"]
    told = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)",
               "Created-By: Packages")  # fmt: skip
    lines = []
    keyring = KEYRING.format(DISTRIBUTION[release])
    signed = f"[signed-by={keyring}] " if Path(keyring).exists() else ""
    for address, suite, component in sorted({tuple(line.split()) for line in told.splitlines()}):
        if suite in (own, f"{own}-updates", f"{own}-security") and component in (
            "main",
            "universe",
        ):
            lines.append(f"deb {signed}{address} {suite.replace(own, release, 1)} {component}")
    if not lines:
        raise NoDebsError(f"no Debian packages: this machine's apt has no source of {own} main")
    return "\n".join(lines) + "\n"


def make_root(root: Path, target: str) -> Path:
    """Make the folders and the configuration of a private apt; returns the configuration."""
    release, architecture = target.split("-")
    for name in ("state/lists/partial", "cache/archives/partial", "etc/sources.d", "etc/parts"):
        (root / name).mkdir(parents=True)
    (root / "status").touch()
    (root / "etc/sources.list").write_text(sources(release, architecture))
    # The machine's own settings stay valid only as far as they say how to fetch.
    how = run("apt-config", "dump", "Acquire")
    configuration = root / "etc/apt.conf"
    configuration.write_text(
        how
        + f'Dir::State "{root}/state"; Dir::State::status "{root}/status";\n'
        + f'Dir::Cache "{root}/cache"; Dir::Etc::sourcelist "{root}/etc/sources.list";\n'
        + f'Dir::Etc::sourceparts "{root}/etc/sources.d"; Dir::Etc::parts "{root}/etc/parts";\n'
        + f'Dir::Etc::preferencesparts "{root}/etc/parts"; Dir::Etc::preferences "/dev/null";\n'
        + f'APT::Architecture "{architecture}"; APT::Architectures {{ "{architecture}"; }};\n'
        + 'APT::Sandbox::User "root"; Acquire::Languages "none"; Acquire::Retries "3";\n'
        # A list that cannot be fetched is an error, not a warning.
        + 'APT::Update::Error-Mode "any";\n'
        + 'APT::Install-Recommends "false"; Debug::NoLocking "true";\n'
    )
    return configuration


def describe(path: Path) -> dict[str, Any]:
    """Return what the index says about a package."""
    told = run("dpkg-deb", "-f", str(path), *FIELDS)
    fields = dict(line.split(": ", 1) for line in told.splitlines() if ": " in line)
    if "Package" not in fields or "Version" not in fields:
        raise WheelhouseError(f"{path.name} is not a Debian package")
    # As apt takes them as arguments: a percent sign is a character there.
    named = {key.lower().replace("-", "_"): fields.get(key, "") for key in FIELDS}
    return named | {"file": path.name, "sha256": sha256_of(path), "size": path.stat().st_size}


def take_over(before: Path, target: str, archives: Path) -> None:
    """Copy the packages of an earlier wheelhouse: apt fetches only what it does not find whole."""
    try:
        debs = read_index(before)["targets"][target]["debs"]
    except (WheelhouseError, KeyError):
        return
    for one in debs:
        path = before / "debs" / target / one["file"]
        if path.is_file() and sha256_of(path) == one["sha256"]:
            shutil.copy2(path, archives)


def update(configuration: Path, release: str, say: Callable[[str], None]) -> dict[str, str]:
    """Fetch the package lists; returns which suites had to be left out, and why.

    A mirror that is being changed at the moment gets time for it. One whose lists do not fit
    together for days costs the updates of that release, never the release itself. One that cannot
    be reached costs the wheelhouse: nobody should lack security updates by accident.
    """
    sources_list = configuration.with_name("sources.list")
    pauses = list(PAUSES_S)
    left_out: dict[str, str] = {}
    while True:
        try:
            run("apt-get", "-qq", "update", APT_CONFIG=str(configuration))
            return left_out
        except WheelhouseError as error:
            why = str(error)
        if pauses:
            say(f"trying again in {pauses[0]} s: {why}")
            time.sleep(pauses.pop(0))
            continue
        broken: set[str] = set()
        for failure in why.split("E: Failed to fetch ")[1:]:
            suite = re.search(r"/dists/([^/ ]+)/", failure)
            if not suite or suite[1] == release or not any(one in failure for one in MISMATCH):
                raise WheelhouseError(
                    f"the package lists cannot be fetched: {why} Make the wheelhouse again when "
                    "this machine reaches all of its apt sources ('apt-get update')."
                )
            broken.add(suite[1])
        if not broken:
            raise WheelhouseError(f"the package lists cannot be fetched: {why}")
        lines = sources_list.read_text().splitlines(keepends=True)
        sources_list.write_text("".join(line for line in lines if not broken & set(line.split())))
        sentence = (
            f"no updates of {' and '.join(sorted(broken))}, whose package lists the mirror does "
            f"not serve whole: the packages are those of {release} without them; run the same "
            f"again on another day, or where apt has another mirror ({why})"
        )
        say(sentence)
        left_out |= dict.fromkeys(broken, sentence)


def fetch(
    target: str, folder: Path, bench: bool, before: Path, say: Callable[[str], None]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Fetch the packages for a target and what they need.

    Returns the index's entries, and which suites were left out, and why.
    """
    wanted = PACKAGES + (BENCH_PACKAGES if bench else [])
    with tempfile.TemporaryDirectory(prefix="apt-") as name:
        root = Path(name)
        configuration = make_root(root, target)
        say(f"{target}: package lists")
        left_out = update(configuration, target.partition("-")[0], say)
        # One by one, since some of them exclude each other; what to fetch is asked before an
        # earlier wheelhouse helps, since apt names only files that it lacks.
        names = set()
        for package in wanted:
            told = run("apt-get", *INSTALL, "--print-uris", package, APT_CONFIG=str(configuration))
            names.update(line.split()[1] for line in told.splitlines())
        say(f"{target}: {len(names)} Debian packages")
        archives = root / "cache/archives"
        take_over(before, target, archives)
        for package in wanted:
            run("apt-get", *INSTALL, "--download-only", package, APT_CONFIG=str(configuration))
        folder.mkdir(parents=True)
        for one in sorted(names):
            shutil.copy2(archives / one, folder)
    return [describe(path) for path in sorted(folder.iterdir())], left_out
