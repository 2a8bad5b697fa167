# SPDX-License-Identifier: Apache-2.0
"""Why a pod does not run yet: not scheduled, not accepted, or containers that cannot start.

`pod` asks here for pods in phase Pending, and for containers that wait in a running pod.
"""

import re
from collections.abc import Iterable, Sequence

from refloat.api import structs
from refloat.api.core import ContainerStatus, Node, Pod
from refloat.api.events import Event
from refloat.explain import explain_context
from refloat.explain.codes import Code
from refloat.explain.explain_context import ExplainContext, NodeRoom
from refloat.explain.explanation import (
    KUBELET,
    SCHEDULER,
    Command,
    Evidence,
    Finding,
    NextStep,
    count,
)
from refloat.policy.scheduling import demand, node_affinity, tolerations
from refloat.policy.scheduling.demand import CPU

# A scheduler or a kubelet that has not acted after so many seconds is missing or stuck.
PATIENCE_SECONDS = 15

HOST = "kubernetes.io/hostname"

# Taints that a verdict names.
MAX_NAMED = 3

# The parts of FailedScheduling, each with the place of its check in the scheduler. A node is
# listed under the first check that it fails, so the last check names the nodes that came
# closest. `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had ...`
_OBJECTIONS: tuple[tuple[str, int, Code], ...] = (
    (r"persistentvolumeclaim|PersistentVolumeClaim|volume node affinity|bind", 4, Code.CLAIM),
    (r"topology spread", 5, Code.SPREAD),
    (r"node affinity|node selector|NodeAffinity", 1, Code.AFFINITY),
    (r"affinity", 6, Code.AFFINITY),
    (r"Insufficient|Too many pods", 3, Code.INSUFFICIENT),
    (r"free ports", 2, Code.PORTS),
    (r"taint|unschedulable", 0, Code.TAINTS),
    (r"no nodes available", 0, Code.NO_NODES),
)
_NODE_AFFINITY = 1
_PART = re.compile(r"(\d+) ((?:Insufficient|Too many|node\(s\)|persistentvolume)[^,.]*)")
_CLAIM = re.compile(r'persistentvolumeclaim "([-.\w]+)"', re.IGNORECASE)
_HOLDER = re.compile(r"(used by pod\(s\) .*)", re.DOTALL)
_POD_AFFINITY = re.compile(r"match (existing pods anti-affinity|pod anti-affinity|pod affinity)")
_POD_AFFINITIES = {
    "pod affinity": "no node that fits runs a pod that its pod affinity asks for",
    "pod anti-affinity": "each node that fits runs a pod that its pod anti-affinity excludes",
    "existing pods anti-affinity": "each node that fits runs a pod whose anti-affinity excludes it",
}
_INSUFFICIENT = re.compile(r"Insufficient ([\w./-]*\w)")

_TEXTS = {
    Code.CLAIM: "a PersistentVolumeClaim is missing or not bound",
    Code.SPREAD: "the topology spread constraints exclude all nodes",
    Code.AFFINITY: "no node matches the node selector or affinity",
    Code.INSUFFICIENT: "no node has enough free resources",
    Code.PORTS: "the host port is taken on all nodes that fit",
    Code.TAINTS: "all nodes that fit have taints that the pod does not tolerate",
    Code.NO_NODES: "the cluster has no nodes",
    Code.UNSCHEDULABLE: "the scheduler found no node",
}

# What to look at, and with which command.
_ADVICE = {
    Code.CLAIM: ("see the claims", "kubectl get pvc -n {namespace}"),
    Code.AFFINITY: ("compare with the labels of the nodes", "kubectl get nodes --show-labels"),
    Code.INSUFFICIENT: ("compare with what the nodes have", "kubectl describe nodes"),
    Code.TAINTS: (
        "see the taints; remove one, or tolerate it",
        "kubectl get no -o custom-columns=NAME:.metadata.name,TAINTS:.spec.taints[*].key",
    ),
    Code.NO_NODES: ("add a node", ""),
}
_POD_AFFINITY_ADVICE = (
    "compare with the labels and nodes of the pods",
    "kubectl get pods -n {namespace} -o wide --show-labels",
)
_OTHER_ADVICE = ("see all objections", "kubectl describe pod {name} -n {namespace}")


