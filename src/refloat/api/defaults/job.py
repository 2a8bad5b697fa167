# SPDX-License-Identifier: Apache-2.0
"""The default values of a Job's fields, and the labels and selector of its pods."""

from refloat.api.defaults import pod
from refloat.api.meta import Object

# The older of each pair first; both are set, and new Jobs select by the newer.
NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")
UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")

BACKOFF_LIMIT = 6
# With a limit for each index there is no common limit.
UNLIMITED = 2**31 - 1


def apply(job: Object, *, replacement: bool = True) -> None:
    """Fill in the defaults; without its gate podReplacementPolicy has none."""
    spec = job.setdefault("spec", {})
    template = spec.setdefault("template", {})
    apply_labels(job)
    pod.apply_template(template)
    _counts(spec)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    if (policy := spec.get("podFailurePolicy")) is not None:
        for rule in policy.get("rules") or ():
            for pattern in rule.get("onPodConditions") or ():
                if not pattern.get("status"):
                    pattern["status"] = "True"
    if replacement:
        apply_replacement(spec)


def apply_replacement(spec: Object) -> None:
    waits = any(spec.get(name) is not None for name in ("podFailurePolicy", "backoffPolicy"))
    spec.setdefault("podReplacementPolicy", "Failed" if waits else "TerminatingOrFailed")


def apply_labels(job: Object) -> None:
    """A Job without labels shares those of its template, not a copy.

    Kubernetes does so at each decoding of a Job, also of a stored one: a Job that
    was created without any labels has the generated labels of the pods later.
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


def prepare_create(job: Object) -> None:
    """Drop the status, and label and select the pods by the Job's own identity."""
    job["status"] = {}
    job["metadata"]["generation"] = 1
    if not job["spec"].get("manualSelector"):
        metadata = job["metadata"]
        template = job["spec"]["template"].setdefault("metadata", {})
        labels = template.get("labels")
        name, uid = metadata.get("name", ""), metadata.get("uid", "")
        own = dict.fromkeys(NAME_LABELS, name) | dict.fromkeys(UID_LABELS, uid)
        template["labels"] = own | (labels or {})
        # A Job that shares the labels of the template gets these too.
        if labels and metadata.get("labels") is labels:
            metadata["labels"] = template["labels"]
        selector = job["spec"].get("selector") or {}
        match = {UID_LABELS[1]: uid} | (selector.get("matchLabels") or {})
        job["spec"]["selector"] = selector | {"matchLabels": match}
