# SPDX-License-Identifier: Apache-2.0
"""What single kinds do with a write besides validation."""

import base64
from typing import Any

from refloat.api import kinds, times
from refloat.api.meta import Object
from tests import builders
from tests.apiserver_fixture import ServerFixture
from tests.cases import cases
from tests.clocks import START
from tests.refusals import refusal

VOLUMES = kinds.of("persistentvolumes")
CLAIMS = kinds.of("persistentvolumeclaims")
LONG_AGO = "2018-01-01T00:00:00Z"


def made(kind: str, **parts: Any) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, **parts}


async def test_account_keeps_the_names_of_its_secrets(world: ServerFixture) -> None:
    secrets = [{"name": "a", "kind": "Secret", "namespace": "n"}, {"uid": "u"}]
    account = await world.create(made("ServiceAccount", secrets=secrets))
    assert account["secrets"] == [{"name": "a"}, {}]
    after, _ = await world.replace(made("ServiceAccount", secrets=[{"name": "b", "uid": "u"}]))
    assert after["secrets"] == [{"name": "b"}]


VOLUME = made(
    "PersistentVolume",
    spec={
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/a"},
    },
)


@cases(
    "status want",
    {
        "same phase without a time": ({"phase": "Bound"}, LONG_AGO),
        "new phase with the old time": (
            {"phase": "Released", "lastPhaseTransitionTime": LONG_AGO},
            times.format_time(START),
        ),
        "new phase, no time": ({"phase": "Released"}, times.format_time(START)),
        "new phase with a time of its own": (
            {"phase": "Released", "lastPhaseTransitionTime": "2019-01-01T00:00:00Z"},
            "2019-01-01T00:00:00Z",
        ),
    },
)
async def test_volume_says_since_when_it_has_its_phase(
    world: ServerFixture, status: Object, want: str
) -> None:
    await world.create(VOLUME)
    await world.set_status(VOLUMES, "x", phase="Bound", lastPhaseTransitionTime=LONG_AGO)

    def change(volume: Object) -> None:
        volume["status"] = status

    after = await world.change(VOLUMES, "x", change, subresource="status")
    assert after["status"]["lastPhaseTransitionTime"] == want


async def test_update_of_a_claim_keeps_its_status(world: ServerFixture) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = made("PersistentVolumeClaim", spec=spec)
    await world.create(claim)
    await world.set_status(CLAIMS, "x", phase="Bound")
    after, _ = await world.replace({**claim, "status": {"phase": "Lost"}})
    assert after["status"]["phase"] == "Bound"


async def test_node_has_no_dynamic_configuration(world: ServerFixture) -> None:
    source = {"configMap": {"name": "a", "namespace": "b", "kubeletConfigKey": "c"}}
    warnings: list[str] = []
    node = await world.create(
        made("Node", spec={"configSource": source}, status={"config": {"error": "x"}}),
        warnings=warnings,
    )
    assert "configSource" not in node["spec"]
    assert "config" not in node["status"]
    assert warnings == []
    after = await world.set_status(kinds.of("nodes"), "x", config={"error": "x"})
    assert "config" not in after["status"]


def pem(kind: str) -> bytes:
    return f"-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n".encode()


CERTIFICATE, KEY = pem("CERTIFICATE"), pem("RSA PRIVATE KEY")


@cases(
    "certificate key want",
    {
        "both there": (CERTIFICATE, KEY, ""),
        "nothing": (b"", b"", "tls: failed to find any PEM data in certificate input"),
        "no key": (CERTIFICATE, b"x", "tls: failed to find any PEM data in key input"),
        "other blocks": (
            pem("A") + pem("B"),
            KEY,
            (
                'tls: failed to find "CERTIFICATE" PEM block in certificate input after skipping '
                "PEM blocks of the following types: [A B]"
            ),
        ),
        "switched": (
            KEY,
            CERTIFICATE,
            (
                "tls: failed to find certificate PEM data in certificate input, but did find a "
                "private key; PEM inputs may have been switched"
            ),
        ),
        "two certificates": (
            CERTIFICATE,
            CERTIFICATE,
            "tls: found a certificate rather than a key in the PEM for the private key",
        ),
        "nearly a key": (
            CERTIFICATE,
            pem("XPRIVATE KEY"),
            (
                'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input '
                "after skipping PEM blocks of the following types: [XPRIVATE KEY]"
            ),
        ),
        "without an end": (
            b"-----BEGIN CERTIFICATE-----\n",
            KEY,
            "tls: failed to find any PEM data in certificate input",
        ),
    },
)
async def test_certificate_without_its_parts_is_warned_of(
    world: ServerFixture, certificate: bytes, key: bytes, want: str
) -> None:
    warnings: list[str] = []
    data = {
        "tls.crt": base64.b64encode(certificate).decode(),
        "tls.key": base64.b64encode(key).decode(),
    }
    await world.create(made("Secret", type="kubernetes.io/tls", data=data), warnings=warnings)
    assert warnings == ([want] if want else [])


