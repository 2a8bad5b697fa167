# SPDX-License-Identifier: Apache-2.0
"""The stories of KEP-3329's first design: which exit codes are bugs, and whose doing an end was.

Two Jobs with a backoffPolicy on a node of real processes, and what becomes of
the same policy where only a podFailurePolicy is known.
"""

import json
from pathlib import Path

from refloat.base import gates
from refloat.base.gates import Gates
from refloat.controllers.job import attempts
from refloat.demo.errors import StoryFailed
from refloat.demo.failures.scene import Scene, pod_spec
from refloat.demo.nodes import NodeSetting
from refloat.demo.objects import Object
from refloat.demo.stage import Setting, Stage
from refloat.policy import policy_conversion

NODE = NodeSetting("worker")

SETTING = Setting("*", (NODE,), gates=Gates({gates.RETRIABLE_AND_NON_RETRIABLE_FAILURES: True}))

BUGS: Object = {"action": "Terminate", "containerExitCodeNotIn": "40-50"}
DISRUPTIONS: Object = {"action": "Ignore", "podStatusReasonNotIn": [""]}

# More exit codes than that are told by the first and the last.
MAX_CODES = 3

# Its nth run ends with the nth code.
PROGRAM = """
cd "${REFLOAT_VOLUME_RUNS:-/runs}"; n=$(ls | wc -l); : > run-$n; echo run $n
exit $(echo "$CODES" | cut -d" " -f$((n + 1)))
"""

# Works until it is told that it is done, in its second run at once.
WORKER = """
cd "${REFLOAT_VOLUME_RUNS:-/runs}"; [ -e first ] && exit 0; : > first
echo works; while true; do sleep 0.1; done
"""


async def act(stage: Stage) -> None:
    """Play it."""
    scene = await Scene.of(stage, "backoff-policy")
    await _refuse(stage, scene)
    await _bugs(stage, scene)
    await _disruptions(stage, scene)
    await _convert(stage)


async def _refuse(stage: Stage, scene: Scene) -> None:
    await stage.step("A policy is checked when it is written")
    wrong = {"action": "Terminate", "containerExitCodeIn": "100-127,12-1"}
    stage.note(f"backoffPolicy: {{rules: [{_flow(wrong)}]}}")
    body = {
        "metadata": {"name": "wrong"},
        "spec": {"backoffPolicy": {"rules": [wrong]}, "template": {"spec": pod_spec("exit 0")}},
    }
    await stage.refused(422, "POST", f"/apis/batch/v1/namespaces/{scene.space}/jobs", body)


async def _bugs(stage: Stage, scene: Scene) -> None:
    await stage.step("Story 1: codes 40 to 50 can be retried, any other is a bug")
    stage.note(f"backoffPolicy: {{rules: [{_flow(BUGS)}]}}")
    stage.note("the program exits with 45, then with 39; three failures would be allowed")
    folder = _folder(stage, "bugs")
    spec = _with_runs(PROGRAM, folder, env=[{"name": "CODES", "value": "45 39"}])
    await _submit(scene, "bugs", spec, BUGS, limit=3)
    await scene.job_is("bugs", _is_over)
    await _tell_end(stage, scene, "bugs", want=("BackoffPolicy", 2))


async def _disruptions(stage: Stage, scene: Scene) -> None:
    await stage.step("Story 2: what somebody else ended is not the program's failure")
    stage.note(f"backoffPolicy: {{rules: [{_flow(DISRUPTIONS)}]}}")
    stage.note("backoffLimit: 0, so one failure that counts would be the end")
    spec = _with_runs(WORKER, _folder(stage, "work"))
    pod = await _submit(scene, "work", spec, DISRUPTIONS, limit=0)
    await scene.until(pod, lambda each: each["status"].get("phase") == "Running")
    while not await scene.log(pod):
        await stage.clock.sleep(0.05)
    scene.does(f"refloat delete pod {pod} --reason Maintenance")
    options = {"reason": "Maintenance"}
    await stage.client.delete(f"/api/v1/namespaces/{scene.space}/pods/{pod}", options)
    await scene.job_is("work", _is_over)
    await _tell_end(stage, scene, "work", want=("CompletionsReached", 0))


async def _convert(stage: Stage) -> None:
    await stage.step("The same for a cluster that knows podFailurePolicy only")
    stage.note("$ refloat policy convert policy.yaml")
    converted = policy_conversion.to_pod_failure_policy({"rules": [BUGS, DISRUPTIONS]})
    for rule in converted.policy["rules"]:
        stage.answer(_flow(rule))
    for warning in converted.warnings:
        stage.note(f"warning: {warning}")


async def _submit(scene: Scene, name: str, spec: Object, rule: Object, *, limit: int) -> str:
    return await scene.job(
        name,
        spec,
        podFailurePolicy=None,
        backoffPolicy={"rules": [rule]},
        backoffLimit=limit,
    )


def _folder(stage: Stage, name: str) -> Path:
    """Where the runs of a program note that they ran, whoever they run as."""
    made = stage.folder(name)
    made.chmod(0o777)
    return made


def _with_runs(script: str, folder: Path, *, env: list[Object] | None = None) -> Object:
    return pod_spec(
        script,
        node=NODE.name,
        container={"volumeMounts": [{"name": "runs", "mountPath": "/runs"}], "env": env or []},
        volumes=[{"name": "runs", "hostPath": {"path": str(folder)}}],
    )


def _is_over(job: Object) -> bool:
    told = job["status"].get("conditions") or ()
    return any(each["type"] in ("Complete", "Failed") for each in told)


async def _tell_end(stage: Stage, scene: Scene, name: str, *, want: tuple[str, int]) -> None:
    """What was decided about each pod, and how the Job ended, with how many failures."""
    job = await stage.client.get(f"/apis/batch/v1/namespaces/{scene.space}/jobs/{name}")
    for each in attempts.recorded(job["metadata"].get("annotations")):
        why = f"exit code {each['exitCode']}" if "exitCode" in each else "no exit code"
        why += f", reason {each['reason']}" if "reason" in each else ""
        matched = f"{each['action']} by rule {each['rule']}" if "action" in each else "counted"
        stage.answer(f"pod/{each['pod']}: {why}: {matched}")
    last = job["status"]["conditions"][-1]
    stage.answer(f"job/{name}: {last['type']}: {last['reason']}: {last['message']}")
    if (found := (last["reason"], job["status"].get("failed", 0))) != want:
        raise StoryFailed(f"job {name}: ended with {found}, not with {want}")


def _flow(rule: Object) -> str:
    """A rule on one line, with a run of numbers made short."""
    codes: list[int] = rule.get("onExitCodes", {}).get("values") or []
    if len(codes) > MAX_CODES:
        short = [codes[0], "...", codes[-1]]
        rule = {**rule, "onExitCodes": {**rule["onExitCodes"], "values": short}}
    return json.dumps(rule).replace('""', "''").replace('"', "")
