# SPDX-License-Identifier: Apache-2.0
"""Jobs keep their promises while real processes and their links fail, one fault at a time.

One cluster plays all short scenarios, because its processes take most of the time.
"""

from collections.abc import Iterator

import pytest

from tests.faults.__main__ import replay
from tests.faults.catalogue import SCENARIOS, Scenario
from tests.faults.processes import Cluster, running
from tests.faults.workload import workload

SHORT = [each for each in SCENARIOS.values() if not each.long]
SEED = 7


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("faults")) as found:
        yield found


@pytest.mark.timeout(900)  # a hang, not a slow machine
@pytest.mark.parametrize("each", SHORT, ids=[each.name for each in SHORT])
def test_holds_under(each: Scenario, cluster: Cluster) -> None:
    try:
        with workload(cluster, each.name) as load:
            each.play(load, SEED)
    except BaseException as error:
        error.add_note(f"again: {replay(each.name, SEED)}")
        raise
