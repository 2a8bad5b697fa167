# SPDX-License-Identifier: Apache-2.0
"""Who may do what."""

from refloat.api import errors
from refloat.apiserver.identity import ADMINS, Identity
from refloat.apiserver.targets import Target

# What nobody needs to be somebody for.
OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})


def check_path(user: Identity, method: str, path: str) -> None:
    """Raise 403 unless this user may ask for an address that is no resource's."""
    if path.rstrip("/") in OPEN_PATHS or path.startswith(("/livez/", "/readyz/")):
        return
    if ADMINS in user.groups:
        return
    cause = f'User "{user.name}" cannot {method.lower()} path "{path}"'
    raise errors.StatusError(403, "Forbidden", f"forbidden: {cause}", details={})


def check(user: Identity, verb: str, target: Target) -> None:
    """Raise 403 unless this user may do this to that."""
    if ADMINS in user.groups:
        return
    raise errors.forbidden(
        target.resource.group, target.resource.plural, target.name, _cannot(user, verb, target)
    )


def _cannot(user: Identity, verb: str, target: Target) -> str:
    """The refusal, as Kubernetes words it."""
    resource = target.resource
    what = f"{resource.plural}/{target.subresource}" if target.subresource else resource.plural
    where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    return (
        f'User "{user.name}" cannot {verb} resource "{what}" '
        f'in API group "{resource.group}" {where}'
    )
