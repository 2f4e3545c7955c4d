"""Axes: round steps, and numbers and times as people read them."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime

_TICKS = 4
_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
_MILLISECONDS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
_STEPS_MS = (
    *(1000 * seconds for seconds in (1, 2, 5, 10, 15, 30)),
    *(_MINUTE_MS * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(_HOUR_MS * hours for hours in (1, 2, 3, 6, 12)),
    _DAY_MS,
)


def value_ticks(most: float) -> list[float]:
    """Return round values from 0 to at least `most`."""
    if most <= 0:
        return [0.0, 1.0]
    rough = most / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 2.5, 5, 10) if power * each >= rough)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def duration_ticks(most_ms: float) -> list[float]:
    """Return round durations from 0 to at least `most_ms`."""
    rough = most_ms / _TICKS
    if rough < 1 or rough > _STEPS_MS[-1]:
        return value_ticks(most_ms)
    step = next(each for each in (*_MILLISECONDS, *_STEPS_MS) if each >= rough)
    return [float(step * number) for number in range(math.ceil(most_ms / step) + 1)]


def show_number(value: float) -> str:
    """Write a number in few characters: 1,234, 12.3 k, 4.5 M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{_short(value / min(size, 1e3) if unit == 'k' else value / size)} {unit}"
    return _short(value)


def show_bytes(size: float) -> str:
    """Write a size in bytes with a binary unit."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1024**power:
            return f"{_short(size / 1024**power)} {unit}"
    return f"{_short(size)} B"


def show_duration(duration_ms: float) -> str:
    """Write a duration: 12 ms, 3.4 s, 5.6 min, 7.8 h."""
    for size, unit in ((_HOUR_MS, "h"), (_MINUTE_MS, "min"), (1000, "s")):
        if duration_ms >= size:
            return f"{_short(duration_ms / size)} {unit}"
    return f"{_short(duration_ms)} ms"


def show_moment(time_ms: int) -> str:
    """Write a time in UTC, to the second."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def time_labels(times_ms: Sequence[int], count_max: int = 7) -> list[tuple[int, str]]:
    """Return a few round times, by their numbers, with labels as short as they may be."""
    if not times_ms:
        return []
    span_ms = times_ms[-1] - times_ms[0]
    step_ms = next(
        (step for step in _STEPS_MS if span_ms <= step * (count_max - 1)),
        -(-span_ms // (_DAY_MS * (count_max - 1))) * _DAY_MS,
    )
    chosen = [number for number, time_ms in enumerate(times_ms) if time_ms % step_ms == 0]
    shape = "%b %d" if step_ms >= _DAY_MS else "%H:%M" if step_ms >= _MINUTE_MS else "%H:%M:%S"
    if span_ms > _DAY_MS and step_ms < _DAY_MS:
        shape = "%b %d %H:%M"
    return [
        (number, datetime.fromtimestamp(times_ms[number] / 1000, UTC).strftime(shape))
        for number in chosen or [0]
    ]


def _short(value: float) -> str:
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    text = f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".")
