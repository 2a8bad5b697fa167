# SPDX-License-Identifier: Apache-2.0
"""What every client promises of reading and writing, asked of each of them.

`test_client_watch` asks about lists and watches.
"""

import pytest

from refloat.client import errors
from refloat.client.contract import DeleteOptions
from tests.contract.clusters import (
    BUDGETS,
    CONFIG_MAPS,
    NAMESPACES,
    NODES,
    PODS,
    ContractCluster,
    Object,
)


class TestGet:
    async def test_it_returns_what_was_created(self, cluster: ContractCluster) -> None:
        config_map = await cluster.config_map("a", data={"x": "1"})
        stored = await cluster.get(CONFIG_MAPS, "a")
        assert stored == config_map
        assert stored.data == {"x": "1"}

    async def test_it_reads_kinds_without_namespaces(self, cluster: ContractCluster) -> None:
        namespace = await cluster.client.get(NAMESPACES, cluster.namespace)
        assert namespace.metadata.name == cluster.namespace

    async def test_what_is_not_there_is_not_found(self, cluster: ContractCluster) -> None:
        with pytest.raises(errors.NotFound) as error:
            await cluster.get(CONFIG_MAPS, "a")
        assert str(error.value) == 'configmaps "a" not found'
        assert (error.value.code, error.value.reason) == (404, "NotFound")


class TestCreate:
    async def test_it_gives_a_uid_and_a_version(self, cluster: ContractCluster) -> None:
        metadata = (await cluster.config_map("a")).metadata
        assert (metadata.name, metadata.namespace) == ("a", cluster.namespace)
        assert metadata.uid
        assert metadata.resource_version

    async def test_the_namespace_may_stand_in_the_object(self, cluster: ContractCluster) -> None:
        metadata = {"name": "a", "namespace": cluster.namespace}
        config_map = await cluster.client.create(CONFIG_MAPS, {"metadata": metadata})
        assert config_map.metadata.namespace == cluster.namespace

    async def test_a_name_can_be_generated(self, cluster: ContractCluster) -> None:
        body = {"metadata": {"generateName": "a-"}}
        config_maps = [
            await cluster.client.create(CONFIG_MAPS, body, namespace=cluster.namespace)
            for _ in range(2)
        ]
        names = [each.metadata.name for each in config_maps]
        assert all(name.startswith("a-") and len(name) == 7 for name in names)
        assert names[0] != names[1]

    async def test_a_name_that_is_taken_already_exists(self, cluster: ContractCluster) -> None:
        await cluster.config_map("a", data={"x": "1"})
        with pytest.raises(errors.AlreadyExists) as error:
            await cluster.config_map("a", data={"x": "2"})
        assert str(error.value) == 'configmaps "a" already exists'
        assert (await cluster.get(CONFIG_MAPS, "a")).data == {"x": "1"}

    async def test_an_invalid_object_is_refused_with_its_causes(
        self, cluster: ContractCluster
    ) -> None:
        body = {"metadata": {"name": "A"}, "spec": {"containers": []}}
        with pytest.raises(errors.Invalid) as error:
            await cluster.client.create(PODS, body, namespace=cluster.namespace)
        assert (error.value.code, error.value.reason) == (422, "Invalid")
        assert [(kind, field) for kind, field, _ in error.value.causes] == [
            ("FieldValueInvalid", "metadata.name"),
            ("FieldValueRequired", "spec.containers"),
        ]
        assert error.value.causes[1][2] == "Required value"

    async def test_an_object_of_another_namespace_is_a_bad_request(
        self, cluster: ContractCluster
    ) -> None:
        body = {"metadata": {"name": "a", "namespace": "other"}}
        with pytest.raises(errors.Invalid) as error:
            await cluster.client.create(CONFIG_MAPS, body, namespace=cluster.namespace)
        assert (error.value.code, error.value.reason) == (400, "BadRequest")

    async def test_namespace_that_is_not_there_is_not_found(self, cluster: ContractCluster) -> None:
        with pytest.raises(errors.NotFound, match='namespaces "no-such" not found'):
            await cluster.client.create(
                CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace="no-such"
            )


