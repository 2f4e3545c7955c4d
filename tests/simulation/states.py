"""The state of a replica's machine in a form that is equal when states are.

Two replicas may save the same state as different bytes: which scheduled messages are sorted
already, and how a bitmap is laid out, follow from what was asked of them.
"""

from typing import Any

from penstock.broker.groups import ShardMachine
from penstock.cluster.machine import Machine
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.topic_machine import TopicMachine
from penstock.delivery import Ledger, Stage
from penstock.groups.events import decode


def state_of(machine: Machine) -> tuple[Any, ...]:
    """Return all that entries have said, in order."""
    if isinstance(machine, TopicMachine):
        return _topic_state(machine)
    if isinstance(machine, ShardMachine):
        return tuple(sorted(map(repr, decode(machine.snapshot()))))
    assert isinstance(machine, ClusterMetadata)
    return (bytes(machine.snapshot()),)


def _topic_state(machine: TopicMachine) -> tuple[Any, ...]:
    arrivals = machine.arrivals
    # To look at the stage in order changes what is sorted; a copy is looked at instead.
    stage = Stage()
    stage.restore(arrivals.stage.snapshot())
    return (
        machine.start_offset,
        sorted(machine.producers.items()),
        machine._newest_timestamp,
        [(name, _ledger(ledger)) for name, ledger in sorted(machine.delivery.ledgers.items())],
        [(lane, list(offsets)) for lane, offsets in sorted(arrivals.priorities.items())],
        [(each.at_ms, sorted(each.results.items())) for each in arrivals.window._generations],
        list(stage.in_order()),
    )


def _ledger(ledger: Ledger) -> tuple[Any, ...]:
    return (
        ledger.floor,
        list(ledger.done),
        sorted(
            (delivery, list(lease.live_offsets()), lease.at_ms, lease.consumer)
            for delivery, lease in ledger.leases.items()
        ),
        sorted(
            (offset, lease.deadline_of(offset))
            for lease in ledger.leases.values()
            for offset in lease.live_offsets()
        ),
        ledger.in_flight,
        sorted(ledger._attempts.items()),
        sorted(ledger._first_ms.items()),
        sorted(ledger.waiting.items()),
        sorted(ledger.dying.items()),
        sorted(ledger.keys.items()),
        [(part.delivery, part.runs) for part in ledger._acked],
    )
