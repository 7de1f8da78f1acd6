from __future__ import annotations

import copy
import pickle

import pytest

from ratelimit import Category, ConfigurationError, Rate, RateLimits
from ratelimit.categories import SETTING_NAMES, Categories

DEFAULTS = {
    "AUTH_LOGIN": "5/m",
    "AUTH_REGISTER": "3/m",
    "AUTH_PASSWORD_RESET": "3/h",
    "READ_LIGHT": "100/m",
    "READ_MEDIUM": "30/m",
    "READ_HEAVY": "10/m",
    "WRITE_LIGHT": "30/m",
    "WRITE_MEDIUM": "10/m",
    "WRITE_HEAVY": "5/m",
    "AI_ANALYSIS": "5/m",
    "AI_EXTRACT": "10/m",
    "AI_QUERY": "20/m",
    "EXPORT": "5/h",
    "IMPORT": "10/h",
    "ADMIN_OPERATION": "100/m",
    "ADMIN_LOGIN_PAGE": "20/m",
    "WS_CONNECT": "10/m",
    "WS_HEARTBEAT": "120/m",
    "MCP_GLOBAL": "100/m",
}


@pytest.fixture
def categories() -> Categories:
    return Categories()


def test_there_are_these_and_no_others(categories: Categories) -> None:
    assert {category.name: str(category.rate) for category in categories} == DEFAULTS


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_category_is_found_by_attribute_and_by_name(name: str) -> None:
    category = getattr(RateLimits, name)
    assert category is RateLimits[name]
    assert (str(category), category.rate) == (name, Rate.parse(DEFAULTS[name]))
    assert name in RateLimits


@pytest.mark.parametrize("name", ["AI_QERY", "ai_query", "AI_QUERY ", "", "10/m", None, 5, ["AI_QUERY"]])
def test_an_unknown_name_is_an_error_that_lists_the_valid_ones(name: object) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RateLimits[name]  # type: ignore[index]
    assert repr(name) in str(caught.value)
    assert all(known in str(caught.value) for known in DEFAULTS)


def test_an_unknown_attribute_is_the_same_error_and_an_attribute_error() -> None:
    with pytest.raises(ConfigurationError, match="unknown category 'AI_QERY'; valid ones: ADMIN_LOGIN_PAGE, "):
        _ = RateLimits.AI_QERY
    assert not hasattr(RateLimits, "AI_QERY")
    assert not hasattr(RateLimits, "_private")


def test_an_application_adds_its_own(categories: Categories) -> None:
    added = categories.add("REPORT_BUILD", "7/h")
    assert added == Category("REPORT_BUILD", Rate(7, 3600))
    assert categories.REPORT_BUILD is categories["REPORT_BUILD"] is added
    assert categories.add("OTHER", Rate(1, 2)).rate == Rate(1, 2)
    with pytest.raises(ConfigurationError, match=r"valid ones: .*, REPORT_BUILD, "):
        categories["X"]


def test_adding_the_same_twice_changes_nothing_and_another_rate_is_an_error(categories: Categories) -> None:
    first = categories.add("REPORT", "10/m")
    assert categories.add("REPORT", "10/60s") is first
    with pytest.raises(ConfigurationError, match=r"'REPORT' already has the rate '10/m', not '11/m'"):
        categories.add("REPORT", "11/m")
    with pytest.raises(ConfigurationError, match=r"'AI_QUERY' already has the rate '20/m', not '1/m'"):
        categories.add("AI_QUERY", "1/m")
    assert categories.REPORT is first


@pytest.mark.parametrize(
    "name", ["", "report", "Report", "1REPORT", "_REPORT", "RE-PORT", "RE PORT", "REPORT\n", "ÄB", None, 5]
)
def test_a_name_that_no_variable_could_have_is_refused(categories: Categories, name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        categories.add(name, "10/m")
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", sorted(SETTING_NAMES))
def test_the_name_of_a_setting_is_taken(categories: Categories, name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"RATELIMIT_{name} is a setting"):
        categories.add(name, "10/m")


@pytest.mark.parametrize("rate", ["10/mm", "", None, 10])
def test_a_bad_rate_adds_nothing(categories: Categories, rate: str) -> None:
    with pytest.raises(ConfigurationError):
        categories.add("REPORT", rate)
    assert "REPORT" not in categories


def test_categories_can_be_added_while_others_are_read(categories: Categories) -> None:
    for number, _ in enumerate(categories):
        categories.add(f"MORE_{number}", "1/m")
    assert len(list(categories)) == 2 * len(DEFAULTS)


def test_a_category_can_be_copied_and_pickled() -> None:
    assert copy.deepcopy(RateLimits.AI_QUERY) == pickle.loads(pickle.dumps(RateLimits.AI_QUERY)) == RateLimits.AI_QUERY
