"""A broker on a simulated machine."""

from typing import Any

from penstock.broker import Broker, NewTopic
from penstock.cluster.commands import ChangeSettings, encode_command
from penstock.config import Address, NodeOptions
from penstock.ids import TopicPartition
from penstock.log import StateEntry
from tests.unit.cluster.workplaces import DATA, SimMachine


async def started(machine: SimMachine | None = None, **options: Any) -> Broker:
    """Return a broker that has one topic, `orders`, with two partitions."""
    machine = machine or SimMachine()
    node = NodeOptions(data_dir=DATA, group_shards=1, peer_port=0, **options)
    broker = Broker(node, machine.workplace())
    await broker.start("127.0.0.1")
    await broker.register(kafka=Address("127.0.0.1", 9092), http_port=8080)
    if "orders" not in broker.metadata.topics:
        await broker.topics.create(NewTopic("orders", partitions=2))
    return broker


async def set_for_long(broker: Broker, settings: dict[str, str]) -> None:
    """Let the topic have settings past all checks, as by an entry from before there were any."""
    command = ChangeSettings(broker.metadata.topic("orders").topic_id, settings, [])
    broker.metadata.apply_state(StateEntry(1, 1, 0, encode_command(command)))
    # Partitions have followed when those of a change that changes nothing have.
    await broker.cluster.topics.change_settings(broker.metadata.topic("orders"), {}, [])


def flip_a_byte(broker: Broker, place: TopicPartition) -> None:
    """Change the last byte of the first batch of a partition, as a disk that rots does."""
    segment = broker.partition(place).log.log.segments[0]
    position = segment.table.row(segment.table.number_of_offset(0)).log_end - 1
    (byte,) = segment.files.log.read_at(position, 1)
    segment.files.log.write_at(position, [bytes([byte ^ 1])])
