"""Jobs that count what a cluster's logs and delivery journals tell.

Records are read through the source and journals over HTTP, both in the executors; what comes back
to the driver has been counted there and is as small as a plot. Nothing is kept and nothing in the
cluster changes. How numbers become a page is left to `penstock.insight`.
"""

from penstock.spark.insight.deliveries import deliveries_report
from penstock.spark.insight.hot_keys import hot_keys_report
from penstock.spark.insight.latency import latency_report
from penstock.spark.insight.scope import Scope
from penstock.spark.insight.traffic import traffic_report

__all__ = ["Scope", "deliveries_report", "hot_keys_report", "latency_report", "traffic_report"]