def unscheduled(pod: Pod, context: ExplainContext) -> Finding:
    """A pod without a node."""
    name, namespace = pod.metadata.name, pod.metadata.namespace
    events = context.events_of("Pod", pod)
    scheduled = structs.find(pod.status.conditions, "PodScheduled")
    if pod.spec.scheduling_gates:
        gates = ", ".join(each.name for each in pod.spec.scheduling_gates)
        text = f"pod {name} is not scheduled: its scheduling gates {gates} are not removed"
        step = NextStep("chooses a node when the owner of the gates has removed them", SCHEDULER)
        look = f"kubectl get pod {name} -n {namespace} -o yaml"
        command = Command("check that the controller behind the gates runs", look)
        return Finding(Code.SCHEDULING_GATES, text, (step,), (command,))
    if pod.status.nominated_node_name:
        node = pod.status.nominated_node_name
        step = NextStep(f"places the pod on {node} when the other pods have ended", SCHEDULER)
        text = f"pod {name} waits until pods of lower priority have left node {node}"
        return Finding(Code.PREEMPTING, text, (step,))
    if scheduled is not None and scheduled.status == "False" and scheduled.message:
        evidence = Evidence(f"pod/{name} condition PodScheduled", scheduled.message)
        # The condition is the latest FailedScheduling; older ones say less.
        rest = [each for each in events if each.reason != "FailedScheduling"]
        finding = _unschedulable(pod, scheduled.message, context)
        rows = explain_context.event_evidence(rest, context.now)
        return finding.with_evidence((evidence, *rows))
    if context.elapsed(pod.metadata.creation_timestamp) <= PATIENCE_SECONDS:
        step = NextStep("chooses a node", SCHEDULER)
        return Finding(Code.CREATING, f"pod {name} was just created", (step,))
    if claim := _notes(events, "FailedResourceClaimCreation"):
        text = f"pod {name} has no node: its resource claims are not created: {claim}"
        step = NextStep("tries again", "the resource claim controller")
        look = f"kubectl get resourceclaimtemplates -n {namespace}"
        return Finding(Code.UNSCHEDULABLE, text, (step,), (Command("see the templates", look),))
    scheduler = pod.spec.scheduler_name or "default-scheduler"
    text = f"pod {name} has no node: the scheduler {scheduler} has not looked at it"
    find = "kubectl get pods -A -l component=kube-scheduler"
    command = Command("check that the scheduler runs", find)
    if scheduler != "default-scheduler":
        fix = "or remove schedulerName from the pod template"
        command = Command(f"check that the scheduler {scheduler} is installed and runs, {fix}")
    return Finding(Code.NO_SCHEDULER, text, commands=(command,))


