"""A node before mqtick-broker passes the same conformance tests as the broker alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from broker.tests.harness.sites import JOIN, joined
from demo.local_broker import MqtickBroker

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif(not JOIN.exists(), reason="mqtick-join is not built: make test-broker does"),
]


def test_every_statement_holds_with_a_node_before_the_broker(tmp_path: Path) -> None:
    with joined(tmp_path, [MqtickBroker]) as (site,):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-n", "4", "-p", "no:cacheprovider"),
                *("broker/conformance", "--broker", "running"),
                *("--address", f"127.0.0.1:{site.port}"),
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[2],
        )
        assert done.returncode == 0, done.stdout[-4000:]
        assert " passed" in done.stdout
