# SPDX-License-Identifier: Apache-2.0
"""Security contexts of a pod and of its containers, and what contradicts them.

Older pods have seccomp and AppArmor profiles in annotations, which must agree with
the fields.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from refloat.api import fields, go_internal_types, names
from refloat.api.meta import Object
from refloat.api.validation.pod_windows import check_windows_options
from refloat.api.validation.rules import Errors

PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")

SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
APPARMOR_CONTAINER = "container.apparmor.security.beta.kubernetes.io/"

LOCALHOST_PROFILE_LENGTH = 4095  # the longest path that Linux takes

_SYSCTL_LENGTH = 253
_SYSCTL_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL = rf"^({_SYSCTL_SEGMENT}[\./])*{_SYSCTL_SEGMENT}$"
_is_sysctl = re.compile(_SYSCTL.removesuffix("$") + r"\Z").match
_IPC_SYSCTLS = frozenset(
    (
        *("kernel.sem", "kernel.shm", "kernel.msg"),
        *("kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced"),
        *("kernel.msgmax", "kernel.msgmnb", "kernel.msgmni"),
    )
)

_ESCALATION = "cannot set `allowPrivilegeEscalation` to false and"


def containers(spec: Object, path: str) -> Iterator[tuple[Object, str]]:
    """All containers with their paths, those that run first at the start."""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for i, container in enumerate(spec.get(kind) or ()):
            yield container, f"{path}.{kind}[{i}]"


def check_container(context: Object, path: str, errors: Errors, *, host_users: bool) -> None:
    _check_ids(context, ("runAsUser", "runAsGroup"), path, errors)
    mount = context.get("procMount")
    errors.one_of(f"{path}.procMount", mount, ("Default", "Unmasked"))
    if host_users and mount == "Unmasked":
        detail = "`hostUsers` must be false to use `Unmasked`"
        errors.invalid(f"{path}.procMount", mount, detail)
    _check_seccomp(context, path, errors)
    if context.get("allowPrivilegeEscalation") is False:
        contradictions = ["`privileged` to true"] if context.get("privileged") else []
        added = (context.get("capabilities") or {}).get("add") or ()
        contradictions += ["`capabilities.Add` CAP_SYS_ADMIN"] * added.count("CAP_SYS_ADMIN")
        for each in contradictions:
            value_text = go_internal_types.shown("core.SecurityContext", context)
            errors.invalid(path, value_text, f"{_ESCALATION} {each}")
    check_windows_options(context, path, errors)
    check_apparmor(context, path, errors)


def check_pod(spec: Object, path: str, errors: Errors, stored: Object | None = None) -> None:
    """The context of the pod; `stored` is the specification before an update."""
    context = spec.get("securityContext") or {}
    where = f"{path}.securityContext"
    if context:
        _check_ids(context, ("fsGroup", "runAsUser", "runAsGroup"), where, errors)
        for i, group in enumerate(context.get("supplementalGroups") or ()):
            errors.each(f"{where}.supplementalGroups[{i}]", group, names.user_id(group))
    if spec.get("hostPID") and spec.get("shareProcessNamespace"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.invalid(f"{where}.shareProcessNamespace", True, detail)
    if context:
        if sysctls := context.get("sysctls"):
            _check_sysctls(sysctls, spec, f"{where}.sysctls", errors)
        policy = context.get("fsGroupChangePolicy")
        errors.one_of(f"{where}.fsGroupChangePolicy", policy, ("Always", "OnRootMismatch"))
        _check_seccomp(context, where, errors)
        check_windows_options(context, where, errors)
        check_apparmor(context, where, errors)
        policy = context.get("supplementalGroupsPolicy")
        errors.one_of(f"{where}.supplementalGroupsPolicy", policy, ("Merge", "Strict"))
        # The gate of MountOption is off. An update may have MountOption if the pod has either one.
        key, before = "seLinuxChangePolicy", (stored or {}).get("securityContext") or {}
        policies = ("Recursive",) if before.get(key) is None else ("MountOption", "Recursive")
        errors.one_of(f"{where}.{key}", context.get(key), policies)


def _check_ids(context: Object, keys: tuple[str, ...], path: str, errors: Errors) -> None:
    for key in keys:
        if (identity := context.get(key)) is not None:
            errors.each(f"{path}.{key}", identity, names.user_id(identity))


def _check_sysctls(sysctls: list[Object], spec: Object, path: str, errors: Errors) -> None:
    names_so_far: set[str] = set()
    for i, sysctl in enumerate(sysctls):
        name, where = sysctl.get("name", ""), f"{path}[{i}].name"
        if not name:
            errors.required(where)
        elif len(name) > _SYSCTL_LENGTH or not _is_sysctl(name):
            detail = f"must have at most {_SYSCTL_LENGTH} characters and match regex {_SYSCTL}"
            errors.invalid(where, name, detail)
        else:
            errors.repeated(where, name, names_so_far)
        # A sysctl of a namespace that the pod shares with its host belongs to the host.
        first = next((char for char in name if char in "./"), ".")
        dotted = name if first == "." else name.translate(str.maketrans("./", "/."))
        dotted = dotted.partition("*")[0]
        if spec.get("hostNetwork") and dotted.startswith("net."):
            errors.invalid(where, name, "may not be specified when 'hostNetwork' is true")
        elif spec.get("hostIPC") and (dotted in _IPC_SYSCTLS or dotted.startswith("fs.mqueue.")):
            errors.invalid(where, name, "may not be specified when 'hostIPC' is true")
        names_so_far.add(name)


def _check_seccomp(context: Object, path: str, errors: Errors) -> None:
    profile = context.get("seccompProfile")
    if profile is None:
        return
    where, kind = f"{path}.seccompProfile", profile.get("type", "")
    if not kind:
        errors.required(f"{where}.type", "type is required when seccompProfile is set")
    else:
        errors.one_of(f"{where}.type", kind, PROFILES)
    file = profile.get("localhostProfile")
    if kind == "Localhost":
        if file is None:
            detail = "must be set when seccomp type is Localhost"
            errors.required(f"{where}.localhostProfile", detail)
        else:
            errors.descending_path(f"{where}.localhostProfile", file)
    elif file is not None:
        value_text = go_internal_types.shown("core.SeccompProfile", profile)
        detail = "can only be set when seccomp type is Localhost"
        errors.invalid(f"{where}.localhostProfile", value_text, detail)


def check_apparmor(context: Object, path: str, errors: Errors) -> None:
    profile = context.get("appArmorProfile")
    if profile is None:
        return
    where, kind = f"{path}.appArmorProfile", profile.get("type", "")
    file = profile.get("localhostProfile")
    if kind == "Localhost":
        if not file:
            detail = "must be set when AppArmor type is Localhost"
            errors.required(f"{where}.localhostProfile", detail)
        elif file.strip() != file:
            errors.invalid(f"{where}.localhostProfile", file, "must not be padded with whitespace")
        errors.too_long(f"{where}.localhostProfile", file or "", LOCALHOST_PROFILE_LENGTH)
    elif not kind:
        errors.required(f"{where}.type", "type is required when appArmorProfile is set")
    elif kind not in PROFILES:
        errors.one_of(f"{where}.type", kind, PROFILES)
    elif file is not None:
        detail = "can only be set when AppArmor type is Localhost"
        errors.invalid(f"{where}.localhostProfile", go_internal_types.typed(file), detail)


def check_seccomp_annotations(annotations: Mapping[str, str], path: str, errors: Errors) -> None:
    if (profile := annotations.get(SECCOMP_POD)) is not None:
        _check_seccomp_name(profile, f"{path}.{SECCOMP_POD}", errors)
    for key, profile in annotations.items():
        if key.startswith(SECCOMP_CONTAINER):
            _check_seccomp_name(profile, f"{path}.{key}", errors)


def _check_seccomp_name(profile: str, path: str, errors: Errors) -> None:
    if profile in ("runtime/default", "docker/default", "unconfined"):
        return
    if profile.startswith("localhost/"):
        errors.descending_path(path, profile.removeprefix("localhost/"))
    else:
        errors.invalid(path, profile, "must be a valid seccomp profile")


def check_apparmor_annotations(
    annotations: Mapping[str, str], spec: Object, path: str, errors: Errors
) -> None:
    for key, profile in annotations.items():
        if not key.startswith(APPARMOR_CONTAINER):
            continue
        name = key.removeprefix(APPARMOR_CONTAINER)
        if not any(each.get("name") == name for each, _ in containers(spec, "")):
            errors.invalid(f"{path}[{key}]", name, "container not found")
        is_name = profile in ("", "runtime/default", "unconfined")
        if not is_name and not profile.startswith("localhost/"):
            detail = f"invalid AppArmor profile name: {fields.quote(profile)}"
            errors.invalid(f"{path}[{key}]", profile, detail)


def profile_of_annotation(annotation: str) -> Object | None:
    """The AppArmor profile that an annotation names, or None."""
    for kind, text in _ANNOTATED.items():
        if annotation == text:
            return {"type": kind}
    prefix, _, file = annotation.partition("/")
    if prefix == "localhost" and file:
        return {"type": "Localhost", "localhostProfile": file}
    return None


def check_annotations_agree(metadata: Object, spec: Object, path: str, errors: Errors) -> None:
    """Profiles in annotations against those in fields."""
    annotations = metadata.get("annotations")
    if not annotations:
        return
    context = spec.get("securityContext") or {}
    _check_seccomp_agrees(annotations.get(SECCOMP_POD), context, f"{path}.securityContext", errors)
    for container, where in containers(spec, path):
        annotation = annotations.get(SECCOMP_CONTAINER + container.get("name", ""))
        own = container.get("securityContext") or {}
        _check_seccomp_agrees(annotation, own, f"{where}.securityContext", errors)
    if (spec.get("os") or {}).get("name") == "windows":
        return
    for container, where in containers(spec, path):
        annotation = annotations.get(APPARMOR_CONTAINER + container.get("name", ""))
        own = container.get("securityContext") or {}
        profile = own.get("appArmorProfile") or context.get("appArmorProfile")
        where = f"{where}.securityContext.appArmorProfile"
        _check_agrees("apparmor", annotation, profile, where, errors)


def _check_seccomp_agrees(
    annotation: str | None, context: Object, path: str, errors: Errors
) -> None:
    if annotation == "docker/default":
        annotation = "runtime/default"
    profile = context.get("seccompProfile")
    _check_agrees("seccomp", annotation, profile, f"{path}.seccompProfile", errors)


_ANNOTATED = {"Unconfined": "unconfined", "RuntimeDefault": "runtime/default"}


def _check_agrees(
    what: str, annotation: str | None, profile: Any, path: str, errors: Errors
) -> None:
    if annotation is None or not profile:
        return
    kind = profile.get("type", "")
    differs = kind in _ANNOTATED and annotation != _ANNOTATED[kind]
    if differs or (kind == "Localhost" and not annotation.startswith("localhost/")):
        errors.forbidden(f"{path}.type", f"{what} type in annotation and field must match")
    elif kind == "Localhost" and annotation != f"localhost/{profile.get('localhostProfile')}":
        detail = f"{what} profile in annotation and field must match"
        errors.forbidden(f"{path}.localhostProfile", detail)
