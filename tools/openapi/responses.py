# SPDX-License-Identifier: Apache-2.0
"""The types of answers that clients do not write: discovery, versions, watch events.

They are no kinds of `refloat.api.kinds`, so the table of `refloat.api.schema`
does not have them; here they are in the same form.
"""

from refloat.api.schema import Field, ListOf, Scalar, Struct, Type

_STRING = Scalar("string", "string")
_BOOL = Scalar("bool", "bool")
_STRINGS = ListOf(_STRING, "[]string")


def _required(name: str, of: Type = _STRING) -> Field:
    return Field(name, of, omit=False, required=True)


def _optional(name: str, of: Type = _STRING) -> Field:
    return Field(name, of)


def _atomic(field: Field) -> Field:
    field.list_type = "atomic"
    return field


def _struct(name: str, *fields: Field, is_kind: bool = False) -> Struct:
    head = (_optional("kind"), _optional("apiVersion")) if is_kind else ()
    struct = Struct(f"meta.v1.{name}", f"v1.{name}", {each.name: each for each in (*head, *fields)})
    if is_kind:
        struct.kind, struct.api_version = name, "v1"
    return struct


def _list(element: Struct) -> ListOf:
    return ListOf(element, f"[]{element.go}")


_SERVER_ADDRESS = _struct(
    "ServerAddressByClientCIDR", _required("clientCIDR"), _required("serverAddress")
)

_GROUP_VERSION = _struct(
    "GroupVersionForDiscovery", _required("groupVersion"), _required("version")
)

API_VERSIONS = _struct(
    "APIVersions",
    _atomic(_required("versions", _STRINGS)),
    _atomic(_required("serverAddressByClientCIDRs", _list(_SERVER_ADDRESS))),
    is_kind=True,
)

API_GROUP = _struct(
    "APIGroup",
    _required("name"),
    _atomic(_required("versions", _list(_GROUP_VERSION))),
    _optional("preferredVersion", _GROUP_VERSION),
    _atomic(_optional("serverAddressByClientCIDRs", _list(_SERVER_ADDRESS))),
    is_kind=True,
)

API_GROUP_LIST = _struct(
    "APIGroupList", _atomic(_required("groups", _list(API_GROUP))), is_kind=True
)

_API_RESOURCE = _struct(
    "APIResource",
    _required("name"),
    _required("singularName"),
    _required("namespaced", _BOOL),
    _optional("group"),
    _optional("version"),
    _required("kind"),
    _required("verbs", _STRINGS),
    _atomic(_optional("shortNames", _STRINGS)),
    _atomic(_optional("categories", _STRINGS)),
    _optional("storageVersionHash"),
)

API_RESOURCE_LIST = _struct(
    "APIResourceList",
    _required("groupVersion"),
    _atomic(_required("resources", _list(_API_RESOURCE))),
    is_kind=True,
)

WATCH_EVENT = Struct(
    "meta.v1.WatchEvent",
    "v1.WatchEvent",
    {
        "type": _required("type"),
        "object": Field("object", Scalar("any", "runtime.RawExtension"), required=True),
    },
    kind="WatchEvent",
    api_version="v1",
)

VERSION_INFO = Struct(
    "version.Info",
    "version.Info",
    {
        each.name: each
        for each in (
            _required("major"),
            _required("minor"),
            _optional("emulationMajor"),
            _optional("emulationMinor"),
            _optional("minCompatibilityMajor"),
            _optional("minCompatibilityMinor"),
            _required("gitVersion"),
            _required("gitCommit"),
            _required("gitTreeState"),
            _required("buildDate"),
            _required("goVersion"),
            _required("compiler"),
            _required("platform"),
        )
    },
)
