# SPDX-License-Identifier: Apache-2.0
"""The inputs of containers: variables and files, and the messages for missing ones."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refloat.agent import variable_expansion
from refloat.agent.container_inputs import (
    ContainerConfigError,
    ContainerInputs,
    MountError,
    VolumeFile,
)
from refloat.agent.downward_api import NodeValues
from refloat.api.meta import Object
from refloat.client.local import LocalClient
from refloat.sim import api_server
from refloat.sim.run import Sim
from tests import builders
from tests.virtual import virtual

PLACE = NodeValues(
    ("10.0.0.7", "fd00::7"), {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "9Gi"}
)


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


CONFIG = {
    "kind": "ConfigMap",
    "apiVersion": "v1",
    "metadata": {"name": "settings"},
    "data": {"colour": "blue", "size": "3"},
    "binaryData": {"raw": base64_of("\x00bytes")},
}
SECRET = {
    "kind": "Secret",
    "apiVersion": "v1",
    "metadata": {"name": "login"},
    "data": {"user": base64_of("ann"), "password": base64_of("p w")},
}

CONTAINER: Object = {
    "name": "main",
    "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"memory": "100M"}},
}
POD: Object = {
    "metadata": {
        "name": "p",
        "namespace": "default",
        "uid": "u-1",
        "labels": {"b": 'say "x"', "a": "1"},
        "annotations": {"batch.kubernetes.io/job-completion-index": "4"},
    },
    "spec": {
        "nodeName": "n1",
        "serviceAccountName": "default",
        "containers": [CONTAINER, {"name": "other", "resources": {"limits": {"cpu": "1500m"}}}],
    },
}


CLAIMS_PATH = "namespaces/default/persistentvolumeclaims"
OTHERS: Object = {"csi": {"driver": "example.com", "volumeHandle": "x"}}
CLAIMED: list[tuple[str, Object]] = [
    ("persistentvolumes", builders.volume("shared")),
    ("persistentvolumes", builders.volume("odd", source=builders.folder("../a/b"))),
    ("persistentvolumes", builders.volume("host", source={"hostPath": {"path": "/srv/x"}})),
    ("persistentvolumes", builders.volume("others", source=OTHERS)),
    *(
        (CLAIMS_PATH, builders.claim(name, volume=name))
        for name in ("shared", "odd", "host", "others", "missing")
    ),
]


@asynccontextmanager
async def asking(sim: Sim) -> AsyncIterator[ContainerInputs]:
    async with api_server.serve(sim) as api:
        for plural, obj in (("configmaps", CONFIG), ("secrets", SECRET)):
            path = f"/api/v1/namespaces/default/{plural}"
            await api.call("POST", path, msgspec.json.encode(obj))
        for path, obj in CLAIMED:
            await api.call("POST", f"/api/v1/{path}", msgspec.json.encode(obj))
        yield ContainerInputs(LocalClient(api, field_manager="agent"), PLACE, Path("/volumes"))


def env(*variables: Object, source: tuple[Object, ...] = ()) -> Object:
    return {**CONTAINER, "env": list(variables), "envFrom": list(source)}


def of(name: str, **source: Any) -> Object:
    return {"name": name, "valueFrom": source}


EXPANSIONS = {
    "a reference": ("$(A)", "1"),
    "one among other text": ("x$(A)y$(B)", "x1y$(A)"),
    "a value is not expanded again": ("$(B)", "$(A)"),
    "a name without a value stays": ("$(NONE)", "$(NONE)"),
    "an escaped reference": ("$$(A)", "$(A)"),
    "an escaped dollar before a reference": ("$$$(A)", "$1"),
    "an open bracket": ("$(A", "$(A"),
    "a shell's variable": ("$A ${A}", "$A ${A}"),
    "a dollar at the end": ("5$", "5$"),
}


@pytest.mark.parametrize(("text", "want"), EXPANSIONS.values(), ids=EXPANSIONS.keys())
def test_references_are_expanded_as_kubernetes_does(text: str, want: str) -> None:
    assert variable_expansion.expand(text, {"A": "1", "B": "$(A)"}) == want


FIELDS = {
    "metadata.name": "p",
    "metadata.namespace": "default",
    "metadata.uid": "u-1",
    "metadata.labels['a']": "1",
    "metadata.labels['none']": "",
    "metadata.annotations['batch.kubernetes.io/job-completion-index']": "4",
    "spec.nodeName": "n1",
    "spec.serviceAccountName": "default",
    "status.hostIP": "10.0.0.7",
    "status.hostIPs": "10.0.0.7,fd00::7",
    "status.podIP": "10.0.0.7",
    "status.podIPs": "10.0.0.7,fd00::7",
}

RESOURCES = {
    "a request, rounded up to whole cores": ({"resource": "requests.cpu"}, "1"),
    "a request in thousandths": ({"resource": "requests.cpu", "divisor": "1m"}, "250"),
    "a request in mebibytes": ({"resource": "requests.memory", "divisor": "1Mi"}, "64"),
    "a limit, rounded up": ({"resource": "limits.memory", "divisor": "1Mi"}, "96"),
    "no request": ({"resource": "requests.ephemeral-storage"}, "0"),
    "no limit: what the node has": ({"resource": "limits.cpu"}, "4"),
    "a divisor of nothing is one": ({"resource": "limits.cpu", "divisor": "0"}, "4"),
    "of another container": (
        {"resource": "limits.cpu", "divisor": "1m", "containerName": "other"},
        "1500",
    ),
}


@virtual(asking)
async def test_fields_of_the_pod_become_variables(here: ContainerInputs) -> None:
    for path, want in FIELDS.items():
        container = env(of("V", fieldRef={"fieldPath": path}))
        assert await here.environment(POD, container) == {"V": want}, path


@virtual(asking)
async def test_resources_of_containers_become_variables(here: ContainerInputs) -> None:
    for case, (selector, want) in RESOURCES.items():
        container = env(of("V", resourceFieldRef=selector))
        assert await here.environment(POD, container) == {"V": want}, case


@virtual(asking)
async def test_a_limit_of_the_pod_stands_for_one_of_the_container(here: ContainerInputs) -> None:
    pod = {**POD, "spec": {**POD["spec"], "resources": {"limits": {"cpu": "3"}}}}
    container = env(of("V", resourceFieldRef={"resource": "limits.cpu"}))
    assert await here.environment(pod, container) == {"V": "3"}


@virtual(asking)
async def test_variables_see_earlier_ones_and_override_imports(here: ContainerInputs) -> None:
    container = env(
        {"name": "FIRST", "value": "$(colour) $(LATER)"},
        {"name": "LATER", "value": "x"},
        of("size", secretKeyRef={"name": "login", "key": "user"}),
        of("KEY", configMapKeyRef={"name": "settings", "key": "colour"}),
        {"name": "EMPTY"},
        source=(
            {"configMapRef": {"name": "settings"}},
            {"prefix": "S_", "secretRef": {"name": "login"}},
        ),
    )
    assert await here.environment(POD, container) == {
        "colour": "blue",
        "size": "ann",
        "S_user": "ann",
        "S_password": "p w",
        "FIRST": "blue $(LATER)",
        "LATER": "x",
        "KEY": "blue",
        "EMPTY": "",
    }


NO_MAP, NO_SECRET = (f'{kind} "nope" not found' for kind in ("configmap", "secret"))

MISSING = {
    "a ConfigMap": (env(of("V", configMapKeyRef={"name": "nope", "key": "k"})), NO_MAP),
    "Secret": (env(of("V", secretKeyRef={"name": "nope", "key": "k"})), NO_SECRET),
    "a key of a ConfigMap": (
        env(of("V", configMapKeyRef={"name": "settings", "key": "k"})),
        "couldn't find key k in ConfigMap default/settings",
    ),
    "a binary key is no variable": (
        env(of("V", configMapKeyRef={"name": "settings", "key": "raw"})),
        "couldn't find key raw in ConfigMap default/settings",
    ),
    "a key of a Secret": (
        env(of("V", secretKeyRef={"name": "login", "key": "k"})),
        "couldn't find key k in Secret default/login",
    ),
    "all of a ConfigMap": (env(source=({"configMapRef": {"name": "nope"}},)), NO_MAP),
    "all of a Secret": (env(source=({"secretRef": {"name": "nope"}},)), NO_SECRET),
    "a field": (
        env(of("V", fieldRef={"fieldPath": "spec.hostname"})),
        "unsupported fieldPath: spec.hostname",
    ),
    "a container": (
        env(of("V", resourceFieldRef={"resource": "limits.cpu", "containerName": "x"})),
        "container x not found",
    ),
}


@virtual(asking)
async def test_missing_source_of_a_variable_keeps_containers_waiting(here: ContainerInputs) -> None:
    for case, (container, want) in MISSING.items():
        with pytest.raises(ContainerConfigError) as error:
            await here.environment(POD, container)
        assert (str(error.value), error.value.reason) == (want, "CreateContainerConfigError"), case


@virtual(asking)
async def test_what_is_optional_may_be_missing(here: ContainerInputs) -> None:
    container = env(
        of("A", configMapKeyRef={"name": "nope", "key": "k", "optional": True}),
        of("B", secretKeyRef={"name": "login", "key": "k", "optional": True}),
        source=({"configMapRef": {"name": "nope", "optional": True}},),
    )
    assert await here.environment(POD, container) == {}


VOLUMES: dict[str, tuple[Object, dict[str, VolumeFile] | None]] = {
    "all of a ConfigMap": (
        {"configMap": {"name": "settings", "defaultMode": 0o400}},
        {
            "colour": VolumeFile(b"blue", 0o400),
            "size": VolumeFile(b"3", 0o400),
            "raw": VolumeFile(b"\x00bytes", 0o400),
        },
    ),
    "some keys of a Secret": (
        {
            "secret": {
                "secretName": "login",
                "items": [{"key": "user", "path": "who/is", "mode": 0o600}],
            }
        },
        {"who/is": VolumeFile(b"ann", 0o600)},
    ),
    "optional ConfigMap that is missing": ({"configMap": {"name": "nope", "optional": True}}, {}),
    "the pod itself": (
        {
            "downwardAPI": {
                "items": [
                    {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                    {
                        "path": "cpu",
                        "mode": 0o400,
                        "resourceFieldRef": {"resource": "limits.cpu", "containerName": "other"},
                    },
                ]
            }
        },
        {"labels": VolumeFile(b'a="1"\nb="say \\"x\\""'), "cpu": VolumeFile(b"2", 0o400)},
    ),
    "several sources in one": (
        {
            "projected": {
                "defaultMode": 0o640,
                "sources": [
                    {"secret": {"name": "login", "items": [{"key": "user", "path": "u"}]}},
                    {"configMap": {"name": "settings", "items": [{"key": "size", "path": "s"}]}},
                    {
                        "downwardAPI": {
                            "items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]
                        }
                    },
                ],
            }
        },
        {
            "u": VolumeFile(b"ann", 0o640),
            "s": VolumeFile(b"3", 0o640),
            "n": VolumeFile(b"p", 0o640),
        },
    ),
    "an empty folder is another's business": ({"emptyDir": {}}, None),
}


@virtual(asking)
async def test_volumes_have_the_files_that_they_name(here: ContainerInputs) -> None:
    for case, (source, want) in VOLUMES.items():
        assert await here.files(POD, {"name": "v", **source}) == want, case


UNMOUNTED: dict[str, tuple[Object, str]] = {
    "a ConfigMap": ({"configMap": {"name": "nope"}}, NO_MAP),
    "a Secret": ({"secret": {"secretName": "nope"}}, NO_SECRET),
    "a key of a ConfigMap": (
        {"configMap": {"name": "settings", "items": [{"key": "k", "path": "x"}]}},
        "configmap references non-existent config key: k",
    ),
    "a key of a Secret": (
        {"secret": {"secretName": "login", "items": [{"key": "k", "path": "x"}]}},
        "references non-existent secret key: k",
    ),
    "a projected Secret": ({"projected": {"sources": [{"secret": {"name": "nope"}}]}}, NO_SECRET),
}


@virtual(asking)
async def test_a_volume_that_cannot_be_made_is_an_event_and_no_state(here: ContainerInputs) -> None:
    for case, (source, why) in UNMOUNTED.items():
        with pytest.raises(MountError) as error:
            await here.files(POD, {"name": "v", **source})
        note = f'MountVolume.SetUp failed for volume "v" : {why}'
        assert (error.value.event, error.value.note) == ("FailedMount", note), case
        assert error.value.reason == ""


@virtual(asking)
async def test_claims_have_folders(here: ContainerInputs) -> None:
    def claim(name: str) -> Object:
        return {"name": "v", "persistentVolumeClaim": {"claimName": name}}

    assert await here.folder(POD, {"name": "v", "emptyDir": {}}) is None
    assert await here.folder(POD, claim("shared")) == Path("/volumes/data")
    assert await here.folder(POD, claim("odd")) == Path("/volumes/%2E%2E%2Fa%2Fb")
    assert await here.folder(POD, claim("host")) == Path("/srv/x")
    for name, why in (
        ("nobody", 'persistentvolumeclaims "nobody" not found'),
        ("missing", 'persistentvolumes "missing" not found'),
        ("others", "only hostPath, and csi by the driver volumes.refloat.dev"),
    ):
        with pytest.raises(MountError, match=why):
            await here.folder(POD, claim(name))
