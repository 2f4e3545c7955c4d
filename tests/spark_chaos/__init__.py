"""Drivers, executors and brokers are killed while Spark copies and archives; all arrives once.

`job` is the driver's program and runs on executors that are processes of their own. `run`
publishes, kills one victim per round, and compares in the end. `make spark-chaos` runs it.
"""
