"""mqtick_tables against seven dictionaries."""

from __future__ import annotations

from random import Random
from typing import Any

import cocotb
from alone import begin, dice, edge, put

TW, SW, CW = 4, 5, 4
WIDTHS = {
    "topic": 2 * SW, "entry": CW + SW, "link": TW + 2 * SW, "client": 81, "lease": SW + 34,
    "copies": 24, "share": CW + 1,
}  # fmt: skip
OUTPUTS = {
    "topic": (("topic_first", SW), ("topic_last", SW)),
    "entry": (("entry_client", CW), ("entry_next", SW)),
    "link": (("link_topic", TW), ("link_previous", SW), ("link_next", SW)),
    "client": (("client_valid", 1), ("client_ip", 32), ("client_port", 16), ("client_expiry", 32)),
    "lease": (("lease_ticks", 28), ("lease_held", 6), ("lease_first", SW)),
    "copies": (("client_copies", 24),),
    "share": (("share_held", CW + 1),),
}


class Model:
    """What stands in each table, and what each shows; what is not known is not compared."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[int, int]] = {name: {} for name in WIDTHS}
        self.shown: dict[str, int | None] = dict.fromkeys(WIDTHS)

    def cycle(self, reads: dict[str, int], writes: dict[str, tuple[int, int]]) -> None:
        for name, at in reads.items():
            clash = name in writes and writes[name][0] == at
            self.shown[name] = None if clash else self.rows[name].get(at)
        for name, (at, value) in writes.items():
            self.rows[name][at] = value

    def compare(self, unit: Any) -> int:
        """Compare all that is known; return how many."""
        known = 0
        for name, value in self.shown.items():
            if value is None:
                continue
            known, left = known + 1, value
            for output, bits in reversed(OUTPUTS[name]):
                assert int(getattr(unit, output).value) == left & (1 << bits) - 1, output
                left >>= bits
        return known


def drive(unit: Any, random: Random) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
    """Ask for something in every way at once; return what is read and what is written."""
    control = random.random() < 0.5
    c_topic, c_entry, c_client, share = (random.randrange(1 << bits) for bits in (TW, SW, CW, CW))
    g_topic, g_entry, g_client, swept = (random.randrange(1 << bits) for bits in (TW, SW, CW, CW))
    counts = random.randrange(1 << CW)
    put(unit, c_topic_at=c_topic, c_entry_at=c_entry, c_client_at=c_client, share_at=share)
    put(unit, g_topic_at=g_topic, g_entry_at=g_entry, g_client_at=g_client, sweep_at=swept)
    entry_re, client_re, sweep_re = (int(random.random() < 0.6) for _ in range(3))
    sweep_re &= not client_re
    put(unit, control=control, g_entry_re=entry_re, g_client_re=client_re, sweep_re=sweep_re)
    reads = {"topic": c_topic if control else g_topic, "link": c_entry, "lease": c_client}
    reads["share"] = share
    if control or entry_re:
        reads["entry"] = c_entry if control else g_entry
    if control or client_re or sweep_re:
        reads["client"] = c_client if control else swept if sweep_re else g_client
    if client_re:
        reads["copies"] = g_client
    into = {"topic": c_topic, "entry": c_entry, "link": c_entry, "client": c_client}
    into |= {"lease": c_client, "share": share}
    writes = {}
    for name, at in into.items():
        value, wanted = random.getrandbits(WIDTHS[name]), random.random() < 0.4
        put(unit, **{f"{name}_we": wanted, f"{name}_in": value})
        if wanted:
            writes[name] = (at, value)
    value, counted, cleared = random.getrandbits(24), random.random() < 0.4, random.random() < 0.2
    put(unit, g_copies_we=counted, g_copies_at=counts, g_copies=value, copies_clear=cleared)
    if counted or cleared:
        writes["copies"] = (c_client, 0) if cleared else (counts, value)
    return reads, writes


@cocotb.test()
async def tables_give_what_was_written(dut: Any) -> None:
    """To the control, to the generator, to who sweeps; what is not read again stays."""
    unit, random, model, known = await begin(dut, "tables", clear=0), dice(), Model(), 0
    for _ in range(2500):
        reads, writes = drive(unit, random)
        await edge(dut)
        known += model.compare(unit)
        model.cycle(reads, writes)
    assert known > 8000


@cocotb.test()
async def tables_are_cleared_of_clients_and_shares(dut: Any) -> None:
    """Place by place, whatever else is asked for."""
    unit, random = await begin(dut, "tables", clear=0), dice()
    for at in range(1 << CW):
        put(unit, client_we=1, c_client_at=at, client_in=(1 << 81) - 1)
        put(unit, share_we=1, share_at=at, share_in=31)
        await edge(dut)
    for at in range(1 << CW):
        drive(unit, random)
        put(unit, clear=1, clear_at=at)
        await edge(dut)
    put(unit, clear=0, client_we=0, share_we=0, control=1)
    for at in range(1 << CW):
        put(unit, c_client_at=at, share_at=at)
        await edge(dut, 2)
        assert not unit.client_valid.value
        assert int(unit.share_held.value) == 0
