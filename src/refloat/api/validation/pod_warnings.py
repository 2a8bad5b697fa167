# SPDX-License-Identifier: Apache-2.0
"""What a pod is accepted with although its author may not want it so.

The API server sends these along with its answer; nothing is refused here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from refloat.api import names, quantity
from refloat.api.fields import quote
from refloat.api.meta import Object
from refloat.api.validation import addresses, pod_affinity, pod_security

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

# In the order in which they are looked for, with the name that is shown.
_OLD_VOLUMES = {
    "photonPersistentDisk": (
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    "gitRepo": ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    "scaleIO": ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    "flocker": ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    "storageos": ("storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    "quobyte": ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    "glusterfs": ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    "ephemeral": ("", ""),
    "cephfs": ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    "rbd": ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
}
_SECCOMP = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_APPARMOR = 'deprecated since v1.30; use the "appArmorProfile" field instead'
_NO_SELECTOR = "a null labelSelector results in matching no pod"


# Together they may be 4,096 characters long, and each is longer than this leaves.
MAX_WARNINGS = 500

# Ports of one number are compared with so many others of it: each with each
# would keep the server busy for minutes with a pod of 100,000 of them.
COMPARED_PORTS = 32


def warnings(pod: Object, path: str) -> list[str]:
    """All that can be told, for a pod (path empty) or for a template at a path."""
    return list(islice(_warnings(pod, f"{path}." if path else ""), MAX_WARNINGS))


def _warnings(pod: Object, root: str) -> Iterator[str]:
    spec, metadata = pod.get("spec") or {}, pod.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    yield from _node_labels(spec, f"{root}spec")
    yield from _topology(spec, f"{root}spec.topologySpreadConstraints")
    for key, message in _OLD_ANNOTATIONS.items():
        if key in annotations:
            yield f"{root}metadata.annotations[{key}]: {message}"
    if volumes := spec.get("volumes"):
        yield from _volumes(volumes, f"{root}spec.volumes")
        yield from _overlapping_files(volumes)
    yield from _repeated(spec, f"{root}spec")
    yield from _fractions(spec.get("overhead") or {}, f"{root}spec.overhead")
    yield from _containers(spec, annotations, root)
    yield from _ports(spec, f"{root}spec")
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        detail = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"{root}spec.terminationGracePeriodSeconds: {detail}"
    yield from _pod_affinity(spec.get("affinity") or {}, f"{root}spec.affinity")
    yield from _addresses(spec, f"{root}spec")


def _node_labels(spec: Object, path: str) -> Iterator[str]:
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


def _term(term: Object, path: str, *, values_shown: bool = False) -> Iterator[str]:
    for i, expression in enumerate(term.get("matchExpressions") or ()):
        where, key = f"{path}.matchExpressions[{i}]", expression.get("key", "")
        if key in _OLD_LABELS:
            yield f"{where}.key: {key} is {_OLD_LABELS[key]}"
        for j, value in enumerate((expression.get("values") or ()) if values_shown else ()):
            for complaint in names.label_value(value):
                yield f"{where}.values[{j}]: {value} is invalid, {complaint}"


def _topology(spec: Object, path: str) -> Iterator[str]:
    for i, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        key = constraint.get("topologyKey", "")
        if key in _OLD_LABELS:
            yield f"{path}[{i}].topologyKey: {key} is {_OLD_LABELS[key]}"
        if constraint.get("labelSelector") is None:
            yield f"{path}[{i}].labelSelector: {_NO_SELECTOR}"


def _volumes(volumes: Sequence[Object], path: str) -> Iterator[str]:
    for i, volume in enumerate(volumes):
        for kind, (shown, message) in _OLD_VOLUMES.items():
            if volume.get(kind) is None:
                continue
            if kind == "ephemeral":
                yield from _claim_fractions(volume[kind], f"{path}[{i}].ephemeral")
            else:
                yield f"{path}[{i}].{shown}: {message}"


def _claim_fractions(source: Object, path: str) -> Iterator[str]:
    spec = (source.get("volumeClaimTemplate") or {}).get("spec") or {}
    for part in ("requests", "limits"):
        amount = ((spec.get("resources") or {}).get(part) or {}).get("storage", "0")
        where = f"{path}.volumeClaimTemplate.spec.resources.{part}[storage]"
        yield from _fraction(amount, where)


def _fraction(amount: str, path: str) -> Iterator[str]:
    if quantity.milli_value(amount) % 1000:
        yield f"{path}: fractional byte value {quote(amount)} is invalid, must be an integer"


def _fractions(amounts: Mapping[str, str], path: str) -> Iterator[str]:
    for name in ("memory", "ephemeral-storage"):
        if name in amounts:
            yield from _fraction(amounts[name], f"{path}[{name}]")


def _repeated(spec: Object, path: str) -> Iterator[str]:
    """Entries of lists that hide each other."""
    for kind, key in (("hostAliases", "ip"), ("imagePullSecrets", "name")):
        seen: set[str] = set()
        for i, each in enumerate(spec.get(kind) or ()):
            value = each.get(key, "")
            if value in seen:
                yield f"{path}.{kind}[{i}].{key}: duplicate {key} {quote(value)}"
            seen.add(value)
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
        if resources:
            yield from _container_fractions(resources, f"{path}.resources")
        if len(variables := container.get("env") or ()) > 1:
            yield from _hidden_variables(variables, f"{path}.env")


def _old_profiles(
    container: Object, of_pod: Object, annotations: Mapping[str, str], root: str
) -> Iterator[str]:
    own, name = container.get("securityContext") or {}, container.get("name", "")
    key = pod_security.SECCOMP_CONTAINER + name
    if own.get("seccompProfile") is None and key in annotations:
        yield f"{root}metadata.annotations[{key}]: {_SECCOMP}"
    key = pod_security.APPARMOR_CONTAINER + name
    # For a pod this is said when the annotation becomes a field (`api/pods.py`).
    if root and own.get("appArmorProfile") is None and key in annotations:
        profile = of_pod.get("appArmorProfile")
        if profile is None or profile != pod_security.profile_of_annotation(annotations[key]):
            yield f"{root}metadata.annotations[{key}]: {_APPARMOR}"


def _container_fractions(resources: Object, path: str) -> Iterator[str]:
    for name in ("memory", "ephemeral-storage"):
        for part in ("limits", "requests"):
            if amount := (resources.get(part) or {}).get(name):
                yield from _fraction(amount, f"{path}.{part}[{name}]")


def _hidden_variables(variables: Sequence[Object], path: str) -> Iterator[str]:
    """A name given twice is meant only where the second value uses the first."""
    seen: set[str] = set()
    for i, variable in enumerate(variables):
        name, value = variable.get("name", ""), variable.get("value", "")
        if name not in seen:
            seen.add(name)
            continue
        reference = f"$({name})"
        extends = reference in value and value != reference
        if variable.get("valueFrom") is not None or not extends:
            yield (
                f"{path}[{i}]: hides previous definition of {quote(name)}, "
                "which may be dropped when using apply"
            )


def _ports(spec: Object, path: str) -> Iterator[str]:
    placed = [
        (port, f"{where}.ports[{i}]")
        for container, where in pod_security.containers(spec, path)
        for i, port in enumerate(container.get("ports") or ())
    ]
    by_number: dict[tuple[int, str], list[tuple[Object, str]]] = {}
    for port, where in placed:
        if port.get("hostIP") and not port.get("hostPort"):
            yield f"{where}: hostIP set without hostPort: {_shown_port(port)}"
        key = port.get("containerPort", 0), port.get("protocol", "")
        others = by_number.setdefault(key, [])
        for other, at in others:
            if how := _clash(port, other):
                yield f"{where}: {how} port definition with {at}"
        if len(others) < COMPARED_PORTS:
            others.append((port, where))
    yield from _port_names(placed)


def _shown_port(port: Object) -> str:
    return (
        f"{{Name:{port.get('name', '')} HostPort:{port.get('hostPort', 0)} "
        f"ContainerPort:{port.get('containerPort', 0)} Protocol:{port.get('protocol', '')} "
        f"HostIP:{port.get('hostIP', '')}}}"
    )


def _clash(port: Object, other: Object) -> str:
    addresses_given = port.get("hostIP", ""), other.get("hostIP", "")
    numbers = port.get("hostPort", 0), other.get("hostPort", 0)
    if addresses_given[0] == addresses_given[1] and numbers[0] == numbers[1]:
        return "duplicate"
    if 0 in numbers:
        return "overlapping"
    if numbers[0] == numbers[1] and "" in addresses_given:
        return "dangerously ambiguous"
    return ""


def _port_names(placed: Sequence[tuple[Object, str]]) -> Iterator[str]:
    first: dict[str, str] = {}
    for port, where in placed:
        name = port.get("name")
        if name and name in first:
            yield (
                f"{where}: duplicate port name {quote(name)} with {first[name]}, services and "
                f"probes that select ports by name will use {first[name]}"
            )
        elif name:
            first[name] = where


def _pod_affinity(affinity: Object, path: str) -> Iterator[str]:
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        for i, term in enumerate(terms.get(pod_affinity.REQUIRED) or ()):
            if term.get("labelSelector") is None:
                where = f"{path}.{kind}.{pod_affinity.REQUIRED}[{i}]"
                yield f"{where}.labelSelector: {_NO_SELECTOR}"
        for i, term in enumerate(terms.get(pod_affinity.PREFERRED) or ()):
            if (term.get("podAffinityTerm") or {}).get("labelSelector") is None:
                where = f"{path}.{kind}.{pod_affinity.PREFERRED}[{i}]"
                yield f"{where}.podAffinityTerm.labelSelector: {_NO_SELECTOR}"


def _addresses(spec: Object, path: str) -> Iterator[str]:
    servers = (spec.get("dnsConfig") or {}).get("nameservers") or ()
    for i, server in enumerate(servers):
        yield from addresses.warnings(server, f"{path}.dnsConfig.nameservers[{i}]")
    for i, alias in enumerate(spec.get("hostAliases") or ()):
        yield from addresses.warnings(alias.get("ip", ""), f"{path}.hostAliases[{i}].ip")


def _overlapping_files(volumes: Sequence[Object]) -> Iterator[str]:
    """Files of one volume of which one is the other's directory, or the other itself."""
    for volume in volumes:
        name = quote(volume.get("name", ""))
        for kind, files in _files(volume):
            for problem in _overlaps(files):
                yield f"volume {name} ({kind}): overlapping paths: {problem}"
        sources = (volume.get("projected") or {}).get("sources") or ()
        if not sources:
            continue
        placed = _Placed()
        for source in sources:
            if not source:
                yield f"volume {name} (Projected) has no sources provided"
                continue
            for file in _projected_files(source):
                for problem in placed.add(file):
                    yield f"volume {name} (Projected): overlapping paths: {problem}"


