# SPDX-License-Identifier: Apache-2.0
"""What a Secret must be: each known type has keys that it needs.

Data comes with `stringData` merged in already (see `defaults/secret.py`).
"""

import base64
import re
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


def warnings(secret: Object) -> list[str]:
    """Of a certificate and its key, no more is looked at than whether they are there."""
    if secret.get("type") != "kubernetes.io/tls":
        return []
    data = secret.get("data") or {}
    complaint = _certificate_complaint(data["tls.crt"]) or _key_complaint(data["tls.key"])
    return [complaint] if complaint else []


# Not of whole blocks: with many beginnings and no end that would take a square of time.
_PEM_LINE = re.compile(rb"^-----(BEGIN|END) ([^\r\n]*)-----[ \t\r]*$", re.MULTILINE)


def _pem_types(encoded: str) -> list[str]:
    types, begun = [], None
    for found in _PEM_LINE.finditer(base64.b64decode(encoded or "")):
        which, name = found.groups()
        if which == b"BEGIN":
            begun = name
        elif name == begun:
            types.append(name.decode(errors="replace"))
            begun = None
    return types


def _certificate_complaint(encoded: str) -> str:
    types = _pem_types(encoded)
    if not types:
        return "tls: failed to find any PEM data in certificate input"
    if "CERTIFICATE" in types:
        return ""
    if len(types) == 1 and types[0].endswith("PRIVATE KEY"):
        return (
            "tls: failed to find certificate PEM data in certificate input, but did find a "
            "private key; PEM inputs may have been switched"
        )
    return (
        'tls: failed to find "CERTIFICATE" PEM block in certificate input after skipping '
        f"PEM blocks of the following types: [{' '.join(types)}]"
    )


def _key_complaint(encoded: str) -> str:
    types = _pem_types(encoded)
    if not types:
        return "tls: failed to find any PEM data in key input"
    if any(each == "PRIVATE KEY" or each.endswith(" PRIVATE KEY") for each in types):
        return ""
    if types == ["CERTIFICATE"]:
        return "tls: found a certificate rather than a key in the PEM for the private key"
    return (
        'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input after '
        f"skipping PEM blocks of the following types: [{' '.join(types)}]"
    )


_BY_TYPE: dict[str, Callable[[Object], list[FieldError]]] = {
    "kubernetes.io/service-account-token": _account_token,
    "kubernetes.io/dockercfg": _docker_config(".dockercfg"),
    "kubernetes.io/dockerconfigjson": _docker_config(".dockerconfigjson"),
    "kubernetes.io/basic-auth": _basic_auth,
    "kubernetes.io/ssh-auth": _ssh_auth,
    "kubernetes.io/tls": _tls,
}
