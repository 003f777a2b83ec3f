"""The data plane's C code, in user space: it agrees with the model, and survives any frame."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.bpf.compiled import Library
from broker.bpf.vectors import FILE, cases, outcome, vectors, written

USER = Path("broker/bpf/user")
VECTORS = vectors()

no_compiler = shutil.which("cc") is None or not Path("/usr/include/linux/bpf.h").exists()


def needs_compiler(test: Callable[..., None]) -> Callable[..., None]:
    reason = "no C compiler, or no headers of the kernel"
    return pytest.mark.slow(pytest.mark.skipif(no_compiler, reason=reason)(test))


def build(to: Path, source: str, *options: str) -> Path:
    flags = ("-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", f"-I{USER}", *options)
    subprocess.run(["cc", *flags, "-o", str(to), str(USER / source)], check=True)
    return to


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    path = tmp_path_factory.mktemp("library") / "accelerate.so"
    return Library(build(path, "user.c", "-O2", "-shared", "-fPIC"))


def said(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if value}


def test_the_vectors_are_what_the_model_says() -> None:
    assert FILE.read_text() == written()


def test_every_counter_of_the_rules_is_in_the_vectors() -> None:
    seen = {name for vector in VECTORS for name in vector["expect"].get("counters", {})}
    text = Path("broker/spec/acceleration.md").read_text()
    assert all(f"`{name}`" in text for name in seen)
    assert len(seen) == 16


@needs_compiler
@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_the_c_code_does_what_the_vectors_say(library: Library, vector: dict[str, Any]) -> None:
    library.load(vector)
    frame = bytes.fromhex(vector["frame"])
    answer = library.arrives(frame, vector["arrival_ns"], vector["now_ns"])
    assert said(answer) == vector["expect"]


@needs_compiler
def test_the_c_code_and_the_model_agree_about_frames_with_wrong_octets(library: Library) -> None:
    chance = random.Random(1)
    copied = 0
    for case in cases():
        frame = bytearray.fromhex(case["frame"])
        for _ in range(20):
            changed = bytearray(frame)
            for _ in range(chance.randrange(3)):
                changed[chance.randrange(12, min(len(frame), 70))] = chance.randrange(256)
            if changed[12:14] == b"\x08\x00" and chance.random() < 0.5:
                changed[40:42] = bytes(2)
            library.load(case)
            answer = library.arrives(bytes(changed), case["arrival_ns"], case["now_ns"])
            expect = outcome({**case, "frame": bytes(changed).hex()})
            assert said(answer) == said(expect), changed.hex()
            copied += len(answer["copies"])
    assert copied > 500


@needs_compiler
def test_no_frame_makes_the_c_code_touch_what_is_not_its_own(tmp_path: Path) -> None:
    sanitize = "-fsanitize=address,undefined -fno-sanitize=alignment -fno-sanitize-recover=all"
    program = build(tmp_path / "fuzz", "fuzz.c", "-g", "-O1", "-DCORPUS", *sanitize.split())
    for number, vector in enumerate(VECTORS):
        (tmp_path / f"{number}.frame").write_bytes(b"\0" + bytes.fromhex(vector["frame"]))
        (tmp_path / f"{number}.egress").write_bytes(b"\1" + bytes.fromhex(vector["frame"]))
    corpus = [str(path) for path in sorted(tmp_path.glob("*.*"))]
    ran = subprocess.run([str(program), "200", *corpus], check=True, capture_output=True, text=True)
    runs, _, copies, _ = ran.stdout.split()
    assert int(runs) > 50_000
    assert int(copies) > 1_000
