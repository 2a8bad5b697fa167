# SPDX-License-Identifier: Apache-2.0
"""Which backoffPolicy holds for a Job: that of its spec, or that of an annotation.

Kubernetes has no such field, so on Kubernetes the policy stands in an annotation
as YAML or JSON. Nobody checks an annotation when it is written; it is checked
here, by the same rules, whenever the Job is looked at. Whoever asks starts
nothing for a Job whose annotation is wrong: under no policy at all its failures
would be counted as nobody wanted.
"""

from functools import lru_cache

import msgspec

from refloat.api import additions, codec, fields, gojson, goyaml, unmarshal
from refloat.api.batch import BackoffPolicy, Job
from refloat.api.meta import Object
from refloat.api.validation import backoff_policy as validation
from refloat.policy.switches import Switches

ANNOTATION = "refloat.dev/backoff-policy"

PATH = f"metadata.annotations[{ANNOTATION}]"

# Jobs of one kind share a text. An annotation has at most 256 KB.
_MAX_KNOWN = 256


def effective(job: Job, switches: Switches) -> BackoffPolicy | None:
    """The policy that holds; with the gate off, none does. Nothing may be wrong with it."""
    if not switches.retriable_and_non_retriable_failures:
        return None
    if job.spec.backoff_policy is not None:
        return job.spec.backoff_policy
    text = _text(job)
    return None if text is None else _known(text).policy


def mistakes(job: Job, switches: Switches) -> list[str]:
    """What is wrong with the annotation, with paths; nothing if there is none."""
    text = _text(job)
    if text is None or not switches.retriable_and_non_retriable_failures:
        return []
    if job.spec.backoff_policy is not None:
        return [str(fields.forbidden(PATH, "may not be specified with spec.backoffPolicy"))]
    known = _known(text)
    return [*known.mistakes, *_beside(job), *_within(job, known.obj)]


def _text(job: Job) -> str | None:
    return (job.metadata.annotations or {}).get(ANNOTATION)


class _Known(msgspec.Struct, frozen=True):
    """What an annotation says."""

    obj: Object
    policy: BackoffPolicy | None = None
    mistakes: tuple[str, ...] = ()


@lru_cache(maxsize=_MAX_KNOWN)
def _known(text: str) -> _Known:
    try:
        value, repeated = goyaml.parse(text.encode())
        if gojson.members(value) is None:
            found = "nothing" if value is None else gojson.kind(value)
            return _unreadable(f"expected an object with rules, found {found}")
        decoded = codec.convert(gojson.plain(value), additions.backoff_policy())
    except (goyaml.YamlProblem, unmarshal.Mismatch, RecursionError, UnicodeError) as error:
        return _unreadable(str(error))
    if wrong := [*repeated, *decoded.problems]:
        return _unreadable("; ".join(wrong))
    return _Known(decoded.obj, msgspec.convert(decoded.obj, BackoffPolicy))


def _unreadable(why: str) -> _Known:
    return _Known({}, mistakes=(f"{PATH}: {why}",))


def _beside(job: Job) -> list[str]:
    """What such a Job may not have, as the API refuses it where it knows the field."""
    found = []
    if job.spec.pod_failure_policy is not None:
        found.append(fields.forbidden(PATH, "may not be specified with podFailurePolicy"))
    restarts = (_template(job).get("spec") or {}).get("restartPolicy", "")
    if restarts != "Never":
        detail = f'only "Never" is supported with {ANNOTATION}'
        found.append(fields.invalid("spec.template.spec.restartPolicy", restarts, detail))
    return [str(each) for each in found]


def _within(job: Job, policy: Object) -> list[str]:
    containers = validation.container_names(_template(job))
    return [str(each) for each in validation.validate(policy, PATH, containers)]


def _template(job: Job) -> Object:
    encoded = bytes(job.spec.template)
    decoded: Object = msgspec.json.decode(encoded) if encoded else {}
    return decoded
