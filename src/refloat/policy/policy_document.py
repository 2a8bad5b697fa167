# SPDX-License-Identifier: Apache-2.0
"""The policy for failures in a file: of a Job, or alone, in any of its spellings.

Finds it, checks it as the API would, and puts what it is converted to in its
place. The conversion itself is in `policy_conversion`.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from refloat.api import additions, codec, gojson, goyaml, schema, unmarshal
from refloat.api.defaults import job as defaults
from refloat.api.meta import Object
from refloat.api.validation import backoff_policy as backoff_validation
from refloat.api.validation import job_policies
from refloat.policy import backoff_alternatives, backoff_annotation, policy_conversion
from refloat.policy.policy_conversion import Converted, Invalid

Kind: TypeAlias = Literal["backoffPolicy", "podFailurePolicy"]

BACKOFF: Kind = "backoffPolicy"
POD_FAILURE: Kind = "podFailurePolicy"
KINDS: tuple[Kind, ...] = (BACKOFF, POD_FAILURE)

_JOB = "batch.v1.Job"
_THEIRS = "batch.v1.PodFailurePolicy"

_OTHER: dict[Kind, Kind] = {BACKOFF: POD_FAILURE, POD_FAILURE: BACKOFF}

_OF_POD_FAILURE = {"onExitCodes", "onPodConditions"}


@dataclass(frozen=True, slots=True)
class Document:
    """A document with the policy in it, and the policy."""

    whole: Object
    kind: Kind
    policy: Any
    containers: frozenset[str] | None
    """The names that a rule may have; None if the document does not say."""

    def holding(self, kind: Kind, policy: Object) -> Object:
        """The document with this policy in the place of its own."""
        if self.whole.get("kind") != "Job":
            return {kind: policy}
        metadata = dict(self.whole.get("metadata") or {})
        annotations = dict(metadata.get("annotations") or {})
        if annotations.pop(backoff_annotation.ANNOTATION, None) is not None:
            metadata["annotations"] = annotations
        spec = {name: each for name, each in self.whole["spec"].items() if name not in KINDS}
        return self.whole | {"metadata": metadata, "spec": spec | {kind: policy}}


def convert(whole: Any, to: Kind | None = None) -> tuple[Object, Converted]:
    """The document converted to the other policy, or to this one.

    Raises `Invalid`, or `Refused` if it cannot be said.
    """
    found = _find(whole)
    policy, spelled_otherwise = found.policy, False
    if found.kind == BACKOFF and isinstance(policy, dict):
        spelled_otherwise = backoff_alternatives.is_alternative(policy)
        policy = backoff_alternatives.read(policy) if spelled_otherwise else policy
    policy = _checked(found, policy)
    wanted = to or (BACKOFF if spelled_otherwise else _OTHER[found.kind])
    converted = _converted(policy, found.kind, wanted)
    return found.holding(wanted, converted.policy), converted


def _converted(policy: Object, kind: Kind, to: Kind) -> Converted:
    if kind == to:
        return Converted(policy, lambda _: True)
    if to == POD_FAILURE:
        return policy_conversion.to_pod_failure_policy(policy)
    return policy_conversion.to_backoff_policy(policy)


def _find(whole: Any) -> Document:
    if not isinstance(whole, dict):
        raise Invalid("expected a Job, or a policy with rules")
    if whole.get("kind") == "Job":
        return _in_job(whole)
    given = [kind for kind in KINDS if kind in whole]
    if len(given) == 1:
        return Document(whole, given[0], whole[given[0]], None)
    rules = whole.get("rules")
    if not isinstance(rules, list):
        raise Invalid("expected a Job, or a policy with rules")
    theirs = any(isinstance(rule, dict) and _OF_POD_FAILURE & rule.keys() for rule in rules)
    return Document(whole, POD_FAILURE if theirs else BACKOFF, whole, None)


def _in_job(job: Object) -> Document:
    spec = job.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("template"), dict):
        raise Invalid("spec.template: the Job has none")
    rest = _decoded(job | {"spec": {name: spec[name] for name in spec if name not in KINDS}})
    containers = backoff_validation.container_names(rest["spec"]["template"])
    annotations = (rest.get("metadata") or {}).get("annotations") or {}
    found: list[tuple[Kind, Any]] = [(kind, spec[kind]) for kind in KINDS if spec.get(kind)]
    if (text := annotations.get(backoff_annotation.ANNOTATION)) is not None:
        found.append((BACKOFF, _parsed(text)))
    if len(found) != 1:
        has = "more than one policy for failures" if found else "no policy for failures"
        raise Invalid(f"the Job has {has}; expected spec.backoffPolicy or spec.podFailurePolicy")
    [(kind, policy)] = found
    return Document(job, kind, policy, containers)


def _decoded(job: Object) -> Object:
    """As the API reads it, which has words for each value of a wrong type."""
    try:
        return codec.convert(job, schema.named(_JOB)).obj
    except unmarshal.Mismatch as error:
        raise Invalid(str(error)) from None


def _parsed(text: str) -> Any:
    try:
        value, repeated = goyaml.parse(text.encode())
    except goyaml.YamlProblem as problem:
        raise Invalid(f"{backoff_annotation.PATH}: {problem}") from None
    if repeated:
        raise Invalid(f"{backoff_annotation.PATH}: {'; '.join(repeated)}")
    return gojson.plain(value)


def _checked(found: Document, policy: Any) -> Object:
    """The policy in normal form, with defaults; `Invalid` with all that is wrong."""
    struct = additions.backoff_policy() if found.kind == BACKOFF else schema.named(_THEIRS)
    if not isinstance(policy, dict):
        raise Invalid(f"{found.kind}: expected an object with rules")
    try:
        decoded = codec.convert(policy, struct)
    except unmarshal.Mismatch as error:
        raise Invalid(f"{found.kind}: {error}") from None
    if decoded.problems:
        raise Invalid("; ".join(f"{found.kind}: {each}" for each in decoded.problems))
    mistakes = _mistakes(found, decoded.obj)
    if mistakes:
        raise Invalid("; ".join(mistakes))
    return decoded.obj


def _mistakes(found: Document, policy: Object) -> list[str]:
    """By the API's own rules; a policy alone may name any container."""
    containers = found.containers
    if containers is None:
        containers = frozenset(_named(policy))
    if found.kind == BACKOFF:
        listed = backoff_validation.validate(policy, found.kind, containers)
    else:
        template = {"spec": {"containers": [{"name": name} for name in sorted(containers)]}}
        # FailIndex is refused later, and not for what the Job says beside it.
        spec: Object = {POD_FAILURE: policy, "template": template, "backoffLimitPerIndex": 0}
        defaults.apply(job := {"metadata": {}, "spec": spec})
        listed = job_policies.pod_failure_policy(job["spec"])
    return [str(each) for each in listed]


def _named(policy: Object) -> list[str]:
    rules = policy.get("rules") or ()
    names = [rule.get("containerName") for rule in rules]
    names += [(rule.get("onExitCodes") or {}).get("containerName") for rule in rules]
    return [name for name in names if name is not None]
