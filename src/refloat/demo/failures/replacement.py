# SPDX-License-Identifier: Apache-2.0
"""When a pod that takes its time to end is replaced: the e2e test of KEP-3939.

Its container traps SIGTERM, sleeps, and exits with 143. For how long it sleeps
is for the scenario to say: until there is to see what there is to see.
"""

from functools import partial

from refloat.demo.failures.case import Case
from refloat.demo.failures.end import End
from refloat.demo.failures.scene import Scene, pod_spec
from refloat.demo.failures.words import COUNTED, ENDED, NOT_DISRUPTED, WORKER, setting

SCRIPT = """
_term() {
  until [ -e "${REFLOAT_VOLUME_GO:-/go}/go" ]; do sleep 0.1; done
  exit 143
}
trap _term TERM
echo ready
while true; do sleep 0.1; done
"""

# Longer than any story.
GRACE_SECONDS = 300

AT_ONCE, AT_THE_END = "TerminatingOrFailed", "Failed"


async def replaced(scene: Scene, *, policy: str) -> End:
    folder = scene.stage.folder(scene.space)
    spec = pod_spec(
        SCRIPT,
        node=WORKER.name,
        container={"volumeMounts": [{"name": "go", "mountPath": "/go"}]},
        volumes=[{"name": "go", "hostPath": {"path": str(folder)}}],
        terminationGracePeriodSeconds=GRACE_SECONDS,
    )
    pod = await scene.running("work", spec, podFailurePolicy=None, podReplacementPolicy=policy)
    await scene.delete(pod)
    await scene.job_is("work", lambda job: job["status"].get("terminating") == 1)
    if policy == AT_ONCE:
        await scene.replaced(pod)
    (folder / "go").touch()
    return await scene.settled("work", pod)


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
    "A Job whose container traps SIGTERM, sleeps and exits with 143, and whose "
    "`podReplacementPolicy` is `{}`; a user deletes the pod."
)

CASES = (
    Case(
        "replacement-failed",
        "A pod that takes its time to end is replaced when it has",
        "KEP-3939, podReplacementPolicy: Failed",
        _HOW.format(AT_THE_END),
        partial(replaced, policy=AT_THE_END),
        setting(WORKER),
        kep={"replaced": "after its end"},
        more=_END,
        source="KEP-3939",
    ),
    Case(
        "replacement-at-once",
        "A pod that takes its time to end is replaced meanwhile",
        "KEP-3939, podReplacementPolicy: TerminatingOrFailed",
        _HOW.format(AT_ONCE),
        partial(replaced, policy=AT_ONCE),
        setting(WORKER),
        kep={"replaced": "before its end"},
        more=_END,
        source="KEP-3939",
    ),
)
