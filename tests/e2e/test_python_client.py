# SPDX-License-Identifier: Apache-2.0
"""The official Python client, over TLS, with the kubeconfig that the server wrote."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, dynamic, watch
from kubernetes.informer import SharedInformer
from urllib3.exceptions import MaxRetryError

from tests import builders
from tests.cases import cases
from tests.e2e import cluster, history, objects

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


@pytest.fixture(scope="module")
def api_client(kubeconfig: Path) -> Iterator[client.ApiClient]:
    api = config.new_client_from_config(str(kubeconfig))
    with api:
        yield api


@pytest.fixture(scope="module")
def core(api_client: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(api_client)


@pytest.fixture(scope="module")
def batch(api_client: client.ApiClient) -> client.BatchV1Api:
    return client.BatchV1Api(api_client)


def names(page: Any) -> list[str]:
    return [item.metadata.name for item in page.items]


def config_map(name: str, **labels: str) -> client.V1ConfigMap:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels=labels))


def test_the_servers_certificate_is_checked(kubeconfig: Path, tmp_path: Path) -> None:
    """The client trusts the kubeconfig's own authority."""
    configuration = client.Configuration()
    config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    assert configuration.verify_ssl
    assert configuration.host.startswith("https://127.0.0.1:")
    configuration.ssl_ca_cert = None
    configuration.retries = 0
    with (
        client.ApiClient(configuration) as stranger,
        pytest.raises(MaxRetryError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        client.VersionApi(stranger).get_code()


def test_it_knows_the_version(api_client: client.ApiClient) -> None:
    assert client.VersionApi(api_client).get_code().git_version.startswith("v1.")


def test_a_job_is_created_read_replaced_and_deleted(
    batch: client.BatchV1Api, namespace: str
) -> None:
    container = client.V1Container(name="main", image="registry.example/a", command=["true"])
    rule = client.V1PodFailurePolicyRule(
        action="FailJob",
        on_exit_codes=client.V1PodFailurePolicyOnExitCodesRequirement(operator="In", values=[42]),
    )
    template = client.V1PodTemplateSpec(
        spec=client.V1PodSpec(restart_policy="Never", containers=[container])
    )
    spec = client.V1JobSpec(
        template=template, pod_failure_policy=client.V1PodFailurePolicy(rules=[rule])
    )
    job = client.V1Job(metadata=client.V1ObjectMeta(name="a"), spec=spec)
    created = batch.create_namespaced_job(namespace, job)
    assert created.spec.backoff_limit == 6
    assert created.spec.pod_failure_policy.rules[0].on_exit_codes.values == [42]
    assert batch.read_namespaced_job("a", namespace) == created
    created.spec.parallelism = 3
    replaced = batch.replace_namespaced_job("a", namespace, created)
    assert (replaced.spec.parallelism, replaced.metadata.generation) == (3, 2)
    with pytest.raises(client.ApiException) as error:
        batch.replace_namespaced_job("a", namespace, created)
    assert (error.value.status, error.value.reason) == (409, "Conflict")
    batch.delete_namespaced_job("a", namespace, propagation_policy="Background")
    with pytest.raises(client.ApiException) as error:
        batch.read_namespaced_job("a", namespace)
    assert error.value.status == 404


def test_a_refusal_carries_the_causes(batch: client.BatchV1Api, namespace: str) -> None:
    with pytest.raises(client.ApiException) as error:
        batch.create_namespaced_job(namespace, builders.job("a", spec={"parallelism": -1}))
    assert error.value.status == 422
    assert '"field":"spec.parallelism"' in error.value.body


def test_a_list_comes_whole_or_in_chunks(core: client.CoreV1Api, namespace: str) -> None:
    want = [f"m{n}" for n in range(7)]
    for name in want:
        core.create_namespaced_config_map(namespace, config_map(name, app="x"))
    selector = {"label_selector": "app=x"}
    assert names(core.list_namespaced_config_map(namespace, **selector)) == want
    chunks: list[str] = []
    versions: set[str] = set()
    token = ""
    while token is not None:
        page = core.list_namespaced_config_map(namespace, limit=3, _continue=token)
        assert len(page.items) <= 3
        if not token:
            core.create_namespaced_config_map(namespace, config_map("m6-later", app="x"))
        chunks += names(page)
        versions.add(page.metadata.resource_version)
        token = page.metadata._continue
    assert chunks == want, "as of the first page"
    assert len(versions) == 1


def test_lists_go_by_selectors_and_over_all_namespaces(
    core: client.CoreV1Api, namespace: str
) -> None:
    for name, node in (("a", "n1"), ("b", "n2")):
        core.create_namespaced_pod(namespace, builders.pod(name, node=node, labels={"x": name}))
    by_node = core.list_pod_for_all_namespaces(
        field_selector=f"metadata.namespace={namespace},spec.nodeName=n1"
    )
    assert names(by_node) == ["a"]
    assert names(core.list_namespaced_pod(namespace, label_selector="x in (b, c)")) == ["b"]


@cases(
    "content_type patch",
    {
        "merge": (MERGE_PATCH, {"metadata": {"labels": {"x": "1"}}}),
        "strategic": (STRATEGIC_PATCH, {"metadata": {"labels": {"x": "1"}}}),
        "json": (JSON_PATCH, [{"op": "add", "path": "/metadata/labels", "value": {"x": "1"}}]),
    },
)
def test_a_pod_is_patched(
    core: client.CoreV1Api, namespace: str, content_type: str, patch: object
) -> None:
    core.create_namespaced_pod(namespace, builders.pod("a"))
    patched = core.patch_namespaced_pod("a", namespace, patch, _content_type=content_type)
    assert patched.metadata.labels == {"x": "1"}


def test_a_pod_is_patched_by_the_clients_own_choice(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(
        namespace,
        builders.pod("a", spec={"containers": [{**builders.CONTAINER, "command": ["true"]}]}),
    )
    container = {"name": "main", "image": "registry.example/b"}
    patched = core.patch_namespaced_pod("a", namespace, {"spec": {"containers": [container]}})
    [after] = patched.spec.containers
    assert (after.image, after.command) == ("registry.example/b", ["true"])


def test_a_pod_is_applied(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, config_map("a"))
    body = builders.config_map("a", data={"a": "1"})
    applied = core.patch_namespaced_config_map(
        "a", namespace, body, field_manager="tests", force=True, _content_type=APPLY_PATCH
    )
    assert applied.data == {"a": "1"}
    managers = {each.manager: each.operation for each in applied.metadata.managed_fields}
    assert managers["tests"] == "Apply"


def test_the_status_is_patched_apart(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(namespace, builders.pod("a"))
    condition = {"type": "Ready", "status": "True"}
    patch = {"status": {"phase": "Running", "conditions": [condition]}}
    core.patch_namespaced_pod_status("a", namespace, patch)
    status = core.read_namespaced_pod_status("a", namespace).status
    assert (status.phase, status.conditions[0].type) == ("Running", "Ready")


def test_a_delete_has_grace_and_preconditions(core: client.CoreV1Api, namespace: str) -> None:
    pod = core.create_namespaced_pod(namespace, builders.pod("a", node="n1"))
    wrong = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="other"))
    with pytest.raises(client.ApiException) as error:
        core.delete_namespaced_pod("a", namespace, body=wrong)
    assert error.value.status == 409
    right = client.V1DeleteOptions(
        grace_period_seconds=5, preconditions=client.V1Preconditions(uid=pod.metadata.uid)
    )
    core.delete_namespaced_pod("a", namespace, body=right)
    current = core.read_namespaced_pod("a", namespace)
    assert current.metadata.deletion_grace_period_seconds == 5
    core.delete_namespaced_pod("a", namespace, grace_period_seconds=0)
    assert names(core.list_namespaced_pod(namespace)) == []


def test_a_collection_is_deleted(core: client.CoreV1Api, namespace: str) -> None:
    for name in ("a", "b"):
        core.create_namespaced_config_map(namespace, config_map(name, app=name))
    core.delete_collection_namespaced_config_map(namespace, label_selector="app=a")
    assert names(core.list_namespaced_config_map(namespace, label_selector="app")) == ["b"]


def test_a_pod_is_evicted(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(namespace, builders.pod("a", node="n1"))
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="a", namespace=namespace))
    core.create_namespaced_pod_eviction("a", namespace, eviction)
    pod = core.read_namespaced_pod("a", namespace)
    assert pod.metadata.deletion_timestamp is not None
    assert [each.type for each in pod.status.conditions] == ["DisruptionTarget"]


def test_an_eviction_against_a_budget_is_refused_for_now(
    core: client.CoreV1Api, api_client: client.ApiClient, namespace: str
) -> None:
    core.create_namespaced_pod(namespace, builders.pod("a", node="n1", labels={"x": "1"}))
    core.patch_namespaced_pod_status("a", namespace, {"status": {"phase": "Running"}})
    policy = client.PolicyV1Api(api_client)
    budget = objects.budget("budget", {"x": "1"}, min_available=1)
    policy.create_namespaced_pod_disruption_budget(namespace, budget)
    eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="a"))
    with pytest.raises(client.ApiException) as error:
        core.create_namespaced_pod_eviction("a", namespace, eviction)
    assert error.value.status == 429
    assert error.value.headers["Retry-After"] == "10"
    assert "Cannot evict pod as it would violate" in error.value.body


