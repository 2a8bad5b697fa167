# SPDX-License-Identifier: Apache-2.0
"""Where a volume is attached, and from where it is detached."""

from typing import Any

import msgspec
import pytest

from refloat.api.core import Node, PersistentVolume, Pod
from refloat.policy.node import attach_detach
from refloat.policy.node.attach_detach import (
    Attach,
    AttachDetachSettings,
    Attachment,
    Blocked,
    Confirm,
    Detach,
    DetachLater,
    Report,
    Step,
    VolumeNode,
    VolumeObservation,
)
from refloat.policy.recovery import force_eviction
from tests.cases import cases

ON_A = Attachment("a", "a", attached=True)
NAME = "kubernetes.io/csi/volumes.refloat.dev^data"


def place(**more: bool) -> VolumeNode:
    return VolumeNode(**{"ready": True, "in_use": False, "reported": True, **more})


def pod(name: str, *, namespace: str) -> Pod:
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace}}, Pod)


def unwanted(seconds: float) -> Attachment:
    return Attachment("a", "a", attached=True, unwanted_seconds=seconds)


def seen(*wanted: str, held: tuple[Attachment, ...] = (), **more: Any) -> VolumeObservation:
    places = more.pop("places", {})
    all_places = {"a": place(), "b": place(reported=False), **places}
    exclusive = more.pop("exclusive", True)
    there = {name: each for name, each in all_places.items() if each is not None}
    return VolumeObservation(exclusive, wanted, held, there)


@cases(
    "sight want",
    {
        "nobody needs it": (seen(), []),
        "a pod needs it": (seen("a"), [Attach("a")]),
        "two pods of a node need it once": (seen("a", "a"), [Attach("a")]),
        "the first come has it": (seen("a", "b"), [Attach("a"), Blocked("b", ("a",))]),
        "many may have it": (seen("a", "b", exclusive=False), [Attach("a"), Attach("b")]),
        "all is done": (seen("a", held=(ON_A,)), []),
        "begun, and not said": (
            seen("a", held=(Attachment("a", "a", attached=False),)),
            [Confirm(Attachment("a", "a", attached=False))],
        ),
        "not said on the node": (
            seen("a", held=(ON_A,), places={"a": place(reported=False)}),
            [Report(ON_A)],
        ),
        "a node that is force evicted is told nothing": (
            seen("a", held=(ON_A,), places={"a": place(reported=False, is_evicted=True)}),
            [],
        ),
        "and gets nothing attached": (seen("a", places={"a": place(is_evicted=True)}), []),
        "a node that is not there gets nothing": (seen("c"), []),
        "it is freed first": (seen("b", held=(ON_A,)), [Detach(ON_A), Blocked("b", ("a",))]),
        "a ready node says itself when it has unmounted it": (
            seen("b", held=(ON_A,), places={"a": place(in_use=True)}),
            [Blocked("b", ("a",))],
        ),
        "one that is not ready gets six minutes": (
            seen("b", held=(unwanted(10),), places={"a": place(in_use=True, ready=False)}),
            [DetachLater(350), Blocked("b", ("a",))],
        ),
        "and then it is taken": (
            seen("b", held=(unwanted(360),), places={"a": place(in_use=True, ready=False)}),
            [Detach(unwanted(360), by_force=True), Blocked("b", ("a",))],
        ),
        "out of service: at once": (
            seen(
                "b",
                held=(ON_A,),
                places={"a": place(in_use=True, ready=False, out_of_service=True)},
            ),
            [Detach(ON_A, by_force=True), Blocked("b", ("a",))],
        ),
        "its node is gone": (
            seen("b", held=(ON_A,), places={"a": None}),
            [Detach(ON_A), Blocked("b", ("a",))],
        ),
    },
)
def test_what_becomes_of_a_volume(sight: VolumeObservation, want: list[Step]) -> None:
    assert attach_detach.decide(sight, AttachDetachSettings()) == want


HERE = pod("p", namespace="x")
NEAR = [pod("q", namespace="x"), pod("r", namespace="x")]
FAR = [pod("s", namespace="y"), pod("t", namespace="z")]


@cases(
    "users want",
    {
        "one": (NEAR[:1], "used by pod(s) q"),
        "two": (NEAR, "used by pod(s) q, r"),
        "one of another namespace too": (
            NEAR + FAR[:1],
            "used by pod(s) q, r and 1 pod(s) in different namespaces",
        ),
        "only such": (FAR, "used by 2 pod(s) in different namespaces"),
        "no pod needs it any more": (
            [],
            "exclusively attached to one node and can't be attached to another",
        ),
    },
)
def test_who_waits_for_a_volume_is_told_for_whom(users: list[Pod], want: str) -> None:
    message = attach_detach.multi_attach_error("data", HERE, users)
    assert message == f'Multi-Attach error for volume "data" Volume is already {want}'


def volume(**spec: Any) -> PersistentVolume:
    return msgspec.convert({"metadata": {"name": "v"}, "spec": spec}, PersistentVolume)


def test_only_volumes_of_the_machine_are_attached() -> None:
    ours = {"driver": "volumes.refloat.dev", "volumeHandle": "data"}
    assert attach_detach.unique_name(volume(csi=ours)) == NAME
    assert attach_detach.unique_name(volume(csi={**ours, "driver": "other"})) == ""
    assert attach_detach.unique_name(volume(hostPath={"path": "/x"})) == ""


@pytest.mark.parametrize(
    ("modes", "want"),
    [
        (["ReadWriteOnce"], True),
        (["ReadWriteOncePod"], True),
        (["ReadWriteMany"], False),
        (["ReadWriteOnce", "ReadOnlyMany"], False),
    ],
)
def test_who_may_share_a_volume(modes: list[str], want: bool) -> None:
    assert attach_detach.is_exclusive(volume(accessModes=modes)) is want


@cases(
    "ready step wished want",
    {
        "cleared": ("Unknown", "VolumesCleared", True, {"in_use": True, "is_evicted": True}),
        "ready: it says what it has": ("True", "VolumesCleared", True, {"is_evicted": True}),
        "it is evicted": ("Unknown", "Evicting", True, {"is_evicted": True}),
        "nobody says any more that it is down": ("Unknown", "Evicting", False, {}),
    },
)
def test_what_force_eviction_says_of_a_node(
    ready: str, step: str, wished: bool, want: dict[str, bool]
) -> None:
    taint = msgspec.to_builtins(force_eviction.REQUEST_TAINT)
    body = {
        "metadata": {"name": "n", "annotations": {force_eviction.PROGRESS: f'{{"step":"{step}"}}'}},
        "spec": {"taints": [taint] if wished else []},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }
    volume_node = VolumeNode.of(msgspec.convert(body, Node), NAME)
    assert volume_node == place(ready=ready == "True", reported=False, **want)


def test_what_a_node_says() -> None:
    body = {
        "metadata": {"name": "n"},
        "spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]},
        "status": {
            "conditions": [{"type": "Ready", "status": "False"}],
            "volumesInUse": [NAME],
            "volumesAttached": [{"name": NAME, "devicePath": ""}],
        },
    }
    want = VolumeNode(ready=False, in_use=True, reported=True, out_of_service=True)
    assert VolumeNode.of(msgspec.convert(body, Node), NAME) == want
