# SPDX-License-Identifier: Apache-2.0
"""Creates and updates below HTTP; the answers are a Kubernetes API server's."""

from typing import Any

import pytest

from refloat.api import kinds, times
from refloat.api.errors import StatusError
from refloat.api.meta import Object
from refloat.apiserver import registry
from refloat.apiserver.identity import ADMIN, Call
from refloat.base.rand import Rand
from tests import builders
from tests.apiserver_fixture import CONFIG_MAPS, JOBS, LEASES, NODES, PODS, ServerFixture
from tests.cases import cases
from tests.clocks import START
from tests.refusals import refusal

NOWHERE = "11111111-1111-1111-1111-111111111111"


# -- creating ---------------------------------------------------------------


async def test_create_sets_what_only_the_server_may_set(world: ServerFixture) -> None:
    config_map = builders.config_map(
        uid="mine",
        creationTimestamp="2020-01-01T00:00:00Z",
        deletionTimestamp="2020-01-01T00:00:00Z",
        deletionGracePeriodSeconds=5,
        selfLink="/x",
    )
    metadata = (await world.create(config_map))["metadata"]
    assert metadata == {
        "name": "c",
        "namespace": "default",
        "uid": metadata["uid"],
        "creationTimestamp": times.format_time(START),
        "resourceVersion": str(world.store.revision),
    }
    assert metadata["uid"] != "mine"


@cases(
    "obj want",
    {
        "pods begin at 1": (builders.pod(generation=7), 1),
        "jobs begin at 1": (builders.job(generation=7), 1),
        "budgets begin at 1": (builders.budget(generation=7), 1),
        "nodes keep what is given": (builders.node(generation=7), 7),
        "data keeps what is given": (builders.config_map(generation=7), 7),
    },
)
async def test_generation_of_a_new_object(world: ServerFixture, obj: Object, want: int) -> None:
    assert (await world.create(obj))["metadata"]["generation"] == want


async def test_create_clears_a_status(world: ServerFixture) -> None:
    """behaviour B2.1"""
    job = await world.create({**builders.job(), "status": {"succeeded": 3}})
    assert job["status"] == {}


async def test_job_gets_its_selector_and_labels(world: ServerFixture) -> None:
    """behaviour B2.1"""
    job = await world.create(builders.job())
    uid = job["metadata"]["uid"]
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert job["spec"]["template"]["metadata"]["labels"] == {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": uid,
        "job-name": "j",
    }


@pytest.mark.parametrize("version", ["0", "abc", "99999999999999999999", "9" * 5000])
async def test_create_passes_over_a_version_that_is_none(
    world: ServerFixture, version: str
) -> None:
    config_map = await world.create(builders.config_map(resourceVersion=version))
    assert config_map["metadata"]["resourceVersion"] == str(world.store.revision)


async def test_create_refuses_a_version(world: ServerFixture) -> None:
    with refusal(500, "resourceVersion should not be set on objects to be created"):
        await world.create(builders.config_map(resourceVersion="5"))


async def test_dry_create_echoes_a_version(world: ServerFixture) -> None:
    config_map = await world.create(builders.config_map(resourceVersion="5"), dry_run=True)
    assert config_map["metadata"]["resourceVersion"] == "5"


async def test_dry_create_writes_nothing(world: ServerFixture) -> None:
    revision = world.store.revision
    config_map = await world.create(builders.config_map(), dry_run=True)
    assert "resourceVersion" not in config_map["metadata"]
    assert world.store.revision == revision
    assert not world.exists(CONFIG_MAPS, "c")


@pytest.mark.parametrize("dry_run", [False, True])
async def test_create_of_what_exists(world: ServerFixture, dry_run: bool) -> None:
    await world.create(builders.config_map())
    with refusal(409, 'configmaps "c" already exists') as error:
        await world.create(builders.config_map(), dry_run=dry_run)
    assert error.value.details == {"name": "c", "kind": "configmaps"}


async def test_create_of_what_is_being_deleted(world: ServerFixture) -> None:
    await world.create(builders.job(finalizers=["a.b/c"]))
    await world.delete(JOBS, "j")
    with refusal(409, 'object is being deleted: jobs.batch "j" already exists'):
        await world.create(builders.job())


async def test_create_in_another_namespace_than_that_of_the_address(world: ServerFixture) -> None:
    message = (
        "the namespace of the provided object does not match the namespace sent on the request"
    )
    with refusal(400, message):
        await world.create(builders.config_map(namespace="other"))


# -- generated names --------------------------------------------------------


async def test_generated_name_has_five_characters_more(world: ServerFixture) -> None:
    config_map = await world.create(builders.config_map("", generateName="web-"))
    name = config_map["metadata"]["name"]
    assert name.startswith("web-")
    assert len(name) == len("web-") + 5


