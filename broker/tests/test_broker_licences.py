"""The crates of the broker: which licences are taken, and what is shipped of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from broker.server import licences


@pytest.mark.parametrize(
    ("expression", "taken"),
    [
        ("MIT", {"MIT"}),
        ("MIT OR Apache-2.0", {"Apache-2.0"}),
        ("Apache-2.0 / MIT", {"Apache-2.0"}),
        ("Unlicense OR MIT", {"MIT"}),
        ("Apache-2.0 AND ISC", {"Apache-2.0", "ISC"}),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", {"Apache-2.0", "Unicode-3.0"}),
        ("MIT OR Apache-2.0 OR LGPL-2.1-or-later", {"Apache-2.0"}),
        ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", {"Apache-2.0"}),
        ("GPL-3.0 OR (MIT AND Zlib)", {"MIT", "Zlib"}),
    ],
)
def test_of_several_licences_a_permissive_one_is_taken(expression: str, taken: set[str]) -> None:
    assert licences.taken(expression) == taken


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "GPL-3.0-only",
        "MIT AND GPL-2.0",
        "MPL-2.0 OR LGPL-3.0",
        "MIT MIT",
        "(MIT",
        "MIT OR",
        "WITH",
    ],
)
def test_other_licences_and_what_cannot_be_read_are_refused_by_name(expression: str) -> None:
    crate = {"name": "crate", "version": "1.0.0", "license": expression}
    (sentence,) = licences.refused([crate])
    assert sentence.startswith("crate 1.0.0: ")


def crate(folder: Path, name: str, licence: str, **texts: str) -> dict[str, Any]:
    """Make a crate that brings texts of its licences."""
    home = folder / name
    home.mkdir()
    for file, text in texts.items():
        (home / file.replace("_", "-")).write_text(text)
    return {
        "name": name,
        "version": "1.2.3",
        "license": licence,
        "authors": ["Ann"],
        "manifest_path": str(home / "Cargo.toml"),
    }


def test_the_copyright_file_names_each_crate_and_has_the_texts_that_debian_lacks(
    tmp_path: Path,
) -> None:
    both = crate(tmp_path, "both", "MIT OR Apache-2.0", LICENSE_MIT="Copyright (c) 2020 Bob")
    only = crate(tmp_path, "only", "MIT", LICENSE="Copyright (c) 2021 Eve\n\nPermission is granted")
    written = licences.copyright_file([both, only])
    assert "both 1.2.3: Apache-2.0 (of MIT OR Apache-2.0)\n" in written
    assert "Bob" not in written
    assert (
        "Files: only-1.2.3/*\nCopyright: 2021 Eve\nLicense: MIT\n Copyright (c) 2021 Eve\n .\n"
        in written
    )


def test_a_crate_without_the_text_of_its_licence_cannot_be_shipped(tmp_path: Path) -> None:
    with pytest.raises(licences.LicenceError, match=r"bare 1\.2\.3 brings no text"):
        licences.copyright_file([crate(tmp_path, "bare", "ISC")])


def test_a_version_that_its_authors_took_back_is_refused_and_one_that_nobody_knows(
    tmp_path: Path,
) -> None:
    cache = tmp_path / "registry/index/some/.cache/cr/at"
    cache.mkdir(parents=True)
    head = b"\3\2\0\0\0etag\0"
    entries = (json.dumps({"vers": one, "yanked": one == "1.0.1"}) for one in ("1.0.0", "1.0.1"))
    lines = (f"{one}\0{entry}\0".encode() for one, entry in zip("ab", entries, strict=True))
    (cache / "crate").write_bytes(head + b"".join(lines))

    def sentences(**crate: str) -> list[str]:
        return licences.yanked([{"name": "Crate", "source": "an index", **crate}], tmp_path)

    assert sentences(version="1.0.0") == []
    assert sentences(version="1.0.1") == [
        "crate 1.0.1: its authors took it back; choose another one"
    ]
    assert sentences(version="1.0.2") == ["crate 1.0.2: cargo keeps nothing of the index about it"]
    assert licences.yanked([{"name": "ours", "source": None}], tmp_path) == []


@pytest.mark.broker
@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")
def test_all_crates_that_we_build_with_are_permissive_and_the_linked_ones_can_be_shipped() -> None:
    found = licences.metadata()
    assert licences.refused(found["packages"]) == []
    linked = licences.linked(found)
    names = {one["name"] for one in linked}
    assert {"rustls", "toml", "libc"} <= names
    assert not names & {"proptest", "cc", "syn", "mqtick-broker"}
    written = licences.copyright_file(linked)
    assert all(f"{one['name']} {one['version']}: " in written for one in linked)
