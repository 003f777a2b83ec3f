"""Rigol's series, and their differences.

Sources: programming guides MSO1000Z/DS1000Z, MSO5000 and DHO800/DHO900; scopehal where the MSO5000
and the DHO differ from their guides.
"""

from __future__ import annotations

import re

from mqtick.lab.scope.conversation import Conversation, write
from mqtick.lab.scope.dialects.rigol import Rigol, ask_depth


class RigolDs1000z(Rigol):
    """DS1000Z, MSO1000Z: twelve divisions, 250 000 points per read."""

    name = "rigol-ds1000z"
    title = "Rigol DS1000Z, MSO1000Z"
    pattern = re.compile(r"RIGOL TECHNOLOGIES (DS|MSO)1\d{3}Z", re.IGNORECASE)
    divisions = 12
    page = 250_000
    picture = ":DISPlay:DATA? ON,OFF,PNG"
    record = ":FUNCtion"
    frames = "FEND"
    tags = False

    def depths(self, channels: int) -> tuple[int, ...]:
        """Return 12k to 12M, halved for two and quartered for more; 24M is an option."""
        share = {1: 1, 2: 2}.get(channels, 4)
        return tuple(depth // share for depth in (12_000, 120_000, 1_200_000, 12_000_000))

    def depth_text(self, depth: int) -> str:
        """Write all the digits."""
        return str(depth)


class RigolMso5000(Rigol):
    """MSO5000, MSO7000, DS7000: the whole memory in one read, but not at once after the trigger."""

    name = "rigol-mso5000"
    title = "Rigol MSO5000, MSO7000, DS7000"
    pattern = re.compile(r"RIGOL TECHNOLOGIES (MSO|DS)[57]\d{3}", re.IGNORECASE)
    divisions = 10
    page = 1 << 30
    picture = ":DISPlay:DATA?"

    def depths(self, channels: int) -> tuple[int, ...]:
        """Return the depths of an instrument without options."""
        most = {1: 100_000_000, 2: 50_000_000}.get(channels, 25_000_000)
        depths = (10**3, 10**4, 10**5, 10**6, 10**7, 25 * 10**6, 50 * 10**6, 10**8)
        return tuple(depth for depth in depths if depth <= most)

    def points(self, announced: int) -> Conversation[int]:
        """Ask for the depth, and wait until it settles: a block read too early has no data."""
        yield from write("*WAI")
        return (yield from ask_depth(announced))


class RigolDho(Rigol):
    """DHO800, DHO900: 12 bits in words, low octet first."""

    name = "rigol-dho"
    title = "Rigol DHO800, DHO900"
    pattern = re.compile(r"RIGOL TECHNOLOGIES DHO[89]\d\d", re.IGNORECASE)
    divisions = 10
    page = 250_000
    words = True
    picture = ":DISPlay:DATA? PNG"

    def depths(self, channels: int) -> tuple[int, ...]:
        """Return the guide's list (3.3.2): the DHO900 has twice as much as the DHO800."""
        at = {1: 0, 2: 1}.get(channels, 2)
        large = self.identity.model.upper().startswith("DHO9")
        most = ((50, 25, 10) if large else (25, 10, 5))[at] * 10**6
        depths = (10**3, 10**4, 10**5, 10**6, 5 * 10**6, 10**7, 25 * 10**6, 50 * 10**6)
        return tuple(depth for depth in depths if depth <= most)

    def select(self, channel: int) -> Conversation[None]:
        """Leave RAW mode and enter it again: otherwise it keeps the previous depth."""
        yield from write(":WAVeform:MODE NORMal")
        yield from super().select(channel)

    def points(self, announced: int) -> Conversation[int]:
        """Ask for the depth: the preamble announces one page only."""
        return (yield from ask_depth(announced))
