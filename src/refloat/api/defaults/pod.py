# SPDX-License-Identifier: Apache-2.0
"""What a pod's fields are when nobody set them.

A template gets most of it too, but not what only a pod of its own needs:
requests out of limits, host ports, service links.
"""

import re
from collections.abc import Iterator, Sequence

from refloat.api import quantity, requests
from refloat.api.meta import Object
from refloat.api.requests import Amounts

MESSAGE_PATH = "/dev/termination-log"
GRACE_SECONDS = 30
SCHEDULER = "default-scheduler"
FILE_MODE = 0o644
TOKEN_SECONDS = 3600

_CONTAINERS = ("containers", "initContainers")
_ALL_CONTAINERS = (*_CONTAINERS, "ephemeralContainers")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_NUMBERS = (
    ("timeoutSeconds", 1),
    ("periodSeconds", 10),
    ("successThreshold", 1),
    ("failureThreshold", 3),
)
_MODED = ("secret", "configMap", "downwardAPI", "projected")
_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_MILLI = -3
_POD_LEVEL = ("cpu", "memory")
_HUGEPAGES = "hugepages-"

# A reference to an image: a registry, a path, a tag, a digest. What does not
# match is no reference; validation does not mind, so neither does this.
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
    # A template keeps what it says, and is warned about it.
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for container in _each(spec, _CONTAINERS):
        _default_requests(container)
    if resources := spec.get("resources"):
        _default_pod_limits(spec, resources)
        _default_pod_requests(spec, resources)
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
    for key, value in (("restartPolicy", "Always"), ("dnsPolicy", "ClusterFirst")):
        if not spec.get(key):
            spec[key] = value
    if spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = GRACE_SECONDS
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    if not spec.get("schedulerName"):
        spec["schedulerName"] = SCHEDULER
    _mirror_account(spec)
    for volume in spec.get("volumes") or ():
        _apply_volume(volume)
    for container in _each(spec, _ALL_CONTAINERS):
        _apply_container(container)
    for amounts in (spec.get("overhead"), *_lists(spec.get("resources"))):
        round_amounts(amounts)


def _mirror_account(spec: Object) -> None:
    """One account under two names; the newer one counts."""
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def _apply_status(status: Object) -> None:
    _mirror_address(status)
    amounts = [status.get("allocatedResources"), *_lists(status.get("resources"))]
    for container in _each(status, _STATUSES):
        amounts += [container.get("allocatedResources"), *_lists(container.get("resources"))]
    for each in amounts:
        round_amounts(each)


def _mirror_address(status: Object) -> None:
    """The first of a pod's addresses under two names; the older one counts."""
    single, listed = status.get("podIP"), status.get("podIPs")
    if single and (not listed or listed[0].get("ip") != single):
        status["podIPs"] = [{"ip": single}]
    elif listed and not single:
        status["podIP"] = listed[0].get("ip", "")


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
    if not container.get("terminationMessagePath"):
        container["terminationMessagePath"] = MESSAGE_PATH
    if not container.get("terminationMessagePolicy"):
        container["terminationMessagePolicy"] = "File"
    for port in container.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
    for variable in container.get("env") or ():
        if source := variable.get("valueFrom"):
            _apply_selectors(source)
    if resources := container.get("resources"):
        for amounts in _lists(resources):
            round_amounts(amounts)
    else:
        container["resources"] = {}
    _apply_probes(container)


def _pull_policy(image: str) -> str:
    """Always for what changes under its name: no tag, or `latest`."""
    domain, path = _split_domain(image)
    match = _read_image(path)
    if match is None or not _is_domain(domain) or _is_identifier(image):
        return "IfNotPresent"
    added = len(_OFFICIAL_PATH) if domain in _OFFICIAL and "/" not in path else 0
    if len(match["path"]) + added > _IMAGE_PATH_LENGTH:
        return "IfNotPresent"
    tag = match["tag"] or ("" if match["digest"] else "latest")
    return "Always" if tag == "latest" else "IfNotPresent"


def _split_domain(image: str) -> tuple[str, str]:
    """The registry, the official one when none is named, and the rest."""
    head, slash, rest = image.partition("/")
    named = "." in head or ":" in head or head == "localhost" or head.lower() != head
    return (head, rest) if slash and named else (_OFFICIAL[0], image)


