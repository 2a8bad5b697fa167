# SPDX-License-Identifier: Apache-2.0
"""The kinds with Refloat's own fields, which are behind a gate.

`schema` has Kubernetes' types, and Refloat's fields without a gate. This module has the
types that a KEP proposed and Kubernetes did not accept, and the kinds that have them.
For a server with the gate off the fields are unknown, as in Kubernetes.
"""

from dataclasses import replace
from functools import cache

from refloat.api import schema
from refloat.api.schema import Field, ListOf, Scalar, Struct, Type

BACKOFF_POLICY = "batch.v1.BackoffPolicy"

_TEXT = Scalar("string", "string")
_TEXTS = ListOf(_TEXT, "[]string")
_ACTION = Scalar("string", "v1.BackoffPolicyAction")


@cache
def struct(api_version: str, kind: str) -> Struct:
    """The type of a kind, with Refloat's own fields."""
    known = schema.struct(api_version, kind)
    match api_version, kind:
        case "batch/v1", "Job":
            policy = Field("backoffPolicy", backoff_policy(), pointer=True)
            return _with(known, "spec", _add(_copy(schema.named("batch.v1.JobSpec")), policy))
        case "batch/v1", "JobList":
            return _with(known, "items", ListOf(struct("batch/v1", "Job"), "[]v1.Job"))
    return known


@cache
def backoff_policy() -> Struct:
    """`spec.backoffPolicy` of a Job (KEP-3329, first design)."""
    rule = Struct("batch.v1.BackoffPolicyRule", "v1.BackoffPolicyRule")
    _add(
        rule,
        Field("action", _ACTION, omit=False, required=True),
        Field("containerName", _TEXT, pointer=True),
        Field("containerExitCodeIn", _TEXT, pointer=True),
        Field("containerExitCodeNotIn", _TEXT, pointer=True),
        Field("podStatusReasonIn", _TEXTS, pointer=True, list_type="atomic"),
        Field("podStatusReasonNotIn", _TEXTS, pointer=True, list_type="atomic"),
    )
    policy = Struct(BACKOFF_POLICY, "v1.BackoffPolicy")
    rules = ListOf(rule, "[]v1.BackoffPolicyRule")
    return _add(policy, Field("rules", rules, omit=False, required=True, list_type="atomic"))


def _add(gated: Struct, *fields: Field) -> Struct:
    gated.fields.update((each.name, each) for each in fields)
    return gated


def _copy(of: Struct) -> Struct:
    return replace(of, fields=dict(of.fields))


def _with(of: Struct, name: str, type_: Type) -> Struct:
    return _add(_copy(of), replace(of.fields[name], type=type_))