async def test_generated_name_fits_a_label(world: ServerFixture) -> None:
    config_map = await world.create(builders.config_map("", generateName="x" * 60))
    assert len(config_map["metadata"]["name"]) == 63


async def test_generated_name_that_is_taken_is_tried_again(world: ServerFixture) -> None:
    suffix = Rand(99).suffix()
    world.registry._rand = Rand(99)
    await world.create(builders.job(f"web-{suffix}"))
    world.registry._rand = Rand(99)
    job = await world.create(builders.job("", generateName="web-"))
    name = job["metadata"]["name"]
    assert name != f"web-{suffix}"
    assert job["spec"]["template"]["metadata"]["labels"]["job-name"] == name


async def test_job_with_a_generated_name_has_its_templates_own_labels_alone(
    world: ServerFixture,
) -> None:
    job = builders.job("", generateName="web-")
    job["spec"]["template"]["metadata"] = {"labels": {"q": "r"}}
    created = await world.create(job)
    assert created["metadata"]["labels"] == {"q": "r"}


class OneTrack(Rand):
    """Chance that always falls the same way."""

    def suffix(self) -> str:
        return "aaaaa"


async def test_generated_name_is_given_up_when_all_tries_are_taken(world: ServerFixture) -> None:
    world.registry._rand = OneTrack(1)
    await world.create(builders.config_map("", generateName="web-"))
    message = (
        'configmaps "web-aaaaa" already exists, '
        "the server was not able to generate a unique name for the object"
    )
    with refusal(409, message) as error:
        await world.create(builders.config_map("", generateName="web-"))
    assert error.value.retry_after == 1


async def test_given_name_is_never_replaced_by_a_generated_one(world: ServerFixture) -> None:
    await world.create(builders.config_map("web-1"))
    message = (
        'configmaps "web-1" already exists, '
        "the server was not able to generate a unique name for the object"
    )
    with refusal(409, message):
        await world.create(builders.config_map("web-1", generateName="web-"))


# -- replacing --------------------------------------------------------------