def _files(volume: Object) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for kind, title, key in (
        ("configMap", "ConfigMap", "name"),
        ("secret", "Secret", "secretName"),
        ("downwardAPI", "DownwardAPI", ""),
    ):
        if source := volume.get(kind):
            shown = f"{title} {quote(source.get(key, ''))}" if key else title
            yield shown, _paths(source.get("items") or (), "")


def _paths(items: Sequence[Object], source: str) -> list[tuple[str, str]]:
    return [(each.get("path", "").rstrip("/"), source) for each in items]


def _projected_files(source: Object) -> list[tuple[str, str]]:
    for kind, title in (("configMap", "ConfigMap"), ("secret", "Secret")):
        if (part := source.get(kind)) is not None and part.get("items"):
            return _paths(part["items"], f"{title} {quote(part.get('name', ''))}")
    if items := (source.get("downwardAPI") or {}).get("items"):
        return _paths(items, "DownwardAPI")
    if (token := source.get("serviceAccountToken")) is not None:
        return _paths((token,), "ServiceAccountToken")
    return []


def _overlaps(files: Sequence[tuple[str, str]]) -> Iterator[str]:
    placed = _Placed()
    for file in files:
        yield from placed.add(file)


# Directories above a file that are remembered; a longer path is compared with each other one.
_MOST_ABOVE = 1000


