# SPDX-License-Identifier: Apache-2.0
"""Where a volume is attached, and from where it is detached."""

from typing import Any

import msgspec
import pytest

from refloat.api.core import Node, PersistentVolume, Pod
from refloat.policy import attach_detach, force_eviction
from refloat.policy.attach_detach import (
    Attach,
    Attachment,
    Blocked,
    Confirm,
    Detach,
    Place,
    Report,
    Settings,
    Sight,
    Step,
    Wait,
)

ON_A = Attachment("a", "a", attached=True)
NAME = "kubernetes.io/csi/volumes.refloat.dev^data"


def place(**more: bool) -> Place:
    return Place(**{"ready": True, "in_use": False, "reported": True, **more})


def pod(name: str, *, namespace: str) -> Pod:
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace}}, Pod)


def unwanted(seconds: float) -> Attachment:
    return Attachment("a", "a", attached=True, unwanted_seconds=seconds)


def seen(*wanted: str, held: tuple[Attachment, ...] = (), **more: Any) -> Sight:
    places = more.pop("places", {})
    known = {"a": place(), "b": place(reported=False), **places}
    exclusive = more.pop("exclusive", True)
    there = {name: each for name, each in known.items() if each is not None}
    return Sight(exclusive, wanted, held, there)


@pytest.mark.parametrize(
    ("sight", "want"),
    [
        pytest.param(seen(), [], id="nobody needs it"),
        pytest.param(seen("a"), [Attach("a")], id="a pod needs it"),
        pytest.param(seen("a", "a"), [Attach("a")], id="two pods of a node need it once"),
        pytest.param(
            seen("a", "b"), [Attach("a"), Blocked("b", ("a",))], id="the first come has it"
        ),
        pytest.param(
            seen("a", "b", exclusive=False), [Attach("a"), Attach("b")], id="many may have it"
        ),
        pytest.param(seen("a", held=(ON_A,)), [], id="all is done"),
        pytest.param(
            seen("a", held=(Attachment("a", "a", attached=False),)),
            [Confirm(Attachment("a", "a", attached=False))],
            id="begun, and not said",
        ),
        pytest.param(
            seen("a", held=(ON_A,), places={"a": place(reported=False)}),
            [Report(ON_A)],
            id="not said on the node",
        ),
        pytest.param(
            seen("a", held=(ON_A,), places={"a": place(reported=False, is_evicted=True)}),
            [],
            id="a node that is force evicted is told nothing",
        ),
        pytest.param(
            seen("a", places={"a": place(is_evicted=True)}), [], id="and gets nothing attached"
        ),
        pytest.param(seen("c"), [], id="a node that is not there gets nothing"),
        pytest.param(
            seen("b", held=(ON_A,)), [Detach(ON_A), Blocked("b", ("a",))], id="it is freed first"
        ),
        pytest.param(
            seen("b", held=(ON_A,), places={"a": place(in_use=True)}),
            [Blocked("b", ("a",))],
            id="a ready node says itself when it has unmounted it",
        ),
        pytest.param(
            seen("b", held=(unwanted(10),), places={"a": place(in_use=True, ready=False)}),
            [Wait(350), Blocked("b", ("a",))],
            id="one that is not ready gets six minutes",
        ),
        pytest.param(
            seen("b", held=(unwanted(360),), places={"a": place(in_use=True, ready=False)}),
            [Detach(unwanted(360), by_force=True), Blocked("b", ("a",))],
            id="and then it is taken",
        ),
        pytest.param(
            seen(
                "b",
                held=(ON_A,),
                places={"a": place(in_use=True, ready=False, out_of_service=True)},
            ),
            [Detach(ON_A, by_force=True), Blocked("b", ("a",))],
            id="out of service: at once",
        ),
        pytest.param(
            seen("b", held=(ON_A,), places={"a": None}),
            [Detach(ON_A), Blocked("b", ("a",))],
            id="its node is gone",
        ),
    ],
)
def test_what_becomes_of_a_volume(sight: Sight, want: list[Step]) -> None:
    assert attach_detach.decide(sight, Settings()) == want


HERE = pod("p", namespace="x")
NEAR = [pod("q", namespace="x"), pod("r", namespace="x")]
FAR = [pod("s", namespace="y"), pod("t", namespace="z")]


@pytest.mark.parametrize(
    ("users", "want"),
    [
        pytest.param(NEAR[:1], "used by pod(s) q", id="one"),
        pytest.param(NEAR, "used by pod(s) q, r", id="two"),
        pytest.param(
            NEAR + FAR[:1],
            "used by pod(s) q, r and 1 pod(s) in different namespaces",
            id="one of another namespace too",
        ),
        pytest.param(FAR, "used by 2 pod(s) in different namespaces", id="only such"),
        pytest.param(
            [],
            "exclusively attached to one node and can't be attached to another",
            id="no pod needs it any more",
        ),
    ],
)
def test_who_waits_for_a_volume_is_told_for_whom(users: list[Pod], want: str) -> None:
    said = attach_detach.multi_attach_error("data", HERE, users)
    assert said == f'Multi-Attach error for volume "data" Volume is already {want}'


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


@pytest.mark.parametrize(
    ("ready", "step", "wished", "want"),
    [
        pytest.param(
            "Unknown", "VolumesCleared", True, {"in_use": True, "is_evicted": True}, id="cleared"
        ),
        pytest.param(
            "True", "VolumesCleared", True, {"is_evicted": True}, id="ready: it says what it has"
        ),
        pytest.param("Unknown", "Evicting", True, {"is_evicted": True}, id="it is evicted"),
        pytest.param("Unknown", "Evicting", False, {}, id="nobody says any more that it is down"),
    ],
)
def test_what_force_eviction_says_of_a_node(
    ready: str, step: str, wished: bool, want: dict[str, bool]
) -> None:
    taint = msgspec.to_builtins(force_eviction.WISH)
    body = {
        "metadata": {"name": "n", "annotations": {force_eviction.PROGRESS: f'{{"step":"{step}"}}'}},
        "spec": {"taints": [taint] if wished else []},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }
    found = Place.of(msgspec.convert(body, Node), NAME)
    assert found == place(ready=ready == "True", reported=False, **want)


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
    want = Place(ready=False, in_use=True, reported=True, out_of_service=True)
    assert Place.of(msgspec.convert(body, Node), NAME) == want
