# SPDX-License-Identifier: Apache-2.0
"""Whether a pod, or a template of pods, is valid, and may change so.

The way in to the `pod_*` modules beside this one, which nobody else imports.
"""

import json

from refloat.api import fields, names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import (
    meta,
    pod_affinity,
    pod_containers,
    pod_security,
    pod_spec,
    pod_status,
    pod_update,
    pod_warnings,
)
from refloat.api.validation.pod_rules import Errors

_MIRROR = "kubernetes.io/config.mirror"
_TOLERATIONS = "scheduler.alpha.kubernetes.io/tolerations"
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def validate_create(pod: Object) -> list[FieldError]:
    """What is wrong with a new pod."""
    errors: Errors = []
    _check_metadata_and_spec(pod, errors)
    spec = pod.get("spec") or {}
    if spec.get("ephemeralContainers"):
        errors.append(fields.forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        detail = "cannot be set until all schedulingGates have been cleared"
        errors.append(fields.forbidden("spec.nodeName", detail))
    pod_security.check_annotations_agree(pod["metadata"], spec, "spec", errors)
    return errors


def validate_template(template: Object, path: str) -> list[FieldError]:
    """What is wrong with a template that pods are made from."""
    errors: Errors = []
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    errors += meta.validate_labels(metadata.get("labels") or {}, f"{path}.labels")
    errors += meta.validate_annotations(annotations, f"{path}.annotations")
    if annotations:
        _check_annotations(annotations, spec, f"{path}.annotations", errors)
    pod_spec.check_spec(spec, None, f"{path}.spec", errors)
    pod_security.check_annotations_agree(metadata, spec, f"{path}.spec", errors)
    if spec.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        errors.append(fields.forbidden(f"{path}.spec.ephemeralContainers", detail))
    return errors


def validate_update(new: Object, old: Object) -> list[FieldError]:
    """What is wrong with a change of a pod."""
    errors = meta.validate_update(new["metadata"], old["metadata"])
    _check_metadata_and_spec(new, errors)
    _check_annotation_changes(new, old, errors)
    pod_update.check_spec_change(new.get("spec") or {}, old.get("spec") or {}, errors)
    return errors


def validate_status_update(new: Object, old: Object) -> list[FieldError]:
    """What is wrong with a change of a pod's status."""
    errors = meta.validate_update(new["metadata"], old["metadata"])
    _check_annotation_changes(new, old, errors)
    pod_status.check_change(new, old, errors)
    return errors


def warnings(pod: Object) -> list[str]:
    """What a new pod is accepted with, but should not have."""
    found = []
    if complaints := names.dns_label(pod["metadata"].get("name", "")):
        found.append(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising "
            f"behavior; a DNS label is recommended: [{' '.join(complaints)}]"
        )
    return found + pod_warnings.warnings(pod, "")


def status_warnings(pod: Object) -> list[str]:
    """The same for a pod's status."""
    return pod_status.warnings(pod.get("status") or {})


def template_warnings(template: Object, old: Object | None, path: str) -> list[str]:  # noqa: ARG001
    """What a template is accepted with, but should not have."""
    return pod_warnings.warnings(template, path)


def _check_metadata_and_spec(pod: Object, errors: Errors) -> None:
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    errors += meta.validate(metadata, namespaced=True, name_check=names.dns_subdomain)
    if annotations := metadata.get("annotations"):
        _check_annotations(annotations, spec, "metadata.annotations", errors)
    pod_spec.check_spec(spec, metadata, "spec", errors)
    if not spec.get("serviceAccountName"):
        _check_no_tokens(spec, errors)
    for kind in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(kind) or ()):
            pod_containers.check_image_unpadded(container, f"spec.{kind}[{i}]", errors)


def _check_no_tokens(spec: Object, errors: Errors) -> None:
    for i, volume in enumerate(spec.get("volumes") or ()):
        for j, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
            if source.get("serviceAccountToken") is not None:
                detail = "must not be specified when serviceAccountName is not set"
                path = f"spec.volumes[{i}].projected.sources[{j}].serviceAccountToken"
                errors.append(fields.forbidden(path, detail))


def _check_annotations(
    annotations: dict[str, str], spec: Object, path: str, errors: Errors
) -> None:
    """Annotations that mean something to Kubernetes."""
    if _MIRROR in annotations and not spec.get("nodeName"):
        detail = "must set spec.nodeName if mirror pod annotation is set"
        errors.append(fields.invalid(f"{path}[{_MIRROR}]", annotations[_MIRROR], detail))
    if tolerations := annotations.get(_TOLERATIONS):
        _check_annotated_tolerations(tolerations, path, errors)
    cost = annotations.get(_DELETION_COST)
    if cost is not None and not _is_deletion_cost(cost):
        errors.append(fields.invalid(f"{path}[{_DELETION_COST}]", cost, "must be a 32bit integer"))
    pod_security.check_seccomp_annotations(annotations, path, errors)
    pod_security.check_apparmor_annotations(annotations, spec, path, errors)


def _check_annotated_tolerations(text: str, path: str, errors: Errors) -> None:
    try:
        tolerations = json.loads(text)
    except ValueError as error:
        errors.append(fields.invalid(path, _TOLERATIONS, str(error)))
        return
    if isinstance(tolerations, list):
        where = f"{path}.{_TOLERATIONS}"
        pod_affinity.check_tolerations(tolerations, where, errors)


def _is_deletion_cost(text: str) -> bool:
    """A whole number of 32 bits, without a plus and without leading zeros."""
    if not (text == "0" or text[:1] == "-" or text[:1] in "123456789") or not text:
        return False
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and -(2**31) <= int(text) < 2**31


def _check_annotation_changes(new: Object, old: Object, errors: Errors) -> None:
    after = new["metadata"].get("annotations") or {}
    before = old["metadata"].get("annotations") or {}
    if not after and not before:
        return
    for key, value in before.items():
        if after.get(key) != value:
            _check_fixed(key, "remove or update", errors)
    for key in after:
        if key not in before:
            _check_fixed(key, "add", errors)
    _check_annotations(after, new.get("spec") or {}, "metadata.annotations", errors)


def _check_fixed(key: str, act: str, errors: Errors) -> None:
    """Annotations that a pod is born with, or never gets."""
    path = f"metadata.annotations[{key}]"
    if key.startswith(pod_security.APPARMOR_CONTAINER):
        errors.append(fields.forbidden(path, f"may not {act} AppArmor annotations"))
    if key == _MIRROR:
        errors.append(fields.forbidden(path, f"may not {act} mirror pod annotation"))