HEADLESS = {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]}
NAME = {"type": "ExternalName", "externalName": "a.b"}


async def test_headless_service_that_becomes_a_name_loses_its_families(
    world: ServerFixture,
) -> None:
    await world.create(made("Service", spec=HEADLESS))
    after, _ = await world.replace(made("Service", spec=NAME))
    assert after["spec"] == {**NAME, "sessionAffinity": "None"}


async def test_address_that_is_changed_alone_is_the_whole_list(world: ServerFixture) -> None:
    await world.create(made("Service", spec=HEADLESS))

    def change(service: Object) -> None:
        service["spec"]["clusterIP"] = "x"

    message = (
        'Service "x" is invalid: spec.clusterIPs[0]: Invalid value: "x": '
        "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
    )
    with refusal(422, message):
        await world.change(kinds.of("services"), "x", change)


async def test_name_that_becomes_a_headless_service_gets_families(world: ServerFixture) -> None:
    await world.create(made("Service", spec=NAME))
    after, _ = await world.replace(made("Service", spec=HEADLESS))
    assert after["spec"]["ipFamilies"] == ["IPv4"]
    assert after["spec"]["ipFamilyPolicy"] == "SingleStack"


async def test_status_of_an_attachment_leaves_its_metadata_alone(world: ServerFixture) -> None:
    attachments = kinds.of("volumeattachments", "storage.k8s.io")
    attachment = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": "x", "labels": {"a": "b"}, "finalizers": ["a.b/c"]},
        "spec": {"attacher": "a.b", "nodeName": "n", "source": {"persistentVolumeName": "pv"}},
    }
    before = (await world.create(attachment))["metadata"]

    def change(new: Object) -> None:
        del new["metadata"]["labels"], new["metadata"]["finalizers"]
        new["metadata"]["annotations"] = {"a b": "c"}
        new["status"]["attached"] = True

    after = await world.change(attachments, "x", change, subresource="status")
    assert after["status"]["attached"]
    assert {**after["metadata"], "resourceVersion": ""} == {**before, "resourceVersion": ""}


@cases(
    "obj path",
    {
        "a node's": (
            made("Node", status={"capacity": {"cpu": "0.1m"}}),
            ("status", "capacity", "cpu"),
        ),
        "a volume's": (
            {**VOLUME, "spec": {**VOLUME["spec"], "capacity": {"storage": "0.1m"}}},
            ("spec", "capacity", "storage"),
        ),
        "a claim's": (
            made(
                "PersistentVolumeClaim",
                spec={
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "0.1m"}},
                },
            ),
            ("spec", "resources", "requests", "storage"),
        ),
    },
)
async def test_no_amount_is_finer_than_a_thousandth(
    world: ServerFixture, obj: Object, path: tuple[str, ...]
) -> None:
    value: Any = await world.create(obj)
    for part in path:
        value = value[part]
    assert value == "1m"


async def test_there_is_one_default_priority_class(world: ServerFixture) -> None:
    def marked(name: str, **more: Any) -> Object:
        return builders.priority_class(name, globalDefault=True, **more)

    message = (
        'priorityclasses.scheduling.k8s.io "b" is forbidden: PriorityClass a is already marked '
        "as default. Only one default can exist"
    )
    await world.create(marked("a"))
    with refusal(403, message):
        await world.create(marked("b"))
    await world.create(builders.priority_class("b"))
    with refusal(403, message):
        await world.replace(marked("b"))
    with refusal(
        422,
        'PriorityClass.scheduling.k8s.io "b" is invalid: '
        "value: Forbidden: may not be changed in an update.",
    ):
        await world.replace(marked("b", value=7))
    after, _ = await world.replace(marked("a", description="still"))
    assert after["description"] == "still"
