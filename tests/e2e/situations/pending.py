# SPDX-License-Identifier: Apache-2.0
"""Jobs that have not started, and pods that wait to start."""

from refloat.explain.codes import Code
from tests import builders
from tests.e2e.situations.nodes import IMAGES, IMPORTANT, LARGE, LOW, SECOND, WORKER
from tests.e2e.situations.steps import (
    LONG_GRACE,
    SCHEDULER_SECONDS,
    STUBBORN,
    Situation,
    age,
    claiming,
    create,
    created,
    event,
    explained,
    job,
    job_is,
    logged,
    nominated,
    phase,
    unscheduled,
    waiting,
)

NOT_STARTED = (
    Situation(
        "suspended",
        "A user suspended the Job",
        Code.SUSPENDED,
        ("Job suspended is suspended", '{"spec":{"suspend":false}}'),
        (job("suspended", suspend=True),),
        job_is("suspended", "Suspended"),
    ),
    Situation(
        "queued",
        "Kueue has not admitted the Job",
        Code.SUSPENDED_QUEUED,
        ("waits in the queue team-a", "kubectl describe workload"),
        (
            job(
                "queued",
                metadata={"labels": {"kueue.x-k8s.io/queue-name": "team-a"}},
                suspend=True,
            ),
        ),
        job_is("queued", "Suspended"),
    ),
    Situation(
        "other-manager",
        "`managedBy` names a controller that is not there",
        Code.OTHER_CONTROLLER,
        ("is managed by example.com/controller, which has not acted on it",),
        (job("other-manager", managedBy="example.com/controller"),),
        created("other-manager"),
    ),
    Situation(
        "no-priority-class",
        "Admission refuses the pods: the PriorityClass is missing",
        Code.ADMISSION,
        ("are refused", "no PriorityClass with name urgent was found"),
        (job("no-priority-class", pod={"priorityClassName": "urgent"}),),
        event("no-priority-class", "FailedCreate"),
    ),
)

