"""What a forked process must not share with its parent.

A child inherits the connections of its parent and the numbers from which keys are drawn: answers
would come to the wrong process, and messages of one would be taken for those of the other. It
inherits no thread, and locks that perhaps nobody will release. So clients begin anew in a child.
"""

import os
import weakref
from typing import Protocol


class Inherited(Protocol):
    """Something that is in a child, too."""

    def begin_anew(self) -> None:
        """Let go of all that is the parent's. Called in the child, before anything else."""


_inherited: "weakref.WeakSet[Inherited]" = weakref.WeakSet()


def watch_forks(each: Inherited) -> None:
    """Let `each` begin anew in every child, for as long as it is there."""
    _inherited.add(each)


def _begin_anew() -> None:
    for each in list(_inherited):
        each.begin_anew()


os.register_at_fork(after_in_child=_begin_anew)