def _apply_selectors(source: Object) -> None:
    field = source.get("fieldRef")
    if field is not None and not field.get("apiVersion"):
        field["apiVersion"] = "v1"
    if resource := source.get("resourceFieldRef"):
        resource.setdefault("divisor", "0")
    file = source.get("fileKeyRef")
    if file is not None:
        file.setdefault("optional", False)


def _apply_probes(container: Object) -> None:
    for kind in _PROBES:
        if (probe := container.get(kind)) is not None:
            for key, number in _PROBE_NUMBERS:
                if not probe.get(key):
                    probe[key] = number
            _apply_handler(probe)
    if hooks := container.get("lifecycle"):
        for hook in ("postStart", "preStop"):
            if handler := hooks.get(hook):
                _apply_handler(handler)


def _apply_handler(handler: Object) -> None:
    if (http := handler.get("httpGet")) is not None:
        if not http.get("path"):
            http["path"] = "/"
        if not http.get("scheme"):
            http["scheme"] = "HTTP"
    if (grpc := handler.get("grpc")) is not None and grpc.get("service") is None:
        grpc["service"] = ""


def _apply_volume(volume: Object) -> None:
    if all(value is None for key, value in volume.items() if key != "name"):
        volume["emptyDir"] = {}
        return
    for kind in _MODED:
        if (source := volume.get(kind)) is not None:
            source.setdefault("defaultMode", FILE_MODE)
    _apply_files(volume)
    if (host := volume.get("hostPath")) is not None:
        host.setdefault("type", "")
    if (image := volume.get("image")) is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = _pull_policy(image.get("reference", ""))
    _apply_storage(volume)


def _apply_files(volume: Object) -> None:
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        _apply_selectors(item)
    for source in (volume.get("projected") or {}).get("sources") or ():
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _apply_selectors(item)
        if (token := source.get("serviceAccountToken")) is not None:
            token.setdefault("expirationSeconds", TOKEN_SECONDS)


def _apply_storage(volume: Object) -> None:
    """Sources of which only few were ever left to say."""
    if (iscsi := volume.get("iscsi")) is not None:
        _fill(iscsi, {"iscsiInterface": "default"})
    if (rbd := volume.get("rbd")) is not None:
        _fill(rbd, {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"})
    if (scale := volume.get("scaleIO")) is not None:
        _fill(scale, {"storageMode": "ThinProvisioned", "fsType": "xfs"})
    if (disk := volume.get("azureDisk")) is not None:
        disk.setdefault("cachingMode", "ReadWrite")
        disk.setdefault("fsType", "ext4")
        disk.setdefault("readOnly", False)
        disk.setdefault("kind", "Shared")
    if ephemeral := volume.get("ephemeral"):
        _apply_claim(ephemeral.get("volumeClaimTemplate") or {})


def _fill(source: Object, values: dict[str, str]) -> None:
    for key, value in values.items():
        if not source.get(key):
            source[key] = value


def _apply_claim(template: Object) -> None:
    if (spec := template.get("spec")) is not None:
        spec.setdefault("volumeMode", "Filesystem")
        for amounts in _lists(spec.get("resources")):
            round_amounts(amounts)


def _default_requests(container: Object) -> None:
    """Who limits itself asks for no less than that."""
    resources = container["resources"]
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _default_pod_limits(spec: Object, resources: Object) -> None:
    """Huge pages of the containers become the pod's, where it says nothing of them."""
    if not resources.get("limits") and not resources.get("requests"):
        return
    asked = resources.get("requests") or {}
    limits = resources.get("limits") or {}
    for name, amount in requests.aggregate(spec, "limits").items():
        if name.startswith(_HUGEPAGES) and name not in asked and name not in limits:
            limits = {**limits, name: amount}
    if limits:
        resources["limits"] = limits


def _default_pod_requests(spec: Object, resources: Object) -> None:
    """What the containers need together, or else what the pod is limited to."""
    limits = resources.get("limits")
    if not limits:
        return
    asked = dict(resources.get("requests") or {})
    for name, amount in requests.aggregate(spec, "requests").items():
        if name in _POD_LEVEL:
            asked.setdefault(name, amount)
    for name, amount in limits.items():
        if name in _POD_LEVEL or name.startswith(_HUGEPAGES):
            asked.setdefault(name, amount)
    if asked:
        resources["requests"] = asked
