# SPDX-License-Identifier: Apache-2.0
"""The replacement of a pod that ends slowly: the e2e test of KEP-3939.

The container traps SIGTERM, waits until the case creates a file, and exits with 143.
"""

from functools import partial

from refloat.demo.failures.case import Case
from refloat.demo.failures.case_namespace import CaseNamespace, pod_spec
from refloat.demo.failures.pod_end import End
from refloat.demo.failures.shared_values import COUNTED, ENDED, NOT_DISRUPTED, WORKER, settings

SCRIPT = """
_term() {
  until [ -e "${REFLOAT_VOLUME_GO:-/go}/go" ]; do sleep 0.1; done
  exit 143
}
trap _term TERM
echo ready
while true; do sleep 0.1; done
"""

# Longer than any demo.
GRACE_SECONDS = 300

AT_ONCE, AT_THE_END = "TerminatingOrFailed", "Failed"


async def replaced(namespace: CaseNamespace, *, policy: str) -> End:
    folder = namespace.demo.folder(namespace.name)
    spec = pod_spec(
        SCRIPT,
        node=WORKER.name,
        container={"volumeMounts": [{"name": "go", "mountPath": "/go"}]},
        volumes=[{"name": "go", "hostPath": {"path": str(folder)}}],
        terminationGracePeriodSeconds=GRACE_SECONDS,
    )
    pod = await namespace.started("work", spec, podFailurePolicy=None, podReplacementPolicy=policy)
    await namespace.delete(pod)
    await namespace.wait_until(lambda ns: ns.status("work").get("terminating") == 1)
    if policy == AT_ONCE:
        await namespace.replaced(pod)
    (folder / "go").touch()
    return await namespace.settled("work", pod)


_END = {
    "status": "Error",
    "phase": "Failed",
    "reason": "",
    "message": "",
    "container": "terminated 143 Error",
    **NOT_DISRUPTED,
    "because": "",
    **ENDED,
    "job": COUNTED["job"],
}
_HOW = (
    "A user deletes the pod of a Job with `podReplacementPolicy: {}`; the container traps "
    "SIGTERM, sleeps and exits with 143."
)

CASES = (
    Case(
        "replacement-failed",
        "A pod that ends slowly is replaced after its end",
        "KEP-3939, podReplacementPolicy: Failed",
        _HOW.format(AT_THE_END),
        partial(replaced, policy=AT_THE_END),
        settings(WORKER),
        kep={"replaced": "after its end"},
        more=_END,
        source="KEP-3939",
    ),
    Case(
        "replacement-at-once",
        "A pod that ends slowly is replaced before its end",
        "KEP-3939, podReplacementPolicy: TerminatingOrFailed",
        _HOW.format(AT_ONCE),
        partial(replaced, policy=AT_ONCE),
        settings(WORKER),
        kep={"replaced": "before its end"},
        more=_END,
        source="KEP-3939",
    ),
)
