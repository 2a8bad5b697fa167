# SPDX-License-Identifier: Apache-2.0
"""kubectl changes what is there: apply, patch, label, annotate, replace, diff."""

import json

import pytest

from tests import builders
from tests.cases import cases
from tests.e2e.cluster import Kubectl

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def test_apply_creates_then_leaves_alone_then_configures(kubectl: Kubectl) -> None:
    body = builders.job("a", spec={"parallelism": 1})
    assert kubectl("apply", "-f", "-", stdin=body) == "job.batch/a created\n"
    before = kubectl.object("get", "job", "a")["metadata"]["resourceVersion"]
    assert kubectl("apply", "-f", "-", stdin=body) == "job.batch/a unchanged\n"
    assert kubectl.object("get", "job", "a")["metadata"]["resourceVersion"] == before
    body["spec"]["parallelism"] = 5
    assert kubectl("apply", "-f", "-", stdin=body) == "job.batch/a configured\n"
    after = kubectl.object("get", "job", "a")
    assert (after["spec"]["parallelism"], after["metadata"]["generation"]) == (5, 2)


def test_apply_takes_away_what_is_no_longer_said(kubectl: Kubectl) -> None:
    body = builders.config_map("a", labels={"x": "1"}, data={"kept": "1", "dropped": "2"})
    kubectl("apply", "-f", "-", stdin=body)
    kubectl("label", "cm", "a", "y=2")
    kubectl(
        "apply", "-f", "-", stdin=builders.config_map("a", labels={"x": "1"}, data={"kept": "1"})
    )
    after = kubectl.object("get", "cm", "a")
    assert after["data"] == {"kept": "1"}
    assert after["metadata"]["labels"] == {"x": "1", "y": "2"}
    last_applied = json.loads(after["metadata"]["annotations"][LAST_APPLIED])
    assert last_applied["data"] == {"kept": "1"}


def test_apply_of_a_pod_twice_changes_nothing(kubectl: Kubectl) -> None:
    body = builders.pod("a")
    assert kubectl("apply", "-f", "-", stdin=body) == "pod/a created\n"
    assert kubectl("apply", "-f", "-", stdin=body) == "pod/a unchanged\n"


