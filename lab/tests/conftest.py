"""What the lab's tests share."""

import pytest


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real Rigol needs a moment to begin to run; a simulated one does not."""
    monkeypatch.setattr("mqtick.lab.scope.dialects.rigol._RUN_S", 0.0)
