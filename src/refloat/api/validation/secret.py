# SPDX-License-Identifier: Apache-2.0
"""What a Secret must be: each known type has keys that it needs.

Data comes with `stringData` merged in already (see `defaults/secret.py`).
"""

import base64
from collections.abc import Callable

from refloat.api import fields, gojson, names
from refloat.api import meta as objects
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import configmap, meta, rules

ACCOUNT_ANNOTATION = "kubernetes.io/service-account.name"
_REDACTED = "<secret contents redacted>"
_JSON_TYPES: tuple[tuple[type, str], ...] = (
    (gojson.Number, "number"),
    (str, "string"),
    (bool, "bool"),
    (list, "array"),
)


def validate_create(secret: Object) -> list[FieldError]:
    """Also what an update must keep to."""
    mistakes = meta.validate(secret["metadata"], namespaced=True, name_check=names.dns_subdomain)
    data = secret.get("data") or {}
    for key in data:
        mistakes += rules.named(names.config_map_key(key), f"data[{key}]", key)
    if sum(map(configmap.decoded_size, data.values())) > configmap.MAX_BYTES:
        mistakes.append(fields.too_long("data", configmap.MAX_BYTES))
    check = _BY_TYPE.get(secret.get("type", ""))
    return mistakes + check(secret) if check else mistakes


def validate_update(new: Object, old: Object) -> list[FieldError]:
    return [
        *meta.validate_update(new["metadata"], old["metadata"]),
        *rules.immutable(new.get("type", ""), old.get("type", ""), "type"),
        *configmap.locked(new, old, "data"),
        *validate_create(new),
    ]


def _account_token(secret: Object) -> list[FieldError]:
    if objects.annotations(secret).get(ACCOUNT_ANNOTATION):
        return []
    return [fields.required(f"metadata.annotations[{ACCOUNT_ANNOTATION}]")]


def _missing(secret: Object, *keys: str) -> list[FieldError]:
    data = secret.get("data") or {}
    return [fields.required(f"data[{key}]") for key in keys if key not in data]


def _docker_config(key: str) -> Callable[[Object], list[FieldError]]:
    def check(secret: Object) -> list[FieldError]:
        missing = _missing(secret, key)
        if missing:
            return missing
        complaint = _json_complaint(base64.b64decode(secret["data"][key] or ""))
        return [fields.invalid(f"data[{key}]", _REDACTED, complaint)] if complaint else []

    return check


def _json_complaint(content: bytes) -> str:
    """What Go says of text that should be a JSON object."""
    try:
        value = gojson.parse(content)
    except gojson.SyntaxProblem as problem:
        return str(problem)
    if value is None or isinstance(value, gojson.Pairs):
        return ""
    kind = next(name for types, name in _JSON_TYPES if isinstance(value, types))
    return f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"


def _basic_auth(secret: Object) -> list[FieldError]:
    missing = _missing(secret, "username", "password")
    return missing if len(missing) == 2 else []


def _ssh_auth(secret: Object) -> list[FieldError]:
    if (secret.get("data") or {}).get("ssh-privatekey"):
        return []
    return [fields.required("data[ssh-privatekey]")]


def _tls(secret: Object) -> list[FieldError]:
    return _missing(secret, "tls.crt", "tls.key")


_BY_TYPE: dict[str, Callable[[Object], list[FieldError]]] = {
    "kubernetes.io/service-account-token": _account_token,
    "kubernetes.io/dockercfg": _docker_config(".dockercfg"),
    "kubernetes.io/dockerconfigjson": _docker_config(".dockerconfigjson"),
    "kubernetes.io/basic-auth": _basic_auth,
    "kubernetes.io/ssh-auth": _ssh_auth,
    "kubernetes.io/tls": _tls,
}
