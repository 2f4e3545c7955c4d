"""The views that a query reads, where words alone tell."""

import pytest

from penstock.pipelines.sql_names import views_read_by


@pytest.mark.parametrize(
    ("sql", "views"),
    [
        ("SELECT a FROM orders", ["orders"]),
        ("select * from orders o join customers c on o.id = c.id", ["orders", "customers"]),
        ("SELECT * FROM a, b AS x, (SELECT c FROM d) y, e WHERE f IN (1, 2)", ["a", "b", "d", "e"]),
        ("WITH a AS (SELECT 1 FROM b) SELECT * FROM a", ["b"]),
        ("SELECT extract(DAY FROM at), trim(BOTH 'x' FROM y) FROM orders", ["orders"]),
        ("SELECT a IS NOT DISTINCT FROM b FROM c", ["c"]),
        ("SELECT a FROM `my view`, catalog.t, range(3), values (1)", ["my view"]),
        ("SELECT 'FROM x' -- FROM y\nFROM z /* FROM w */", ["z"]),
        ("SELECT b FROM t LATERAL VIEW explode(a) e AS b, c", ["t"]),
        ("SELECT k, count(*) FROM clicks GROUP BY k, session_window(at, '5 minutes')", ["clicks"]),
        ("FROM orders |> WHERE a > 1 |> SELECT a", ["orders"]),
        ("SELECT DISTINCT a FROM t UNION SELECT b FROM u", ["t", "u"]),
    ],
)
def test_names_after_from_and_join_are_views(sql: str, views: list[str]) -> None:
    assert views_read_by(sql) == views


@pytest.mark.parametrize("sql", ["SELECT (a FROM b", "SELECT a) FROM b", "SELECT 'a FROM b"])
def test_brackets_and_quotes_that_do_not_fit_are_refused(sql: str) -> None:
    with pytest.raises(ValueError, match=r"closed|opened"):
        views_read_by(sql)
