"""Regular expressions over topic names."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidSubscription
from penstock.groups.pattern import Pattern


@pytest.mark.parametrize(
    ("regex", "matching", "other"),
    [
        ("orders", "orders", "orders2"),
        ("orders-.*", "orders-", "order"),
        (r"orders\..+", "orders.eu", "orders-eu"),
        ("^(eu|us)-[a-z]+$", "eu-payments", "ap-payments"),
        ("(?:a|b){2,3}", "aba", "abab"),
        ("a{2}", "aa", "aaa"),
        ("a{0}b", "b", "ab"),
        ("(?P<region>eu)?x", "x", "eueux"),
        (r"\d\d-\w", "07-_", "7-a"),
        ("[^_].*", "plain", "__internal"),
        ("[]a]", "]", "b"),
        ("(?i)Orders", "ORDERS", "order"),
        (r"\Aa*?\z", "aaa", "b"),
        ("", "", "a"),
        ("a|", "", "b"),
    ],
)
def test_an_expression_matches_whole_names(regex: str, matching: str, other: str) -> None:
    pattern = Pattern(regex)

    assert pattern.matches(matching)
    assert not pattern.matches(other)


@pytest.mark.parametrize(
    "regex",
    [
        *("(", ")", "a)", "[a", "*a", "a**", "a{3,2}", "[z-a]", "\\"),
        *("(?=a)", "(?!a)", r"(a)\1"),
        *("(((a{9}){9}){9}){9}", "(" * 100 + ")" * 100),
    ],
)
def test_an_expression_that_is_malformed_or_beyond_re2_is_refused(regex: str) -> None:
    with pytest.raises(InvalidSubscription):
        Pattern(regex)


@pytest.mark.parametrize("regex", ["(a+)+b", "(a|a)*b", "(a|aa)+b", ".*.*.*.*.*.*.*.*b"])
def test_an_expression_that_makes_others_back_track_is_matched_in_one_pass(regex: str) -> None:
    pattern = Pattern(regex)

    assert not pattern.matches("a" * 249)
    assert pattern.matches("a" * 248 + "b")


atoms = st.sampled_from(["a", "b", "ab", ".", "[ab]", "[^a]", "^", "$", r"\w"])
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,1}", "{1,}"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(regex=expressions, names=st.lists(st.text("abc", max_size=6), max_size=5))
def test_matches_are_those_of_the_standard_library(regex: str, names: list[str]) -> None:
    pattern = Pattern(regex)

    for name in names:
        assert pattern.matches(name) == bool(re.fullmatch(regex, name))
