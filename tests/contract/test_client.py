# SPDX-License-Identifier: Apache-2.0
"""What every client promises of reading and writing, asked of each of them.

`test_client_watch` asks about lists and watches.
"""

import pytest

from refloat.client import errors
from refloat.client.contract import DeleteOptions
from tests.contract.clusters import BUDGETS, CONFIG_MAPS, NAMESPACES, NODES, PODS, Cluster, Object


class TestGet:
    async def test_it_returns_what_was_created(self, cluster: Cluster) -> None:
        made = await cluster.config_map("a", data={"x": "1"})
        found = await cluster.get(CONFIG_MAPS, "a")
        assert found == made
        assert found.data == {"x": "1"}

    async def test_it_reads_kinds_without_namespaces(self, cluster: Cluster) -> None:
        found = await cluster.client.get(NAMESPACES, cluster.namespace)
        assert found.metadata.name == cluster.namespace

    async def test_what_is_not_there_is_not_found(self, cluster: Cluster) -> None:
        with pytest.raises(errors.NotFound) as caught:
            await cluster.get(CONFIG_MAPS, "a")
        assert str(caught.value) == 'configmaps "a" not found'
        assert (caught.value.code, caught.value.reason) == (404, "NotFound")


class TestCreate:
    async def test_it_gives_a_uid_and_a_version(self, cluster: Cluster) -> None:
        made = (await cluster.config_map("a")).metadata
        assert (made.name, made.namespace) == ("a", cluster.namespace)
        assert made.uid
        assert made.resource_version

    async def test_the_namespace_may_stand_in_the_object(self, cluster: Cluster) -> None:
        metadata = {"name": "a", "namespace": cluster.namespace}
        made = await cluster.client.create(CONFIG_MAPS, {"metadata": metadata})
        assert made.metadata.namespace == cluster.namespace

    async def test_a_name_can_be_generated(self, cluster: Cluster) -> None:
        body = {"metadata": {"generateName": "a-"}}
        made = [
            await cluster.client.create(CONFIG_MAPS, body, namespace=cluster.namespace)
            for _ in range(2)
        ]
        names = [each.metadata.name for each in made]
        assert all(name.startswith("a-") and len(name) == 7 for name in names)
        assert names[0] != names[1]

    async def test_a_name_that_is_taken_already_exists(self, cluster: Cluster) -> None:
        await cluster.config_map("a", data={"x": "1"})
        with pytest.raises(errors.AlreadyExists) as caught:
            await cluster.config_map("a", data={"x": "2"})
        assert str(caught.value) == 'configmaps "a" already exists'
        assert (await cluster.get(CONFIG_MAPS, "a")).data == {"x": "1"}

    async def test_an_invalid_object_is_refused_with_its_causes(self, cluster: Cluster) -> None:
        body = {"metadata": {"name": "A"}, "spec": {"containers": []}}
        with pytest.raises(errors.Invalid) as caught:
            await cluster.client.create(PODS, body, namespace=cluster.namespace)
        assert (caught.value.code, caught.value.reason) == (422, "Invalid")
        assert [(kind, field) for kind, field, _ in caught.value.causes] == [
            ("FieldValueInvalid", "metadata.name"),
            ("FieldValueRequired", "spec.containers"),
        ]
        assert caught.value.causes[1][2] == "Required value"

    async def test_an_object_of_another_namespace_is_a_bad_request(self, cluster: Cluster) -> None:
        body = {"metadata": {"name": "a", "namespace": "other"}}
        with pytest.raises(errors.Invalid) as caught:
            await cluster.client.create(CONFIG_MAPS, body, namespace=cluster.namespace)
        assert (caught.value.code, caught.value.reason) == (400, "BadRequest")

    async def test_a_namespace_that_is_not_there_is_not_found(self, cluster: Cluster) -> None:
        with pytest.raises(errors.NotFound, match='namespaces "no-such" not found'):
            await cluster.client.create(
                CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace="no-such"
            )


