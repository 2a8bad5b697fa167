# SPDX-License-Identifier: Apache-2.0
"""A Job's labels and generation after an update."""

from refloat.api.meta import Object
from tests import builders
from tests.apiserver_fixture import JOBS, ServerFixture

SHORT: Object = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j"},
    "status": {"active": 1},
}


async def test_short_status_write_leaves_the_labels_of_the_template(world: ServerFixture) -> None:
    before = await world.create(builders.job())
    after, _ = await world.replace(SHORT, subresource="status")
    assert after["status"] == {"active": 1}
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert after["metadata"]["labels"] == after["spec"]["template"]["metadata"]["labels"]


async def test_short_status_write_of_no_change_is_none(world: ServerFixture) -> None:
    before = await world.create(builders.job())
    after, _ = await world.replace({**SHORT, "status": {}}, subresource="status")
    assert after == before


async def test_status_write_without_labels_brings_those_of_the_template(
    world: ServerFixture,
) -> None:
    before = await world.create(builders.job(labels={"own": "x"}))
    after, _ = await world.replace(SHORT, subresource="status")
    assert after["metadata"]["labels"] == before["spec"]["template"]["metadata"]["labels"]


async def test_status_write_with_labels_has_those(world: ServerFixture) -> None:
    await world.create(builders.job())
    short = {**SHORT, "metadata": {"name": "j", "labels": {"own": "x"}}}
    after, _ = await world.replace(short, subresource="status")
    assert after["metadata"]["labels"] == {"own": "x"}


def asking(amount: str) -> Object:
    """A Job whose pods ask for memory, and are warned of a key that stands twice."""
    repeated = {"name": "E", "value": "x"}
    container = {
        "name": "c",
        "image": "i",
        "env": [repeated, repeated],
        "resources": {"requests": {"memory": amount}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return builders.job(spec={"suspend": True, "template": template})


async def write(world: ServerFixture, amount: str) -> tuple[Object, list[str]]:
    """Write a Job's template with this amount; the stored amount, and the warnings."""

    def change(job: Object) -> None:
        containers = job["spec"]["template"]["spec"]["containers"]
        containers[0]["resources"]["requests"]["memory"] = amount

    call: list[str] = []
    after = await world.change(JOBS, "j", change, warnings=call)
    return after, call


async def test_amount_that_is_written_otherwise_is_no_new_generation(world: ServerFixture) -> None:
    before = await world.create(asking("1Gi"))
    after, warnings = await write(world, "1073741824")
    assert after["metadata"]["generation"] == 1
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
    assert after["spec"] != before["spec"]
    assert warnings == []


async def test_another_amount_is_a_new_generation(world: ServerFixture) -> None:
    await world.create(asking("1Gi"))
    after, warnings = await write(world, "2Gi")
    assert after["metadata"]["generation"] == 2
    assert len(warnings) == 1
