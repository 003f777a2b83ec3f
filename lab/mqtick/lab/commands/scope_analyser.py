"""mqtick-lab scope, if the resource is a logic analyser."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

from mqtick.lab.logic.analyser import LogicAnalyser
from mqtick.service.commandline import Exit, fail


def with_analyser(
    args: argparse.Namespace, capture: Callable[[argparse.Namespace, LogicAnalyser], int]
) -> int:
    """Do what a logic analyser can do: it has no screen, and no earlier record."""
    if args.action == "screenshot" or (args.action == "capture" and args.now):
        return fail(
            f"{args.resource} is a logic analyser, which has no screen and keeps no record; use "
            "identify, or capture without --now.",
            Exit.WRONG_USE,
        )
    analyser = LogicAnalyser(args.resource)
    try:
        if args.action == "capture":
            return capture(args, analyser)
        offer = analyser.offer
        said = {"description": analyser.description, "simulated": analyser.simulated}
        said |= {"channels": offer.channels, "rates_hz": offer.rates_hz}
        if args.json:
            print(json.dumps(said))
        else:
            print(f"{analyser.description}{' (simulated)' if analyser.simulated else ''}")
            print(f"channels 1 to {len(offer.channels)}: {' '.join(offer.channels)}")
            print(f"rates    {offer.rates_hz[0]} to {offer.rates_hz[-1]} samples/s")
        return Exit.GOOD
    finally:
        analyser.close()
