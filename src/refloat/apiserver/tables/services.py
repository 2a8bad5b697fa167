# SPDX-License-Identifier: Apache-2.0
"""Services as rows."""

from datetime import datetime
from typing import Any

from refloat.api import printing
from refloat.api.meta import Object
from refloat.apiserver.tables.columns import AGE, NAME, Cells, Printer, age, column, name

_COLUMNS = (
    NAME,
    column("Type", "How the service is exposed."),
    column("Cluster-IP", "Its first address inside the cluster."),
    column("External-IP", "Its addresses outside the cluster."),
    column("Port(s)", "The ports it listens on."),
    AGE,
    column("Selector", "Which pods serve it.", wide=True),
)


def _cells(service: Object, now: datetime) -> Cells:
    spec = service.get("spec") or {}
    addresses = spec.get("clusterIPs")
    return [
        name(service),
        spec.get("type", ""),
        addresses[0] if addresses else spec.get("clusterIP") or printing.NONE,
        _external(service, spec),
        ",".join(map(_port, spec.get("ports") or ())) or printing.NONE,
        age(service, now),
        printing.label_map(spec.get("selector")),
    ]


def _external(service: Object, spec: dict[str, Any]) -> str:
    external = ",".join(spec.get("externalIPs") or ())
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return external or printing.NONE
        case "LoadBalancer":
            return ",".join(filter(None, (_balancers(service), external))) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
    return printing.UNKNOWN


def _balancers(service: Object) -> str:
    balancer = (service.get("status") or {}).get("loadBalancer") or {}
    ingress = balancer.get("ingress") or ()
    return ",".join(
        sorted({each.get("ip") or each.get("hostname") or "" for each in ingress} - {""})
    )


def _port(port: dict[str, Any]) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node_port}/{port.get('protocol', '')}"


SERVICES = Printer(_COLUMNS, _cells)