def test_apply_of_another_template_is_refused(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=builders.job("a"))
    body = builders.job("a")
    body["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    error = kubectl.refused("apply", "-f", "-", stdin=body)
    assert error.startswith('The Job "a" is invalid: spec.template: Invalid value: ')
    assert error.endswith(": field is immutable\n")


def test_apply_with_prune_deletes_what_is_no_longer_said(kubectl: Kubectl) -> None:
    def apply(*names: str) -> str:
        items = [builders.config_map(name, labels={"app": "x"}) for name in names]
        body = {"apiVersion": "v1", "kind": "List", "items": items}
        allowed = "--prune-allowlist=core/v1/ConfigMap"
        return kubectl("apply", "-f", "-", "--prune", "-l", "app=x", allowed, stdin=body)

    apply("a", "b")
    assert apply("a") == "configmap/a unchanged\nconfigmap/b pruned\n"
    assert kubectl("get", "cm", "-l", "app=x", "-o", "name") == "configmap/a\n"


def test_apply_on_the_server_owns_its_fields(kubectl: Kubectl) -> None:
    body = builders.config_map("a", data={"a": "1"})
    on_server = ("apply", "--server-side", "-f", "-")
    assert kubectl(*on_server, stdin=body) == "configmap/a serverside-applied\n"
    body["data"] = {"a": "2"}
    error = kubectl.refused(*on_server, "--field-manager", "other", stdin=body)
    assert 'conflict with "kubectl": .data.a' in error
    forced = (*on_server, "--field-manager", "other", "--force-conflicts")
    assert kubectl(*forced, stdin=body) == "configmap/a serverside-applied\n"
    assert kubectl.object("get", "cm", "a")["data"] == {"a": "2"}
    managers = kubectl.object("get", "cm", "a", "--show-managed-fields")["metadata"]
    assert [each["manager"] for each in managers["managedFields"]] == ["other"]


def test_diff_shows_what_apply_would_change(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=builders.job("a", spec={"parallelism": 1}))
    assert kubectl("diff", "-f", "-", stdin=builders.job("a", spec={"parallelism": 1})) == ""
    done = kubectl.run("diff", "-f", "-", stdin=builders.job("a", spec={"parallelism": 3}))
    assert done.returncode == 1, done.stderr
    changed = [line for line in done.stdout.splitlines() if line[:2] in ("- ", "+ ")]
    assert changed == [
        *("-  generation: 1", "+  generation: 2"),
        *("-  parallelism: 1", "+  parallelism: 3"),
    ]
    assert kubectl.object("get", "job", "a")["spec"]["parallelism"] == 1


PATCHES = [
    pytest.param(
        "strategic",
        {"spec": {"template": {"metadata": {"labels": {"x": "1"}}}, "parallelism": 2}},
        id="strategic",
    ),
    pytest.param("merge", {"spec": {"parallelism": 2}}, id="merge"),
    pytest.param("json", [{"op": "replace", "path": "/spec/parallelism", "value": 2}], id="json"),
]


@pytest.mark.parametrize(("kind", "patch"), PATCHES)
def test_patch_changes_a_job(kubectl: Kubectl, kind: str, patch: object) -> None:
    kubectl("apply", "-f", "-", stdin=builders.job("a", spec={"suspend": True}))
    output = kubectl("patch", "job", "a", "--type", kind, "-p", json.dumps(patch))
    assert output == "job.batch/a patched\n"
    after = kubectl.object("get", "job", "a")
    assert (after["spec"]["parallelism"], after["metadata"]["generation"]) == (2, 2)
    output = kubectl("patch", "job", "a", "--type", kind, "-p", json.dumps(patch))
    assert output == "job.batch/a patched (no change)\n"


def test_a_strategic_patch_merges_lists_by_their_keys(kubectl: Kubectl) -> None:
    kubectl(
        "apply",
        "-f",
        "-",
        stdin=builders.pod("a", spec={"containers": [{**builders.CONTAINER, "command": ["true"]}]}),
    )
    container = {"name": "main", "image": "registry.example/other"}
    kubectl("patch", "pod", "a", "-p", json.dumps({"spec": {"containers": [container]}}))
    after = kubectl.object("get", "pod", "a")["spec"]["containers"]
    assert [(each["image"], each["command"]) for each in after] == [
        ("registry.example/other", ["true"])
    ]


@cases(
    "kind patch",
    {
        "strategic": ("strategic", {"status": {"phase": "Running"}}),
        "merge": ("merge", {"status": {"phase": "Running"}}),
        "json": ("json", [{"op": "replace", "path": "/status/phase", "value": "Running"}]),
    },
)
def test_patch_of_the_status_changes_nothing_else(
    kubectl: Kubectl, kind: str, patch: object
) -> None:
    kubectl("apply", "-f", "-", stdin=builders.pod("a"))
    before = kubectl.object("get", "pod", "a")
    args = ("patch", "pod", "a", "--type", kind, "-p", json.dumps(patch))
    assert kubectl(*args) == "pod/a patched (no change)\n"
    assert kubectl(*args, "--subresource", "status") == "pod/a patched\n"
    after = kubectl.object("get", "pod", "a")
    assert after["status"]["phase"] == "Running"
    assert after["spec"] == before["spec"]
    assert kubectl.object("get", "pod", "a", "--subresource", "status") == after


def test_patch_of_the_wrong_type_is_refused(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=builders.job("a"))
    patch = '{"spec":{"parallelism":"many"}}'
    error = kubectl.refused("patch", "job", "a", "--type", "merge", "-p", patch)
    assert "cannot unmarshal string into Go struct field JobSpec.spec.parallelism of type" in error


def test_label_adds_keeps_overwrites_and_removes(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=builders.config_map("a"))
    assert kubectl("label", "cm", "a", "x=1") == "configmap/a labeled\n"
    assert kubectl("label", "cm", "a", "x=1") == "configmap/a not labeled\n"
    assert "already has a value (1)" in kubectl.refused("label", "cm", "a", "x=2")
    assert kubectl("label", "cm", "a", "x=2", "--overwrite") == "configmap/a labeled\n"
    assert kubectl.object("get", "cm", "a")["metadata"]["labels"] == {"x": "2"}
    assert kubectl("label", "cm", "a", "x-") == "configmap/a unlabeled\n"
    assert "labels" not in kubectl.object("get", "cm", "a")["metadata"]


def test_label_that_is_no_label_is_refused(kubectl: Kubectl) -> None:
    body = builders.config_map("a", labels={"x": "not ok"})
    error = kubectl.refused("create", "-f", "-", stdin=body)
    assert error.startswith(
        'The ConfigMap "a" is invalid: metadata.labels: Invalid value: "not ok": '
        "a valid label must be an empty string or consist of"
    )


def test_annotate_adds_and_removes(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "a")
    assert kubectl("annotate", "cm", "a", "note=some text") == "configmap/a annotated\n"
    assert kubectl.object("get", "cm", "a")["metadata"]["annotations"] == {"note": "some text"}
    assert kubectl("annotate", "cm", "a", "note-") == "configmap/a annotated\n"
    assert "annotations" not in kubectl.object("get", "cm", "a")["metadata"]


def test_replace_puts_a_whole_object(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=builders.config_map("a", labels={"x": "1"}, data={"a": "1"}))
    output = kubectl("replace", "-f", "-", stdin=builders.config_map("a", data={"b": "2"}))
    assert output == "configmap/a replaced\n"
    after = kubectl.object("get", "cm", "a")
    assert after["data"] == {"b": "2"}
    assert "labels" not in after["metadata"]


def test_replace_of_an_older_version_is_refused(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=builders.config_map("a"))
    old = kubectl.object("get", "cm", "a")
    kubectl("label", "cm", "a", "x=1")
    error = kubectl.refused("replace", "-f", "-", stdin=old)
    assert error.startswith("Error from server (Conflict): error when replacing")
    assert (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again\n"
    ) in error


def test_replace_of_the_status(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=builders.pod("a"))
    body = kubectl.object("get", "pod", "a")
    body["status"]["phase"] = "Running"
    body["metadata"]["labels"] = {"x": "1"}
    assert kubectl("replace", "--subresource", "status", "-f", "-", stdin=body) == (
        "pod/a replaced\n"
    )
    after = kubectl.object("get", "pod", "a")
    assert after["status"]["phase"] == "Running"


def test_replace_by_force_makes_it_anew(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=builders.job("a"))
    before = kubectl.object("get", "job", "a")["metadata"]["uid"]
    output = kubectl(
        "replace", "--force", "-f", "-", stdin=builders.job("a", spec={"parallelism": 4})
    )
    assert output.startswith('job.batch "a" deleted')
    assert output.endswith("\njob.batch/a replaced\n")
    after = kubectl.object("get", "job", "a")
    assert after["metadata"]["uid"] != before
    assert after["spec"]["parallelism"] == 4


def test_set_image_changes_a_pod(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=builders.pod("a"))
    assert kubectl("set", "image", "pod/a", "main=registry.example/b") == ("pod/a image updated\n")
    after = kubectl.object("get", "pod", "a")["spec"]["containers"]
    assert after[0]["image"] == "registry.example/b"


def test_edit_sends_what_the_editor_wrote(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=builders.config_map("a", data={"a": "before"}))
    done = kubectl.run("edit", "cm", "a", EDITOR="sed -i s/before/after/")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "configmap/a edited\n"
    assert kubectl.object("get", "cm", "a")["data"] == {"a": "after"}
