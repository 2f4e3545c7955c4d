"""The page `/docs`: an OpenAPI document for people, in one file that works offline.

The page is plain HTML with its style inside. It loads nothing and runs no script.
"""

import json
import re
from html import escape
from typing import Any

from penstock.protocols.http.schemas import meaning_of, type_of

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --soft: #5b6b7b; --line: #d8e0e8;
  --paper: #ffffff; --card: #f6f8fa; --accent: #0b6e99; --code: #eef2f6; }
@media (prefers-color-scheme: dark) { :root { --ink: #dfe7ee; --soft: #93a3b3; --line: #2c3945;
  --paper: #12181f; --card: #19212a; --accent: #5cc0ea; --code: #222d38; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", sans-serif; }
main { max-width: 52rem; margin: 0 auto; padding: 3rem 1.5rem 6rem; }
h1 { margin: 0; font-size: 2rem; letter-spacing: -0.01em; }
h1 small { color: var(--soft); font-size: 1rem; font-weight: 400; margin-left: .5rem; }
h2 { margin: 3rem 0 1rem; font-size: 1.25rem; }
h3 { margin: 0; font-size: 1.05rem; display: flex; gap: .75rem; align-items: center; }
p { margin: .5rem 0; } a { color: var(--accent); }
nav ul { list-style: none; padding: 0; margin: 1.5rem 0 0; }
nav li { padding: .2rem 0; } nav span { color: var(--soft); margin-left: .5rem; }
article { border: 1px solid var(--line); border-radius: 10px; background: var(--card);
  padding: 1.25rem 1.5rem; margin: 1rem 0; scroll-margin-top: 1rem; }
.method { background: var(--accent); color: var(--paper); border-radius: 5px; font-size: .75rem;
  font-weight: 700; padding: .1rem .5rem; letter-spacing: .04em; }
code, pre { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: .9em; }
pre { background: var(--code); border-radius: 6px; padding: .6rem .9rem; overflow-x: auto; }
table { width: 100%; border-collapse: collapse; margin: .75rem 0 0; font-size: .93rem; }
th { text-align: left; color: var(--soft); font-weight: 500; }
th, td { border-top: 1px solid var(--line); padding: .45rem .75rem .45rem 0;
  vertical-align: top; }
.soft { color: var(--soft); }
"""


def render_page(document: dict[str, Any]) -> str:
    """Render the whole page; every text of the document is escaped."""
    info = document["info"]
    operations = [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])} HTTP API</title><style>{_STYLE}</style></head>"
        f"<body><main><h1>{escape(info['title'])}<small>{escape(info['version'])}</small></h1>"
        f"<p>{_prose(info['description'])}</p>"
        '<p class="soft">For programs: <a href="/openapi.json">openapi.json</a></p>'
        f"<nav><ul>{''.join(_entry(*each) for each in operations)}</ul></nav>"
        f"<h2>Endpoints</h2>{''.join(_operation(*each) for each in operations)}"
        f"<h2>Types</h2>{''.join(_schema(*each) for each in _schemas(document))}"
        "</main></body></html>"
    )


def _schemas(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return sorted(document["components"]["schemas"].items())


def _entry(path: str, method: str, operation: dict[str, Any]) -> str:
    anchor = escape(operation["operationId"])
    return (
        f'<li><a href="#{anchor}"><code>{method.upper()} {escape(path)}</code></a>'
        f"<span>{_prose(operation['summary'])}</span></li>"
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(status)}</code></td><td>{_prose(answer['description'])}</td>"
        f"<td>{_content(answer)}</td></tr>"
        for status, answer in operation["responses"].items()
    )
    return (
        f'<article id="{escape(operation["operationId"])}">'
        f'<h3><span class="method">{method.upper()}</span><code>{escape(path)}</code></h3>'
        f"<p><strong>{_prose(operation['summary'])}</strong></p>"
        f"<p>{_prose(operation['description'])}</p>"
        f"<pre>{escape(_curl(path, method, operation))}</pre>"
        f"{_parameters(operation.get('parameters', []))}{_body(operation)}"
        f"<table><tr><th>Status</th><th>Meaning</th><th>Body</th></tr>{rows}</table></article>"
    )


def _curl(path: str, method: str, operation: dict[str, Any]) -> str:
    words = ["curl"]
    if method != "get":
        words.append(f"-X {method.upper()}")
    bodies = operation.get("requestBody", {}).get("content", {}).values()
    words += [
        f"-d '{json.dumps(body['example'])}'" if "example" in body else "--data-binary @FILE"
        for body in bodies
    ]
    return " ".join([*words, f"http://localhost:8080{path}"])


def _parameters(parameters: list[dict[str, Any]]) -> str:
    if not parameters:
        return ""
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code></td><td>{_type(each['schema'])}"
        f"{'' if each['required'] else ' <span class=soft>optional</span>'}</td>"
        f"<td>{_prose(each['description'])}</td></tr>"
        for each in parameters
    )
    return f"<table><tr><th>Parameter</th><th>Type</th><th>Meaning</th></tr>{rows}</table>"


def _body(operation: dict[str, Any]) -> str:
    body = operation.get("requestBody")
    if body is None:
        return ""
    optional = "" if body["required"] else ' <span class="soft">optional</span>'
    return f"<p>Body: {_content(body)}{optional}</p>"


def _content(answer: dict[str, Any]) -> str:
    return ", ".join(
        f'<span class="soft">{escape(media_type)}</span> {_type(content["schema"])}'
        for media_type, content in answer["content"].items()
    )


def _schema(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code></td><td>{_type(about)}"
        f"{'' if field in required else ' <span class=soft>optional</span>'}</td>"
        f"<td>{_prose(meaning_of(about))}</td></tr>"
        for field, about in schema.get("properties", {}).items()
    )
    return (
        f'<article id="type-{escape(name)}"><h3><code>{escape(name)}</code></h3>'
        f"<p>{_prose(schema.get('description', ''))}</p>"
        f"<table><tr><th>Field</th><th>Type</th><th>Meaning</th></tr>{rows}</table></article>"
    )


def _type(schema: dict[str, Any]) -> str:
    """Name a schema; those that have their own entry on the page are linked to it."""
    words = re.split(r"<(\w+)>", type_of(schema))
    return "".join(
        f'<a href="#type-{word}"><code>{word}</code></a>' if index % 2 else escape(word)
        for index, word in enumerate(words)
    )


def _prose(text: str) -> str:
    """Escape a text and set its `quoted` words as code."""
    parts = escape(text).split("`")
    return "".join(
        f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts)
    )