def _unschedulable(pod: Pod, message: str, context: ExplainContext) -> Finding:
    selector = pod.spec.node_selector or {}
    affinity = node_affinity.compiled(bytes(pod.spec.affinity))
    selected = [
        room
        for room in context.rooms or ()
        if selector.items() <= room.labels.items() and affinity.matches(room.name, room.labels)
    ]
    # A reader of the namespace cannot see whether the node of this name exists; mostly it does.
    names_node = context.rooms is None and HOST in selector
    code = _objection(message, any_selected=bool(selected) or names_node)
    detail, advice = _TEXTS[code], _ADVICE.get(code, _OTHER_ADVICE)
    if code == Code.INSUFFICIENT:
        detail = _shortage(pod, message, selected) or detail
    elif code == Code.TAINTS:
        detail += _taints(pod, selected)
    elif code == Code.PORTS:
        taken = ", ".join(str(port) for _, _, port in demand.ports(pod))
        detail += f" (hostPort {taken})" if taken else ""
    elif code == Code.AFFINITY:
        other = _POD_AFFINITY.search(message)
        advice = _POD_AFFINITY_ADVICE if other else advice
        if selector and not selected:
            labels = ", ".join(f"{key}={value}" for key, value in selector.items())
            detail += f" (node selector {labels})"
        elif other:
            detail = _POD_AFFINITIES[other[1]]
    elif code == Code.CLAIM:
        sources = (each.persistent_volume_claim for each in pod.spec.volumes or ())
        own = [each.claim_name for each in sources if each is not None]
        if claims := _CLAIM.findall(message)[:1] or own:
            names = ", ".join(f"PersistentVolumeClaim {each}" for each in claims)
            detail = f"{names} is missing or not bound"
    name, namespace = pod.metadata.name, pod.metadata.namespace
    step = NextStep("tries again when nodes or pods change", SCHEDULER)
    look = Command(advice[0], advice[1].format(name=name, namespace=namespace))
    return Finding(code, f"pod {name} fits on no node: {detail}", (step,), (look,))


def _objection(message: str, *, any_selected: bool) -> Code:
    """What keeps the pod from the nodes that come closest.

    Nodes that the pod does not select say nothing if it selects others.
    """
    if "no nodes available" in message:
        return Code.NO_NODES
    message = message.partition("preemption:")[0]
    parts = [text for _, text in _PART.findall(message)] or [message]
    stages = {}
    for text in parts:
        for pattern, stage, code in _OBJECTIONS:
            if re.search(pattern, text):
                stages[stage] = code
                break
    if any_selected and len(stages) > 1:
        stages.pop(_NODE_AFFINITY, None)
    return stages[max(stages)] if stages else Code.UNSCHEDULABLE


def _taints(pod: Pod, selected: Sequence[NodeRoom]) -> str:
    """The taints that keep the pod off the nodes that it selects; empty if they are not known."""
    names: dict[str, None] = {}
    for room in selected:
        if room.cordoned:
            names[f"{room.name} is cordoned"] = None
        untolerated = tolerations.untolerated(
            room.taints, pod.spec.tolerations or (), tolerations.REPELLING
        )
        if untolerated is not None and not room.cordoned:
            names[f"{untolerated.key}:{untolerated.effect} on {room.name}"] = None
    shown = ", ".join(list(names)[:MAX_NAMED])
    more = len(names) - MAX_NAMED
    return f" ({shown}{f' and {more} more' if more > 0 else ''})" if names else ""


def _shortage(pod: Pod, message: str, rooms: Sequence[NodeRoom]) -> str:
    """Which resource is short, and by how much on the node that has most of it."""
    short = list(dict.fromkeys(_INSUFFICIENT.findall(message)))
    if not short:
        return "each node has as many pods as it may have"
    needs = dict(demand.needs(pod))
    takers = [room for room in rooms if not room.cordoned]
    texts = []
    for name in short:
        need = needs.get(name, 0)
        text = f"the pod needs {quantity(name, need)} {name}"
        best = max(takers, key=lambda room: (room.free.get(name, 0), room.name), default=None)
        free = 0 if best is None else best.free.get(name, 0)
        if best is None:
            text += ", and no node that fits has so much free"
        elif free >= need:
            text += f"; node {best.name} has so much free and does not fit for another reason"
        else:
            text += (
                f"; the most that is free is {quantity(name, max(0, free))}"
                f" on node {best.name}: {quantity(name, need - free)} too little"
            )
        texts.append(text)
    return "; ".join(texts)


