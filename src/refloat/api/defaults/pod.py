# SPDX-License-Identifier: Apache-2.0
"""The default values of a pod's fields.

A template gets most of them, but not requests from limits, host ports and
service links.
"""

import re
from collections.abc import Iterator, Sequence

from refloat.api import quantity, resource_requests
from refloat.api.meta import Object
from refloat.api.resource_requests import Amounts

MESSAGE_PATH = "/dev/termination-log"
GRACE_SECONDS = 30
SCHEDULER = "default-scheduler"
FILE_MODE = 0o644
TOKEN_SECONDS = 3600

_CONTAINERS = ("containers", "initContainers")
_ALL_CONTAINERS = (*_CONTAINERS, "ephemeralContainers")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")
_PROBE_NUMBERS = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_MESSAGE = {"terminationMessagePath": MESSAGE_PATH, "terminationMessagePolicy": "File"}
_MODED = ("secret", "configMap", "downwardAPI", "projected")
_SOURCES: dict[str, Object] = {
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}
_AZURE_DISK = {"cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4", "readOnly": False}
_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_MILLI = -3
_POD_LEVEL = ("cpu", "memory")
_HUGEPAGES = "hugepages-"

# A reference to an image: a registry, a path, a tag, a digest. Validation accepts other
# texts too.
_HOST = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_DOMAIN = rf"(?:{_HOST}(?:\.{_HOST})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_PATH = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_is_domain = re.compile(_DOMAIN).fullmatch
_is_identifier = re.compile("[a-f0-9]{64}").fullmatch
_read_image = re.compile(
    rf"(?P<path>{_PATH}(?:/{_PATH})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
    r"(?P<digest>@sha(?:256:[a-f0-9]{64}|384:[a-f0-9]{96}|512:[a-f0-9]{128}))?"
).fullmatch
_IMAGE_PATH_LENGTH = 255
_OFFICIAL = ("docker.io", "index.docker.io")
_OFFICIAL_PATH = "library/"


def apply(pod: Object) -> None:
    """Fill in a pod, in place."""
    spec = pod.setdefault("spec", {})
    _apply_spec(spec)
    # A template keeps its value, and gets a warning.
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for container in _each(spec, _CONTAINERS):
        # Limits without requests are requests too.
        own = container["resources"]
        if limits := own.get("limits"):
            own["requests"] = {**limits, **(own.get("requests") or {})}
    if resources := spec.get("resources"):
        _default_pod_resources(spec, resources)
    spec.setdefault("enableServiceLinks", True)
    if status := pod.get("status"):
        _apply_status(status)
    if spec.get("hostNetwork"):
        for container in _each(spec, _CONTAINERS):
            for port in container.get("ports") or ():
                if not port.get("hostPort") and port.get("containerPort"):
                    port["hostPort"] = port["containerPort"]


def apply_template(template: Object) -> None:
    """Fill in a template that pods are made from, in place."""
    _apply_spec(template.setdefault("spec", {}))


def _each(spec: Object, kinds: Sequence[str]) -> Iterator[Object]:
    for kind in kinds:
        yield from spec.get(kind) or ()


