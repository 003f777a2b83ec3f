from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.service.metrics import Metric, render


def test_a_snapshot_reads_like_the_format_document() -> None:
    # The first example of the format's document, without its time stamps.
    snapshot = [
        Metric(
            "http_requests_total",
            1027,
            "The total number of HTTP requests.",
            "counter",
            {"method": "post", "code": "200"},
        ),
        Metric(
            "http_requests_total",
            3,
            "The total number of HTTP requests.",
            "counter",
            {"method": "post", "code": "400"},
        ),
        Metric("something_weird", math.inf, "Weird.", labels={"problem": "division by zero"}),
    ]
    assert render(snapshot) == (
        "# HELP http_requests_total The total number of HTTP requests.\n"
        "# TYPE http_requests_total counter\n"
        'http_requests_total{code="200",method="post"} 1027\n'
        'http_requests_total{code="400",method="post"} 3\n'
        "# HELP something_weird Weird.\n"
        "# TYPE something_weird gauge\n"
        'something_weird{problem="division by zero"} +Inf\n'
    )


def test_backslash_quote_and_line_break_are_escaped() -> None:
    text = render([Metric("a", 1, 'say "\\"\nagain', labels={"path": 'C:\\DIR\n"x"'})])
    assert text == '# HELP a say "\\\\"\\nagain\n# TYPE a gauge\na{path="C:\\\\DIR\\n\\"x\\""} 1\n'


def test_what_has_no_value_is_left_out() -> None:
    assert render([Metric("a", None, "A."), Metric("b", True, "B.")]) == (
        "# HELP b B.\n# TYPE b gauge\nb 1\n"
    )
    assert render([]) == ""


def test_series_of_one_name_stand_together_wherever_the_snapshot_has_them() -> None:
    text = render(
        [Metric("a", 1, "A.", labels={"n": "1"}), Metric("b", 0.5, "B."), Metric("a", -2, "A.")]
    )
    assert [line for line in text.splitlines() if line[0] != "#"] == ['a{n="1"} 1', "a -2", "b 0.5"]
    assert text.count("# TYPE a ") == 1


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["\\n", "\\", '"', "\n", '\\"', "a\\", "}", "} 5", "\r", "# HELP"]
)
LABELS = st.dictionaries(st.sampled_from(["a", "b_c", "_d", "E9"]), TEXT, max_size=4)
VALUES = st.integers(-(1 << 53), 1 << 53) | st.floats()


@given(st.lists(st.tuples(LABELS, VALUES), min_size=1, max_size=5), TEXT)
def test_prometheus_own_reader_gets_back_every_series(
    series: list[tuple[dict[str, str], float]], text: str
) -> None:
    parser = pytest.importorskip(
        "prometheus_client.parser", reason="prometheus_client is not installed (pip install it)"
    )
    expected = {tuple(sorted(labels.items())): value for labels, value in series}
    snapshot = [
        Metric("mqtick_test", value, f"<{text}>", labels=dict(labels))
        for labels, value in expected.items()
    ]
    families = list(parser.text_string_to_metric_families(render(snapshot)))
    assert [(family.name, family.type) for family in families] == [("mqtick_test", "gauge")]
    assert families[0].documentation == f"<{text}>"
    found = {tuple(sorted(s.labels.items())): s.value for s in families[0].samples}
    assert found.keys() == expected.keys()
    for labels, value in expected.items():
        assert found[labels] == value or (math.isnan(value) and math.isnan(found[labels]))