@cases(
    "metadata code message",
    {
        "no name": (
            {},
            400,
            "the name of the object (c based on URL) was undeterminable: name must be provided",
        ),
        "another name": (
            {"name": "d"},
            400,
            "the name of the object (d) does not match the name on the URL (c)",
        ),
        "another namespace": (
            {"name": "c", "namespace": "other"},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        "another namespace, and another name in it": (
            {"name": "d", "namespace": "other"},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        "an old version": (
            {"name": "c", "resourceVersion": "1"},
            409,
            (
                'Operation cannot be fulfilled on configmaps "c": the object has been modified; '
                "please apply your changes to the latest version and try again"
            ),
        ),
        "no number for a version": (
            {"name": "c", "resourceVersion": "abc"},
            500,
            'strconv.ParseUint: parsing "abc": invalid syntax',
        ),
        "too large a number for a version": (
            {"name": "c", "resourceVersion": "99999999999999999999"},
            500,
            'strconv.ParseUint: parsing "99999999999999999999": value out of range',
        ),
        "thousands of digits for a version": (
            {"name": "c", "resourceVersion": "9" * 5000},
            500,
            f'strconv.ParseUint: parsing "{"9" * 5000}": value out of range',
        ),
    },
)
async def test_update_is_refused_for(
    world: ServerFixture, metadata: Object, code: int, message: str
) -> None:
    await world.create(builders.config_map())
    with refusal(code, message):
        await world.replace({**builders.config_map(), "metadata": metadata}, name="c")


async def test_update_of_another_object_of_that_name(world: ServerFixture) -> None:
    uid = (await world.create(builders.config_map()))["metadata"]["uid"]
    message = (
        'Operation cannot be fulfilled on configmaps "c": StorageError: invalid object, Code: 4, '
        "Key: /registry/configmaps/default/c, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {NOWHERE}, UID in object meta: {uid}"
    )
    with refusal(409, message):
        await world.replace(builders.config_map(uid=NOWHERE))


@cases(
    "resource want",
    {
        "nodes are minions": (NODES, "/registry/minions/x"),
        "specs of services": (kinds.of("services"), "/registry/services/specs/d/x"),
        "groups are not named": (LEASES, "/registry/leases/d/x"),
    },
)
def test_precondition_names_the_place_in_the_registry(resource: kinds.Resource, want: str) -> None:
    actual, expected = {"namespace": "d", "uid": "1"}, {"name": "x", "uid": "2"}
    for dry_run, place in ((False, want), (True, want.removeprefix("/registry"))):
        call = Call(ADMIN, START, dry_run=dry_run)
        error = registry.precondition_failed(call, resource, expected, actual, "UID", "uid")
        assert f"Key: {place}, " in error.message


def owner(name: str, uid: str, **more: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, **more}


@cases(
    "owners want repeated",
    {
        "twice": ([owner("a", "u")] * 2, [owner("a", "u")], "u"),
        "told each time": (
            [owner("a", "u"), owner("b", "v")] * 2 + [owner("a", "u")],
            [owner("a", "u"), owner("b", "v")],
            "u, v, u",
        ),
        "same uid with another name": (
            [owner("a", "u"), owner("b", "u")],
            [owner("a", "u"), owner("b", "u")],
            "",
        ),
        "a written false is not an absent one": (
            [owner("a", "u"), owner("a", "u", controller=False)],
            [owner("a", "u"), owner("a", "u", controller=False)],
            "",
        ),
    },
)
async def test_repeated_owners_are_dropped_with_a_warning(
    world: ServerFixture, owners: list[Object], want: list[Object], repeated: str
) -> None:
    warnings: list[str] = []
    config_map = await world.create(builders.config_map(ownerReferences=owners), warnings=warnings)
    assert config_map["metadata"]["ownerReferences"] == want
    assert warnings == (
        [
            (
                ".metadata.ownerReferences contains duplicate entries; API server dedups owner "
                "references in 1.20+, and may reject such requests as early as 1.24; please fix "
                f"your requests; duplicate UID(s) observed: {repeated}"
            )
        ]
        if repeated
        else []
    )


async def test_repeated_owners_are_told_of_an_update_of_nothing(world: ServerFixture) -> None:
    warnings: list[str] = []
    owners = [owner("a", "u"), owner("a", "u")]
    with refusal(404, 'configmaps "c" not found'):
        await world.replace(builders.config_map(ownerReferences=owners), warnings=warnings)
    assert len(warnings) == 1


async def test_repeated_owners_are_not_told_of_an_object_in_the_wrong_place(
    world: ServerFixture,
) -> None:
    warnings: list[str] = []
    owners = [owner("a", "u"), owner("a", "u")]
    with pytest.raises(StatusError):
        await world.create(
            builders.config_map(namespace="x", ownerReferences=owners), warnings=warnings
        )
    assert warnings == []


@pytest.mark.parametrize("version", ["", "0"])
async def test_update_without_a_version_overwrites(world: ServerFixture, version: str) -> None:
    await world.create(builders.config_map())
    after, created = await world.replace(
        builders.config_map(data={"a": "b"}, resourceVersion=version)
    )
    assert not created
    assert after["data"] == {"a": "b"}


@pytest.mark.parametrize("version", ["", "0"])
async def test_kinds_that_insist_on_a_version(world: ServerFixture, version: str) -> None:
    await world.create(builders.lease())
    message = (
        'leases.coordination.k8s.io "l" is invalid: metadata.resourceVersion: Invalid value: 0: '
        "must be specified for an update"
    )
    with refusal(422, message):
        await world.replace(builders.lease(resourceVersion=version))


async def test_update_of_nothing_creates_only_certain_kinds(world: ServerFixture) -> None:
    """behaviour B2.3"""
    _, created = await world.replace(builders.lease())
    assert created
    with refusal(404, 'jobs.batch "j" not found'):
        await world.replace(builders.job())


async def test_create_by_update_passes_over_a_version(world: ServerFixture) -> None:
    lease, created = await world.replace(builders.lease(resourceVersion="1"))
    assert created
    assert lease["metadata"]["resourceVersion"] == str(world.store.revision)


async def test_create_by_update_refuses_a_version_that_is_no_number(world: ServerFixture) -> None:
    with refusal(500, 'strconv.ParseUint: parsing "x": invalid syntax'):
        await world.replace(builders.lease(resourceVersion="x", finalizers=["x"]))


async def test_create_by_update_refuses_a_uid(world: ServerFixture) -> None:
    message = (
        'Operation cannot be fulfilled on leases.coordination.k8s.io "l": StorageError: invalid '
        "object, Code: 4, Key: /registry/leases/default/l, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {NOWHERE}, "
        "UID in object meta: "
    )
    with refusal(409, message):
        await world.replace(builders.lease(uid=NOWHERE))
    assert not world.exists(LEASES, "l")


async def test_update_keeps_what_only_the_server_may_set(world: ServerFixture) -> None:
    before = await world.create(builders.config_map(generation=3))
    after, _ = await world.replace(
        builders.config_map(creationTimestamp="2020-01-01T00:00:00Z", generation=9, selfLink="/x")
    )
    assert after == before


@pytest.mark.parametrize(("grace", "accepted"), [(None, True), (0, True), (5, False)])
async def test_grace_of_what_is_being_deleted_is_immutable(
    world: ServerFixture, grace: int | None, accepted: bool
) -> None:
    await world.create(builders.config_map(finalizers=["a.b/c"]))
    before, _ = await world.delete(CONFIG_MAPS, "c")
    assert before["metadata"]["deletionGracePeriodSeconds"] == 0

    def change(obj: Object) -> None:
        obj["metadata"]["deletionGracePeriodSeconds"] = grace

    if accepted:
        assert await world.change(CONFIG_MAPS, "c", change) == before
        return
    message = (
        'ConfigMap "c" is invalid: metadata.deletionGracePeriodSeconds: '
        "Invalid value: 5: field is immutable"
    )
    with refusal(422, message):
        await world.change(CONFIG_MAPS, "c", change)


async def test_update_without_a_change_keeps_the_revision(world: ServerFixture) -> None:
    before = await world.create(builders.job())
    revision = world.store.revision
    after, _ = await world.replace(before)
    assert after == before
    assert world.store.revision == revision


async def test_status_write_without_a_change_keeps_the_revision(world: ServerFixture) -> None:
    await world.create(builders.pod(node="n"))
    await world.set_status(PODS, "p", phase="Running")
    revision = world.store.revision
    await world.set_status(PODS, "p", phase="Running")
    assert world.store.revision == revision


async def test_update_of_a_spec_counts_a_generation_and_keeps_the_status(
    world: ServerFixture,
) -> None:
    """behaviour B2.2"""
    job = await world.create(builders.job())
    await world.set_status(JOBS, "j", active=1)

    def change(obj: Object) -> None:
        obj["spec"]["parallelism"] = 5
        obj["status"] = {"active": 9}

    after = await world.change(JOBS, "j", change)
    assert after["metadata"]["generation"] == job["metadata"]["generation"] + 1
    assert after["status"] == {"active": 1}


async def test_update_of_labels_counts_no_generation(world: ServerFixture) -> None:
    """behaviour B2.2"""
    await world.create(builders.job())

    def change(obj: Object) -> None:
        obj["metadata"]["labels"] = {"a": "b"}

    assert (await world.change(JOBS, "j", change))["metadata"]["generation"] == 1


async def test_status_write_keeps_the_spec(world: ServerFixture) -> None:
    """behaviour B2.3"""
    before = await world.create(builders.job())

    def change(obj: Object) -> None:
        obj["spec"]["parallelism"] = 5
        obj["status"]["active"] = 2

    after = await world.change(JOBS, "j", change, subresource="status")
    assert after["spec"] == before["spec"]
    assert after["status"] == {"active": 2}
    assert after["metadata"]["generation"] == 1


async def test_pod_status_write_keeps_owners_and_deletion(world: ServerFixture) -> None:
    """behaviour C8.8"""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": NOWHERE}
    await world.create(builders.pod(node="n", ownerReferences=[owner]))
    before, _ = await world.delete(PODS, "p")

    def change(obj: Object) -> None:
        for name in ("ownerReferences", "deletionTimestamp", "deletionGracePeriodSeconds"):
            del obj["metadata"][name]
        obj["status"]["phase"] = "Running"

    after = await world.change(PODS, "p", change, subresource="status")
    assert after["status"]["phase"] == "Running"
    for name in ("ownerReferences", "deletionTimestamp", "deletionGracePeriodSeconds"):
        assert after["metadata"][name] == before["metadata"][name]


async def test_pod_status_write_keeps_observed_generations(world: ServerFixture) -> None:
    """behaviour C8.9"""
    await world.create(builders.pod(node="n"))
    ready = {"type": "Ready", "status": "True", "observedGeneration": 1}
    await world.set_status(PODS, "p", observedGeneration=1, conditions=[ready])

    def change(obj: Object) -> None:
        del obj["status"]["observedGeneration"]
        obj["status"]["conditions"] = [{"type": "Ready", "status": "False"}]

    after = await world.change(PODS, "p", change, subresource="status")
    assert after["status"]["observedGeneration"] == 1
    assert after["status"]["conditions"][0]["observedGeneration"] == 1


async def test_dry_update_writes_nothing(world: ServerFixture) -> None:
    before = await world.create(builders.config_map())
    after, _ = await world.replace(builders.config_map(data={"a": "b"}), dry_run=True)
    assert after["data"] == {"a": "b"}
    assert world.get(CONFIG_MAPS, "c") == before


async def test_dry_create_by_update_writes_nothing(world: ServerFixture) -> None:
    _, created = await world.replace(builders.lease(), dry_run=True)
    assert created
    assert not world.exists(LEASES, "l")


async def test_dry_removal_of_the_last_finalizer_keeps_the_object(world: ServerFixture) -> None:
    await world.create(builders.config_map(finalizers=["a.b/c"]))
    await world.delete(CONFIG_MAPS, "c")

    def change(obj: Object) -> None:
        del obj["metadata"]["finalizers"]

    await world.change(CONFIG_MAPS, "c", change, dry_run=True)
    assert world.exists(CONFIG_MAPS, "c")
