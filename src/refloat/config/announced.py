# SPDX-License-Identifier: Apache-2.0
"""The configuration in force, as an object of the cluster that it is in force on.

What a Refloat will do depends on its file and its flags, which nobody else can
see. So each says in a ConfigMap what it goes by, and `refloat explain` reads
that. Nothing acts on it: a changed or lost one changes nothing but the answer.
"""

from collections.abc import Mapping
from datetime import timedelta

import yaml

from refloat.api import durations
from refloat.api.meta import Object
from refloat.base.gates import KNOWN, Gates
from refloat.config import load
from refloat.config.failure_recovery import NODE_GRACE
from refloat.config.load import API_VERSION, KIND, Configuration
from refloat.policy import node_evidence
from refloat.policy.failure_recovery import FIELD

NAME = "refloat-configuration"
LABEL = "refloat.dev/configuration"
IN_FORCE = "in-force"

_KEY = "configuration.yaml"


def body(
    document: Object,
    gates: Gates,
    default_period: timedelta,
    node_grace: timedelta = node_evidence.GRACE_PERIOD,
) -> Object:
    """The ConfigMap for a file's content, with all gates and the periods that have defaults."""
    policy = dict(document.get(FIELD) or {})
    if policy.get(NODE_GRACE) is None:
        policy[NODE_GRACE] = durations.show(node_grace)
    annotated = {"forcefulTerminationGracePeriod": durations.show(default_period)}
    said = {name: value for name, value in (policy.get("annotated") or {}).items() if value}
    policy["annotated"] = annotated | said
    switched = {gate.name: gates.enabled(gate.name) for gate in KNOWN}
    whole = {"apiVersion": API_VERSION, "kind": KIND, "featureGates": switched, FIELD: policy}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "labels": {LABEL: IN_FORCE}},
        "data": {_KEY: yaml.safe_dump(whole, sort_keys=False)},
    }


def read(data: Mapping[str, str] | None) -> Configuration | None:
    """What a ConfigMap announces; nothing if it cannot be understood.

    Read as `body` wrote it, not as a file is: the two spell texts differently.
    """
    try:
        return load.parse(yaml.safe_load((data or {}).get(_KEY, "")))
    except Exception:
        # Anybody may have written it, and there is no end to what PyYAML raises.
        return None
