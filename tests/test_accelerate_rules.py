"""The data plane's C code, in user space: it agrees with the model, and survives any frame."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.bpf.compiled import Library, place
from broker.bpf.vectors import FILE, V4, V6, cases, outcome, sn_publish, udp_frame, vectors, written

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


def copied(family: str) -> dict[str, Any]:
    """Return a vector whose frame is copied to three subscribers."""
    name = f"three subscribers with ids of their own, {family}"
    return next(vector for vector in VECTORS if vector["name"] == name)


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
@pytest.mark.parametrize(("family", "hosts"), [("IPv4", V4), ("IPv6", V6)])
def test_a_checksum_that_comes_out_as_0_is_written_as_all_ones(
    library: Library, family: str, hosts: tuple[str, str]
) -> None:
    case = copied(family)

    def copy_of(word: int) -> bytes:
        payload = b"x" + word.to_bytes(2, "big") + b"rest"
        frame = udp_frame(*hosts, sn_publish("0007", payload))
        library.load(case)
        answer = library.arrives(frame, 0, 0)
        assert said(answer) == said(outcome({**case, "frame": frame.hex()}))
        return bytes.fromhex(answer["copies"][0]["frame"])

    # What is missing to all ones, added to the payload, makes the sum all ones.
    at = (34 if family == "IPv4" else 54) + 6
    missing = int.from_bytes(copy_of(0)[at : at + 2], "big")
    assert copy_of(missing)[at : at + 2] == b"\xff\xff"


@needs_compiler
def test_what_is_left_of_a_longer_message_is_not_in_the_checksum_of_the_next(
    library: Library,
) -> None:
    library.load(copied("IPv4"))
    for payload in (b"\xff" * 90, b"odd"):
        for length in range(len(payload) - 3, len(payload) + 1):
            message = sn_publish("0007", payload[:length])
            answer = library.arrives(udp_frame(*V4, message), 0, 0)
            assert len(answer["copies"]) == 3, (length, answer["counters"])


@needs_compiler
@pytest.mark.parametrize("set_ns", [50_000_000, -50_000_000, 2**40, -(2**40)])
def test_a_clock_that_is_set_while_a_frame_waits_makes_no_residence_longer(
    library: Library, set_ns: int
) -> None:
    name = "mqtt-udp, a trailer, IPv4"
    case = next(vector for vector in VECTORS if vector["name"] == name)
    now_ns, spent_ns = case["now_ns"], 20_000
    # The last sign of life is of before the clock was set; the stamp is of before, or of after.
    library.load({**case, "settings": {"ahead_ns": -set_ns}})
    stated = []
    for arrival_ns in (now_ns - set_ns - spent_ns, now_ns - spent_ns):
        copies = library.arrives(bytes.fromhex(case["frame"]), arrival_ns, now_ns)["copies"]
        trailers = {bytes.fromhex(copy["frame"])[-16:] for copy in copies}
        assert len(trailers) == 1
        trailer = trailers.pop()
        stated.append(int.from_bytes(trailer[:8], "big") >> 16 if trailer[-1] else None)
    assert sorted(stated, key=str) == [spent_ns - spent_ns // 512, None]


@needs_compiler
def test_nothing_is_copied_by_a_rule_that_is_being_written(library: Library) -> None:
    case = copied("IPv4")
    library.load(case)
    library._set("all_seen", (2).to_bytes(4, "little"), (1).to_bytes(8, "little"))
    answer = library.arrives(bytes.fromhex(case["frame"]), 0, 0)
    assert (answer["verdict"], answer["copies"]) == ("pass", [])
    assert answer["counters"] == {"waiting": 1}
    assert answer["closed"]


@needs_compiler
def test_one_answer_is_kept_back_for_each_that_is_not_asked_for(library: Library) -> None:
    library.load(copied("IPv4"))
    library._set("clients", place(f"{V4[0]}:5000"), bytes(16) + (1).to_bytes(8, "little"))
    answer = udp_frame(V4[1], V4[0], b"\x02\x17", ports=(1883, 5000))
    verdicts = [library.arrives(answer, 0, 0)["verdict"] for _ in range(3)]
    assert verdicts == ["drop", "pass", "pass"]


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
