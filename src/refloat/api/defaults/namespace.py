# SPDX-License-Identifier: Apache-2.0
"""The default values of a Namespace: a label with its name, and a phase."""

from refloat.api.defaults import pod
from refloat.api.meta import Object

NAME_LABEL = "kubernetes.io/metadata.name"
FINALIZER = "kubernetes"


def apply(namespace: Object) -> None:
    metadata = namespace["metadata"]
    if name := metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), NAME_LABEL: name}
    namespace.setdefault("spec", {})
    pod.fill(namespace.setdefault("status", {}), {"phase": "Active"})


def prepare_create(namespace: Object) -> None:
    """A new namespace is active, and its finalizer keeps it until it is empty."""
    apply(namespace)
    namespace["status"] = {"phase": "Active"}
    finalizers = namespace["spec"].get("finalizers") or []
    if FINALIZER not in finalizers:
        namespace["spec"]["finalizers"] = [*finalizers, FINALIZER]
