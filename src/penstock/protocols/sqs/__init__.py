"""The SQS-compatible API: a queue is a topic, received through the queue group `sqs`.

This room speaks AWS JSON 1.0 and the older query protocol, checks what the real service checks, and
answers with its codes. Everything else is the broker's: what is sent here can be read by every
other door.
"""

from penstock.protocols.sqs.door import BODY_BYTES_MAX, SqsDoor
from penstock.protocols.sqs.options import SqsOptions
from penstock.protocols.sqs.signatures import read_access_keys

__all__ = ["BODY_BYTES_MAX", "SqsDoor", "SqsOptions", "read_access_keys"]
