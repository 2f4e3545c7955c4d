"""Stand-ins for the machine, and a whole node inside a test.

The room keeps what tests and simulations put in place of the clock, the disk that can fail, the
event loop with its threads, and the network that loses what it carries; and, for the tests of
programs that use Penstock, a real node in the process of the test, with fixtures that pytest finds
by itself. It promises that a simulated run depends on nothing but its seed, and that a stand-in
passes the same contract tests as the real thing. Servers never import it.
"""

from penstock.testing.clock import DriftingClock, SimClock
from penstock.testing.disk import MachineStopped, SimDisk
from penstock.testing.embedded import AsyncEmbeddedBroker, EmbeddedBroker
from penstock.testing.loop import SimExecutor, SimLoop
from penstock.testing.machine import SimMachine
from penstock.testing.network import SimNetwork
from penstock.testing.schedule import Schedule
from penstock.testing.wires import SimWires

__all__ = [
    "AsyncEmbeddedBroker",
    "DriftingClock",
    "EmbeddedBroker",
    "MachineStopped",
    "Schedule",
    "SimClock",
    "SimDisk",
    "SimExecutor",
    "SimLoop",
    "SimMachine",
    "SimNetwork",
    "SimWires",
]
