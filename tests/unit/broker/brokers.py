"""A broker on a simulated machine."""

from typing import Any

from penstock.broker import Broker, NewTopic
from penstock.config import NodeOptions
from tests.unit.cluster.workplaces import DATA, SimMachine


async def started(machine: SimMachine | None = None, **options: Any) -> Broker:
    """Return a broker that has one topic, `orders`, with two partitions."""
    machine = machine or SimMachine()
    node = NodeOptions(data_dir=DATA, group_shards=1, **options)
    broker = Broker(node, machine.workplace())
    await broker.start()
    if "orders" not in broker.metadata.topics:
        await broker.topics.create(NewTopic("orders", partitions=2))
    return broker
