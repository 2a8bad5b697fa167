# SPDX-License-Identifier: Apache-2.0
"""What a Job's fields are when nobody says, and how its pods are told apart."""

from refloat.api.defaults import pod
from refloat.api.meta import Object

# The older of each pair first; both are set, and new Jobs select by the newer.
NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")
UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")

BACKOFF_LIMIT = 6
# With a limit for each index, the one for all of them should not get in the way.
UNLIMITED = 2**31 - 1


def apply(job: Object, *, replacement: bool = True) -> None:
    """Fill in; podReplacementPolicy has a gate of its own, and is left alone without it."""
    spec = job.setdefault("spec", {})
    template = spec.setdefault("template", {})
    apply_labels(job)
    pod.apply_template(template)
    _counts(spec)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    if (policy := spec.get("podFailurePolicy")) is not None:
        _condition_statuses(policy)
    if replacement:
        apply_replacement(spec)


def apply_replacement(spec: Object) -> None:
    waits = any(spec.get(name) is not None for name in ("podFailurePolicy", "backoffPolicy"))
    spec.setdefault("podReplacementPolicy", "Failed" if waits else "TerminatingOrFailed")


def apply_labels(job: Object) -> None:
    """A Job without labels has those of its template, and not a copy of them.

    Kubernetes does so whenever it decodes a Job, also a stored one: a Job that
    was created without any labels reads back with those generated for its pods.
    """
    labels = (job["spec"]["template"].get("metadata") or {}).get("labels")
    if labels and not job["metadata"].get("labels"):
        job["metadata"]["labels"] = labels


def _counts(spec: Object) -> None:
    if spec.get("parallelism") is None:
        # Only when neither is given does the Job have one pod to complete.
        spec.setdefault("completions", 1)
        spec["parallelism"] = 1
    if spec.get("backoffLimit") is None:
        per_index = spec.get("backoffLimitPerIndex")
        spec["backoffLimit"] = BACKOFF_LIMIT if per_index is None else UNLIMITED


def _condition_statuses(policy: Object) -> None:
    for rule in policy.get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            if not pattern.get("status"):
                pattern["status"] = "True"


def prepare_create(job: Object) -> None:
    """Drop the status, and label and select the pods by the Job's own identity."""
    job["status"] = {}
    job["metadata"]["generation"] = 1
    if not job["spec"].get("manualSelector"):
        _label_pods(job)
        _select_pods(job)


def _label_pods(job: Object) -> None:
    metadata = job["metadata"]
    template = job["spec"]["template"].setdefault("metadata", {})
    given = template.get("labels")
    name, uid = metadata.get("name", ""), metadata.get("uid", "")
    own = dict.fromkeys(NAME_LABELS, name) | dict.fromkeys(UID_LABELS, uid)
    template["labels"] = own | (given or {})
    # Labels that the Job has from its template only: it gets these as well.
    if given and metadata.get("labels") is given:
        metadata["labels"] = template["labels"]


def _select_pods(job: Object) -> None:
    selector = job["spec"].get("selector") or {}
    own = {UID_LABELS[1]: job["metadata"].get("uid", "")}
    job["spec"]["selector"] = selector | {"matchLabels": own | (selector.get("matchLabels") or {})}
