"""The Kafka door: any Kafka client, unmodified.

The room turns frames into verbs of `broker` and answers back into frames. Record batches pass
through as bytes; nothing here is done per record. Errors leave as Kafka's own codes, by the one
table in `errors`. A client that sends nonsense loses its connection and harms nobody else.
"""

from penstock.protocols.kafka.server import KafkaServer

__all__ = ["KafkaServer"]
