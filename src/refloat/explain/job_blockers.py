# SPDX-License-Identifier: Apache-2.0
"""The pods of a Job that are being deleted and that the Job waits for."""

from collections.abc import Sequence
from dataclasses import replace

from refloat.explain import pod_terminating
from refloat.explain.codes import Code
from refloat.explain.explanation import Finding
from refloat.explain.job_view import JobView

# What a person must look at comes before what passes by itself.
_WORST_FIRST = (
    Code.TERMINATING_LOST_NODE,
    Code.TERMINATING_FINALIZERS,
    Code.TERMINATING_OVERDUE,
    Code.TERMINATING_RECOVERY,
    Code.NODE_LOST,
)


def findings(view: JobView) -> list[Finding]:
    """The findings on pods that are being deleted, the worst first."""
    findings = [
        pod_terminating.explain(pod, view.context) for pod in view.pods if pod.is_terminating
    ]
    order = {code: place for place, code in enumerate(_WORST_FIRST)}
    return sorted(findings, key=lambda finding: order.get(finding.code, len(order)))


def add_to(finding: Finding, blocked: Sequence[Finding]) -> Finding:
    """The same state, with what holds the pods that it waits for."""
    if not blocked:
        return finding
    worst = blocked[0]
    return replace(
        finding,
        verdict=f"{finding.verdict}: {worst.verdict}",
        next=(*worst.next, *finding.next),
        commands=(*finding.commands, *worst.commands),
        evidence=(*finding.evidence, *worst.evidence),
    )
