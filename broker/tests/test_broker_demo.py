"""make demo-broker, with few messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo import software_broker

pytestmark = [pytest.mark.broker, pytest.mark.needs("mosquitto")]


def test_the_demo_ends_with_both_brokers_beside_each_other(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = software_broker.main(["--seconds", "8", "--shots", "2", "--out", str(tmp_path)])
    said, complained = capfd.readouterr()
    assert code == 0, said + complained
    assert "Over mqtick-broker, every client ended inside its own bound" in said
    rows = [line for line in said.splitlines() if line.endswith(" us")]
    assert [row.split("  ")[0] for row in rows[-2:]] == ["Mosquitto", "mqtick-broker"]
    assert {"mosquitto", "mqtick-broker", "report"} <= {one.name for one in tmp_path.iterdir()}
