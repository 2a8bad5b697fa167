# SPDX-License-Identifier: Apache-2.0
"""Jobs, pods and nodes for tests of policies, as small as they can be.

`tests.builders` builds them and they are decoded, so that what policies read is what
they would read of a server. Times are seconds after `START`.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import yaml

from refloat.api import times
from refloat.api.batch import Job
from refloat.api.core import Node, Pod
from refloat.api.defaults import job as job_defaults
from refloat.api.meta import Object
from refloat.api.validation import job as job_validation
from refloat.policy.job import pod_state
from tests import builders

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def text(seconds: float) -> str:
    return times.format_time(at(seconds))


def container(
    name: str, exit_code: int | None = None, *, ended: float | None = None, restarts: int = 0
) -> Object:
    """The status of a container: running, unless it has an exit code."""
    state: Object = {"running": {"startedAt": text(0)}}
    if exit_code is not None:
        state = {"terminated": {"exitCode": exit_code}}
        if ended is not None:
            state["terminated"]["finishedAt"] = text(ended)
    return {"name": name, "state": state, "restartCount": restarts}


def condition(
    kind: str, status: str = "True", *, since: float | None = None, **more: Any
) -> Object:
    condition: Object = {"type": kind, "status": status, **more}
    if since is not None:
        condition["lastTransitionTime"] = text(since)
    return condition


def pod(
    uid: str = "u",
    phase: str = "Running",
    *,
    name: str = "",
    namespace: str = "ns",
    version: str = "",
    index: int | str | None = None,
    tracked: bool = True,
    deleted: float | None = None,
    grace: int | None = None,
    created: float | None = 0,
    started: float | None = None,
    failures: int | str | None = None,
    ignored: int | str | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    owner: str | Object = "",
    node: str = "n",
    reason: str = "",
    containers: Sequence[Object] = (),
    init: Sequence[Object] = (),
    sidecars: Sequence[str] = (),
    conditions: Sequence[Object] = (),
    **spec: Any,
) -> Pod:
    """`owner` is the kind of its controller, or the whole reference; the rest is its spec."""
    indexes = {
        pod_state.COMPLETION_INDEX: index,
        pod_state.INDEX_FAILURES: failures,
        pod_state.INDEX_IGNORED_FAILURES: ignored,
    }
    numbers = {key: str(value) for key, value in indexes.items() if value is not None}
    metadata: Object = {
        "namespace": namespace,
        "uid": uid,
        "resourceVersion": version,
        "labels": labels or {},
        "annotations": {**numbers, **(annotations or {})},
        "finalizers": [pod_state.TRACKING_FINALIZER] if tracked else None,
        "creationTimestamp": None if created is None else text(created),
    }
    if deleted is not None:
        metadata["deletionTimestamp"] = text(deleted)
        metadata["deletionGracePeriodSeconds"] = grace
    if owner:
        kind = {"kind": owner, "name": "n", "uid": "u", "controller": True}
        metadata["ownerReferences"] = [kind if isinstance(owner, str) else owner]
    beside = [{"name": name, "restartPolicy": "Always"} for name in sidecars]
    status: Object = {
        "phase": phase,
        "reason": reason,
        "startTime": None if started is None else text(started),
        "containerStatuses": list(containers),
        "initContainerStatuses": list(init),
        "conditions": list(conditions),
    }
    spec = {"initContainers": beside, **spec}
    body = builders.pod(name or f"pod-{uid}", node=node, spec=spec, status=status, **metadata)
    return msgspec.convert(body, Pod)


def node(
    *taints: Object,
    ready: str = "Unknown",
    since: float | None = None,
    name: str = "n",
    status: Object | None = None,
    **metadata: Any,
) -> Node:
    """`ready` is the status of its Ready condition; it has none if that is empty."""
    conditions = [condition("Ready", ready, since=since)] if ready else []
    whole = {"conditions": conditions, **(status or {})}
    return msgspec.convert(builders.node(name, taints=list(taints), status=whole, **metadata), Node)


def failed(uid: str = "u", exit_code: int = 1, *, ended: float = 0, **more: Any) -> Pod:
    """A pod that failed with this exit code."""
    return pod(uid, "Failed", containers=[container("main", exit_code, ended=ended)], **more)


def succeeded(uid: str = "u", *, ended: float = 0, **more: Any) -> Pod:
    return pod(uid, "Succeeded", containers=[container("main", 0, ended=ended)], **more)


def job(
    *,
    status: Object | None = None,
    restart_policy: str = "Never",
    deleted: bool = False,
    annotations: Mapping[str, str] | None = None,
    version: str = "",
    **spec: Any,
) -> Job:
    """A Job as a server stores it: keyword arguments are fields of its spec."""
    pod_spec = {"restartPolicy": restart_policy}
    metadata: Object = {"namespace": "ns", "uid": "job", "resourceVersion": version}
    body = builders.job(spec=spec, pod_spec=pod_spec, annotations=annotations or {}, **metadata)
    return stored(body, status, deleted=deleted)


def indexed(completions: int, *, parallelism: int | None = None, **more: Any) -> Job:
    """An Indexed Job, in which all indexes run at once by default."""
    return job(
        completionMode="Indexed",
        completions=completions,
        parallelism=completions if parallelism is None else parallelism,
        **more,
    )


def stored(made: Object, status: Object | None = None, *, deleted: bool = False) -> Job:
    """What becomes of a Job that is created: defaults are set."""
    job_defaults.apply(made)
    if deleted:
        made["metadata"]["deletionTimestamp"] = text(0)
    return decoded(made, status)


def decoded(made: Object, status: Object | None = None) -> Job:
    encoded = msgspec.json.encode({**made, "status": status or {}})
    return msgspec.json.decode(encoded, type=Job)


def story(written: str) -> Job:
    """A KEP's example, made complete and validated."""
    body = yaml.safe_load(written)
    body["apiVersion"] = "batch/v1"
    body["metadata"] = {"name": "story", "namespace": "ns", "uid": "job"}
    body["spec"]["template"]["spec"].setdefault("restartPolicy", "Never")
    job_defaults.apply(body)
    job_defaults.prepare_create(body)
    assert job_validation.validate_create(body) == []
    return decoded(body)


def rule(action: str, **requirement: Any) -> Object:
    return {"action": action, **requirement}


def on_codes(action: str, operator: str, *values: int, name: str | None = None) -> Object:
    """A rule on exit codes."""
    codes: Object = {"operator": operator, "values": list(values)}
    if name is not None:
        codes["containerName"] = name
    return rule(action, onExitCodes=codes)


def on_condition(action: str, kind: str = "DisruptionTarget", status: str = "True") -> Object:
    return rule(action, onPodConditions=[{"type": kind, "status": status}])


def policy(*rules: Mapping[str, Any]) -> Object:
    return {"rules": list(rules)}
