"""The count is honest: each statement is tested, or the reason why not is written down."""

from __future__ import annotations

import pytest

from broker.conformance.statements import deviations, every_statement, not_tested
from broker.conformance.tests.conftest import statements_of


def about(request: pytest.FixtureRequest) -> dict[str, list[str]]:
    """The statements of every test that was collected."""
    return {
        item.name: statements_of(item.function)
        for item in request.session.items
        if isinstance(item, pytest.Function)
    }


def test_a_test_names_statements_that_exist(request: pytest.FixtureRequest) -> None:
    named = {number for numbers in about(request).values() for number in numbers}
    assert named <= set(every_statement())


def test_every_statement_is_tested_or_has_a_reason_not_to_be(
    request: pytest.FixtureRequest,
) -> None:
    if (
        request.config.args_source is not pytest.Config.ArgsSource.TESTPATHS
        and len({item.path for item in request.session.items}) < 3
    ):
        pytest.skip("only a part of the suite was collected")
    named = {number for numbers in about(request).values() for number in numbers}
    assert sorted(named & set(not_tested())) == []
    assert [each for each in every_statement() if each not in named | set(not_tested())] == []
    assert set(not_tested()) <= set(every_statement())


def test_every_deviation_belongs_to_a_test_of_its_statement(request: pytest.FixtureRequest) -> None:
    tests = about(request)
    for each in deviations():
        found = [n for name, n in tests.items() if each.test in (name, name.partition("[")[0])]
        assert found, each.test
        assert set(each.statements) <= set(found[0])
