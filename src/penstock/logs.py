"""Log lines: constant text plus fields, for people or for programs."""

import datetime as dt
import json
import logging
import sys

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logs(*, level: str, style: str) -> None:
    """Send all log lines to standard error; `style` is text or json."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # These say at INFO what every request of theirs does.
    for noisy in ("asyncio", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


class TextFormatter(logging.Formatter):
    """One line for people: time, level, text, fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the stack trace below it when there is one."""
        fields = " ".join(f"{name}={_shown(value)}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname:<7} {record.getMessage()}"
        line = f"{line}  {fields}" if fields else line
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object for programs."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object on one line."""
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _time(record: logging.LogRecord) -> str:
    moment = dt.datetime.fromtimestamp(record.created, tz=dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shown(value: object) -> str:
    text = str(value)
    return json.dumps(text) if " " in text or not text else text
