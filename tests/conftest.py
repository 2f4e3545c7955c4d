"""How tests are made up, and how `make test` shares them among processes, by file.

Files keep to one process, because their tests share a node or a cluster. So do all tests with
Spark, which share a session, and they come first, because nothing else takes as long.
"""

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling

_SPARK = "tests/spark/"

# Examples are the same in every run, so that a run tells about the code and not about chance, and
# may take their time on a busy machine. `--hypothesis-profile default` looks for others.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that all processes end at about the same time."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: not item.nodeid.startswith(_SPARK))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "LoadFileScheduling":
    """Hand out whole files, and all that needs Spark as if it were one."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            is_spark = nodeid.startswith(_SPARK)
            return _SPARK if is_spark else str(super()._split_scope(nodeid))

    return ByFile(config, log)
