"""Which views a query reads, without a parser of SQL.

Spark decides what SQL is; starting it takes ten seconds. This reads words only, and answers when it
is sure: a name after FROM or JOIN, or in their list, that is no common table expression, no
function and has no dots. Whatever it cannot judge it leaves to Spark.
"""

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?\*/)
      |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      |`(?P<quoted>(?:[^`]|``)*)`
      |(?P<word>\w+)
      |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
# FROM stands inside these functions without naming a table.
_FUNCTIONS_WITH_FROM = {"extract", "trim", "substring", "substr", "overlay"}
_AFTER_A_TABLE = {
    "where", "group", "order", "having", "limit", "union", "intersect", "except", "minus", "on",
    "using", "select", "window", "cluster", "distribute", "sort", "lateral", "pivot", "unpivot",
    "tablesample", "qualify", "offset",
}  # fmt: skip
_TABLE_WORDS = {"from", "join"}
_NOT_TABLES = {"values", "lateral", "stream", "table", "select", "with", "range"}


class _Token(str):
    """A word, a sign or the name inside back quotes, which is never a keyword."""

    __slots__ = ("is_quoted",)

    is_quoted: bool

    @property
    def keyword(self) -> str:
        return "" if self.is_quoted else self.lower()


def views_read_by(sql: str) -> list[str]:
    """Return the names of views in the order of the text; brackets that do not fit raise."""
    tokens = list(_tokens(sql))
    _check_brackets(tokens)
    expressions = {
        name.lower()
        for name, after, bracket in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if after.keyword == "as" and bracket == "("
    }
    names = dict.fromkeys(_table_names(tokens))
    return [name for name in names if name.lower() not in expressions]


def _tokens(sql: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(sql):
        if match["skip"] is not None:
            continue
        if match["sign"] in ("'", '"', "`"):
            raise ValueError(f"a quote is not closed: {match['sign']}{_start(sql, match.end())}")
        quoted = match["quoted"]
        text = match[0] if quoted is None else quoted.replace("``", "`")
        token = _Token("''" if match["text"] else text)
        token.is_quoted = quoted is not None
        yield token


def _start(sql: str, position: int) -> str:
    return sql[position : position + 20].split("\n")[0]


def _check_brackets(tokens: list[_Token]) -> None:
    depth = 0
    for token in tokens:
        depth += (token == "(") - (token == ")")  # noqa: S105 - a bracket, no password
        if depth < 0:
            raise ValueError("a bracket is closed that was not opened")
    if depth:
        raise ValueError("a bracket is not closed")


def _table_names(tokens: list[_Token]) -> Iterator[str]:
    """Yield the names that stand where tables do."""
    openers: list[str] = []
    # For each open bracket, whether a comma there goes on with a list of tables.
    lists = [False]
    expects = False
    for index, token in enumerate(tokens):
        word = token.keyword
        if token == "(":  # noqa: S105
            openers.append(tokens[index - 1].keyword if index else "")
            # Tables may stand in brackets, as in `FROM (a JOIN b)`.
            lists.append(False)
        elif token == ")":  # noqa: S105
            openers.pop()
            lists.pop()
            expects = False
        elif word in _TABLE_WORDS and not _is_inside_function(word, openers, tokens, index):
            expects = lists[-1] = True
        elif token == ",":  # noqa: S105
            expects = lists[-1]
        elif word in _AFTER_A_TABLE:
            expects = lists[-1] = False
        elif expects:
            expects = False
            if _is_plain_name(token, tokens[index + 1 : index + 2]):
                yield str(token)


def _is_inside_function(word: str, openers: list[str], tokens: list[_Token], index: int) -> bool:
    if word != "from":
        return False
    is_distinct = index > 1 and tokens[index - 1].keyword == "distinct"
    is_comparison = is_distinct and tokens[index - 2].keyword in ("is", "not")
    return is_comparison or bool(openers and openers[-1] in _FUNCTIONS_WITH_FROM)


def _is_plain_name(token: _Token, after: list[_Token]) -> bool:
    if not token.is_quoted and (not token.isidentifier() or token.lower() in _NOT_TABLES):
        return False
    return not after or after[0] not in (".", "(")
