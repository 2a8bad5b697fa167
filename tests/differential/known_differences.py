# SPDX-License-Identifier: Apache-2.0
"""The differences that `docs/compatibility.md` lists, as patterns.

Each entry cites the first cell of the row there; a test checks that the row
exists. A difference without an entry is a defect.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.differential.answers import APPLY, STRATEGIC, ApiCall, ComparedAnswer
from tests.differential.compare import ABSENT, AnswerDifference


@dataclass(frozen=True)
class Deviation:
    """A difference, and the answers and the call that show the difference."""

    call: ApiCall
    left: ComparedAnswer
    right: ComparedAnswer
    difference: AnswerDifference
    tracked: bool = False  # the object began with an apply

    @property
    def path(self) -> str:
        return self.difference.path

    @property
    def leaf(self) -> str:
        return self.path.rpartition(".")[2]

    def says(self, text: str, *, right: str | None = None) -> bool:
        """Is this in both messages, or in the left one this and in the right one that?"""
        expected = right if right is not None else text
        return text in _said(self.left) and expected in _said(self.right)


def _said(answer: ComparedAnswer) -> str:
    return str(answer.body.get("message", "")) if isinstance(answer.body, dict) else ""


@dataclass(frozen=True)
class KnownDeviation:
    """A row of the document, and the pattern of the differences in that row."""

    row: str
    explains: Callable[[Deviation], bool]
    ends: bool = False
    """The objects are different from here on, so the rest of the case proves nothing."""


def _managed_fields(deviation: Deviation) -> bool:
    if deviation.path == "warnings":  # a patch may copy them to an unknown place
        rest = [each for each in deviation.difference.left if "managedFields" not in each]
        return bool(rest == deviation.difference.right)
    return deviation.leaf == "managedFields" and not deviation.tracked


PROTECTION = ("kubernetes.io/pvc-protection", "kubernetes.io/pv-protection")


def _both(deviation: Deviation) -> tuple[Any, Any]:
    return deviation.difference.left, deviation.difference.right


def _but_finalizers(managed: Any) -> Any:
    """What each manager owns besides finalizers."""
    if managed is ABSENT:
        return []
    entries = []
    for entry in managed:
        owned = dict(entry.get("fieldsV1") or {})
        metadata = dict(owned.pop("f:metadata", None) or {})
        metadata.pop("f:finalizers", None)
        if owned or metadata:
            entries.append({**entry, "fieldsV1": {**owned, "f:metadata": metadata}})
    return entries


_SHOWN_PROTECTION = re.compile(r',"kubernetes\.io/pvc?-protection"')


def _protection(deviation: Deviation) -> bool:
    if deviation.leaf == "managedFields":  # who owned no finalizers lost that to the protection
        left, right = (_but_finalizers(each) for each in _both(deviation))
        return "/persistentvolume" in deviation.call.path and left == right
    if isinstance(deviation.difference.left, str):
        return _alike_but(deviation.difference.left, deviation.difference.right, _SHOWN_PROTECTION)
    if deviation.leaf != "finalizers" or not isinstance(deviation.difference.left, list):
        return False
    rest = [each for each in deviation.difference.left if each not in PROTECTION]
    return rest == ([] if deviation.difference.right is ABSENT else deviation.difference.right)


# A whole object or patch within a message, in the quotes of Go.
_QUOTED = re.compile(r'Invalid value: "\{(?:[^"\\]|\\.)*\}"')


def _order(deviation: Deviation) -> bool:
    """The same message, except for the quoted object and the order of unknown parts."""
    left, right = (_in_one_order(each) for each in _both(deviation))
    return _alike_but(left, right, _QUOTED)


_UNKNOWN_LIST = re.compile(r'unknown field "[^"]*"(?:, unknown field "[^"]*")+$')


def _in_one_order(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return _UNKNOWN_LIST.sub(lambda found: ", ".join(sorted(found[0].split(", "))), value)


# What a strategic merge patch was, as Go prints a map.
_MAP = re.compile(r'Invalid value: "map\[.*\]": ')


def _strategic(deviation: Deviation) -> bool:
    """Parts that were merged before the error are not shown."""
    left, right = deviation.difference.left, deviation.difference.right
    return deviation.call.media == STRATEGIC and _alike_but(left, right, _MAP)


# Complaints about a value's type, in all their forms.
_TYPE = re.compile(
    r"json: cannot unmarshal .*|unrecognized type: .*|parsing time .*|quantities must match .*"
    r"|error decoding from json: .*|illegal base64 .*|unable to convert .*"
    r"|cannot (?:restore|convert) .*"
)


def _which_type(deviation: Deviation) -> bool:
    """Both refuse the type of a value, but not of the same one."""
    left, right = str(deviation.difference.left), str(deviation.difference.right)
    if deviation.call.method != "PATCH" or not (_TYPE.search(left) and _TYPE.search(right)):
        return False
    return _alike_but(
        _QUOTED.sub("", _MAP.sub("", left)), _QUOTED.sub("", _MAP.sub("", right)), _TYPE
    )


_UNKNOWN = "field not declared in schema"


def _which_mistakes(deviation: Deviation) -> bool:
    """Before such a mistake, Kubernetes checks a random part of an applied object."""
    left, right = (
        {each.rpartition("): ")[2].strip() for each in str(value).splitlines()}
        for value in _both(deviation)
    )
    if deviation.leaf != "message" or deviation.call.media != APPLY:
        return False
    mistakes = {each for each in left if _UNKNOWN not in each and each != "errors:"}
    return left != mistakes and any(_UNKNOWN in each for each in right) and mistakes <= right


def _alike_but(left: Any, right: Any, part: re.Pattern[str]) -> bool:
    """Two texts that differ in this part alone."""
    if not isinstance(left, str) or not isinstance(right, str):
        return False
    return bool(part.search(left)) and part.sub("", left) == part.sub("", right)


def _runtime_class(deviation: Deviation) -> bool:
    message = _said(deviation.left)
    requests_it = "runtimeClassName" in str(deviation.call.body)
    is_refusal = "pod rejected: RuntimeClass" in message or "invalid resource name" in message
    return deviation.path == "status" and requests_it and is_refusal


def _overhead(deviation: Deviation) -> bool:
    return deviation.path == "status" and "Pod Overhead set without" in _said(deviation.left)


def _status_of_no_service(deviation: Deviation) -> bool:
    absent = deviation.left.status in (422, 500) and deviation.right.status == 404
    return deviation.path == "status" and absent and "/services/" in deviation.call.path


_OF_DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")


def _born_deleted(deviation: Deviation) -> bool:
    creates = deviation.call.method in ("PUT", "PATCH") and deviation.left.status == 201
    return creates and deviation.leaf in _OF_DELETION and deviation.difference.right is ABSENT


def _echo(deviation: Deviation) -> bool:
    echoed = (
        deviation.leaf in ("selfLink", "resourceVersion") and deviation.difference.right is ABSENT
    )
    return echoed and "dryRun=" in deviation.call.path


_EMPTY = re.compile(r"(?<=:)\s?(?:null|\[\]|\{\})")


def _empty_shown(deviation: Deviation) -> bool:
    left = str(deviation.difference.left)
    if "\n@@ " in left:  # a comparison of two objects, where these make a line of their own
        return any(each in left for each in ('": {}', '": []', "value: {}", "value: []"))
    return _alike_but(left, deviation.difference.right, _EMPTY)


def _holds_empty(value: Any) -> bool:
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return not value or any(map(_holds_empty, inner))
    return isinstance(value, str) and value.endswith(".1Z")


def _empty_written(deviation: Deviation) -> bool:
    """Kubernetes takes an empty map for a change of a field that may not change."""
    if "immutable" not in _said(deviation.left) or not _holds_empty(deviation.call.body):
        return False
    if deviation.path == "status":
        return (deviation.left.status, deviation.right.status) in ((422, 200), (422, 406))
    return (
        deviation.leaf in ("causes", "message")
        and deviation.left.status == deviation.right.status == 422
    )


def _empty_key(deviation: Deviation) -> bool:
    invalid = deviation.left.status == deviation.right.status == 422
    return (
        invalid
        and "/persistentvolumes/" in deviation.call.path
        and '"Key":""' in _said(deviation.right)
    )


def _namespace_orphans(deviation: Deviation) -> bool:
    requests_it = "orphanDependents" in f"{deviation.call.body} {deviation.call.path}"
    return (
        deviation.leaf == "finalizers"
        and requests_it
        and deviation.call.path.startswith("/api/v1/namespaces/")
    )


def _dry_delete(deviation: Deviation) -> bool:
    """Kubernetes answers with an empty object, without a name."""
    dry = (
        deviation.call.method == "DELETE"
        and "dryRun" in f"{deviation.call.body} {deviation.call.path}"
    )
    answer = deviation.left.found or {}
    return dry and answer.get("kind") != "Status" and answer.get("metadata") == {}


def _external_name(deviation: Deviation) -> bool:
    stored = (deviation.difference.left, deviation.difference.right) == ("Cluster", ABSENT)
    return stored and deviation.leaf == "internalTrafficPolicy"


def _service(deviation: Deviation) -> bool:
    """Ours warns that there is no network, and allocates nothing."""
    if "failed to allocate IP" in _said(deviation.left):
        return True
    if deviation.path != "warnings":
        return False
    rest = [each for each in deviation.difference.right if "services are stored only" not in each]
    return bool(rest == deviation.difference.left)


KNOWN: tuple[KnownDeviation, ...] = (
    KnownDeviation("`metadata.managedFields`", _managed_fields),
    KnownDeviation("order of fields in JSON", _order),
    KnownDeviation("strategic merge patches in an error message", _strategic),
    KnownDeviation("several wrong types in one patched object", _which_type),
    KnownDeviation("an applied object with an unknown field and other mistakes", _which_mistakes),
    KnownDeviation("`spec.runtimeClassName` of a pod", _runtime_class),
    KnownDeviation("`spec.overhead` of a pod", _overhead),
    KnownDeviation("a status applied to a Service that is not there", _status_of_no_service),
    KnownDeviation("Service", _service),
    KnownDeviation(
        "a Namespace deleted with `orphanDependents: false`",
        _namespace_orphans,
        ends=True,
    ),
    KnownDeviation("an empty key in a changed node affinity of a PersistentVolume", _empty_key),
    KnownDeviation("`selfLink`, or a resourceVersion that is no number, in a dry run", _echo),
    KnownDeviation("empty lists and maps inside a value in an error message", _empty_shown),
    KnownDeviation(
        "empty maps and lists, and fractions of a second, where a field is immutable",
        _empty_written,
    ),
    KnownDeviation(
        "`deletionTimestamp` and `deletionGracePeriodSeconds` in an object that an apply or a PUT "
        "creates",
        _born_deleted,
        ends=True,
    ),
    KnownDeviation(
        "a dry delete of an object that only `orphan` or `foregroundDeletion` keeps", _dry_delete
    ),
    KnownDeviation("a Service that an apply makes an `ExternalName`", _external_name),
    KnownDeviation("protection finalizers", _protection),
    KnownDeviation(
        "descriptions in OpenAPI and in the columns of tables",
        lambda deviation: deviation.leaf == "description",
    ),
)


def of(deviation: Deviation) -> KnownDeviation | None:
    """The entry that explains a difference, if there is one."""
    return next((each for each in KNOWN if each.explains(deviation)), None)
