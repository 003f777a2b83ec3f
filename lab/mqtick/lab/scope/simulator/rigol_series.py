"""Simulated DS1000Z, MSO5000 and DHO."""

from __future__ import annotations

from mqtick.lab.scope.simulator.model import Frame, Model, Physics
from mqtick.lab.scope.simulator.rigol import RigolFront
from mqtick.recording.waveform import Codes


class RigolDs1000zFront(RigolFront):
    """DS1054Z; in words the upper octet is 0."""

    name = "rigol-ds1000z"
    identity = "RIGOL TECHNOLOGIES,DS1054Z,SIMULATED,00.04.04.SP4"
    physics = Physics(bits=8, divisions=10.24, max_rate_hz=1e9, depths=(3000, 12_000_000))
    divisions = 12
    screen_points = 1200
    page_octets = 250_000
    depths = tuple(
        tuple(depth // share for depth in (12_000, 120_000, 1_200_000, 12_000_000))
        for share in (1, 2, 4, 4)
    )
    says_refused_depth = False
    record = ":FUNCtion"
    frames = "FEND"
    tags = False

    def depth_text(self) -> str:
        """Write the depth with all digits."""
        return str(self.depth)


class RigolMso5000Front(RigolFront):
    """MSO5074: eight bits, the whole memory in one read."""

    name = "rigol-mso5000"
    identity = "RIGOL TECHNOLOGIES,MSO5074,SIMULATED,00.01.03.03.00"
    physics = Physics(bits=8, divisions=10.24, max_rate_hz=4e9, depths=(1000, 25_000_000))
    divisions = 10
    screen_points = 1000
    page_octets = 1 << 30
    depths = ((1_000, 10_000, 100_000, 1_000_000, 10_000_000, 25_000_000),) * 4

    def text(self, codes: Codes) -> bytes | str:
        """Write values with a comma after each, the last one included."""
        text = super().text(codes)
        assert isinstance(text, bytes)
        return self.block(text[11:] + b",")


class RigolDhoFront(RigolFront):
    """DHO924S: twelve bits in the upper part of a word; the preamble describes only one page."""

    name = "rigol-dho"
    identity = "RIGOL TECHNOLOGIES,DHO924S,SIMULATED,00.01.02"
    physics = Physics(
        bits=12,
        divisions=65536 / 7500,
        max_rate_hz=1e9,
        noise_v=0.003,
        depths=(1000, 50_000_000),
    )
    divisions = 10
    screen_points = 1000
    page_octets = 500_000
    word_bits = 16
    depths = tuple(
        tuple(10**power for power in range(3, 7)) + more
        for more in (
            (5_000_000, 10_000_000, 25_000_000, 50_000_000),
            (5_000_000, 10_000_000, 25_000_000),
            (5_000_000, 10_000_000),
            (5_000_000, 10_000_000),
        )
    )
    stale_depth = True

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        # Real ones answer 0 while they run (libsigrok, pull request 229).
        self.scpi.on("*OPC?", lambda _: str(int(not model.running)))

    def announced(self, frame: Frame) -> int:
        """Return the points of one page: from start to stop."""
        if self.mode == "NORM":
            return self.screen_points
        return max(min(self.last, self.readable) - self.first + 1, 0)

    def text(self, codes: Codes) -> bytes | str:
        """Write values without a block header."""
        text = super().text(codes)
        assert isinstance(text, bytes)
        return text[11:].decode()
