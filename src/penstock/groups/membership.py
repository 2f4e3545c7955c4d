"""What a heartbeat of the incremental protocol says about its member."""

import msgspec

from penstock.errors import InvalidGroupId, InvalidRequest, UnsupportedAssignor
from penstock.groups.assignor import ASSIGNORS
from penstock.groups.commands import ConsumerHeartbeat
from penstock.groups.events import ConsumerRow
from penstock.groups.limits import GroupLimits
from penstock.groups.subscription import check_regex

JOINING = 0
LEAVING = -1
AWAY = -2


def check_heartbeat(beat: ConsumerHeartbeat, limits: GroupLimits) -> None:
    """Refuse what no group could accept."""
    if not beat.group_id:
        raise InvalidGroupId("a group needs a name")
    if beat.instance_id == "" or beat.rack_id == "":
        raise InvalidRequest("an instance id or rack id that is given cannot be empty")
    if beat.member_epoch == JOINING:
        _check_joining(beat)
    elif beat.member_epoch < AWAY:
        raise InvalidRequest(f"a member epoch of {beat.member_epoch} means nothing")
    elif not beat.member_id:
        raise InvalidRequest("only a member that joins may be without an id")
    elif beat.member_epoch == AWAY and beat.instance_id is None:
        raise InvalidRequest("only a static member can leave for a while")
    if beat.assignor is not None and beat.assignor not in ASSIGNORS:
        raise UnsupportedAssignor(f"{beat.assignor!r} is not one of {', '.join(ASSIGNORS)}")
    if beat.regex:
        check_regex(beat.regex, limits.regex_chars_max)


def _check_joining(beat: ConsumerHeartbeat) -> None:
    if not beat.member_id and not beat.candidate_id:
        raise InvalidRequest("a member needs an id")
    if beat.rebalance_ms is None or beat.rebalance_ms < 0:
        raise InvalidRequest("a member that joins must state its rebalance timeout")
    if beat.owned:
        raise InvalidRequest("a member that joins owns no partitions")
    if beat.topics is None and beat.regex is None:
        raise InvalidRequest("a member that joins must say what it subscribes to")


def blank_member(member_id: str, beat: ConsumerHeartbeat) -> ConsumerRow:
    """A member that has said nothing yet but who it is."""
    return ConsumerRow(
        member_id=member_id,
        instance_id=beat.instance_id,
        rack_id=None,
        client_id=beat.client_id,
        client_host=beat.client_host,
        rebalance_ms=0,
        topics=(),
        regex=None,
        assignor=None,
        epoch=JOINING,
        previous_epoch=LEAVING,
        assigned={},
        revoking={},
        target={},
    )


def with_changes(member: ConsumerRow, beat: ConsumerHeartbeat) -> ConsumerRow:
    """The member with what the heartbeat says anew; the same object when that is nothing."""
    said = {
        "rack_id": beat.rack_id,
        "rebalance_ms": beat.rebalance_ms,
        "topics": None if beat.topics is None else tuple(sorted(set(beat.topics))),
        "regex": beat.regex,
        "assignor": beat.assignor,
    }
    if beat.member_epoch == JOINING:
        said |= {"client_id": beat.client_id, "client_host": beat.client_host}
    changes = {
        name: value
        for name, value in said.items()
        if value is not None and value != getattr(member, name)
    }
    return msgspec.structs.replace(member, **changes) if changes else member


def is_wish_changed(before: ConsumerRow, after: ConsumerRow) -> bool:
    """Whether the group must be assigned anew because of what this member wants."""
    is_new = before.epoch == JOINING and before.previous_epoch == LEAVING
    return is_new or (before.topics, before.regex, before.assignor) != (
        after.topics,
        after.regex,
        after.assignor,
    )


def is_full(beat: ConsumerHeartbeat) -> bool:
    """Whether the member says everything, as it does when it joins or has lost an answer."""
    is_subscribing = beat.topics is not None or beat.regex is not None
    is_complete = beat.rebalance_ms is not None and is_subscribing and beat.owned is not None
    return beat.member_epoch == JOINING or is_complete
