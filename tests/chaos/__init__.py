"""A cluster of real processes under load while everything around it breaks.

Stock Kafka clients write and read all the time, and workers of a queue group receive and settle
through any node. Nodes are killed, frozen, restarted and wiped, links are cut, slowed and made
deaf, the disk is kept busy, partitions move, as a seed says. Everything that the clients were told
is recorded, and in the end a checker compares it with what the cluster holds: nothing acknowledged
is lost, reordered or doubled, no offset shows two values, nothing goes back, no settled message
comes again and every other one comes, all replicas are equal.

`make chaos SECONDS=3600 NODES=5 SEED=7` runs it; `LOAD=heavy` writes more. The seed fixes which
faults come in which order; what they meet differs from run to run, because processes and disks have
their own time.
"""
