"""The count is honest: each statement is tested, or the reason why not is written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.conformance.statements import deviations, every_statement, names, not_tested
from broker.conformance.tests.conftest import statements_of

FILES = len(list(Path(__file__).parent.glob("test_*.py")))


def about(request: pytest.FixtureRequest) -> dict[str, list[str]]:
    """The statements of every test of the suite."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    if len({item.path for item in items}) < FILES or request.config.option.keyword:
        pytest.skip("only a part of the suite was collected")
    return {item.name: statements_of(item.function) for item in items}


def test_tests_name_statements_that_exist(request: pytest.FixtureRequest) -> None:
    named = {number for numbers in about(request).values() for number in numbers}
    assert named <= set(every_statement())


def test_every_statement_is_tested_or_has_a_reason_not_to_be(
    request: pytest.FixtureRequest,
) -> None:
    named = {number for numbers in about(request).values() for number in numbers}
    assert sorted(named & set(not_tested())) == []
    assert [each for each in every_statement() if each not in named | set(not_tested())] == []
    assert set(not_tested()) <= set(every_statement())


def test_every_deviation_belongs_to_tests_of_its_statements(
    request: pytest.FixtureRequest,
) -> None:
    tests = about(request)
    for each in deviations():
        for meant in each.tests:
            found = [numbers for name, numbers in tests.items() if meant in names(name)]
            assert found, meant
            assert set(each.statements) & set(found[0]), meant
