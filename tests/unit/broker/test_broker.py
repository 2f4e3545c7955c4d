"""When a node calls itself ready."""

from penstock.broker import Broker
from penstock.config import Address, NodeOptions
from penstock.errors import StorageFailed
from tests.unit.broker.brokers import started
from tests.unit.cluster.workplaces import DATA, PLACE, SimMachine, batch, run


def unmet(broker: Broker) -> dict[str, str]:
    return {check.name: check.detail for check in broker.checks() if not check.is_passed}


def test_a_fresh_node_is_ready_until_it_drains() -> None:
    async def scene() -> None:
        broker = await started()
        assert unmet(broker) == {}

        broker.start_draining()

        assert unmet(broker) == {"serving": "the node is being stopped"}

    run(scene())


def test_a_node_is_not_ready_before_its_cluster_has_answered() -> None:
    async def scene() -> None:
        node = NodeOptions(data_dir=DATA, group_shards=1, peer_port=0)
        broker = Broker(node, SimMachine().workplace())
        await broker.start("127.0.0.1")
        assert list(unmet(broker)) == ["joined"]

        await broker.register(kafka=Address("127.0.0.1", 9092), http_port=8080)

        assert unmet(broker) == {}

    run(scene())


def test_a_node_that_waits_for_others_names_them() -> None:
    async def scene() -> None:
        peers = "1=127.0.0.1:1,2=127.0.0.1:2"
        node = NodeOptions(data_dir=DATA, node_id=1, peers=peers, peer_port=0)
        broker = Broker(node, SimMachine().workplace())
        await broker.start("127.0.0.1")

        assert "[2]" in unmet(broker)["joined"]

        await broker.close()

    run(scene())


def test_a_node_that_was_removed_is_not_ready_from_the_moment_in_which_it_knows() -> None:
    async def scene() -> None:
        broker = await started()
        assert not broker.is_cut_off

        del broker.metadata.nodes[broker.node_id]
        await broker.cluster._belonging.look()

        assert "this node was removed from its cluster" in unmet(broker)["joined"]

    run(scene())


def test_a_log_that_fails_is_named() -> None:
    async def scene() -> None:
        broker = await started()

        broker.partition(PLACE).log.fail(StorageFailed("broken"))

        assert "orders-0" in unmet(broker)["logs-usable"]
        assert "orders-1" not in unmet(broker)["logs-usable"]

    run(scene())


def test_a_partition_that_is_damaged_at_the_start_is_named() -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine)
        for number in range(3):
            await broker.partition(PLACE).publish(batch(b"%d" % number))
        machine.disk.kill()
        path = DATA / "topics" / "orders" / "0" / f"{1:020}.log"
        machine.disk.put(path, machine.disk.content(path)[:20])

        again = await started(machine)

        assert "orders-0" in unmet(again)["logs-usable"]

    run(scene())


def test_a_low_disk_is_told() -> None:
    async def scene() -> None:
        machine = SimMachine(capacity_bytes=100_000)
        broker = await started(machine, disk_free_bytes_min=1_000_000)

        free = broker.space.free_bytes
        told = f"{free} bytes are free, fewer than the 1000000 to keep free"
        assert unmet(broker)["disk-space"] == told

    run(scene())


def test_a_topic_survives_a_clean_stop() -> None:
    async def scene() -> None:
        machine = SimMachine()
        broker = await started(machine)
        await broker.partition(PLACE).publish(batch(b"a"))
        await broker.close()

        again = await started(machine)

        assert again.partition(PLACE).high_watermark == 1
        assert again.metadata.cluster_id == broker.metadata.cluster_id

    run(scene())