PENDING = (
    Situation(
        "too-big",
        "The pod requests more CPU than any node has",
        Code.INSUFFICIENT,
        ("the pod needs 1000 cpu", "too little"),
        (job("too-big", main={"resources": {"requests": {"cpu": "1000"}}}),),
        unscheduled("too-big"),
    ),
    Situation(
        "tainted-pool",
        "The only node that the pod selects has a taint",
        Code.TAINTS,
        ("have taints that the pod does not tolerate", "example.com/maintenance"),
        (),
        unscheduled("tainted-pool"),
        (
            (
                explained("taint-eviction"),
                create(job("tainted-pool", node=SECOND)),
            ),
        ),
    ),
    Situation(
        "affinity",
        "The node selector matches no node",
        Code.AFFINITY,
        ("no node matches the node selector", "example.com/gpu=a100"),
        (job("affinity", pod={"nodeSelector": {"example.com/gpu": "a100"}}),),
        unscheduled("affinity"),
    ),
    Situation(
        "host-port",
        "Another pod has the host port",
        Code.PORTS,
        ("the host port is taken", "hostPort 8099"),
        (
            job(
                "port-holder",
                main={"ports": [{"containerPort": 8099, "hostPort": 8099}]},
                node=WORKER,
            ),
        ),
        unscheduled("host-port"),
        (
            (
                phase("port-holder", "Running"),
                create(
                    job(
                        "host-port",
                        main={"ports": [{"containerPort": 8099, "hostPort": 8099}]},
                        node=WORKER,
                    )
                ),
            ),
        ),
    ),
    Situation(
        "claim-missing",
        "The claim does not exist",
        Code.CLAIM,
        ('persistentvolumeclaim "datasets" not found',),
        (job("claim-missing", pod=claiming("datasets"), node=WORKER),),
        event("claim-missing", "FailedMount"),
    ),
    Situation(
        "claim-unbound",
        "The claim has no volume",
        Code.CLAIM,
        ('persistentvolumeclaim "waiting-claim" is not bound yet',),
        (
            builders.claim("waiting-claim"),
            job("claim-unbound", pod=claiming("waiting-claim"), node=WORKER),
        ),
        event("claim-unbound", "FailedMount"),
    ),
    Situation(
        "gated",
        "The pod has a scheduling gate",
        Code.SCHEDULING_GATES,
        ("example.com/quota", "not removed"),
        (job("gated", pod={"schedulingGates": [{"name": "example.com/quota"}]}),),
        phase("gated", "Pending"),
    ),
    Situation(
        "no-scheduler",
        "The scheduler of the pod is not there",
        Code.NO_SCHEDULER,
        ("the scheduler volcano has not looked at it",),
        (job("no-scheduler", pod={"schedulerName": "volcano"}),),
        age("no-scheduler", SCHEDULER_SECONDS),
    ),
    Situation(
        "waits-for-preemption",
        "A pod of higher priority waits until others have left",
        Code.PREEMPTING,
        ("waits until pods of lower priority have left node low",),
        (IMPORTANT, job("leaves-slowly", STUBBORN, main=LARGE, pod=LONG_GRACE, node=LOW)),
        nominated("waits-for-preemption"),
        (
            (
                logged("leaves-slowly"),
                create(
                    job(
                        "waits-for-preemption",
                        main=LARGE,
                        pod={"priorityClassName": "important"},
                        node=LOW,
                    )
                ),
            ),
        ),
    ),
    Situation(
        "image-missing",
        "The image does not exist",
        Code.IMAGE_MISSING,
        ("the image registry.example.com/missing:1", "does not exist"),
        (job("image-missing", main={"image": "registry.example.com/missing:1"}, node=IMAGES),),
        waiting("image-missing", "ErrImagePull", "ImagePullBackOff"),
    ),
    Situation(
        "image-not-on-node",
        "The image is not on the node, and must not be pulled",
        Code.IMAGE_MISSING,
        ("is not on the node, and imagePullPolicy is Never",),
        (
            job(
                "image-not-on-node",
                main={"image": "registry.example.com/missing:2", "imagePullPolicy": "Never"},
                node=IMAGES,
            ),
        ),
        waiting("image-not-on-node", "ErrImageNeverPull"),
    ),
    Situation(
        "config-missing",
        "The container's ConfigMap does not exist",
        Code.CONFIG_MAP,
        ("ConfigMap training-config is missing", "kubectl create configmap training-config"),
        (
            job(
                "config-missing",
                main={"envFrom": [{"configMapRef": {"name": "training-config"}}]},
                node=WORKER,
            ),
        ),
        waiting("config-missing", "CreateContainerConfigError"),
    ),
    Situation(
        "secret-missing",
        "The Secret of a volume does not exist",
        Code.SECRET,
        ("Secret credentials of a volume is missing", "kubectl create secret generic credentials"),
        (
            job(
                "secret-missing",
                pod={"volumes": [{"name": "keys", "secret": {"secretName": "credentials"}}]},
                node=WORKER,
            ),
        ),
        event("secret-missing", "FailedMount"),
    ),
    Situation(
        "root-refused",
        "The security context is refused",
        Code.CONTAINER_CONFIG,
        ("cannot be created: runAsUser and runAsGroup: 0",),
        (job("root-refused", main={"securityContext": {"runAsUser": 0}}, node=WORKER),),
        waiting("root-refused", "CreateContainerConfigError"),
    ),
    Situation(
        "multi-attach",
        "The volume is attached to another node",
        Code.MULTI_ATTACH,
        ("its volume is still attached to another node, used by pod(s) disk-holder-",),
        (
            builders.volume("disk"),
            builders.claim("disk", volume="disk"),
            job("disk-holder", pod=claiming("disk"), node=WORKER),
        ),
        event("multi-attach", "FailedAttachVolume"),
        (
            (
                phase("disk-holder", "Running"),
                create(job("multi-attach", pod=claiming("disk"), node=IMAGES)),
            ),
        ),
    ),
    Situation(
        "init",
        "An init container runs",
        Code.INIT,
        ("runs its init container prepare",),
        (
            job(
                "init",
                pod={
                    "initContainers": [
                        {"name": "prepare", "image": "busybox", "command": ["sleep", "1000"]}
                    ]
                },
                node=WORKER,
            ),
        ),
        lambda view: any(
            each["state"].get("running")
            for pod in view.of("init")
            for each in pod["status"].get("initContainerStatuses") or ()
        ),
    ),
)
