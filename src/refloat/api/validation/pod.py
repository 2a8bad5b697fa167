# SPDX-License-Identifier: Apache-2.0
"""Whether a pod, or a template of pods, is valid, and may change so.

The entry point to the `pod_*` modules, which other packages do not import.
"""

from refloat.api import names
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import (
    meta,
    pod_annotations,
    pod_containers,
    pod_security,
    pod_spec,
    pod_status,
    pod_update,
    pod_warnings,
)
from refloat.api.validation.effects import Effects
from refloat.api.validation.rules import Errors


def validate_create(pod: Object, *, force_eviction: bool = False) -> list[FieldError]:
    """What is wrong with a new pod."""
    errors = Errors()
    _check_metadata_and_spec(pod, {}, errors, Effects(force_eviction))
    spec = pod.get("spec") or {}
    if spec.get("ephemeralContainers"):
        errors.forbidden("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        detail = "cannot be set until all schedulingGates have been cleared"
        errors.forbidden("spec.nodeName", detail)
    pod_security.check_annotations_agree(pod["metadata"], spec, "spec", errors)
    return errors


def validate_template(
    template: Object, path: str, *, stored: Object | None = None, force_eviction: bool = False
) -> list[FieldError]:
    """What is wrong with a template that pods are made from, and that may be stored already."""
    errors = Errors()
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    errors += meta.validate_labels(metadata.get("labels") or {}, f"{path}.labels")
    errors += meta.validate_annotations(annotations, f"{path}.annotations")
    if annotations:
        pod_annotations.check(annotations, spec, f"{path}.annotations", errors)
    before = (stored or {}).get("spec") or {}
    effects = _effects(before, force_eviction)
    pod_spec.check_spec(spec, None, f"{path}.spec", errors, effects, stored=before)
    pod_security.check_annotations_agree(metadata, spec, f"{path}.spec", errors)
    if spec.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        errors.forbidden(f"{path}.spec.ephemeralContainers", detail)
    return errors


def validate_update(new: Object, old: Object, *, force_eviction: bool = False) -> list[FieldError]:
    """What is wrong with a change of a pod."""
    errors = meta.validate_update(new["metadata"], old["metadata"])
    before = old.get("spec") or {}
    effects = _effects(before, force_eviction)
    _check_metadata_and_spec(new, before, errors, effects)
    pod_annotations.check_changes(new, old, errors)
    pod_update.check_spec_change(new.get("spec") or {}, before, errors, effects)
    return errors


def validate_status_update(new: Object, old: Object) -> list[FieldError]:
    """What is wrong with a change of a pod's status."""
    errors = meta.validate_update(new["metadata"], old["metadata"])
    pod_annotations.check_changes(new, old, errors)
    pod_status.check_change(new, old, errors)
    return errors


def warnings(pod: Object) -> list[str]:
    """What a new pod is accepted with, but should not have."""
    texts = []
    if complaints := names.dns_label(pod["metadata"].get("name", "")):
        texts.append(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising "
            f"behavior; a DNS label is recommended: [{' '.join(complaints)}]"
        )
    return texts + pod_warnings.warnings(pod, "")


def status_warnings(pod: Object) -> list[str]:
    """The same for a pod's status."""
    return pod_status.warnings(pod.get("status") or {})


def template_warnings(template: Object, path: str) -> list[str]:
    """What a template is accepted with, but should not have."""
    return pod_warnings.warnings(template, path)


def _effects(stored: Object, force_eviction: bool) -> Effects:
    return Effects(force_eviction, stored.get("tolerations") or ())


def _check_metadata_and_spec(pod: Object, stored: Object, errors: Errors, effects: Effects) -> None:
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    errors += meta.validate(metadata, namespaced=True, name_check=names.dns_subdomain)
    if annotations := metadata.get("annotations"):
        pod_annotations.check(annotations, spec, "metadata.annotations", errors)
    pod_spec.check_spec(spec, metadata, "spec", errors, effects, stored=stored)
    if not spec.get("serviceAccountName"):
        for k, volume in enumerate(spec.get("volumes") or ()):
            for j, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
                if source.get("serviceAccountToken") is not None:
                    detail = "must not be specified when serviceAccountName is not set"
                    path = f"spec.volumes[{k}].projected.sources[{j}].serviceAccountToken"
                    errors.forbidden(path, detail)
    for kind in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(kind) or ()):
            pod_containers.check_image_unpadded(container, f"spec.{kind}[{i}]", errors)
