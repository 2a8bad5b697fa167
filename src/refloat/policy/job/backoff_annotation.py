# SPDX-License-Identifier: Apache-2.0
"""The backoffPolicy of a Job: in its spec, or in an annotation.

Kubernetes has no such field, so on Kubernetes the policy is in an annotation as YAML or JSON.
The API server does not validate annotations, so this module validates them by the same rules
at each sync. The controller starts no pods for a Job with an invalid annotation: without a
policy, failures would be counted against the user's intention.
"""

from functools import lru_cache

import msgspec

from refloat.api import codec, fields, gated_fields, gojson, goyaml, unmarshal
from refloat.api.batch import BackoffPolicy, Job
from refloat.api.meta import Object
from refloat.api.validation import backoff_policy as validation
from refloat.policy.job.job_gates import JobGates

ANNOTATION = "refloat.dev/backoff-policy"

PATH = f"metadata.annotations[{ANNOTATION}]"

# Jobs of one kind share a text. An annotation has at most 256 KB.
_MAX_KNOWN = 256


def effective(job: Job, job_gates: JobGates) -> BackoffPolicy | None:
    """The policy of a Job without mistakes; None with the gate off."""
    if not job_gates.retriable_and_non_retriable_failures:
        return None
    if job.spec.backoff_policy is not None:
        return job.spec.backoff_policy
    text = _text(job)
    return None if text is None else _parse(text).policy


def mistakes(job: Job, job_gates: JobGates) -> list[str]:
    """The mistakes in the annotation, with paths."""
    text = _text(job)
    if text is None or not job_gates.retriable_and_non_retriable_failures:
        return []
    if job.spec.backoff_policy is not None:
        return [str(fields.forbidden(PATH, "may not be specified with spec.backoffPolicy"))]
    annotation = _parse(text)
    # What a Job with a policy may not have, as the API refuses it where the field exists.
    errors = []
    if job.spec.pod_failure_policy is not None:
        errors.append(fields.forbidden(PATH, "may not be specified with podFailurePolicy"))
    encoded = bytes(job.spec.template)
    template: Object = msgspec.json.decode(encoded) if encoded else {}
    restarts = (template.get("spec") or {}).get("restartPolicy", "")
    if restarts != "Never":
        detail = f'only "Never" is supported with {ANNOTATION}'
        errors.append(fields.invalid("spec.template.spec.restartPolicy", restarts, detail))
    containers = validation.container_names(template)
    errors += validation.validate(annotation.obj, PATH, containers)
    return [*annotation.mistakes, *map(str, errors)]


def _text(job: Job) -> str | None:
    return (job.metadata.annotations or {}).get(ANNOTATION)


class _ParsedAnnotation(msgspec.Struct, frozen=True):
    """A parsed annotation."""

    obj: Object
    policy: BackoffPolicy | None = None
    mistakes: tuple[str, ...] = ()


@lru_cache(maxsize=_MAX_KNOWN)
def _parse(text: str) -> _ParsedAnnotation:
    try:
        value, repeated = goyaml.parse(text.encode())
        if gojson.members(value) is None:
            kind = "nothing" if value is None else gojson.kind(value)
            return _unreadable(f"expected an object with rules, found {kind}")
        decoded = codec.convert(gojson.plain(value), gated_fields.backoff_policy())
    except (goyaml.YamlProblem, unmarshal.Mismatch, RecursionError, UnicodeError) as error:
        return _unreadable(str(error))
    if wrong := [*repeated, *decoded.problems]:
        return _unreadable("; ".join(wrong))
    return _ParsedAnnotation(decoded.obj, msgspec.convert(decoded.obj, BackoffPolicy))


def _unreadable(why: str) -> _ParsedAnnotation:
    return _ParsedAnnotation({}, mistakes=(f"{PATH}: {why}",))
