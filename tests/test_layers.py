"""The modules of each crate use each other in one direction: see broker/server/layers.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from broker.server import layers

LISTS: dict[str, list[str]] = tomllib.loads(
    (layers.HERE / "layers.toml").read_text(encoding="utf-8")
)


def test_each_crate_has_a_list() -> None:
    workspace = tomllib.loads((layers.HERE / "Cargo.toml").read_text(encoding="utf-8"))
    assert sorted(LISTS) == sorted(workspace["workspace"]["default-members"])


@pytest.mark.parametrize("crate", LISTS)
def test_a_module_uses_only_those_of_lower_layers(crate: str) -> None:
    found = layers.uses(crate)
    split = [layer.split() for layer in LISTS[crate]]
    height = {module: -at for at, layer in enumerate(split) for module in layer}
    assert sorted(found) == sorted(module for layer in split for module in layer)
    upward = [
        f"{module} uses {other}"
        for module, others in found.items()
        for other in others
        if height[other] >= height[module]
    ]
    assert upward == []


@pytest.mark.parametrize("crate", LISTS)
def test_the_modules_of_a_folder_do_not_use_each_other_in_a_circle(crate: str) -> None:
    files = layers.modules(crate)
    folders = {path[:depth] for path in files for depth in range(1, len(path))}
    found = {folder: layers.circles(layers.uses(crate, folder)) for folder in sorted(folders)}
    assert {folder: rings for folder, rings in found.items() if rings} == {}


CRATE = {
    "lib.rs": "//! Uses a.\npub mod a;\nmod b;\nmod c;\npub use c::D;\n",
    "a.rs": "mod inner;\nuse crate::{b::{self, Two}, D};\n// crate::c::D is not used\n",
    "a/inner.rs": "#[cfg(test)]\nmod tests;\nfn f() -> super::super::c::D {}\n",
    "a/inner/tests.rs": "use crate::e;\n",
    "b.rs": "fn g() {}\n\n#[cfg(test)]\nmod tests {\n    use crate::a::X;\n}\n",
    "c.rs": "pub struct D;\n#[cfg(test)]\nuse crate::b;\n",
    "e.rs": "fn h() { crate::a::f() }\n",
}


def test_uses_are_found_however_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in CRATE.items():
        file = tmp_path / "crate" / "src" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    monkeypatch.setattr(layers, "HERE", tmp_path)
    found = layers.uses("crate")
    assert found == {"a": {"b", "c", "lib"}, "b": set(), "c": set(), "e": {"a"}, "lib": {"c"}}
    assert layers.layers(found) == [["e"], ["a"], ["lib"], ["b", "c"]]
    found["c"] = {"a"}
    assert layers.circles(found) == [{"a", "c", "lib"}]
