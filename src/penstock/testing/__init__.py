"""Stand-ins for the machine: time, a disk that can fail, and a network that loses what it carries.

The room keeps what tests and simulations put in place of the clock, the disk, the event loop with
its threads, and the network. It promises that a run depends on nothing but its seed, and that a
stand-in passes the same contract tests as the real thing. Servers never import it.
"""

from penstock.testing.clock import DriftingClock, SimClock
from penstock.testing.disk import MachineStopped, SimDisk
from penstock.testing.loop import SimExecutor, SimLoop
from penstock.testing.machine import SimMachine
from penstock.testing.network import SimNetwork
from penstock.testing.schedule import Schedule

__all__ = [
    "DriftingClock",
    "MachineStopped",
    "Schedule",
    "SimClock",
    "SimDisk",
    "SimExecutor",
    "SimLoop",
    "SimMachine",
    "SimNetwork",
]