def rooms(nodes: Sequence[Node], pods: Iterable[Pod]) -> list[NodeRoom]:
    """What each node has left."""
    free = {each.metadata.name: demand.amounts(each.status.allocatable) for each in nodes}
    for pod in pods:
        left = free.get(pod.spec.node_name)
        if left is None or pod.is_terminal:
            continue
        for name, amount in demand.needs(pod):
            left[name] = left.get(name, 0) - amount
    return [
        NodeRoom(
            each.metadata.name,
            free[each.metadata.name],
            each.metadata.labels or {},
            each.spec.taints or (),
            each.spec.unschedulable,
        )
        for each in sorted(nodes, key=lambda node: node.metadata.name)
    ]


_BINARY = (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def quantity(name: str, amount: int) -> str:
    """An amount in the units of `policy.scheduling.demand`, as Kubernetes writes quantities."""
    if name == CPU:
        return f"{amount // 1000}" if amount % 1000 == 0 else f"{amount}m"
    if name in ("memory", "ephemeral-storage") or name.startswith("hugepages-"):
        for unit, size in _BINARY:
            if amount >= size:
                return f"{amount / size:.1f}".removesuffix(".0") + unit
    return str(amount)


# -- on a node ----------------------------------------------------------------------


_IMAGE_REASONS = frozenset(("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull"))
_CONFIG_REASONS = frozenset(("CreateContainerConfigError", "CreatePodSandboxConfigError"))
_START_REASONS = frozenset(("CreateContainerError", "RunContainerError", "StartError"))
_UNAUTHORIZED = re.compile(r"unauthorized|denied|forbidden|authentication|401|403", re.IGNORECASE)
_MISSING = re.compile(
    r"not found|not present|no such|manifest unknown|does not exist|404|unknown image",
    re.IGNORECASE,
)
_BAD_REFERENCE = re.compile(
    r"parse image (name|reference)|invalid reference format|repository name must be", re.IGNORECASE
)
_CONFIG_MAP = re.compile(r'configmap "?([-.\w]*)"?', re.IGNORECASE)
_SECRET = re.compile(r'secret "?([-.\w]*)"?', re.IGNORECASE)


def on_node(pod: Pod, context: ExplainContext) -> Finding:
    """A Pending pod that has a node."""
    events = context.events_of("Pod", pod)
    finding = None
    quiet = ("ContainerCreating", "PodInitializing", "")
    # The container that waits for more than the others; init containers come first.
    for status in (
        *(pod.status.init_container_statuses or ()),
        *(pod.status.container_statuses or ()),
    ):
        if _reason(status) not in quiet or _is_restarted(pod, status):
            finding = container(pod, status, events)
            break
    finding = finding or _volumes(pod, events) or _preparing(pod, context, events)
    return finding.with_evidence(explain_context.event_evidence(events, context.now))


def _is_restarted(pod: Pod, status: ContainerStatus) -> bool:
    """Whether a container failed, and its kubelet starts it again.

    A real kubelet may show the state Terminated for the whole pause.
    """
    ended = status.state.terminated
    containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    own = next((each.restart_policy for each in containers if each.name == status.name), None)
    policy = own or pod.spec.restart_policy
    return ended is not None and ended.exit_code != 0 and policy != "Never"


def _reason(status: ContainerStatus) -> str:
    return status.state.waiting.reason if status.state.waiting is not None else ""


def container(pod: Pod, status: ContainerStatus, events: Sequence[Event]) -> Finding | None:
    """A container that waits for a reason; None without a reason that explains something."""
    name, waiting = pod.metadata.name, status.state.waiting
    if _is_restarted(pod, status) or _reason(status) == "CrashLoopBackOff":
        last, flag = status.state.terminated, ""
        if last is None:
            last, flag = getattr(status, "last_state", status.state).terminated, " --previous"
        how = "" if last is None else f"; last: exit code {last.exit_code}, {last.reason}"
        tries = count(status.restart_count + 1, "time")
        text = (
            f"container {status.name} of pod {name} failed {tries} and waits for its restart{how}"
        )
        step = NextStep("starts the container again, after at most 5 minutes", KUBELET)
        read = f"kubectl logs {name} -c {status.name} -n {pod.metadata.namespace}{flag}"
        return Finding(Code.CRASH_LOOP, text, (step,), (Command("read the log", read),))
    if waiting is None:
        return None
    message = " ".join(getattr(waiting, "message", "").split())
    evidence = Evidence(f"pod/{name} container {status.name}", f"{waiting.reason}: {message}")
    finding: Finding | None = None
    if waiting.reason in _IMAGE_REASONS:
        finding = _image(pod, status, f"{message} {_notes(events, 'Failed')}")
    elif waiting.reason == "InvalidImageName":
        text = f"the image name of container {status.name} in pod {name} is invalid"
        finding = Finding(Code.IMAGE_NAME, text, (_never(),), (_edit_template(),))
    elif waiting.reason in _CONFIG_REASONS:
        finding = _config(pod, status, message)
    elif waiting.reason in _START_REASONS:
        text = f"container {status.name} of pod {name} cannot start: {message}"
        finding = Finding(Code.START_ERROR, text, (_retry(),), (_edit_template(),))
    return finding and finding.with_evidence((evidence,))


def _retry() -> NextStep:
    return NextStep("tries again, with growing pauses of up to 5 minutes", KUBELET)


def _never() -> NextStep:
    return NextStep("nothing changes until the Job is replaced")


def _edit_template() -> Command:
    return Command("correct the pod template: delete the Job and apply it again")


def _image(pod: Pod, status: ContainerStatus, message: str) -> Finding:
    containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    image = next((each.image for each in containers if each.name == status.name), "")
    start = f"pod {pod.metadata.name} cannot start: the image {image}"
    secret = Command(
        "check imagePullSecrets of the pod and of its service account",
        f"kubectl get pod {pod.metadata.name} -n {pod.metadata.namespace}"
        " -o jsonpath='{.spec.imagePullSecrets}'",
    )
    if _reason(status) == "ErrImageNeverPull":
        text = f"{start} is not on the node, and imagePullPolicy is Never"
        return Finding(Code.IMAGE_MISSING, text, (_retry(),), (_edit_template(),))
    if _MISSING.search(message) and not re.search(r"unauthorized|401", message, re.IGNORECASE):
        text = f"{start} does not exist"
        return Finding(Code.IMAGE_MISSING, text, (_retry(),), (_edit_template(),))
    if _UNAUTHORIZED.search(message):
        text = f"{start} may not be pulled with the pod's credentials"
        return Finding(Code.IMAGE_UNAUTHORIZED, text, (_retry(),), (secret,))
    if _BAD_REFERENCE.search(message):
        return Finding(
            Code.IMAGE_NAME, f"{start} is no valid name", (_retry(),), (_edit_template(),)
        )
    text = f"{start} could not be pulled"
    why = Command(
        "see why; the registry may be unreachable, or the name wrong",
        f"kubectl describe pod {pod.metadata.name} -n {pod.metadata.namespace}",
    )
    return Finding(Code.IMAGE_BACK_OFF, text, (_retry(),), (why,))


def _config(pod: Pod, status: ContainerStatus, message: str) -> Finding:
    where = f"container {status.name} of pod {pod.metadata.name} cannot be created"
    namespace = pod.metadata.namespace
    if (match := _CONFIG_MAP.search(message)) is not None:
        command = Command("create the ConfigMap", _create("configmap", match[1], namespace))
        text = f"{where}: {_named('ConfigMap', match[1])} is missing or lacks a key"
        return Finding(Code.CONFIG_MAP, text, (_retry(),), (command,))
    if (match := _SECRET.search(message)) is not None:
        command = Command("create the Secret", _create("secret generic", match[1], namespace))
        text = f"{where}: {_named('Secret', match[1])} is missing or lacks a key"
        return Finding(Code.SECRET, text, (_retry(),), (command,))
    text = f"{where}: {message or 'its configuration is wrong'}"
    return Finding(Code.CONTAINER_CONFIG, text, (_retry(),), (_edit_template(),))


def _named(kind: str, name: str) -> str:
    return f"{kind} {name}" if name else f"a {kind}"


def _create(kind: str, name: str, namespace: str) -> str:
    return f"kubectl create {kind} {name or 'NAME'} -n {namespace} --from-literal=KEY=VALUE"


def _notes(events: Sequence[Event], *reasons: str) -> str:
    return " ".join(" ".join(each.note.split()) for each in events if each.reason in reasons)


def _volumes(pod: Pod, events: Sequence[Event]) -> Finding | None:
    """A volume that keeps the pod from starting; events alone show this."""
    name = pod.metadata.name
    attach = [each for each in events if each.reason == "FailedAttachVolume"]
    if blocked := [each.note for each in attach if "Multi-Attach" in each.note]:
        step = NextStep("attaches the volume once it is free", "the attach/detach controller")
        text = f"pod {name} cannot start: its volume is still attached to another node"
        if (holder := _HOLDER.search(blocked[-1])) is not None:
            text += f", {' '.join(holder[1].split())}"
        command = Command("see where it is attached", "kubectl get volumeattachments")
        return Finding(Code.MULTI_ATTACH, text, (step,), (command,))
    mount = [each for each in events if each.reason in ("FailedMount", "FailedAttachVolume")]
    if not mount:
        return None
    note = " ".join(mount[-1].note.split())
    namespace = pod.metadata.namespace
    if (match := _CLAIM.search(note)) is not None:
        text = f"pod {name} cannot start: {note}"
        command = Command("see the claims", f"kubectl get pvc -n {namespace}")
        return Finding(Code.CLAIM, text, (_retry(),), (command,))
    if (match := _CONFIG_MAP.search(note)) is not None:
        text = f"pod {name} cannot start: {_named('ConfigMap', match[1])} of a volume is missing"
        command = Command("create the ConfigMap", _create("configmap", match[1], namespace))
        return Finding(Code.CONFIG_MAP, text, (_retry(),), (command,))
    if (match := _SECRET.search(note)) is not None:
        text = f"pod {name} cannot start: {_named('Secret', match[1])} of a volume is missing"
        command = Command("create the Secret", _create("secret generic", match[1], namespace))
        return Finding(Code.SECRET, text, (_retry(),), (command,))
    text = f"pod {name} cannot start, because a volume is not mounted: {note}"
    return Finding(Code.MOUNT, text, (_retry(),), (_edit_template(),))


def _preparing(pod: Pod, context: ExplainContext, events: Sequence[Event]) -> Finding:
    name, node = pod.metadata.name, pod.spec.node_name
    running = [
        each.name
        for each in pod.status.init_container_statuses or ()
        if each.state.running is not None
    ]
    if running:
        step = NextStep("starts the next container when the init container has ended", KUBELET)
        text = f"pod {name} runs its init container {running[0]}"
        return Finding(Code.INIT, text, (step,))
    if events and events[-1].reason == "Pulling":
        step = NextStep("starts the container when the image is there", KUBELET)
        return Finding(Code.IMAGE_PULLING, f"node {node} pulls an image of pod {name}", (step,))
    scheduled = structs.find(pod.status.conditions, "PodScheduled")
    since = scheduled.last_transition_time if scheduled is not None else None
    accepted = pod.status.start_time is not None or pod.status.container_statuses
    if not accepted and context.elapsed(since) > PATIENCE_SECONDS:
        text = f"node {node} has not accepted pod {name}; its kubelet may be stopped"
        command = Command("look at the node", f"refloat explain node/{node}")
        return Finding(Code.NOT_ACCEPTED, text, commands=(command,))
    step = NextStep("starts the containers", KUBELET)
    return Finding(Code.CREATING, f"node {node} prepares pod {name}", (step,))