class TestPatch:
    async def test_a_merge_patch_sets_and_removes(self, cluster: ContractCluster) -> None:
        config_map = await cluster.config_map("a", data={"x": "1", "y": "2"})
        patched = await cluster.client.patch(
            CONFIG_MAPS, "a", {"data": {"x": None, "z": "3"}}, namespace=cluster.namespace
        )
        assert patched.data == {"y": "2", "z": "3"}
        assert patched.metadata.uid == config_map.metadata.uid
        assert patched.metadata.resource_version != config_map.metadata.resource_version

    async def test_a_patch_that_changes_nothing_makes_no_new_version(
        self, cluster: ContractCluster
    ) -> None:
        config_map = await cluster.config_map("a", data={"x": "1"})
        patched = await cluster.client.patch(
            CONFIG_MAPS, "a", {"data": {"x": "1"}}, namespace=cluster.namespace
        )
        assert patched.metadata.resource_version == config_map.metadata.resource_version

    async def test_a_strategic_patch_merges_lists_by_their_keys(
        self, cluster: ContractCluster
    ) -> None:
        await cluster.pod("a", tolerations=[{"key": "k", "operator": "Exists"}])
        patched = await cluster.client.patch(
            PODS,
            "a",
            {"spec": {"containers": [{"name": "main", "image": "registry.example/other:2"}]}},
            patch_type="strategic",
            namespace=cluster.namespace,
        )
        assert patched.spec is not None
        container = patched.spec["containers"][0]
        assert container["image"] == "registry.example/other:2"
        assert container["imagePullPolicy"] == "IfNotPresent"

    async def test_a_json_patch_does_as_it_says(self, cluster: ContractCluster) -> None:
        await cluster.config_map("a", data={"x": "1"})
        steps = [
            {"op": "test", "path": "/data/x", "value": "1"},
            {"op": "replace", "path": "/data/x", "value": "2"},
            {"op": "add", "path": "/data/y", "value": "3"},
        ]
        patched = await cluster.client.patch(
            CONFIG_MAPS, "a", steps, patch_type="json", namespace=cluster.namespace
        )
        assert patched.data == {"x": "2", "y": "3"}

    async def test_a_json_patch_whose_test_fails_changes_nothing(
        self, cluster: ContractCluster
    ) -> None:
        await cluster.config_map("a", data={"x": "1"})
        steps = [
            {"op": "test", "path": "/data/x", "value": "2"},
            {"op": "remove", "path": "/data/x"},
        ]
        with pytest.raises(errors.Invalid):
            await cluster.client.patch(
                CONFIG_MAPS, "a", steps, patch_type="json", namespace=cluster.namespace
            )
        assert (await cluster.get(CONFIG_MAPS, "a")).data == {"x": "1"}

    async def test_a_version_that_is_not_current_is_a_conflict(
        self, cluster: ContractCluster
    ) -> None:
        old = (await cluster.config_map("a")).metadata.resource_version
        new = await cluster.client.patch(
            CONFIG_MAPS, "a", _at(old, x="1"), namespace=cluster.namespace
        )
        with pytest.raises(errors.Conflict) as error:
            await cluster.client.patch(
                CONFIG_MAPS, "a", _at(old, x="2"), namespace=cluster.namespace
            )
        assert "the object has been modified" in str(error.value)
        assert (error.value.code, error.value.reason) == (409, "Conflict")
        assert await cluster.get(CONFIG_MAPS, "a") == new

    async def test_status_is_patched_apart_from_its_object(self, cluster: ContractCluster) -> None:
        await cluster.pod("a")
        patch = {"metadata": {"labels": {"new": "x"}}, "status": {"phase": "Running"}}
        whole = await cluster.client.patch(PODS, "a", patch, namespace=cluster.namespace)
        assert (whole.metadata.labels or {}).get("new") == "x"
        assert (whole.status or {})["phase"] == "Pending"
        part = await cluster.client.patch(
            PODS, "a", patch, namespace=cluster.namespace, subresource="status"
        )
        assert (part.status or {})["phase"] == "Running"

    async def test_what_is_not_there_cannot_be_patched(self, cluster: ContractCluster) -> None:
        with pytest.raises(errors.NotFound):
            await cluster.client.patch(CONFIG_MAPS, "a", {}, namespace=cluster.namespace)

    async def test_an_invalid_change_is_refused(self, cluster: ContractCluster) -> None:
        await cluster.pod("a")
        with pytest.raises(errors.Invalid) as error:
            await cluster.client.patch(
                PODS, "a", {"spec": {"restartPolicy": "Never"}}, namespace=cluster.namespace
            )
        assert error.value.causes[0][:2] == ("FieldValueForbidden", "spec")


def _at(version: str, **data: str) -> Object:
    return {"metadata": {"resourceVersion": version}, "data": data}


