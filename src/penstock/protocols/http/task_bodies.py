"""The JSON of tasks."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.protocols.http.message_bodies import Duration, Moment, Wait

TaskState = Literal["queued", "scheduled", "leased", "done", "failed"]


class NewTaskBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task to be enqueued."""

    type: Annotated[str, Meta(description="Workers choose what they do by it.")] = ""
    payload: Annotated[Any, Meta(description="Any JSON; workers get the same.")] = None
    priority: Annotated[
        int | str, Meta(description="0 to 9, or low (1), normal (4), high (7).")
    ] = 4
    max_retries: Annotated[
        int, Meta(ge=0, le=1_000, description="Attempts after the first one.")
    ] = 3
    idempotency_key: Annotated[
        str | None,
        Meta(description="Where it repeats within minutes, the first task of the type counts."),
    ] = None
    delay: Duration | None = None
    deliver_at: Moment | None = None


class EnqueuedTaskBody(Struct, frozen=True, kw_only=True):
    """A task that is committed."""

    id: str
    type: str
    state: TaskState
    duplicate: bool | UnsetType = UNSET


class LeaseBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many tasks of which types, how long to wait for the first, and for how long."""

    types: Annotated[
        list[str], Meta(max_length=100, description="Nothing stands for every type.")
    ] = []
    max: Annotated[int, Meta(ge=1, le=10_000)] = 1
    wait: Wait = 0
    lease: Annotated[
        Duration | None, Meta(description="Up to 12 h; that of the type's topic if left out.")
    ] = None
    worker: Annotated[str, Meta(max_length=200)] = ""


class TaskBody(Struct, frozen=True, kw_only=True):
    """A task that is out with a worker until `lease_until`."""

    id: str
    type: str
    payload: Any
    encoding: (
        Annotated[
            Literal["text", "base64"],
            Meta(description="How a payload is written that is not JSON."),
        ]
        | UnsetType
    ) = UNSET
    priority: int
    attempt: int
    max_retries: int
    receipt: str
    lease_until: int
    enqueued: int
    topic: str
    group: str


class LeasedTasks(Struct, frozen=True, kw_only=True):
    """What was ready; an empty list is a normal answer."""

    tasks: list[TaskBody]


class TaskReceiptBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The receipt that a worker got with the task."""

    receipt: str


class TaskNackBody(TaskReceiptBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task that could not be done."""

    reason: Annotated[str, Meta(max_length=1_000)] = ""
    delay: Duration | None = None
    uncounted: bool = False


class TaskExtendBody(TaskReceiptBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task that takes longer."""

    lease: Duration | None = None


class TaskAccepted(Struct, frozen=True, kw_only=True):
    """The receipt was accepted."""

    id: str


class TaskStatusBody(Struct, frozen=True, kw_only=True):
    """How a task stands."""

    id: str
    type: str
    state: TaskState
    attempts: Annotated[
        int | None, Meta(description="Null when the journal does not reach back so far.")
    ]
    max_retries: int
    last_error: str
    enqueued: Annotated[int, Meta(description="Milliseconds since 1970.")]
    ready_at: (
        Annotated[int, Meta(description="When it is tried again, or first tried.")] | UnsetType
    ) = UNSET
    lease_until: int | UnsetType = UNSET
    worker: str | UnsetType = UNSET


class TaskList(Struct, frozen=True, kw_only=True):
    """Tasks that are queued or leased."""

    tasks: list[TaskStatusBody]


class TypeStatusBody(Struct, frozen=True, kw_only=True):
    """How many tasks of a type are in which state."""

    type: str
    queued: int
    retrying: Annotated[int, Meta(description="Those among the queued that have failed before.")]
    leased: int
    scheduled: int
    failed: Annotated[int, Meta(description="Dead letters that nobody has dealt with.")]
    oldest: Annotated[int | None, Meta(description="When the oldest open one was enqueued.")]


class TaskStats(Struct, frozen=True, kw_only=True):
    """How the types stand."""

    types: list[TypeStatusBody]
