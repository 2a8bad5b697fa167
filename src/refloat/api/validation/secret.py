# SPDX-License-Identifier: Apache-2.0
"""What a Secret must be: each known type has required keys.

`defaults/secret.py` has merged `stringData` into the data before.
"""

import base64
import re

from refloat.api import fields, gojson, names
from refloat.api import meta as objects
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import configmap, meta

ACCOUNT_ANNOTATION = "kubernetes.io/service-account.name"
_REDACTED = "<secret contents redacted>"
_BASIC = "kubernetes.io/basic-auth"
_SSH = "kubernetes.io/ssh-auth"
_TOKEN = "kubernetes.io/service-account-token"  # noqa: S105
_DOCKER_KEYS = {
    "kubernetes.io/dockercfg": ".dockercfg",
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
}
_REQUIRED_KEYS = {
    **{kind: (key,) for kind, key in _DOCKER_KEYS.items()},
    _BASIC: ("username", "password"),
    _SSH: ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def validate_create(secret: Object) -> list[FieldError]:
    """The rules of an update too."""
    errors = meta.validate(secret["metadata"], namespaced=True, name_check=names.dns_subdomain)
    data = secret.get("data") or {}
    for key in data:
        errors.named(f"data[{key}]", key, names.config_map_key)
    if sum(map(configmap.decoded_size, data.values())) > configmap.MAX_BYTES:
        errors.append(fields.too_long("data", configmap.MAX_BYTES))
    kind = secret.get("type", "")
    # Only a key for SSH must not be empty.
    keys = {key for key, value in data.items() if value or kind != _SSH}
    missing = [key for key in _REQUIRED_KEYS.get(kind, ()) if key not in keys]
    if kind == _TOKEN and not objects.annotations(secret).get(ACCOUNT_ANNOTATION):
        errors.required(f"metadata.annotations[{ACCOUNT_ANNOTATION}]")
    if kind != _BASIC or len(missing) == 2:
        errors += [fields.required(f"data[{key}]") for key in missing]
    if kind in _DOCKER_KEYS and not missing:
        # The configuration is a JSON object, or null; errors have Go's words.
        key, detail = _DOCKER_KEYS[kind], ""
        try:
            value = gojson.parse(base64.b64decode(data[key] or ""))
            if value is not None and not isinstance(value, gojson.Pairs):
                value_type = "Go value of type map[string]interface {}"
                detail = f"json: cannot unmarshal {gojson.kind(value)} into {value_type}"
        except gojson.SyntaxProblem as error:
            detail = str(error)
        if detail:
            errors.invalid(f"data[{key}]", _REDACTED, detail)
    return errors


def validate_update(new: Object, old: Object) -> list[FieldError]:
    errors = meta.validate_update(new["metadata"], old["metadata"])
    errors.immutable("type", new.get("type", ""), old.get("type", ""))
    configmap.check_locked(new, old, ("data",), errors)
    return [*errors, *validate_create(new)]


def warnings(secret: Object) -> list[str]:
    """Warnings of a certificate or a key that is missing; nothing else of them is checked."""
    if secret.get("type") != "kubernetes.io/tls":
        return []
    data = secret.get("data") or {}
    certificate, key = _pem_types(data["tls.crt"]), _pem_types(data["tls.key"])
    if not certificate:
        return ["tls: failed to find any PEM data in certificate input"]
    if "CERTIFICATE" not in certificate:
        if len(certificate) == 1 and certificate[0].endswith("PRIVATE KEY"):
            complaint = "tls: failed to find certificate PEM data in certificate input, but did"
            return [f"{complaint} find a private key; PEM inputs may have been switched"]
        complaint = 'tls: failed to find "CERTIFICATE" PEM block in certificate input after'
        types = " ".join(certificate)
        return [f"{complaint} skipping PEM blocks of the following types: [{types}]"]
    if not key:
        return ["tls: failed to find any PEM data in key input"]
    if any(each == "PRIVATE KEY" or each.endswith(" PRIVATE KEY") for each in key):
        return []
    if key == ["CERTIFICATE"]:
        return ["tls: found a certificate rather than a key in the PEM for the private key"]
    complaint = 'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input after'
    return [f"{complaint} skipping PEM blocks of the following types: [{' '.join(key)}]"]


# Single lines: a pattern of whole blocks takes quadratic time for many beginnings without end.
_PEM_LINE = re.compile(rb"^-----(BEGIN|END) ([^\r\n]*)-----[ \t\r]*$", re.MULTILINE)


def _pem_types(encoded: str) -> list[str]:
    types, open_block = [], None
    for match in _PEM_LINE.finditer(base64.b64decode(encoded or "")):
        which, name = match.groups()
        if which == b"BEGIN":
            open_block = name
        elif name == open_block:
            types.append(name.decode(errors="replace"))
            open_block = None
    return types
