"""How this room writes its values down.

Messages, entries and effects are made several times per replicated batch. A frozen dataclass takes
eight times as long to make as one of these, and a plain one three times. They are hidden from the
garbage collector: nothing in them points back.
"""

import msgspec


class Value(msgspec.Struct, frozen=True, gc=False):
    """A value that does not change and equals others with the same fields."""
