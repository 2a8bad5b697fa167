# SPDX-License-Identifier: Apache-2.0
"""Converts the failure policy in a file: in a Job or alone, in any of its spellings.

Finds the policy, checks it as the API would, and replaces it by the converted
policy. The conversion itself is in `policy_conversion`.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from refloat.api import codec, gated_fields, gojson, goyaml, schema, unmarshal
from refloat.api.defaults import job as defaults
from refloat.api.meta import Object
from refloat.api.validation import backoff_policy as backoff_validation
from refloat.api.validation import job_policies
from refloat.api.validation.rules import Errors
from refloat.policy.job import backoff_alternatives, backoff_annotation, policy_conversion
from refloat.policy.job.policy_conversion import Conversion, InvalidPolicy

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
    """A document and the policy in that document."""

    whole: Object
    kind: Kind
    policy: Any
    containers: frozenset[str] | None
    """The container names that a rule may have; None if the document does not list containers."""

    def with_policy(self, kind: Kind, policy: Object) -> Object:
        """The document with this policy in place of its own."""
        if self.whole.get("kind") != "Job":
            return {kind: policy}
        metadata = dict(self.whole.get("metadata") or {})
        annotations = dict(metadata.get("annotations") or {})
        if annotations.pop(backoff_annotation.ANNOTATION, None) is not None:
            metadata["annotations"] = annotations
        spec = {name: each for name, each in self.whole["spec"].items() if name not in KINDS}
        return self.whole | {"metadata": metadata, "spec": spec | {kind: policy}}


def convert(whole: Any, to: Kind | None = None) -> tuple[Object, Conversion]:
    """The document converted to the policy `to`; without `to`, to the other policy.

    Raises `InvalidPolicy`, or `Refused` if the target policy cannot express it.
    """
    document = _find(whole)
    policy, spelled_otherwise = document.policy, False
    if document.kind == BACKOFF and isinstance(policy, dict):
        spelled_otherwise = backoff_alternatives.is_alternative(policy)
        policy = backoff_alternatives.read(policy) if spelled_otherwise else policy
    policy = _checked(document, policy)
    target = to or (BACKOFF if spelled_otherwise else _OTHER[document.kind])
    converted = _converted(policy, document.kind, target)
    return document.with_policy(target, converted.policy), converted


def _converted(policy: Object, kind: Kind, to: Kind) -> Conversion:
    if kind == to:
        return Conversion(policy, lambda _: True)
    if to == POD_FAILURE:
        return policy_conversion.to_pod_failure_policy(policy)
    return policy_conversion.to_backoff_policy(policy)


def _find(whole: Any) -> Document:
    if not isinstance(whole, dict):
        raise InvalidPolicy("expected a Job, or a policy with rules")
    if whole.get("kind") == "Job":
        return _in_job(whole)
    kinds = [kind for kind in KINDS if kind in whole]
    if len(kinds) == 1:
        return Document(whole, kinds[0], whole[kinds[0]], None)
    rules = whole.get("rules")
    if not isinstance(rules, list):
        raise InvalidPolicy("expected a Job, or a policy with rules")
    theirs = any(isinstance(rule, dict) and _OF_POD_FAILURE & rule.keys() for rule in rules)
    return Document(whole, POD_FAILURE if theirs else BACKOFF, whole, None)


def _in_job(job: Object) -> Document:
    spec = job.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("template"), dict):
        raise InvalidPolicy("spec.template: the Job has none")
    rest = _decoded(job | {"spec": {name: spec[name] for name in spec if name not in KINDS}})
    containers = backoff_validation.container_names(rest["spec"]["template"])
    annotations = (rest.get("metadata") or {}).get("annotations") or {}
    policies: list[tuple[Kind, Any]] = [(kind, spec[kind]) for kind in KINDS if spec.get(kind)]
    if (text := annotations.get(backoff_annotation.ANNOTATION)) is not None:
        try:
            value, repeated = goyaml.parse(text.encode())
        except goyaml.YamlProblem as problem:
            raise InvalidPolicy(f"{backoff_annotation.PATH}: {problem}") from None
        if repeated:
            raise InvalidPolicy(f"{backoff_annotation.PATH}: {'; '.join(repeated)}")
        policies.append((BACKOFF, gojson.plain(value)))
    if len(policies) != 1:
        has = "more than one policy for failures" if policies else "no policy for failures"
        raise InvalidPolicy(
            f"the Job has {has}; expected spec.backoffPolicy or spec.podFailurePolicy"
        )
    [(kind, policy)] = policies
    return Document(job, kind, policy, containers)


def _decoded(job: Object) -> Object:
    """Decode as the API does: its errors name each value of a wrong type."""
    try:
        return codec.convert(job, schema.named(_JOB)).obj
    except unmarshal.Mismatch as error:
        raise InvalidPolicy(str(error)) from None


def _checked(document: Document, policy: Any) -> Object:
    """The policy in normal form, with defaults; `InvalidPolicy` lists all errors."""
    struct = gated_fields.backoff_policy() if document.kind == BACKOFF else schema.named(_THEIRS)
    if not isinstance(policy, dict):
        raise InvalidPolicy(f"{document.kind}: expected an object with rules")
    try:
        decoded = codec.convert(policy, struct)
    except unmarshal.Mismatch as error:
        raise InvalidPolicy(f"{document.kind}: {error}") from None
    if decoded.problems:
        raise InvalidPolicy("; ".join(f"{document.kind}: {each}" for each in decoded.problems))
    mistakes = _mistakes(document, decoded.obj)
    if mistakes:
        raise InvalidPolicy("; ".join(mistakes))
    return decoded.obj


def _mistakes(document: Document, policy: Object) -> list[str]:
    """The errors by the API's own rules; a policy alone may name any container."""
    containers = document.containers
    if containers is None:
        containers = frozenset(_named(policy))
    if document.kind == BACKOFF:
        errors = backoff_validation.validate(policy, document.kind, containers)
    else:
        template = {"spec": {"containers": [{"name": name} for name in sorted(containers)]}}
        # FailIndex is refused later, and not for what the Job says beside it.
        spec: Object = {POD_FAILURE: policy, "template": template, "backoffLimitPerIndex": 0}
        defaults.apply(job := {"metadata": {}, "spec": spec})
        errors = Errors()
        job_policies.check_pod_failure_policy(job["spec"], errors)
    return [str(each) for each in errors]


def _named(policy: Object) -> list[str]:
    rules = policy.get("rules") or ()
    names = [rule.get("containerName") for rule in rules]
    names += [(rule.get("onExitCodes") or {}).get("containerName") for rule in rules]
    return [name for name in names if name is not None]
