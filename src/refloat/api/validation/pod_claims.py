# SPDX-License-Identifier: Apache-2.0
"""The claims of a pod: templates of volume claims, and device claims.

`persistentvolumeclaim.py` has the specification of a volume claim.
"""

from refloat.api import fields, go_internal_types, names
from refloat.api.meta import Object
from refloat.api.validation import meta, persistentvolumeclaim
from refloat.api.validation.rules import Errors

_MIRROR = "kubernetes.io/config.mirror"

# The rest of metadata, in the order in which Kubernetes reports it.
_FORBIDDEN_METADATA = (
    *("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation"),
    *("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
    *("ownerReferences", "finalizers", "managedFields"),
)
_CLAIM_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")
_SHOWN_METADATA = {"selfLink": "selfLink", "uid": "uID"}


def check_ephemeral(source: Object, path: str, errors: Errors) -> None:
    """The template of the claim that an ephemeral volume has for itself."""
    path = f"{path}.volumeClaimTemplate"
    if (template := source.get("volumeClaimTemplate")) is None:
        errors.required(path)
        return
    metadata = template.get("metadata") or {}
    where = f"{path}.metadata"
    errors += meta.validate_annotations(metadata.get("annotations") or {}, f"{where}.annotations")
    errors += meta.validate_labels(metadata.get("labels") or {}, f"{where}.labels")
    for key in _FORBIDDEN_METADATA:
        if metadata.get(key):
            label = _SHOWN_METADATA.get(key, key)
            errors.forbidden(f"{where}.{label}", "cannot be set")
    persistentvolumeclaim.check_spec(template.get("spec") or {}, f"{path}.spec", errors)


def check_device_claims(
    claims: list[Object], metadata: Object | None, path: str, errors: Errors
) -> None:
    """The pod's claims of devices; `metadata` is None in a template."""
    if metadata and _MIRROR in (metadata.get("annotations") or {}):
        detail = "static pods do not support resource claims"
        errors += [fields.forbidden("", detail) for _ in claims]
        return
    names_so_far: set[str] = set()
    for i, claim in enumerate(claims):
        where, name = f"{path}[{i}]", claim.get("name", "")
        if not name:
            errors.required(f"{where}.name")
        elif not errors.repeated(f"{where}.name", name, names_so_far):
            errors.named(f"{where}.name", name, names.dns_label)
            names_so_far.add(name)
        sources = [key for key in _CLAIM_SOURCES if claim.get(key) is not None]
        if len(sources) != 1:
            both = f"`{_CLAIM_SOURCES[0]}` or `{_CLAIM_SOURCES[1]}`"
            detail = f"at most one of {both} may be specified"
            if not sources:
                detail = f"must specify one of: {both.replace(' or', ',')}"
            errors.invalid(where, go_internal_types.shown("core.PodResourceClaim", claim), detail)
        for key in sources:
            errors.named(f"{where}.{key}", claim[key], names.dns_subdomain)
