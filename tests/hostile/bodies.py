# SPDX-License-Identifier: Apache-2.0
"""The bodies of hostile requests that take more than a line to write."""

import gzip
from typing import Any


def pod(
    name: str,
    *,
    containers: int = 1,
    env: int = 0,
    ports: int = 0,
    volumes: int = 0,
    tolerations: int = 0,
    aliases: int = 0,
    cpu: str = "1",
) -> Any:
    """A pod with so many of each."""
    main: dict[str, Any] = {"name": "main", "image": "a"}
    main["resources"] = {"limits": {"cpu": cpu}}
    main["env"] = [{"name": f"E{number}", "value": "v"} for number in range(env)]
    main["ports"] = [{"containerPort": 1 + number} for number in range(ports)]
    main["volumeMounts"] = [{"name": f"v{n}", "mountPath": f"/m{n}"} for n in range(volumes)]
    others = [{"name": f"c{number}", "image": "a"} for number in range(1, containers)]
    spec = {
        "containers": [main, *others],
        "volumes": [{"name": f"v{number}", "emptyDir": {}} for number in range(volumes)],
        "tolerations": [
            {"key": f"t{number}", "operator": "Exists", "effect": "NoSchedule"}
            for number in range(tolerations)
        ],
        "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a"]} for _ in range(aliases)],
    }
    return {"metadata": {"name": name}, "spec": spec}


def job(name: str, *, rules: int = 0, codes: int = 0) -> Any:
    """A Job with so many rules, or one rule with so many exit codes."""
    values = list(range(1, codes + 1)) or [1]
    on_codes = {"operator": "In", "values": values}
    many = [{"action": "Ignore", "onExitCodes": on_codes}] * (rules or 1)
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}
    return {
        "metadata": {"name": name},
        "spec": {"template": template, "podFailurePolicy": {"rules": many}},
    }


def deep_fields() -> Any:
    """Managed fields that are wide at the end of a long path: each line would be indented far."""
    fields: Any = {f"f:x{number}": {} for number in range(40_000)}
    for _ in range(400):
        fields = {"f:a": fields}
    entry = {
        "manager": "m",
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return {"metadata": {"managedFields": [entry]}}


def laughs() -> bytes:
    """YAML whose aliases stand for 10^9 values."""
    lines = ["apiVersion: v1", "kind: ConfigMap", "metadata: {name: yaml}", "a0: &a0 [x,x,x,x,x]"]
    for number in range(1, 13):
        aliases = ",".join([f"*a{number - 1}"] * 5)
        lines.append(f"a{number}: &a{number} [{aliases}]")
    return "\n".join(lines).encode()


def gzipped() -> bytes:
    """100 MB of zeros."""
    return gzip.compress(bytes(100_000_000), 9)


def protobuf() -> bytes:
    """A ConfigMap with as many small labels as fit into a body."""
    label = b"\x0a\x01a\x12\x00"
    metadata = (b"\x5a" + bytes([len(label)]) + label) * 380_000
    raw = b"\x0a" + _varint(len(metadata)) + metadata
    kind = b"\x0a\x02v1\x12\x09ConfigMap"
    return b"k8s\0" + b"\x0a" + bytes([len(kind)]) + kind + b"\x12" + _varint(len(raw)) + raw


def _varint(number: int) -> bytes:
    encoded = b""
    while number > 127:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])
