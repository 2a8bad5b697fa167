# SPDX-License-Identifier: Apache-2.0
"""Warnings about a valid pod that its author may not want so.

The API server sends them with its answer. Nothing here makes a pod invalid.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product

from refloat.api import names, quantity
from refloat.api.fields import quote
from refloat.api.meta import Object
from refloat.api.validation import addresses, pod_affinity, pod_security, volume_sources

_OLD_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": (
        'deprecated since v1.17; use "topology.kubernetes.io/region" instead'
    ),
    "failure-domain.beta.kubernetes.io/zone": (
        'deprecated since v1.17; use "topology.kubernetes.io/zone" instead'
    ),
    "beta.kubernetes.io/instance-type": (
        'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead'
    ),
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": (
        "deprecated since v1.22; use Taints and Tolerations instead"
    ),
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
_SYSCTLS = 'non-functional in v1.11+; use the "sysctls" field instead'
_OLD_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": (
        'non-functional in v1.16+; use the "priorityClassName" field instead'
    ),
    "security.alpha.kubernetes.io/sysctls": _SYSCTLS,
    "security.alpha.kubernetes.io/unsafe-sysctls": _SYSCTLS,
}

# In the order of the warnings.
_OLD_VOLUMES = (
    *("photonPersistentDisk", "gitRepo", "scaleIO", "flocker", "storageos", "quobyte"),
    *("glusterfs", "ephemeral", "cephfs", "rbd"),
)
_SECCOMP = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_APPARMOR = 'deprecated since v1.30; use the "appArmorProfile" field instead'
_NO_SELECTOR = "a null labelSelector results in matching no pod"


# All warnings together have at most 4,096 characters, so more than this do not fit.
MAX_WARNINGS = 500

_BYTE_AMOUNTS = tuple(product(("memory", "ephemeral-storage"), ("limits", "requests")))

# A port is compared with so many others of its number: to compare all pairs of
# 100,000 ports in a pod takes the server minutes.
COMPARED_PORTS = 32


def warnings(pod: Object, path: str) -> list[str]:
    """The warnings about a pod (path empty), or about a template at a path."""
    return list(islice(_warnings(pod, f"{path}." if path else ""), MAX_WARNINGS))


def _warnings(pod: Object, root: str) -> Iterator[str]:
    spec, metadata = pod.get("spec") or {}, pod.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    yield from _labels(spec, f"{root}spec")
    for key, message in _OLD_ANNOTATIONS.items():
        if key in annotations:
            yield f"{root}metadata.annotations[{key}]: {message}"
    if volumes := spec.get("volumes"):
        yield from _volumes(volumes, f"{root}spec.volumes")
        yield from _overlapping_files(volumes)
    yield from _repeated(spec, f"{root}spec")
    amounts = spec.get("overhead") or {}
    for name in ("memory", "ephemeral-storage"):
        if name in amounts:
            yield from _fraction(amounts[name], f"{root}spec.overhead[{name}]")
    yield from _containers(spec, annotations, root)
    yield from _ports(spec, f"{root}spec")
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        detail = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"{root}spec.terminationGracePeriodSeconds: {detail}"
    yield from _selectors_and_addresses(spec, f"{root}spec")


def _labels(spec: Object, path: str) -> Iterator[str]:
    for key in spec.get("nodeSelector") or ():
        if key in _OLD_LABELS:
            yield f"{path}.nodeSelector[{key}]: {_OLD_LABELS[key]}"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    where = f"{path}.affinity.nodeAffinity"
    required = affinity.get(pod_affinity.REQUIRED) or {}
    for i, term in enumerate(required.get("nodeSelectorTerms") or ()):
        yield from _term(term, f"{where}.{pod_affinity.REQUIRED}.nodeSelectorTerms[{i}]")
    for i, preferred in enumerate(affinity.get(pod_affinity.PREFERRED) or ()):
        term, at = preferred.get("preference") or {}, f"{where}.{pod_affinity.PREFERRED}[{i}]"
        yield from _term(term, f"{at}.preference", values_shown=True)
    for i, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        key, at = constraint.get("topologyKey", ""), f"{path}.topologySpreadConstraints[{i}]"
        if key in _OLD_LABELS:
            yield f"{at}.topologyKey: {key} is {_OLD_LABELS[key]}"
        if constraint.get("labelSelector") is None:
            yield f"{at}.labelSelector: {_NO_SELECTOR}"


def _term(term: Object, path: str, *, values_shown: bool = False) -> Iterator[str]:
    for i, expression in enumerate(term.get("matchExpressions") or ()):
        where, key = f"{path}.matchExpressions[{i}]", expression.get("key", "")
        if key in _OLD_LABELS:
            yield f"{where}.key: {key} is {_OLD_LABELS[key]}"
        for j, value in enumerate((expression.get("values") or ()) if values_shown else ()):
            for complaint in names.label_value(value):
                yield f"{where}.values[{j}]: {value} is invalid, {complaint}"


def _volumes(volumes: Sequence[Object], path: str) -> Iterator[str]:
    for i, volume in enumerate(volumes):
        for kind in _OLD_VOLUMES:
            if volume.get(kind) is None:
                continue
            if kind == "ephemeral":
                spec = (volume[kind].get("volumeClaimTemplate") or {}).get("spec") or {}
                for part in ("requests", "limits"):
                    amount = ((spec.get("resources") or {}).get(part) or {}).get("storage", "0")
                    where = (
                        f"{path}[{i}].ephemeral.volumeClaimTemplate.spec.resources.{part}[storage]"
                    )
                    yield from _fraction(amount, where)
            else:
                label = volume_sources.DEPRECATED_LABELS.get(kind, kind)
                yield f"{path}[{i}].{label}: {volume_sources.DEPRECATED[kind]}"


def _fraction(amount: str, path: str) -> Iterator[str]:
    if quantity.milli_value(amount) % 1000:
        yield f"{path}: fractional byte value {quote(amount)} is invalid, must be an integer"


def _repeated(spec: Object, path: str) -> Iterator[str]:
    """Entries of lists that hide each other."""
    for kind, key in (("hostAliases", "ip"), ("imagePullSecrets", "name")):
        values: set[str] = set()
        for i, each in enumerate(spec.get(kind) or ()):
            value = each.get(key, "")
            if value in values:
                yield f"{path}.{kind}[{i}].{key}: duplicate {key} {quote(value)}"
            values.add(value)
    for i, each in enumerate(spec.get("imagePullSecrets") or ()):
        if not each.get("name"):
            yield f'{path}.imagePullSecrets[{i}].name: invalid empty name ""'


def _containers(spec: Object, annotations: Mapping[str, str], root: str) -> Iterator[str]:
    context = spec.get("securityContext") or {}
    if context.get("seccompProfile") is None and pod_security.SECCOMP_POD in annotations:
        yield f"{root}metadata.annotations[{pod_security.SECCOMP_POD}]: {_SECCOMP}"
    for container, path in pod_security.containers(spec, f"{root}spec"):
        if annotations:
            yield from _old_profiles(container, context, annotations, root)
        resources = container.get("resources") or {}
        for name, part in _BYTE_AMOUNTS if resources else ():
            if amount := (resources.get(part) or {}).get(name):
                yield from _fraction(amount, f"{path}.resources.{part}[{name}]")
        names_so_far: set[str] = set()
        for i, variable in enumerate(container.get("env") or ()):
            name, value = variable.get("name", ""), variable.get("value", "")
            if name not in names_so_far:
                names_so_far.add(name)
                continue
            # A repeated name is intended only if the second value uses the first.
            reference = f"$({name})"
            extends = reference in value and value != reference
            if variable.get("valueFrom") is not None or not extends:
                yield (
                    f"{path}.env[{i}]: hides previous definition of {quote(name)}, "
                    "which may be dropped when using apply"
                )


def _old_profiles(
    container: Object, pod_context: Object, annotations: Mapping[str, str], root: str
) -> Iterator[str]:
    own, name = container.get("securityContext") or {}, container.get("name", "")
    key = pod_security.SECCOMP_CONTAINER + name
    if own.get("seccompProfile") is None and key in annotations:
        yield f"{root}metadata.annotations[{key}]: {_SECCOMP}"
    key = pod_security.APPARMOR_CONTAINER + name
    # `api/pod_preparation.py` has the warning for a pod, where the annotation becomes a field.
    if root and own.get("appArmorProfile") is None and key in annotations:
        profile = pod_context.get("appArmorProfile")
        if profile is None or profile != pod_security.profile_of_annotation(annotations[key]):
            yield f"{root}metadata.annotations[{key}]: {_APPARMOR}"


def _ports(spec: Object, path: str) -> Iterator[str]:
    ports = [
        (port, f"{where}.ports[{i}]")
        for container, where in pod_security.containers(spec, path)
        for i, port in enumerate(container.get("ports") or ())
    ]
    by_number: dict[tuple[int, str], list[tuple[Object, str]]] = {}
    for port, where in ports:
        if port.get("hostIP") and not port.get("hostPort"):
            yield (
                f"{where}: hostIP set without hostPort: "
                f"{{Name:{port.get('name', '')} HostPort:{port.get('hostPort', 0)} "
                f"ContainerPort:{port.get('containerPort', 0)} "
                f"Protocol:{port.get('protocol', '')} HostIP:{port.get('hostIP', '')}}}"
            )
        key = port.get("containerPort", 0), port.get("protocol", "")
        others = by_number.setdefault(key, [])
        for other, at in others:
            if how := _clash(port, other):
                yield f"{where}: {how} port definition with {at}"
        if len(others) < COMPARED_PORTS:
            others.append((port, where))
    first: dict[str, str] = {}
    for port, where in ports:
        if (name := port.get("name")) and (place := first.setdefault(name, where)) != where:
            yield (
                f"{where}: duplicate port name {quote(name)} with {place}, services and "
                f"probes that select ports by name will use {place}"
            )


def _clash(port: Object, other: Object) -> str:
    ips = port.get("hostIP", ""), other.get("hostIP", "")
    numbers = port.get("hostPort", 0), other.get("hostPort", 0)
    if ips[0] == ips[1] and numbers[0] == numbers[1]:
        return "duplicate"
    if 0 in numbers:
        return "overlapping"
    return "dangerously ambiguous" if numbers[0] == numbers[1] and "" in ips else ""


def _selectors_and_addresses(spec: Object, path: str) -> Iterator[str]:
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        terms, where = affinity.get(kind) or {}, f"{path}.affinity.{kind}"
        for i, term in enumerate(terms.get(pod_affinity.REQUIRED) or ()):
            if term.get("labelSelector") is None:
                yield f"{where}.{pod_affinity.REQUIRED}[{i}].labelSelector: {_NO_SELECTOR}"
        for i, term in enumerate(terms.get(pod_affinity.PREFERRED) or ()):
            if (term.get("podAffinityTerm") or {}).get("labelSelector") is None:
                at = f"{where}.{pod_affinity.PREFERRED}[{i}].podAffinityTerm"
                yield f"{at}.labelSelector: {_NO_SELECTOR}"
    for i, server in enumerate((spec.get("dnsConfig") or {}).get("nameservers") or ()):
        yield from addresses.warnings(server, f"{path}.dnsConfig.nameservers[{i}]")
    for i, alias in enumerate(spec.get("hostAliases") or ()):
        yield from addresses.warnings(alias.get("ip", ""), f"{path}.hostAliases[{i}].ip")


def _overlapping_files(volumes: Sequence[Object]) -> Iterator[str]:
    """Files of one volume that have one path, or of which one is the other's directory."""
    for volume in volumes:
        name = quote(volume.get("name", ""))
        for kind, title, key in _FILE_SOURCES:
            if source := volume.get(kind):
                label = f"{title} {quote(source.get(key, ''))}" if key else title
                for problem in _PlacedFiles().add(source.get("items") or (), ""):
                    yield f"volume {name} ({label}): overlapping paths: {problem}"
        files = _PlacedFiles()
        for source in (volume.get("projected") or {}).get("sources") or ():
            if not source:
                yield f"volume {name} (Projected) has no sources provided"
            lists: list[tuple[Sequence[Object], str]] = [
                (part["items"], f"{title} {quote(part.get('name', ''))}" if key else title)
                for kind, title, key in _FILE_SOURCES
                if (part := source.get(kind) or {}).get("items")
            ]
            if (token := source.get("serviceAccountToken")) is not None:
                lists.append(((token,), "ServiceAccountToken"))
            for items, label in lists[:1]:
                for problem in files.add(items, label):
                    yield f"volume {name} (Projected): overlapping paths: {problem}"


