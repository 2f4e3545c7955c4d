"""Stand-ins for the machine: time that is moved by hand and a disk that can fail.

The room keeps what tests and simulations put in place of the clock and the disk. It promises that a
run depends on nothing but its seed, and that a stand-in passes the same contract tests as the real
thing. Servers never import it.
"""

from penstock.testing.clock import SimClock
from penstock.testing.disk import MachineStopped, SimDisk

__all__ = ["MachineStopped", "SimClock", "SimDisk"]
