"""Whole nodes in simulated time: the real broker with its links, metadata, placement and replicas.

Where the histories of `tests.simulation.world` look at every step of one group, those here look at
what becomes of many groups together while nodes come and go, topics are created and deleted, and
replicas move. Everything that a node is made of is real; its clock, its disk, its threads and its
network are not.
"""