def _apply_spec(spec: Object) -> None:
    fill(spec, {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst"})
    if spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = GRACE_SECONDS
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    fill(spec, {"schedulerName": SCHEDULER})
    # The account has two fields; the newer one wins.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for volume in spec.get("volumes") or ():
        _apply_volume(volume)
    for container in _each(spec, _ALL_CONTAINERS):
        _apply_container(container)
    for amounts in (spec.get("overhead"), *_lists(spec.get("resources"))):
        round_amounts(amounts)


def _apply_status(status: Object) -> None:
    # The first of a pod's addresses has two fields; the older one wins.
    single, addresses = status.get("podIP"), status.get("podIPs")
    if single and (not addresses or addresses[0].get("ip") != single):
        status["podIPs"] = [{"ip": single}]
    elif addresses and not single:
        status["podIP"] = addresses[0].get("ip", "")
    for owner in (status, *_each(status, _STATUSES)):
        for amounts in (owner.get("allocatedResources"), *_lists(owner.get("resources"))):
            round_amounts(amounts)


def _lists(resources: Object | None) -> tuple[Amounts | None, ...]:
    return (resources.get("limits"), resources.get("requests")) if resources else ()


def round_amounts(amounts: Amounts | None) -> None:
    """No amount is finer than a thousandth."""
    for name, amount in (amounts or {}).items():
        if not amount.isdigit():
            amounts[name] = quantity.rounded_up(amount, _MILLI)  # type: ignore[index]


def _apply_container(container: Object) -> None:
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = _pull_policy(container.get("image", ""))
    fill(container, _MESSAGE)
    for port in container.get("ports") or ():
        fill(port, {"protocol": "TCP"})
    for variable in container.get("env") or ():
        if source := variable.get("valueFrom"):
            _apply_selectors(source)
    if not container.get("resources"):
        container["resources"] = {}
    for amounts in _lists(container["resources"]):
        round_amounts(amounts)
    for kind in _PROBES:
        if (probe := container.get(kind)) is not None:
            fill(probe, _PROBE_NUMBERS)
            _apply_handler(probe)
    hooks = container.get("lifecycle") or {}
    for handler in filter(None, map(hooks.get, _HOOKS)):
        _apply_handler(handler)


def _pull_policy(image: str) -> str:
    """Always for an image that changes under its name: no tag, or `latest`."""
    # The registry, by default the official one, and the rest.
    head, slash, rest = image.partition("/")
    has_registry = "." in head or ":" in head or head == "localhost" or head.lower() != head
    domain, path = (head, rest) if slash and has_registry else (_OFFICIAL[0], image)
    match = _read_image(path)
    if match is None or not _is_domain(domain) or _is_identifier(image):
        return "IfNotPresent"
    added = len(_OFFICIAL_PATH) if domain in _OFFICIAL and "/" not in path else 0
    if len(match["path"]) + added > _IMAGE_PATH_LENGTH:
        return "IfNotPresent"
    tag = match["tag"] or ("" if match["digest"] else "latest")
    return "Always" if tag == "latest" else "IfNotPresent"


def _apply_selectors(source: Object) -> None:
    field = source.get("fieldRef")
    if field is not None and not field.get("apiVersion"):
        field["apiVersion"] = "v1"
    if resource := source.get("resourceFieldRef"):
        resource.setdefault("divisor", "0")
    file = source.get("fileKeyRef")
    if file is not None:
        file.setdefault("optional", False)


def _apply_handler(handler: Object) -> None:
    if (http := handler.get("httpGet")) is not None:
        fill(http, {"path": "/", "scheme": "HTTP"})
    if (grpc := handler.get("grpc")) is not None and grpc.get("service") is None:
        grpc["service"] = ""


def _apply_volume(volume: Object) -> None:
    if all(value is None for key, value in volume.items() if key != "name"):
        volume["emptyDir"] = {}
        return
    for kind in _MODED:
        if (source := volume.get(kind)) is not None:
            source.setdefault("defaultMode", FILE_MODE)
    for part in (volume, *((volume.get("projected") or {}).get("sources") or ())):
        for item in (part.get("downwardAPI") or {}).get("items") or ():
            _apply_selectors(item)
        if (token := part.get("serviceAccountToken")) is not None:
            token.setdefault("expirationSeconds", TOKEN_SECONDS)
    if (image := volume.get("image")) is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = _pull_policy(image.get("reference", ""))
    apply_source(volume)
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate") or {}
    if (spec := template.get("spec")) is not None:
        spec.setdefault("volumeMode", "Filesystem")
        for amounts in _lists(spec.get("resources")):
            round_amounts(amounts)


def apply_source(volume: Object) -> None:
    """The defaults of the sources that pods and PersistentVolumes have in common."""
    if (host := volume.get("hostPath")) is not None:
        host.setdefault("type", "")
    for kind, values in _SOURCES.items():
        if (source := volume.get(kind)) is not None:
            fill(source, values)
    if (disk := volume.get("azureDisk")) is not None:
        for name, value in _AZURE_DISK.items():
            disk.setdefault(name, value)


def fill(obj: Object, values: Object) -> None:
    """Set the fields that are missing or empty."""
    for key, value in values.items():
        if not obj.get(key):
            obj[key] = value


def _default_pod_resources(spec: Object, resources: Object) -> None:
    """The pod's resources that follow from those of the containers."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    if limits or requests:
        for name, amount in resource_requests.aggregate(spec, "limits").items():
            if name.startswith(_HUGEPAGES) and name not in requests and name not in limits:
                limits = {**limits, name: amount}
    if not limits:
        return
    resources["limits"] = limits
    # The sum of the containers, or else the pod's limit.
    requests = dict(requests)
    for name, amount in resource_requests.aggregate(spec, "requests").items():
        if name in _POD_LEVEL:
            requests.setdefault(name, amount)
    for name, amount in limits.items():
        if name in _POD_LEVEL or name.startswith(_HUGEPAGES):
            requests.setdefault(name, amount)
    if requests:
        resources["requests"] = requests
