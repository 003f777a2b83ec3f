"""How many shots a statement takes: `python -m mqtick.analysis.statistics.shots`."""

from __future__ import annotations

from typing import Final

from mqtick.analysis.statistics.exact import (
    share_at_most,
    shots_to_tell,
    shots_with,
    student_quantile,
)

_QUANTILES: Final = ((0.5, "median"), (0.1, "p90"), (0.05, "p95"), (0.01, "p99"), (0.001, "p99.9"))
_CONFIDENCES: Final = (0.9, 0.95, 0.99)
_BEYOND: Final = (1, 2, 5)
_SHOTS: Final = (5, 10, 20, 50, 100, 300, 1000, 3000)


def table() -> str:
    """Return what shots prove of a quantile, of a maximum and of a mean, as text."""
    lines = [
        "Shots needed to prove that a quantile is below a bound when none, or this many, are "
        "beyond it"
    ]
    heads = [f"none, {100 * each:g} %" for each in _CONFIDENCES]
    heads += [f"{each}, 95 %" for each in _BEYOND]
    lines.append(f"{'':<8}" + "".join(f"{head:>13}" for head in heads))
    for allowed, name in _QUANTILES:
        counts = [shots_to_tell(allowed, 0.0, each) or 0 for each in _CONFIDENCES]
        counts += [shots_with(allowed, each, 0.95) for each in _BEYOND]
        lines.append(f"{name:<8}" + "".join(f"{count:>13,}" for count in counts))
    lines += [
        "",
        "With 95 % confidence: the largest share that may be beyond what none of n shots passed;",
        "half the interval of the mean, in standard deviations (normal values)",
        f"{'n':<8}{'share':>13}{'half':>13}",
    ]
    for n in _SHOTS:
        share = share_at_most(0, n, 0.95)
        half = student_quantile(0.975, n - 1) / n**0.5
        lines.append(f"{n:<8}{100 * share:>11.2g} %{half:>13.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
