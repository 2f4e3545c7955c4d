"""The steps of a file: views made of views."""

from pathlib import Path

from penstock.pipelines.ddl import check_ddl
from penstock.pipelines.documents import Section
from penstock.pipelines.functions import check_function, parse_function_name
from penstock.pipelines.model import FrameStep, FunctionName, RowStep, SqlStep, Step
from penstock.pipelines.places import check_view, read_watermark
from penstock.pipelines.sql_names import views_read_by

_KINDS = ("sql", "python", "rows")
_KEYS = {
    "sql": ("sql", "watermark"),
    "python": ("python", "inputs", "watermark"),
    "rows": ("rows", "from", "schema", "watermark"),
}


def read_step(
    section: Section, directory: Path, *, views: list[str], later: list[str]
) -> Step | None:
    """Return a step; None when it cannot be understood, which has been noted.

    `views` are those above it; `later` holds all steps, for better advice.
    """
    kinds = [kind for kind in _KINDS if kind in section.names]
    if len(kinds) != 1:
        section.problem(f"it needs one of {', '.join(_KINDS)}, it has {', '.join(kinds) or 'none'}")
        return None
    section.expect(_KEYS[kinds[0]])
    match kinds[0]:
        case "sql":
            return _sql(section, views, later)
        case "python":
            return _frames(section, directory, views)
        case _:
            return _rows(section, directory, views)


def _sql(section: Section, views: list[str], later: list[str]) -> SqlStep:
    sql = section.required("sql")
    known = {view.lower() for view in views}
    missing = [
        name for name in section.read("sql", views_read_by) or [] if name.lower() not in known
    ]
    for name in missing:
        if name in later:
            section.problem(f"{name} is defined below; a step reads those above it", "sql")
        else:
            section.problem(f"there is no view {name}; there are {', '.join(views)}", "sql")
    return SqlStep(sql=sql, watermark=read_watermark(section))


def _frames(section: Section, directory: Path, views: list[str]) -> FrameStep | None:
    inputs = section.texts("inputs")
    if not inputs:
        section.problem("inputs is missing: the views that the function gets, in order")
    for view in inputs:
        check_view(section, "inputs", view, views)
    function = _function(section, "python", directory, arguments=len(inputs))
    watermark = read_watermark(section)
    if function is None:
        return None
    return FrameStep(function=function, inputs=inputs, watermark=watermark)


def _rows(section: Section, directory: Path, views: list[str]) -> RowStep | None:
    view = section.required("from")
    check_view(section, "from", view, views)
    section.required("schema")
    schema = section.read("schema", check_ddl) or ""
    function = _function(section, "rows", directory, arguments=1)
    watermark = read_watermark(section)
    if function is None:
        return None
    return RowStep(function=function, input=view, schema=schema, watermark=watermark)


def _function(
    section: Section, key: str, directory: Path, *, arguments: int
) -> FunctionName | None:
    name = section.read(key, parse_function_name)
    if name is not None:
        try:
            check_function(name, directory, arguments=arguments)
        except ValueError as error:
            section.problem(f"it is {str(name)!r}, {error}", key)
    return name
