# SPDX-License-Identifier: Apache-2.0
"""The demo of KEP-3329's first design: exit codes that are bugs, and ends with a reason.

Two Jobs with a backoffPolicy run on a node with real processes. Then the demo
converts the policy for clusters that have podFailurePolicy only.
"""

import json
from pathlib import Path

from refloat.api.meta import Object
from refloat.base import gates
from refloat.base.gates import Gates
from refloat.client.contract import DeleteOptions
from refloat.demo.demo_cluster import DemoCluster, DemoSettings
from refloat.demo.errors import DemoFailed
from refloat.demo.failures.case_namespace import CaseNamespace, pod_spec
from refloat.demo.nodes import DemoNodeSettings
from refloat.policy.job import attempts, policy_conversion

NODE = DemoNodeSettings("worker")

SETTINGS = DemoSettings(
    "*", (NODE,), gates=Gates({gates.RETRIABLE_AND_NON_RETRIABLE_FAILURES: True})
)

BUGS: Object = {"action": "Terminate", "containerExitCodeNotIn": "40-50"}
DISRUPTIONS: Object = {"action": "Ignore", "podStatusReasonNotIn": [""]}

# Of more exit codes, the demo shows the first and the last.
MAX_CODES = 3

# The nth run exits with the nth code.
PROGRAM = """
cd "${REFLOAT_VOLUME_RUNS:-/runs}"; n=$(ls | wc -l); : > run-$n; echo run $n
exit $(echo "$CODES" | cut -d" " -f$((n + 1)))
"""

# The first run works until SIGTERM; the second run ends at once.
WORKER = """
cd "${REFLOAT_VOLUME_RUNS:-/runs}"; [ -e first ] && exit 0; : > first
echo works; while true; do sleep 0.1; done
"""


async def run(cluster: DemoCluster) -> None:
    """Run the demo."""
    namespace = await CaseNamespace.of(cluster, "backoff-policy")
    await cluster.step("The server checks a policy when a user writes it")
    wrong = {"action": "Terminate", "containerExitCodeIn": "100-127,12-1"}
    cluster.note(f"backoffPolicy: {{rules: [{_flow(wrong)}]}}")
    job = namespace.submit("wrong", template=pod_spec("exit 0"), backoffPolicy={"rules": [wrong]})
    await cluster.refused(422, job)
    await cluster.step("Story 1: exit codes 40 to 50 are retried, all others are bugs")
    cluster.note(f"backoffPolicy: {{rules: [{_flow(BUGS)}]}}")
    cluster.note(
        "The program exits with 45, then with 39. backoffLimit: 3 would allow more failures."
    )
    folder = _folder(cluster, "bugs")
    spec = _with_runs(PROGRAM, folder, env=[{"name": "CODES", "value": "45 39"}])
    await _submit(namespace, "bugs", spec, BUGS, limit=3)
    await _show_end(cluster, namespace, "bugs", want=("BackoffPolicy", 2))
    await cluster.step("Story 2: an end from outside is no failure of the program")
    cluster.note(f"backoffPolicy: {{rules: [{_flow(DISRUPTIONS)}]}}")
    cluster.note("backoffLimit: 0, so one counted failure would end the Job")
    spec = _with_runs(WORKER, _folder(cluster, "work"))
    pod = await _submit(namespace, "work", spec, DISRUPTIONS, limit=0)
    await namespace.printed(pod)
    namespace.show_command(f"refloat delete pod {pod} --reason Maintenance")
    await namespace.delete_pod(namespace.named(pod), DeleteOptions(reason="Maintenance"))
    await _show_end(cluster, namespace, "work", want=("CompletionsReached", 0))
    await cluster.step("The same policy for a cluster that has podFailurePolicy only")
    cluster.note("$ refloat policy convert policy.yaml")
    conversion = policy_conversion.to_pod_failure_policy({"rules": [BUGS, DISRUPTIONS]})
    for rule in conversion.policy["rules"]:
        cluster.answer(_flow(rule))
    for warning in conversion.warnings:
        cluster.note(f"warning: {warning}")


async def _submit(
    namespace: CaseNamespace, name: str, spec: Object, rule: Object, *, limit: int
) -> str:
    return await namespace.job(
        name,
        spec,
        podFailurePolicy=None,
        backoffPolicy={"rules": [rule]},
        backoffLimit=limit,
    )


def _folder(cluster: DemoCluster, name: str) -> Path:
    """A folder in which the runs of a program leave a file, as any user."""
    folder = cluster.folder(name)
    folder.chmod(0o777)
    return folder


def _with_runs(script: str, folder: Path, *, env: list[Object] | None = None) -> Object:
    return pod_spec(
        script,
        node=NODE.name,
        container={"volumeMounts": [{"name": "runs", "mountPath": "/runs"}], "env": env or []},
        volumes=[{"name": "runs", "hostPath": {"path": str(folder)}}],
    )


async def _show_end(
    cluster: DemoCluster, namespace: CaseNamespace, name: str, *, want: tuple[str, int]
) -> None:
    """Show the decision for each pod and the end of the Job, and check the end."""
    await namespace.finished(name)
    job = namespace.jobs[name]
    for pod in attempts.recorded(job["metadata"].get("annotations")):
        why = f"exit code {pod['exitCode']}" if "exitCode" in pod else "no exit code"
        why += f", reason {pod['reason']}" if "reason" in pod else ""
        decision = f"{pod['action']} by rule {pod['rule']}" if "action" in pod else "counted"
        cluster.answer(f"pod/{pod['pod']}: {why}: {decision}")
    last = job["status"]["conditions"][-1]
    cluster.answer(f"job/{name}: {last['type']}: {last['reason']}: {last['message']}")
    if (end := (last["reason"], job["status"].get("failed", 0))) != want:
        raise DemoFailed(f"job {name}: ended with {end}, not with {want}")


def _flow(rule: Object) -> str:
    """A rule on one line, with at most three exit codes."""
    codes: list[int] = rule.get("onExitCodes", {}).get("values") or []
    if len(codes) > MAX_CODES:
        short = [codes[0], "...", codes[-1]]
        rule = {**rule, "onExitCodes": {**rule["onExitCodes"], "values": short}}
    return json.dumps(rule).replace('""', "''").replace('"', "")