class TestPatch:
    async def test_a_merge_patch_sets_and_removes(self, cluster: Cluster) -> None:
        made = await cluster.config_map("a", data={"x": "1", "y": "2"})
        found = await cluster.client.patch(
            CONFIG_MAPS, "a", {"data": {"x": None, "z": "3"}}, namespace=cluster.namespace
        )
        assert found.data == {"y": "2", "z": "3"}
        assert found.metadata.uid == made.metadata.uid
        assert found.metadata.resource_version != made.metadata.resource_version

    async def test_a_patch_that_changes_nothing_makes_no_new_version(
        self, cluster: Cluster
    ) -> None:
        made = await cluster.config_map("a", data={"x": "1"})
        found = await cluster.client.patch(
            CONFIG_MAPS, "a", {"data": {"x": "1"}}, namespace=cluster.namespace
        )
        assert found.metadata.resource_version == made.metadata.resource_version

    async def test_a_strategic_patch_merges_lists_by_their_keys(self, cluster: Cluster) -> None:
        await cluster.pod("a", tolerations=[{"key": "k", "operator": "Exists"}])
        found = await cluster.client.patch(
            PODS,
            "a",
            {"spec": {"containers": [{"name": "main", "image": "registry.example/other:2"}]}},
            patch_type="strategic",
            namespace=cluster.namespace,
        )
        assert found.spec is not None
        container = found.spec["containers"][0]
        assert container["image"] == "registry.example/other:2"
        assert container["imagePullPolicy"] == "IfNotPresent"

    async def test_a_json_patch_does_as_it_says(self, cluster: Cluster) -> None:
        await cluster.config_map("a", data={"x": "1"})
        steps = [
            {"op": "test", "path": "/data/x", "value": "1"},
            {"op": "replace", "path": "/data/x", "value": "2"},
            {"op": "add", "path": "/data/y", "value": "3"},
        ]
        found = await cluster.client.patch(
            CONFIG_MAPS, "a", steps, patch_type="json", namespace=cluster.namespace
        )
        assert found.data == {"x": "2", "y": "3"}

    async def test_a_json_patch_whose_test_fails_changes_nothing(self, cluster: Cluster) -> None:
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

    async def test_a_version_that_is_not_current_is_a_conflict(self, cluster: Cluster) -> None:
        old = (await cluster.config_map("a")).metadata.resource_version
        new = await cluster.client.patch(
            CONFIG_MAPS, "a", _at(old, x="1"), namespace=cluster.namespace
        )
        with pytest.raises(errors.Conflict) as caught:
            await cluster.client.patch(
                CONFIG_MAPS, "a", _at(old, x="2"), namespace=cluster.namespace
            )
        assert "the object has been modified" in str(caught.value)
        assert (caught.value.code, caught.value.reason) == (409, "Conflict")
        assert await cluster.get(CONFIG_MAPS, "a") == new

    async def test_a_status_is_patched_apart_from_its_object(self, cluster: Cluster) -> None:
        await cluster.pod("a")
        patch = {"metadata": {"labels": {"new": "x"}}, "status": {"phase": "Running"}}
        whole = await cluster.client.patch(PODS, "a", patch, namespace=cluster.namespace)
        assert (whole.metadata.labels or {}).get("new") == "x"
        assert (whole.status or {})["phase"] == "Pending"
        part = await cluster.client.patch(
            PODS, "a", patch, namespace=cluster.namespace, subresource="status"
        )
        assert (part.status or {})["phase"] == "Running"

    async def test_what_is_not_there_cannot_be_patched(self, cluster: Cluster) -> None:
        with pytest.raises(errors.NotFound):
            await cluster.client.patch(CONFIG_MAPS, "a", {}, namespace=cluster.namespace)

    async def test_an_invalid_change_is_refused(self, cluster: Cluster) -> None:
        await cluster.pod("a")
        with pytest.raises(errors.Invalid) as caught:
            await cluster.client.patch(
                PODS, "a", {"spec": {"restartPolicy": "Never"}}, namespace=cluster.namespace
            )
        assert caught.value.causes[0][:2] == ("FieldValueForbidden", "spec")


def _at(version: str, **data: str) -> Object:
    return {"metadata": {"resourceVersion": version}, "data": data}


class TestApply:
    def _wanted(self, **data: str) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a"},
            "data": data,
        }

    async def _apply(
        self, cluster: Cluster, *, force: bool = False, **data: str
    ) -> dict[str, str] | None:
        found = await cluster.client.patch(
            CONFIG_MAPS,
            "a",
            self._wanted(**data),
            patch_type="apply",
            namespace=cluster.namespace,
            force=force,
        )
        return found.data

    async def test_it_creates_what_is_not_there(self, cluster: Cluster) -> None:
        assert await self._apply(cluster, x="1") == {"x": "1"}

    async def test_it_removes_what_it_no_longer_names(self, cluster: Cluster) -> None:
        await self._apply(cluster, x="1", y="2")
        assert await self._apply(cluster, y="3") == {"y": "3"}

    async def test_fields_of_others_are_a_conflict_that_names_them(self, cluster: Cluster) -> None:
        await cluster.config_map("a", data={"x": "1"})
        with pytest.raises(errors.Conflict) as caught:
            await self._apply(cluster, x="2")
        assert [(kind, field) for kind, field, _ in caught.value.causes] == [
            ("FieldManagerConflict", ".data.x")
        ]

    async def test_force_takes_them(self, cluster: Cluster) -> None:
        await cluster.config_map("a", data={"x": "1"})
        assert await self._apply(cluster, force=True, x="2") == {"x": "2"}


