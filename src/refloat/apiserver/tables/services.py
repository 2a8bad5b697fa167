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
    column("Cluster-IP", "The first address inside the cluster."),
    column("External-IP", "The addresses outside the cluster."),
    column("Port(s)", "The ports of the service."),
    AGE,
    column("Selector", "The selector of its pods.", wide=True),
)


def _cells(service: Object, now: datetime) -> Cells:
    spec = service.get("spec") or {}
    addresses = spec.get("clusterIPs")
    external = ",".join(spec.get("externalIPs") or ())
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            external = external or printing.NONE
        case "LoadBalancer":
            balancer = (service.get("status") or {}).get("loadBalancer") or {}
            ingress = balancer.get("ingress") or ()
            hosts = {each.get("ip") or each.get("hostname") or "" for each in ingress} - {""}
            external = ",".join(filter(None, (*sorted(hosts), external))) or "<pending>"
        case "ExternalName":
            external = str(spec.get("externalName", ""))
        case _:
            external = printing.UNKNOWN
    return [
        name(service),
        spec.get("type", ""),
        addresses[0] if addresses else spec.get("clusterIP") or printing.NONE,
        external,
        ",".join(map(_port, spec.get("ports") or ())) or printing.NONE,
        age(service, now),
        printing.label_map(spec.get("selector")),
    ]


def _port(port: dict[str, Any]) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node_port}/{port.get('protocol', '')}"


SERVICES = Printer(_COLUMNS, _cells)
