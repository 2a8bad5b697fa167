# SPDX-License-Identifier: Apache-2.0
"""The table of types agrees with Kubernetes' own types."""

import pytest

from refloat.api import kinds, schema
from tests.cases import cases


@pytest.mark.parametrize("resource", kinds.RESOURCES, ids=lambda of: f"{of.kind}.{of.group}")
def test_every_kind_and_its_list_is_in_the_table(resource: kinds.Resource) -> None:
    kind = schema.struct(resource.api_version, resource.kind)
    list_struct = schema.struct(resource.api_version, f"{resource.kind}List")

    items = list_struct.fields["items"].type
    assert isinstance(items, schema.ListOf)
    assert items.element is kind
    assert list(kind.fields)[:3] == ["kind", "apiVersion", "metadata"]


@pytest.mark.parametrize(
    "kind",
    [
        ("v1", "Binding"),
        ("policy/v1", "Eviction"),
        ("v1", "DeleteOptions"),
        ("batch/v1", "DeleteOptions"),
        ("v1", "Status"),
        ("authentication.k8s.io/v1", "SelfSubjectReview"),
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview"),
        ("authorization.k8s.io/v1", "SelfSubjectRulesReview"),
    ],
    ids=" ".join,
)
def test_bodies_that_are_not_stored_are_in_the_table(kind: tuple[str, str]) -> None:
    assert schema.struct(*kind).fields["apiVersion"].omit


def test_an_unknown_kind_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        schema.struct("apps/v1", "Deployment")


def field(struct: str, name: str) -> schema.Field:
    return schema.named(struct).fields[name]


def test_fields_of_inlined_structs_stand_in_place() -> None:
    assert list(schema.named("core.v1.Volume").fields)[:2] == ["name", "hostPath"]


@cases(
    "struct name want_pointer want_omit",
    {
        "omitempty does not omit a struct": ("core.v1.Pod", "status", False, False),
        "omitzero does": ("meta.v1.ObjectMeta", "creationTimestamp", False, True),
        "a list without omitempty": ("core.v1.PodSpec", "containers", False, False),
        "a list with omitempty": ("core.v1.PodSpec", "volumes", False, True),
        "a pointer": ("batch.v1.JobSpec", "parallelism", True, True),
        "a quantity": ("core.v1.ResourceFieldSelector", "divisor", False, False),
    },
)
def test_what_is_left_out_when_empty_follows_go(
    struct: str, name: str, want_pointer: bool, want_omit: bool
) -> None:
    row = field(struct, name)
    assert (row.pointer, row.omit) == (want_pointer, want_omit)


def test_go_names_are_those_of_error_messages() -> None:
    containers = field("core.v1.PodSpec", "containers").type
    limits = field("core.v1.ResourceRequirements", "limits").type
    assert isinstance(containers, schema.ListOf)
    assert isinstance(limits, schema.MapOf)
    assert (containers.go, limits.go) == ("[]v1.Container", "v1.ResourceList")


def test_strategic_merge_facts_are_known() -> None:
    volumes = field("core.v1.PodSpec", "volumes")
    assert volumes.patch_strategies == ("merge", "retainKeys")
    assert volumes.patch_merge_key == "name"


def test_server_side_apply_facts_are_known() -> None:
    ports = field("core.v1.Container", "ports")
    assert (ports.list_type, ports.list_map_keys) == ("map", ("containerPort", "protocol"))
    assert field("core.v1.ContainerPort", "protocol").default == "TCP"
    assert field("core.v1.Container", "command").list_type == "atomic"
    assert field("core.v1.PodSpec", "nodeSelector").map_type == "atomic"
    assert schema.named("core.v1.SecretKeySelector").atomic
    assert not schema.named("core.v1.Container").atomic


def test_delete_options_have_refloats_reason() -> None:
    assert "reason" in schema.struct("v1", "DeleteOptions").fields


def test_the_table_names_its_kubernetes() -> None:
    assert schema.kubernetes_version().startswith("v1.")
    assert "batch/v1 Job" in schema.kinds()
