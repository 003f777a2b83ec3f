"""The collection's Python parts under the names that Ansible gives them."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

from blank_tree import CACHE

COLLECTION = Path(__file__).parent.parent
# A test has it compiled once; what bench/fleet.py measures is not helped.
os.environ.setdefault("MQTICK_KEPT_MODULES", str(CACHE / "modules"))
for name, folder in (
    ("ansible_collections", ""),
    ("ansible_collections.mqtick", ""),
    ("ansible_collections.mqtick.fleet", str(COLLECTION)),
):
    package = types.ModuleType(name)
    package.__path__ = [folder] if folder else []
    sys.modules[name] = package