class TestDelete:
    async def _delete(self, cluster: Cluster, **options: object) -> None:
        await cluster.client.delete(
            CONFIG_MAPS,
            "a",
            namespace=cluster.namespace,
            options=DeleteOptions(**options),  # type: ignore[arg-type]
        )

    async def test_what_was_deleted_is_gone(self, cluster: Cluster) -> None:
        await cluster.config_map("a")
        await cluster.client.delete(CONFIG_MAPS, "a", namespace=cluster.namespace)
        with pytest.raises(errors.NotFound):
            await cluster.get(CONFIG_MAPS, "a")

    async def test_what_is_not_there_is_not_found(self, cluster: Cluster) -> None:
        with pytest.raises(errors.NotFound):
            await cluster.client.delete(CONFIG_MAPS, "a", namespace=cluster.namespace)

    async def test_the_right_uid_and_version_are_deleted(self, cluster: Cluster) -> None:
        made = (await cluster.config_map("a")).metadata
        await self._delete(cluster, uid=made.uid, resource_version=made.resource_version)
        with pytest.raises(errors.NotFound):
            await cluster.get(CONFIG_MAPS, "a")

    @pytest.mark.parametrize(
        "options",
        [{"uid": "00000000-0000-4000-8000-000000000000"}, {"resource_version": "1"}],
        ids=["another uid", "another version"],
    )
    async def test_another_object_is_a_conflict_and_stays(
        self, cluster: Cluster, options: dict[str, str]
    ) -> None:
        made = await cluster.config_map("a")
        with pytest.raises(errors.Conflict):
            await self._delete(cluster, **options)
        assert await cluster.get(CONFIG_MAPS, "a") == made

    @pytest.mark.parametrize(
        ("propagation", "finalizer"),
        [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")],
    )
    async def test_propagation_leaves_a_finalizer(
        self, cluster: Cluster, propagation: str, finalizer: str
    ) -> None:
        await cluster.config_map("a")
        await self._delete(cluster, propagation=propagation)
        found = (await cluster.get(CONFIG_MAPS, "a")).metadata
        assert found.finalizers == [finalizer]
        assert found.deletion_timestamp is not None
        done = {"metadata": {"finalizers": None}}
        await cluster.client.patch(CONFIG_MAPS, "a", done, namespace=cluster.namespace)
        with pytest.raises(errors.NotFound):
            await cluster.get(CONFIG_MAPS, "a")

    async def test_a_pod_on_a_node_is_given_its_grace(self, cluster: Cluster) -> None:
        await cluster.pod("a", nodeName="n")
        await cluster.client.delete(
            PODS, "a", namespace=cluster.namespace, options=DeleteOptions(grace_seconds=7)
        )
        found = (await cluster.get(PODS, "a")).metadata
        assert found.deletion_timestamp is not None
        assert found.deletion_grace_period_seconds == 7

    async def test_no_grace_is_at_once(self, cluster: Cluster) -> None:
        await cluster.pod("a", nodeName="n")
        await cluster.client.delete(
            PODS, "a", namespace=cluster.namespace, options=DeleteOptions(grace_seconds=0)
        )
        with pytest.raises(errors.NotFound):
            await cluster.get(PODS, "a")

    async def test_a_reason_is_kept_where_the_cluster_keeps_it(self, cluster: Cluster) -> None:
        await cluster.pod("a", nodeName="n")
        await cluster.client.delete(
            PODS, "a", namespace=cluster.namespace, options=DeleteOptions(reason="Because")
        )
        found = await cluster.get(PODS, "a")
        want = "Because" if cluster.keeps_reasons else None
        assert (found.status or {}).get("reason") == want
        assert found.metadata.deletion_timestamp is not None


class TestEvict:
    async def _budget(self, cluster: Cluster, **status: int) -> None:
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
        await cluster.client.create(
            BUDGETS, {"metadata": {"name": "b"}, "spec": spec}, namespace=cluster.namespace
        )
        if status:
            whole = {"currentHealthy": 0, "desiredHealthy": 1, "expectedPods": 1, **status}
            await cluster.client.patch(
                BUDGETS,
                "b",
                {"status": whole},
                namespace=cluster.namespace,
                subresource="status",
            )

    async def test_a_pod_that_no_budget_guards_is_gone(self, cluster: Cluster) -> None:
        await cluster.pod("a")
        await cluster.client.evict("a", namespace=cluster.namespace)
        with pytest.raises(errors.NotFound):
            await cluster.get(PODS, "a")

    async def test_what_is_not_there_is_not_found(self, cluster: Cluster) -> None:
        with pytest.raises(errors.NotFound):
            await cluster.client.evict("a", namespace=cluster.namespace)

    async def test_another_uid_is_a_conflict(self, cluster: Cluster) -> None:
        await cluster.pod("a")
        options = DeleteOptions(uid="00000000-0000-4000-8000-000000000000")
        with pytest.raises(errors.Conflict):
            await cluster.client.evict("a", namespace=cluster.namespace, options=options)
        await cluster.get(PODS, "a")

    async def test_a_budget_that_nobody_has_worked_out_says_when_to_return(
        self, cluster: Cluster
    ) -> None:
        """behaviour C6.5 and C6.6"""
        await self._budget(cluster)
        await cluster.pod("a", running=True)
        with pytest.raises(errors.TooManyRequests) as caught:
            await cluster.client.evict("a", namespace=cluster.namespace)
        assert caught.value.retry_after == 10
        assert caught.value.causes[0][0] == "DisruptionBudget"
        await cluster.get(PODS, "a")

    async def test_a_budget_that_is_used_up_refuses(self, cluster: Cluster) -> None:
        """behaviour C6.6"""
        await self._budget(cluster, observedGeneration=1, disruptionsAllowed=0)
        await cluster.pod("a", running=True)
        with pytest.raises(errors.TooManyRequests, match="would violate") as caught:
            await cluster.client.evict("a", namespace=cluster.namespace)
        assert (caught.value.code, caught.value.retry_after) == (429, None)

    async def test_a_budget_that_allows_it_is_charged(self, cluster: Cluster) -> None:
        await self._budget(cluster, observedGeneration=1, disruptionsAllowed=1)
        await cluster.pod("a", running=True, nodeName="n")
        await cluster.client.evict(
            "a", namespace=cluster.namespace, options=DeleteOptions(grace_seconds=9)
        )
        found = await cluster.get(PODS, "a")
        assert found.metadata.deletion_grace_period_seconds == 9
        budget = await cluster.get(BUDGETS, "b")
        assert (budget.status or {})["disruptionsAllowed"] == 0


class TestBind:
    async def test_a_pod_is_put_on_a_node(self, cluster: Cluster) -> None:
        made = await cluster.pod("a")
        await cluster.client.bind(
            "a", "some-node", namespace=cluster.namespace, uid=made.metadata.uid
        )
        found = await cluster.get(PODS, "a")
        assert (found.spec or {})["nodeName"] == "some-node"

    async def test_a_pod_that_is_on_a_node_is_a_conflict(self, cluster: Cluster) -> None:
        await cluster.pod("a")
        await cluster.client.bind("a", "one", namespace=cluster.namespace)
        with pytest.raises(errors.Conflict):
            await cluster.client.bind("a", "two", namespace=cluster.namespace)

    async def test_another_uid_is_a_conflict(self, cluster: Cluster) -> None:
        await cluster.pod("a")
        uid = "00000000-0000-4000-8000-000000000000"
        with pytest.raises(errors.Conflict):
            await cluster.client.bind("a", "one", namespace=cluster.namespace, uid=uid)
        assert "nodeName" not in ((await cluster.get(PODS, "a")).spec or {})

    async def test_what_is_not_there_is_not_found(self, cluster: Cluster) -> None:
        with pytest.raises(errors.NotFound):
            await cluster.client.bind("a", "one", namespace=cluster.namespace)


class TestRights:
    async def test_who_may_not_write_is_forbidden_to(self, cluster: Cluster) -> None:
        with pytest.raises(errors.Forbidden) as caught:
            await cluster.reader.create(
                CONFIG_MAPS, {"metadata": {"name": "a"}}, namespace=cluster.namespace
            )
        assert (caught.value.code, caught.value.reason) == (403, "Forbidden")
        assert 'cannot create resource "configmaps"' in str(caught.value)

    async def test_a_token_that_nobody_knows_is_unauthorized(self, cluster: Cluster) -> None:
        for stranger in cluster.strangers:
            with pytest.raises(errors.Unauthorized) as caught:
                await stranger.get(NODES, "a")
            assert (caught.value.code, str(caught.value)) == (401, "Unauthorized")
            with pytest.raises(errors.Unauthorized):
                await anext(stranger.watch(NODES))