def test_a_pod_is_bound(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(namespace, builders.pod("a"))
    target = client.V1ObjectReference(api_version="v1", kind="Node", name="n1")
    binding = client.V1Binding(metadata=client.V1ObjectMeta(name="a"), target=target)
    # What comes back is a Status, which this method of the client does not expect.
    core.create_namespaced_pod_binding("a", namespace, binding, _preload_content=False).close()
    assert core.read_namespaced_pod("a", namespace).spec.node_name == "n1"


def test_an_event_of_either_group_is_the_same_event(
    core: client.CoreV1Api, api_client: client.ApiClient, namespace: str
) -> None:
    about = client.V1ObjectReference(kind="Pod", name="a", namespace=namespace)
    event = client.EventsV1Event(
        metadata=client.V1ObjectMeta(name="a.1"),
        event_time=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        regarding=about,
        reporting_controller="example.com/test",
        reporting_instance="test-1",
        action="Testing",
        reason="Broken",
        type="Warning",
        note="it broke",
    )
    events = client.EventsV1Api(api_client)
    created = events.create_namespaced_event(namespace, event)
    assert created.event_time == event.event_time
    [core_event] = core.list_namespaced_event(namespace, field_selector="reason=Broken").items
    assert (core_event.involved_object.name, core_event.message) == ("a", "it broke")
    assert core_event.metadata.uid == created.metadata.uid


def test_the_dynamic_client_finds_every_kind(
    api_client: client.ApiClient, namespace: str, tmp_path: Path
) -> None:
    dynamic_client = dynamic.DynamicClient(api_client, cache_file=str(tmp_path / "cache"))
    jobs = dynamic_client.resources.get(api_version="batch/v1", kind="Job")
    jobs.create(body=builders.job("a"), namespace=namespace)
    assert [item.metadata.name for item in jobs.get(namespace=namespace).items] == ["a"]
    patched = jobs.patch(
        body={"spec": {"suspend": True}}, name="a", namespace=namespace, content_type=MERGE_PATCH
    )
    assert patched.spec.suspend is True
    jobs.delete(name="a", namespace=namespace, body={"propagationPolicy": "Background"})


# -- watching ------------------------------------------------------------


def seen(events: Any) -> list[tuple[str, str]]:
    return [(event["type"], event["object"].metadata.name) for event in events]


def test_a_watch_goes_on_from_a_list_and_from_itself(
    core: client.CoreV1Api, namespace: str
) -> None:
    start = core.list_namespaced_config_map(namespace).metadata.resource_version
    for name in ("a", "b"):
        core.create_namespaced_config_map(namespace, config_map(name))
    core.delete_namespaced_config_map("a", namespace)
    want = [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    watcher = watch.Watch()
    stream = watcher.stream(
        core.list_namespaced_config_map, namespace, resource_version=start, timeout_seconds=1
    )
    first = next(stream)
    assert seen([first]) == want[:1]
    assert watcher.resource_version == first["object"].metadata.resource_version
    stream.close()
    again = watch.Watch().stream(
        core.list_namespaced_config_map,
        namespace,
        resource_version=watcher.resource_version,
        timeout_seconds=1,
    )
    assert seen(again) == want[1:]


def test_a_watch_begins_anew_by_itself_when_the_server_ends_it(
    core: client.CoreV1Api, namespace: str
) -> None:
    """Several watches of the server are one for the caller, and nothing is seen twice."""
    start = core.list_namespaced_config_map(namespace).metadata.resource_version
    ends = []

    def listed(*args: Any, **kwargs: Any) -> Any:
        ends.append(kwargs["resource_version"])
        if len(ends) > 1:
            core.create_namespaced_config_map(namespace, config_map(f"m{len(ends)}"))
        return core.list_namespaced_config_map(*args, **kwargs, timeout_seconds=1)

    core.create_namespaced_config_map(namespace, config_map("m1"))
    watcher = watch.Watch(return_type="V1ConfigMap")
    events = []
    for event in watcher.stream(listed, namespace, resource_version=start):
        events += seen([event])
        if len(events) == 3:
            watcher.stop()
    assert events == [("ADDED", "m1"), ("ADDED", "m2"), ("ADDED", "m3")]
    assert ends[0] == start


def test_an_informer_follows(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, config_map("a"))
    informer = SharedInformer(core.list_namespaced_config_map, namespace=namespace)
    happened = threading.Condition()
    log: list[tuple[str, str]] = []

    def note(kind: str) -> Any:
        def handler(obj: Any) -> None:
            with happened:
                log.append((kind, obj.metadata.name))
                happened.notify()

        return handler

    def comes(*event: str) -> bool:
        with happened:
            return happened.wait_for(lambda: event in log, cluster.PATIENCE_SECONDS)

    for kind in ("ADDED", "MODIFIED", "DELETED"):
        informer.add_event_handler(kind, note(kind))
    informer.start()
    try:
        assert comes("ADDED", "a")
        core.create_namespaced_config_map(namespace, config_map("b"))
        assert comes("ADDED", "b")
        core.patch_namespaced_config_map("a", namespace, {"data": {"x": "1"}})
        assert comes("MODIFIED", "a")
        core.delete_namespaced_config_map("a", namespace)
        assert comes("DELETED", "a")
        assert informer.cache.list_keys() == [f"{namespace}/b"]
    finally:
        informer.stop()


# -- what is forgotten ---------------------------------------------------


@pytest.fixture(scope="module")
def expired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of a server without a past, with a version and a token from that past."""
    data_dir = tmp_path_factory.mktemp("expired") / "data"
    with cluster.serving(data_dir) as server:
        with config.new_client_from_config(str(server.kubeconfig)) as api:
            old = client.CoreV1Api(api)
            for name in "abcd":
                old.create_namespaced_config_map("default", config_map(name))
            page = old.list_namespaced_config_map("default", limit=2)
            old.patch_namespaced_config_map("a", "default", {"data": {"x": "1"}})
        assert server.end() == 0
    history.forget(data_dir)
    with (
        cluster.serving(data_dir) as server,
        config.new_client_from_config(str(server.kubeconfig)) as api,
    ):
        yield client.CoreV1Api(api), page.metadata


def test_a_watch_of_a_forgotten_version_raises_410(expired: Any) -> None:
    """The client tries once more; then the caller must list again."""
    core, then = expired
    stream = watch.Watch().stream(
        core.list_namespaced_config_map, "default", resource_version=then.resource_version
    )
    with pytest.raises(client.ApiException) as error:
        next(stream)
    assert error.value.status == 410
    assert error.value.reason.startswith("Expired: too old resource version: ")
    page = core.list_namespaced_config_map("default")
    again = watch.Watch().stream(
        core.list_namespaced_config_map,
        "default",
        resource_version=page.metadata.resource_version,
        timeout_seconds=1,
    )
    assert list(again) == []


def test_a_chunk_of_a_forgotten_version_raises_410(expired: Any) -> None:
    core, then = expired
    with pytest.raises(client.ApiException) as error:
        core.list_namespaced_config_map("default", limit=2, _continue=then._continue)
    assert (error.value.status, error.value.reason) == (410, "Gone")
    assert '"reason":"Expired"' in error.value.body


def test_an_informer_lists_anew_when_its_version_is_forgotten(expired: Any) -> None:
    core, then = expired
    # With a period, because stop() is lost on a watch that is about to begin.
    informer = SharedInformer(core.list_namespaced_config_map, namespace="default", resync_period=1)
    informer._resource_version = then.resource_version
    added = threading.Event()
    informer.add_event_handler("ADDED", lambda obj: added.set() if obj else None)
    informer.start()
    try:
        assert added.wait(cluster.PATIENCE_SECONDS)
    finally:
        informer.stop()
    assert {f"default/{name}" for name in "abcd"} <= set(informer.cache.list_keys())
