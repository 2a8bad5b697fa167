# SPDX-License-Identifier: Apache-2.0
"""The operating system of a pod, and the fields of only one operating system."""

import re

from refloat.api import fields, names
from refloat.api.meta import Object
from refloat.api.validation.rules import Errors

CREDENTIAL_KIB = 64
DOMAIN_LENGTH = 256
USER_LENGTH = 104

_has_control = re.compile("[\x00-\x1f\x7f]").search
_is_netbios = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}').fullmatch
_DNS_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_is_dns_domain = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*").fullmatch
_has_bad_character = re.compile(r'["/\\:;|=,+*?<>@\[\]]').search

# In the order in which Kubernetes reports them: the part of the specification that
# has the field, or "" for the specification itself, and the field.
_LINUX_ONLY_POD = (
    ("securityContext", "appArmorProfile"),
    ("securityContext", "seLinuxOptions"),
    ("", "hostUsers"),
    ("", "hostPID"),
    ("", "hostIPC"),
    ("securityContext", "seccompProfile"),
    ("securityContext", "fsGroup"),
    ("securityContext", "fsGroupChangePolicy"),
    ("securityContext", "sysctls"),
    ("", "shareProcessNamespace"),
    ("securityContext", "runAsUser"),
    ("securityContext", "runAsGroup"),
    ("securityContext", "supplementalGroups"),
    ("securityContext", "supplementalGroupsPolicy"),
    ("securityContext", "seLinuxChangePolicy"),
)
_LINUX_ONLY_CONTAINER = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)
_NOT_ON_WINDOWS = "cannot be set for a windows pod"
_NOT_ON_LINUX = "windows options cannot be set for a linux pod"


def check_os(spec: Object, path: str, containers: list[tuple[Object, str]], errors: Errors) -> None:
    """The operating system, and no field that only the other one has."""
    name = spec["os"].get("name", "")
    if not name:
        errors.required(f"{path}.os.name")
    elif name not in ("linux", "windows"):
        errors.one_of(f"{path}.os", name, ("linux", "windows"))
    elif name == "linux":
        for owner, where in ((spec, path), *containers):
            if (owner.get("securityContext") or {}).get("windowsOptions") is not None:
                errors.forbidden(f"{where}.securityContext.windowsOptions", _NOT_ON_LINUX)
    else:
        for holder, key in _LINUX_ONLY_POD:
            value = ((spec.get(holder) or {}) if holder else spec).get(key)
            if value is not None and (value or key not in ("hostPID", "hostIPC", "sysctls")):
                where = f"{path}.{holder}.{key}" if holder else f"{path}.{key}"
                errors.forbidden(where, _NOT_ON_WINDOWS)
        for container, where in containers:
            context = container.get("securityContext") or {}
            errors += [
                fields.forbidden(f"{where}.securityContext.{key}", _NOT_ON_WINDOWS)
                for key in _LINUX_ONLY_CONTAINER
                if context.get(key) is not None
            ]


def check_host_process(
    spec: Object, path: str, containers: list[tuple[Object, str]], errors: Errors
) -> None:
    """Either all containers of a pod are processes of a Windows host, or none."""
    of_pod = _host_process(spec)
    count = 0
    for container, where in containers:
        own = _host_process(container)
        if of_pod is not None and own is not None and of_pod != own:
            detail = (
                "pod hostProcess value must be identical if both are specified, "
                f"was {str(of_pod).lower()}"
            )
            errors.invalid(f"{where}.securityContext.windowsOptions.hostProcess", own, detail)
        count += bool(of_pod if own is None else own)
    if not count:
        return
    if count != len(containers):
        detail = (
            "If pod contains any hostProcess containers then all containers must be "
            "HostProcess containers"
        )
        errors.invalid(path, "", detail)
    if not spec.get("hostNetwork"):
        detail = "hostNetwork must be true if pod contains any hostProcess containers"
        errors.invalid(f"{path}.hostNetwork", False, detail)


def _host_process(owner: Object) -> bool | None:
    context = owner.get("securityContext")
    if not context:
        return None
    process: bool | None = (context.get("windowsOptions") or {}).get("hostProcess")
    return process


def check_windows_options(context: Object, path: str, errors: Errors) -> None:
    options = context.get("windowsOptions")
    if not options:
        return
    where = f"{path}.windowsOptions"
    if (name := options.get("gmsaCredentialSpecName")) is not None:
        errors.named(f"{where}.gmsaCredentialSpecName", name, names.dns_subdomain)
    if (credential := options.get("gmsaCredentialSpec")) is not None:
        detail = ""
        if not credential:
            detail = "gmsaCredentialSpec cannot be an empty string"
        elif names.longer(credential, CREDENTIAL_KIB * 1024):
            detail = f"gmsaCredentialSpec size must be under {CREDENTIAL_KIB} KiB"
        if detail:
            errors.invalid(f"{where}.gmsaCredentialSpec", credential, detail)
    if (user := options.get("runAsUserName")) is not None:
        complaints = [f"runAsUserName{each}" for each in _user_complaints(user)]
        errors.each(f"{where}.runAsUserName", user, complaints)


def _user_complaints(name: str) -> list[str]:
    if not name:
        return [" cannot be an empty string"]
    if _has_control(name):
        return [" cannot contain control characters"]
    if name.count("\\") > 1:
        return [" cannot contain more than one backslash"]
    domain, backslash, user = name.rpartition("\\")
    complaints = []
    if len(domain) >= DOMAIN_LENGTH:
        complaints.append(f"'s Domain length must be under {DOMAIN_LENGTH} characters")
    if backslash and not (_is_netbios(domain) or _is_dns_domain(domain)):
        complaints.append("'s Domain doesn't match the NetBios nor the DNS format")
    if not user:
        complaints.append("'s User cannot be empty")
    elif len(user) > USER_LENGTH:
        complaints.append(f"'s User length must not be longer than {USER_LENGTH} characters")
    if user and not user.strip(". "):
        complaints.append("'s User cannot contain only periods or spaces")
    if _has_bad_character(user):
        complaints.append("'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]")
    return complaints
