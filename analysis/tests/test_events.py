"""Which edges belong to which event, whatever the instants are."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from mqtick.analysis.captures.events import Parts, Seen, events_of
from mqtick.analysis.signals.edges import Edge

ORDER = Parts("latency", ("publisher", "first"), "publisher", "first")
CLOCK = Parts("clock", ("reference", "pi"), "reference")

gaps = st.lists(st.integers(10**9, 10**15), min_size=2, max_size=12)


def pulses(instants: list[int], width: int = 1000) -> Seen:
    """Return the edges of pulses."""
    return Seen(
        [edge for at in instants for edge in (Edge(at, True, 7), Edge(at + width, False, 7))]
    )


@settings(max_examples=50)
@given(gaps, st.data())
def test_every_latency_up_to_nine_tenths_of_the_period_is_found(
    steps: list[int], data: st.DataObject
) -> None:
    events = list(itertools.accumulate(steps))
    shortest = min(steps[1:])
    late = [data.draw(st.integers(-shortest // 30, shortest * 9 // 10)) for _ in events]
    first = [at + each for at, each in zip(events, late, strict=True)]
    seen = {"publisher": pulses(events), "first": pulses(first)}
    found, others = events_of(ORDER, seen, "rising", triggered=False)
    assert [each.marks["first"].instant_fs for each in found] == late
    assert [each.origin_fs for each in found] == events
    assert others == 0


@settings(max_examples=50)
@given(gaps, st.data())
def test_every_time_error_below_half_the_period_is_found(
    steps: list[int], data: st.DataObject
) -> None:
    events = list(itertools.accumulate(steps))
    most = min(steps[1:]) // 2 - 2
    errors = [data.draw(st.integers(-most, most)) for _ in events]
    seen = {
        "reference": pulses(events),
        "pi": pulses(sorted(at + each for at, each in zip(events, errors, strict=True)), 1),
    }
    found, _ = events_of(CLOCK, seen, "rising", triggered=False)
    assert [each.marks["pi"].instant_fs for each in found] == errors


@given(
    st.lists(st.tuples(st.integers(-(10**18), 10**18), st.booleans()), max_size=20),
    st.lists(st.tuples(st.integers(-(10**18), 10**18), st.booleans()), max_size=20),
    st.sampled_from(("rising", "falling", "both")),
    st.booleans(),
    st.sampled_from((ORDER, CLOCK)),
)
def test_every_edge_of_the_reference_is_an_event_or_counted(
    reference: list[tuple[int, bool]],
    other: list[tuple[int, bool]],
    slope: str,
    triggered: bool,
    parts: Parts,
) -> None:
    seen = {
        name: Seen([Edge(at, rising) for at, rising in sorted(edges)])
        for name, edges in zip(parts.nodes, (reference, other), strict=True)
    }
    found, others = events_of(parts, seen, slope, triggered=triggered)
    wanted = [rising for _, rising in reference if slope == "both" or rising == (slope == "rising")]
    if not wanted:
        assert [bool(each.reason) for each in found] == [True]
    else:
        assert len(found) + others == len(wanted)
        assert all(each.marks[parts.reference].instant_fs == 0 for each in found)
        assert all((parts.nodes[1] in each.marks) != bool(each.reason) for each in found)
