# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes version to build, and the Go module."""

import pytest

from refloat.api import schema
from refloat.base.errors import UsageError
from tests.kubernetes import module

UPSTREAM = """module k8s.io/kubernetes

go 1.24.0

require (
\tgithub.com/spf13/pflag v1.0.5
\tgo.etcd.io/etcd/client/pkg/v3 v3.5.20
\tgo.etcd.io/etcd/client/v3 v3.5.21
\tk8s.io/api v0.0.0
\tk8s.io/klog/v2 v2.130.1
\tk8s.io/kube-openapi v0.0.0-20250318190949-c8a335a9a2ff
)

require (
\tk8s.io/kms v0.0.0 // indirect
)
"""


def test_the_pinned_version_is_the_one_that_the_api_follows() -> None:
    assert module.pinned() == schema.kubernetes_version()


def test_the_parts_of_kubernetes_and_its_etcd_are_pinned_to_match() -> None:
    lines = module.render("v1.33.13", UPSTREAM).splitlines()
    assert "go 1.24.0" in lines
    assert [line.strip() for line in lines if line.startswith("\t")] == [
        "go.etcd.io/etcd/server/v3 v3.5.21",
        "k8s.io/kubernetes v1.33.13",
        "k8s.io/api => k8s.io/api v0.33.13",
        "k8s.io/kms => k8s.io/kms v0.33.13",
    ]


@pytest.mark.parametrize("version", ["1.32.0", "v1.32.0"])
def test_another_version_can_be_named(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv(module.NAMED, version)
    assert module.wanted(default="v1.35.1") == "v1.32.0"


def test_without_a_name_the_default_comes_before_the_pinned_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(module.NAMED, raising=False)
    assert module.wanted(default="v1.35.1") == "v1.35.1"
    assert module.wanted() == module.pinned()


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("latest", "REFLOAT_KUBERNETES: 'latest' is not a version; want one like 1."),
        ("1.33", "REFLOAT_KUBERNETES: '1.33' is not a version"),
        ("../../etc", "is not a version"),
        ("1.31.14", "REFLOAT_KUBERNETES: '1.31.14' is too old; the oldest is 1.32"),
    ],
)
def test_what_is_no_version_or_too_old_is_refused(
    monkeypatch: pytest.MonkeyPatch, version: str, message: str
) -> None:
    monkeypatch.setenv(module.NAMED, version)
    with pytest.raises(UsageError) as raised:
        module.wanted()
    assert message in str(raised.value)
