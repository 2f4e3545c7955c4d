"""A real node inside the process of a test: the whole server, on free ports, with its own files.

`EmbeddedBroker` runs it on a thread with a loop of its own, `AsyncEmbeddedBroker` on the loop of
the caller. Without a directory the data is in a temporary one, which goes at the end.
"""

import asyncio
import shutil
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import uvloop

from penstock.config import NodeOptions
from penstock.node import Node

_HOST = "127.0.0.1"
# Every shard is a log of its own that is created at the first start; one is enough for a test.
_QUICK = NodeOptions(group_shards=1)


class AsyncEmbeddedBroker:
    """A node on the running loop, between entering and leaving the block."""

    def __init__(
        self, data_dir: Path | str | None = None, options: NodeOptions | None = None
    ) -> None:
        self._is_temporary = data_dir is None
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._options = options or _QUICK
        self._node: Node | None = None

    @property
    def url(self) -> str:
        """The address for `penstock.client.Client` and everything else that speaks HTTP."""
        return f"http://{_HOST}:{self._running().http_port}"

    @property
    def bootstrap(self) -> str:
        """The address for Kafka clients."""
        return f"{_HOST}:{self._running().kafka_port}"

    @property
    def data_dir(self) -> Path:
        """Where the node's files are."""
        assert self._data_dir is not None, "the node has not been started"
        return self._data_dir

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the node; returns when it serves."""
        assert self._node is None, "the node runs already"
        if self._data_dir is None:
            self._data_dir = Path(tempfile.mkdtemp(prefix="penstock-"))
        options = replace(
            self._options,
            data_dir=self._data_dir,
            host=_HOST,
            kafka_port=0,
            http_port=0,
            peer_port=0,
        )
        node = Node(options)
        await node.start()
        self._node = node

    async def stop(self) -> None:
        """Stop the node; temporary files go."""
        if self._node is not None:
            await self._node.stop()
            self._node = None
        if self._is_temporary and self._data_dir is not None:
            shutil.rmtree(self._data_dir, ignore_errors=True)
            self._data_dir = None

    def _running(self) -> Node:
        assert self._node is not None, "the node does not run"
        return self._node


class EmbeddedBroker:
    """A node on a thread, between entering and leaving the block."""

    def __init__(
        self, data_dir: Path | str | None = None, options: NodeOptions | None = None
    ) -> None:
        self._broker = AsyncEmbeddedBroker(data_dir, options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address for `penstock.client.Client` and everything else that speaks HTTP."""
        return self._broker.url

    @property
    def bootstrap(self) -> str:
        """The address for Kafka clients."""
        return self._broker.bootstrap

    @property
    def data_dir(self) -> Path:
        """Where the node's files are."""
        return self._broker.data_dir

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the node; returns when it serves, or raises why it does not."""
        assert self._loop is None, "the node runs already"
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="penstock-node", daemon=True
        )
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._broker.start(), self._loop).result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the node; safe to call twice."""
        if self._loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._broker.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None