_FILE_SOURCES = (
    ("configMap", "ConfigMap", "name"),
    ("secret", "Secret", "secretName"),
    ("downwardAPI", "DownwardAPI", ""),
)


# The number of directories above a file to keep; a longer path is compared with each other file.
_MOST_ABOVE = 1000


class _PlacedFiles:
    """The files of a volume so far; a file that overlaps is compared with all of them."""

    def __init__(self) -> None:
        self._files: list[tuple[str, str]] = []
        self._paths: set[str] = set()
        self._above: set[str] = set()  # the directories of those paths
        self._is_deep = False

    def add(self, items: Sequence[Object], source: str) -> Iterator[str]:
        """Add the files of a source; yield their overlaps with other files."""
        for path in filter(None, (each.get("path", "").rstrip("/") for each in items)):
            above = [path[: match.start()] for match in re.finditer("/", path)]
            self._is_deep = self._is_deep or len(above) > _MOST_ABOVE
            problems: list[str] = []
            may = path in self._paths or path in self._above or not self._paths.isdisjoint(above)
            if may or self._is_deep:
                others = (
                    other
                    for other in self._files
                    if f"{other[0]}/".startswith(f"{path}/") or path.startswith(f"{other[0]}/")
                )
                text = _shown_file((path, source))
                problems = [f"{text} with {_shown_file(o)}" for o in islice(others, MAX_WARNINGS)]
            self._files.append((path, source))
            self._paths.add(path)
            self._above.update(above[:_MOST_ABOVE])
            yield from problems


def _shown_file(file: tuple[str, str]) -> str:
    path, source = file
    return f"{quote(path)} ({source})" if source else quote(path)
