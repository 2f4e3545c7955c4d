"""Groups of Kafka consumers, driven command by command."""