class _Placed:
    """The files of a volume so far; only one that overlaps is compared with all of them."""

    def __init__(self) -> None:
        self._files: list[tuple[str, str]] = []
        self._paths: set[str] = set()
        self._above: set[str] = set()  # the directories of those paths
        self._is_deep = False

    def add(self, file: tuple[str, str]) -> list[str]:
        """Place a file; with which others does it overlap?"""
        path = file[0]
        if not path:
            return []
        above = [path[: match.start()] for match in re.finditer("/", path)]
        self._is_deep = self._is_deep or len(above) > _MOST_ABOVE
        problems: list[str] = []
        may = path in self._paths or path in self._above or not self._paths.isdisjoint(above)
        if may or self._is_deep:
            others = islice(_overlaps_with(file, self._files), MAX_WARNINGS)
            problems = [f"{_shown_file(file)} with {_shown_file(other)}" for other in others]
        self._files.append(file)
        self._paths.add(path)
        self._above.update(above[:_MOST_ABOVE])
        return problems


def _overlaps_with(
    file: tuple[str, str], others: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    ours = f"{file[0]}/"
    for other in others:
        theirs = f"{other[0]}/"
        if theirs.startswith(ours) or ours.startswith(theirs):
            yield other


def _shown_file(file: tuple[str, str]) -> str:
    path, source = file
    return f"{quote(path)} ({source})" if source else quote(path)
