# SPDX-License-Identifier: Apache-2.0
"""The differences that `docs/compatibility.md` tells of, as patterns.

Each entry cites the first cell of its row there; a test holds that the row
exists. What no entry explains is a defect.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.differential.answers import APPLY, STRATEGIC, Answer, Call
from tests.differential.compare import ABSENT, Difference


@dataclass(frozen=True)
class Seen:
    """A difference and what it came from."""

    call: Call
    left: Answer
    right: Answer
    difference: Difference
    tracked: bool = False  # the object began with an apply

    @property
    def path(self) -> str:
        return self.difference.path

    @property
    def leaf(self) -> str:
        return self.path.rpartition(".")[2]

    def says(self, text: str, *, right: str | None = None) -> bool:
        """Is this in both messages, or in the left one this and in the right one that?"""
        found = right if right is not None else text
        return text in _said(self.left) and found in _said(self.right)


def _said(answer: Answer) -> str:
    return str(answer.body.get("message", "")) if isinstance(answer.body, dict) else ""


@dataclass(frozen=True)
class Known:
    """A row of the document and how to tell that a difference is of it."""

    row: str
    explains: Callable[[Seen], bool]
    ends: bool = False
    """The objects are different from here on: the rest of the case tells nothing."""


def _managed_fields(seen: Seen) -> bool:
    if seen.path == "warnings":  # a patch may copy them to where nobody knows them
        rest = [each for each in seen.difference.left if "managedFields" not in each]
        return bool(rest == seen.difference.right)
    return seen.leaf == "managedFields" and not seen.tracked


PROTECTION = ("kubernetes.io/pvc-protection", "kubernetes.io/pv-protection")


def _both(seen: Seen) -> tuple[Any, Any]:
    return seen.difference.left, seen.difference.right


def _but_finalizers(managed: Any) -> Any:
    """What each manager owns besides finalizers."""
    if managed is ABSENT:
        return []
    found = []
    for entry in managed:
        owned = dict(entry.get("fieldsV1") or {})
        metadata = dict(owned.pop("f:metadata", None) or {})
        metadata.pop("f:finalizers", None)
        if owned or metadata:
            found.append({**entry, "fieldsV1": {**owned, "f:metadata": metadata}})
    return found


_SHOWN_PROTECTION = re.compile(r',"kubernetes\.io/pvc?-protection"')


def _protection(seen: Seen) -> bool:
    if seen.leaf == "managedFields":  # who owned no finalizers lost that to the protection
        left, right = (_but_finalizers(each) for each in _both(seen))
        return "/persistentvolume" in seen.call.path and left == right
    if isinstance(seen.difference.left, str):
        return _alike_but(seen.difference.left, seen.difference.right, _SHOWN_PROTECTION)
    if seen.leaf != "finalizers" or not isinstance(seen.difference.left, list):
        return False
    rest = [each for each in seen.difference.left if each not in PROTECTION]
    return rest == ([] if seen.difference.right is ABSENT else seen.difference.right)


# A whole object or patch within a message, as Go quotes it.
_QUOTED = re.compile(r'Invalid value: "\{(?:[^"\\]|\\.)*\}"')


def _order(seen: Seen) -> bool:
    """The same message but for the object that it shows, and what is unknown in another order."""
    left, right = (_in_one_order(each) for each in _both(seen))
    return _alike_but(left, right, _QUOTED)


_UNKNOWN_LIST = re.compile(r'unknown field "[^"]*"(?:, unknown field "[^"]*")+$')


def _in_one_order(told: Any) -> Any:
    if not isinstance(told, str):
        return told
    return _UNKNOWN_LIST.sub(lambda found: ", ".join(sorted(found[0].split(", "))), told)


# What a strategic merge patch was, as Go prints a map.
_MAP = re.compile(r'Invalid value: "map\[.*\]": ')


def _strategic(seen: Seen) -> bool:
    """Parts that were merged before the error are not shown."""
    left, right = seen.difference.left, seen.difference.right
    return seen.call.media == STRATEGIC and _alike_but(left, right, _MAP)


# Complaints about a value's type, in all their forms.
_TYPE = re.compile(
    r"json: cannot unmarshal .*|unrecognized type: .*|parsing time .*|quantities must match .*"
    r"|error decoding from json: .*|illegal base64 .*|unable to convert .*"
    r"|cannot (?:restore|convert) .*"
)


def _which_type(seen: Seen) -> bool:
    """Both refuse the type of a value, but not of the same one."""
    left, right = str(seen.difference.left), str(seen.difference.right)
    if seen.call.method != "PATCH" or not (_TYPE.search(left) and _TYPE.search(right)):
        return False
    return _alike_but(
        _QUOTED.sub("", _MAP.sub("", left)), _QUOTED.sub("", _MAP.sub("", right)), _TYPE
    )


_UNKNOWN = "field not declared in schema"


def _which_mistakes(seen: Seen) -> bool:
    """Kubernetes looks at no more of an applied object than it meets, by chance, before that."""
    left, right = (
        {each.rpartition("): ")[2].strip() for each in str(held).splitlines()}
        for held in _both(seen)
    )
    if seen.leaf != "message" or seen.call.media != APPLY:
        return False
    named = {each for each in left if _UNKNOWN not in each and each != "errors:"}
    return left != named and any(_UNKNOWN in each for each in right) and named <= right


def _alike_but(left: Any, right: Any, part: re.Pattern[str]) -> bool:
    """Two texts that differ in this part alone."""
    if not isinstance(left, str) or not isinstance(right, str):
        return False
    return bool(part.search(left)) and part.sub("", left) == part.sub("", right)


def _runtime_class(seen: Seen) -> bool:
    told = _said(seen.left)
    asked = "runtimeClassName" in str(seen.call.body)
    refused = "pod rejected: RuntimeClass" in told or "invalid resource name" in told
    return seen.path == "status" and asked and refused


def _overhead(seen: Seen) -> bool:
    return seen.path == "status" and "Pod Overhead set without" in _said(seen.left)


def _status_of_no_service(seen: Seen) -> bool:
    absent = seen.left.status in (422, 500) and seen.right.status == 404
    return seen.path == "status" and absent and "/services/" in seen.call.path


_OF_DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")


def _born_deleted(seen: Seen) -> bool:
    made = seen.call.method in ("PUT", "PATCH") and seen.left.status == 201
    return made and seen.leaf in _OF_DELETION and seen.difference.right is ABSENT


def _echo(seen: Seen) -> bool:
    echoed = seen.leaf in ("selfLink", "resourceVersion") and seen.difference.right is ABSENT
    return echoed and "dryRun=" in seen.call.path


_EMPTY = re.compile(r"(?<=:)\s?(?:null|\[\]|\{\})")


def _empty_shown(seen: Seen) -> bool:
    left = str(seen.difference.left)
    if "\n@@ " in left:  # a comparison of two objects, where these make a line of their own
        return any(each in left for each in ('": {}', '": []', "value: {}", "value: []"))
    return _alike_but(left, seen.difference.right, _EMPTY)


def _holds_empty(value: Any) -> bool:
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return not value or any(map(_holds_empty, inner))
    return isinstance(value, str) and value.endswith(".1Z")


def _empty_written(seen: Seen) -> bool:
    """Kubernetes takes an empty map for a change of a field that may not change."""
    if "immutable" not in _said(seen.left) or not _holds_empty(seen.call.body):
        return False
    if seen.path == "status":
        return (seen.left.status, seen.right.status) in ((422, 200), (422, 406))
    return seen.leaf in ("causes", "message") and seen.left.status == seen.right.status == 422


def _empty_key(seen: Seen) -> bool:
    refused = seen.left.status == seen.right.status == 422
    return refused and "/persistentvolumes/" in seen.call.path and '"Key":""' in _said(seen.right)


def _namespace_orphans(seen: Seen) -> bool:
    asked = "orphanDependents" in f"{seen.call.body} {seen.call.path}"
    return seen.leaf == "finalizers" and asked and seen.call.path.startswith("/api/v1/namespaces/")


def _dry_delete(seen: Seen) -> bool:
    """Kubernetes answers with an object that has nothing in it, not even a name."""
    dry = seen.call.method == "DELETE" and "dryRun" in f"{seen.call.body} {seen.call.path}"
    found = seen.left.found or {}
    return dry and found.get("kind") != "Status" and found.get("metadata") == {}


def _external_name(seen: Seen) -> bool:
    stored = (seen.difference.left, seen.difference.right) == ("Cluster", ABSENT)
    return stored and seen.leaf == "internalTrafficPolicy"


def _service(seen: Seen) -> bool:
    """Ours warns that there is no network, and allocates nothing."""
    if "failed to allocate IP" in _said(seen.left):
        return True
    if seen.path != "warnings":
        return False
    rest = [each for each in seen.difference.right if "services are stored only" not in each]
    return bool(rest == seen.difference.left)


KNOWN: tuple[Known, ...] = (
    Known("`metadata.managedFields`", _managed_fields),
    Known("order of fields in JSON", _order),
    Known("strategic merge patches in an error message", _strategic),
    Known("several wrong types in one patched object", _which_type),
    Known("an applied object with an unknown field and other mistakes", _which_mistakes),
    Known("`spec.runtimeClassName` of a pod", _runtime_class),
    Known("`spec.overhead` of a pod", _overhead),
    Known("a status applied to a Service that is not there", _status_of_no_service),
    Known("Service", _service),
    Known(
        "a Namespace deleted with `orphanDependents: false`",
        _namespace_orphans,
        ends=True,
    ),
    Known("an empty key in a changed node affinity of a PersistentVolume", _empty_key),
    Known("`selfLink`, or a resourceVersion that is no number, in a dry run", _echo),
    Known("empty lists and maps inside a value in an error message", _empty_shown),
    Known(
        "empty maps and lists, and fractions of a second, where a field is immutable",
        _empty_written,
    ),
    Known(
        "`deletionTimestamp` and `deletionGracePeriodSeconds` in an object that an apply or a PUT "
        "creates",
        _born_deleted,
        ends=True,
    ),
    Known(
        "a dry delete of an object that only `orphan` or `foregroundDeletion` keeps", _dry_delete
    ),
    Known("a Service that an apply makes an `ExternalName`", _external_name),
    Known("protection finalizers", _protection),
    Known(
        "descriptions in OpenAPI and in the columns of tables",
        lambda seen: seen.leaf == "description",
    ),
)


def of(seen: Seen) -> Known | None:
    """What tells of a difference, if anything does."""
    return next((each for each in KNOWN if each.explains(seen)), None)