class TestApply:
    def _wanted(self, **data: str) -> Object:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}

    async def _apply(
        self, cluster: ContractCluster, *, force: bool = False, **data: str
    ) -> dict[str, str] | None:
        patched = await cluster.client.patch(
            CONFIG_MAPS,
            "a",
            self._wanted(**data),
            patch_type="apply",
            namespace=cluster.namespace,
            force=force,
        )
        return patched.data

    async def test_it_creates_what_is_not_there(self, cluster: ContractCluster) -> None:
        assert await self._apply(cluster, x="1") == {"x": "1"}

    async def test_it_removes_what_it_no_longer_names(self, cluster: ContractCluster) -> None:
        await self._apply(cluster, x="1", y="2")
        assert await self._apply(cluster, y="3") == {"y": "3"}

    async def test_fields_of_others_are_a_conflict_that_names_them(
        self, cluster: ContractCluster
    ) -> None:
        await cluster.config_map("a", data={"x": "1"})
        with pytest.raises(errors.Conflict) as error:
            await self._apply(cluster, x="2")
        assert [(kind, field) for kind, field, _ in error.value.causes] == [
            ("FieldManagerConflict", ".data.x")
        ]

    async def test_force_takes_them(self, cluster: ContractCluster) -> None:
        await cluster.config_map("a", data={"x": "1"})
        assert await self._apply(cluster, force=True, x="2") == {"x": "2"}


class TestDelete:
    async def _delete(self, cluster: ContractCluster, **options: object) -> None:
        await cluster.client.delete(
            CONFIG_MAPS,
            "a",
            namespace=cluster.namespace,
            options=DeleteOptions(**options),  # type: ignore[arg-type]
        )

    async def test_what_was_deleted_is_gone(self, cluster: ContractCluster) -> None:
        await cluster.config_map("a")
        await cluster.client.delete(CONFIG_MAPS, "a", namespace=cluster.namespace)
        with pytest.raises(errors.NotFound):
            await cluster.get(CONFIG_MAPS, "a")

    async def test_what_is_not_there_is_not_found(self, cluster: ContractCluster) -> None:
        with pytest.raises(errors.NotFound):
            await cluster.client.delete(CONFIG_MAPS, "a", namespace=cluster.namespace)

    async def test_the_right_uid_and_version_are_deleted(self, cluster: ContractCluster) -> None:
        metadata = (await cluster.config_map("a")).metadata
        await self._delete(cluster, uid=metadata.uid, resource_version=metadata.resource_version)
        with pytest.raises(errors.NotFound):
            await cluster.get(CONFIG_MAPS, "a")

    @pytest.mark.parametrize(
        "options",
        [{"uid": "00000000-0000-4000-8000-000000000000"}, {"resource_version": "1"}],
        ids=["another uid", "another version"],
    )
    async def test_another_object_is_a_conflict_and_stays(
        self, cluster: ContractCluster, options: dict[str, str]
    ) -> None:
        config_map = await cluster.config_map("a")
        with pytest.raises(errors.Conflict):
            await self._delete(cluster, **options)
        assert await cluster.get(CONFIG_MAPS, "a") == config_map

    @pytest.mark.parametrize(
        ("propagation", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")]
    )
    async def test_propagation_leaves_a_finalizer(
        self, cluster: ContractCluster, propagation: str, finalizer: str
    ) -> None:
        await cluster.config_map("a")
        await self._delete(cluster, propagation=propagation)
        metadata = (await cluster.get(CONFIG_MAPS, "a")).metadata
        assert metadata.finalizers == [finalizer]
        assert metadata.deletion_timestamp is not None
        done = {"metadata": {"finalizers": None}}
        await cluster.client.patch(CONFIG_MAPS, "a", done, namespace=cluster.namespace)
        with pytest.raises(errors.NotFound):
            await cluster.get(CONFIG_MAPS, "a")

    async def test_a_pod_on_a_node_is_given_its_grace(self, cluster: ContractCluster) -> None:
        await cluster.pod("a", nodeName="n")
        await cluster.client.delete(
            PODS, "a", namespace=cluster.namespace, options=DeleteOptions(grace_seconds=7)
        )
        metadata = (await cluster.get(PODS, "a")).metadata
        assert metadata.deletion_timestamp is not None
        assert metadata.deletion_grace_period_seconds == 7

    async def test_no_grace_is_at_once(self, cluster: ContractCluster) -> None:
        await cluster.pod("a", nodeName="n")
        await cluster.client.delete(
            PODS, "a", namespace=cluster.namespace, options=DeleteOptions(grace_seconds=0)
        )
        with pytest.raises(errors.NotFound):
            await cluster.get(PODS, "a")

    async def test_a_reason_is_kept_where_the_cluster_keeps_it(
        self, cluster: ContractCluster
    ) -> None:
        await cluster.pod("a", nodeName="n")
        await cluster.client.delete(
            PODS, "a", namespace=cluster.namespace, options=DeleteOptions(reason="Because")
        )
        stored = await cluster.get(PODS, "a")
        want = "Because" if cluster.keeps_reasons else None
        assert (stored.status or {}).get("reason") == want
        assert stored.metadata.deletion_timestamp is not None


class TestEvict:
    async def _budget(self, cluster: ContractCluster, **status: int) -> None:
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
        await cluster.client.create(
            BUDGETS, {"metadata": {"name": "b"}, "spec": spec}, namespace=cluster.namespace
        )
        if status:
            whole = {"currentHealthy": 0, "desiredHealthy": 1, "expectedPods": 1, **status}
            await cluster.client.patch(
                BUDGETS, "b", {"status": whole}, namespace=cluster.namespace, subresource="status"
            )

    async def test_a_pod_that_no_budget_guards_is_gone(self, cluster: ContractCluster) -> None:
        await cluster.pod("a")
        await cluster.client.evict("a", namespace=cluster.namespace)
        with pytest.raises(errors.NotFound):
            await cluster.get(PODS, "a")

    async def test_what_is_not_there_is_not_found(self, cluster: ContractCluster) -> None:
        with pytest.raises(errors.NotFound):
            await cluster.client.evict("a", namespace=cluster.namespace)

    async def test_another_uid_is_a_conflict(self, cluster: ContractCluster) -> None:
        await cluster.pod("a")
        options = DeleteOptions(uid="00000000-0000-4000-8000-000000000000")
        with pytest.raises(errors.Conflict):
            await cluster.client.evict("a", namespace=cluster.namespace, options=options)
        await cluster.get(PODS, "a")

    async def test_a_budget_that_nobody_has_worked_out_says_when_to_return(
        self, cluster: ContractCluster
    ) -> None:
        """behaviour C6.5 and C6.6"""
        await self._budget(cluster)
        await cluster.pod("a", running=True)
        with pytest.raises(errors.TooManyRequests) as error:
            await cluster.client.evict("a", namespace=cluster.namespace)
        assert error.value.retry_after == 10
        assert error.value.causes[0][0] == "DisruptionBudget"
        await cluster.get(PODS, "a")

    async def test_a_budget_that_is_used_up_refuses(self, cluster: ContractCluster) -> None:
        """behaviour C6.6"""
        await self._budget(cluster, observedGeneration=1, disruptionsAllowed=0)
        await cluster.pod("a", running=True)
        with pytest.raises(errors.TooManyRequests, match="would violate") as error:
            await cluster.client.evict("a", namespace=cluster.namespace)
        assert (error.value.code, error.value.retry_after) == (429, None)

    async def test_a_budget_that_allows_it_is_charged(self, cluster: ContractCluster) -> None:
        await self._budget(cluster, observedGeneration=1, disruptionsAllowed=1)
        await cluster.pod("a", running=True, nodeName="n")
        await cluster.client.evict(
            "a", namespace=cluster.namespace, options=DeleteOptions(grace_seconds=9)
        )
        stored = await cluster.get(PODS, "a")
        assert stored.metadata.deletion_grace_period_seconds == 9
        budget = await cluster.get(BUDGETS, "b")
        assert (budget.status or {})["disruptionsAllowed"] == 0


class TestBind:
    async def test_a_pod_is_put_on_a_node(self, cluster: ContractCluster) -> None:
        pod = await cluster.pod("a")
        await cluster.client.bind(
            "a", "some-node", namespace=cluster.namespace, uid=pod.metadata.uid
        )
        stored = await cluster.get(PODS, "a")
        assert (stored.spec or {})["nodeName"] == "some-node"

    async def test_a_pod_that_is_on_a_node_is_a_conflict(self, cluster: ContractCluster) -> None:
        await cluster.pod("a")
        await cluster.client.bind("a", "one", namespace=cluster.namespace)
        with pytest.raises(errors.Conflict):
            await cluster.client.bind("a", "two", namespace=cluster.namespace)

    async def test_another_uid_is_a_conflict(self, cluster: ContractCluster) -> None:
        await cluster.pod("a")
        uid = "00000000-0000-4000-8000-000000000000"
        with pytest.raises(errors.Conflict):
            await cluster.client.bind("a", "one", namespace=cluster.namespace, uid=uid)
        assert "nodeName" not in ((await cluster.get(PODS, "a")).spec or {})

    async def test_what_is_not_there_is_not_found(self, cluster: ContractCluster) -> None:
        with pytest.raises(errors.NotFound):
            await cluster.client.bind("a", "one", namespace=cluster.namespace)


class TestRights:
    async def test_who_may_not_write_is_forbidden_to(self, cluster: ContractCluster) -> None:
        with pytest.raises(errors.Forbidden) as error:
            await cluster.reader.create(
                CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace=cluster.namespace
            )
        assert (error.value.code, error.value.reason) == (403, "Forbidden")
        assert 'cannot create resource "configmaps"' in str(error.value)

    async def test_token_that_nobody_knows_is_unauthorized(self, cluster: ContractCluster) -> None:
        for stranger in cluster.strangers:
            with pytest.raises(errors.Unauthorized) as error:
                await stranger.get(NODES, "a")
            assert (error.value.code, str(error.value)) == (401, "Unauthorized")
            with pytest.raises(errors.Unauthorized):
                await anext(stranger.watch(NODES))
