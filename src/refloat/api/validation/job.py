# SPDX-License-Identifier: Apache-2.0
"""What a Job must be when it is created, and which of its fields may change.

The policies inside its spec have their own module, and so has its status
(`job_policies.py`, `job_status.py`).
"""

from typing import Any

from refloat.api import conditions, fields, internal, names, selectors
from refloat.api.defaults.job import NAME_LABELS, UID_LABELS
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import job_policies, job_status, meta, pod, rules

COMPLETION_MODES = ("NonIndexed", "Indexed")
RESTART_POLICIES = ("OnFailure", "Never")

# Bounds that keep status.completedIndexes and status.failedIndexes short.
MAX_PARALLELISM = 100_000
MAX_FAILED_INDEXES = 100_000
MANY_COMPLETIONS = 100_000
MAX_PARALLELISM_OF_MANY = 10_000
MAX_FAILED_INDEXES_OF_MANY = 10_000

MAX_MANAGED_BY = 63

_NEEDS_INDEXED = "requires indexed completion mode"

_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)

# What no update changes, in the order of the complaints, with the unversioned type.
_FIXED = (
    ("completionMode", ""),
    ("podFailurePolicy", "*batch.PodFailurePolicy"),
    ("backoffLimitPerIndex", ""),
    ("managedBy", ""),
    ("successPolicy", "*batch.SuccessPolicy"),
    ("backoffPolicy", ""),
)


def validate_create(job: Object, *, force_eviction: bool = False) -> list[FieldError]:
    own = _spec(job.get("spec") or {}, {}, force_eviction=force_eviction)
    return _job(job, own, prefixed=True)


def validate_update(new: Object, old: Object, *, force_eviction: bool = False) -> list[FieldError]:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    labels = _template_labels(before)
    # Kubernetes checks the spec twice and lists its mistakes twice.
    own = _spec(spec, before, force_eviction=force_eviction)
    return [
        *meta.validate_common_update(new["metadata"], old["metadata"]),
        *_job(new, own, prefixed=NAME_LABELS[1] in labels and UID_LABELS[1] in labels),
        *meta.validate_change(new["metadata"], old["metadata"]),
        *own,
        *_completions_change(spec, before),
        *rules.immutable(
            spec.get("selector"), before.get("selector"), "spec.selector", "*v1.LabelSelector"
        ),
        *_template_change(spec, old),
        *_fixed(spec, before),
    ]


validate_status_update = job_status.validate_update


def _job(job: Object, own: list[FieldError], *, prefixed: bool) -> list[FieldError]:
    mistakes = meta.validate(job["metadata"], namespaced=True, name_check=names.dns_subdomain)
    spec = job.get("spec") or {}
    mistakes += _generated_selector(job["metadata"], spec, prefixed=prefixed)
    return mistakes + own + _hostname(job["metadata"], spec)


def _template_labels(spec: Object) -> dict[str, str]:
    metadata = (spec.get("template") or {}).get("metadata") or {}
    return metadata.get("labels") or {}


def _generated_selector(metadata: Object, spec: Object, *, prefixed: bool) -> list[FieldError]:
    selector = spec.get("selector")
    if spec.get("manualSelector") or selector is None:
        return []
    uid, name = metadata.get("uid", ""), metadata.get("name", "")
    mistakes = [] if uid else [fields.required("metadata.uid")]
    expected = {UID_LABELS[0]: uid, NAME_LABELS[0]: name}
    if prefixed:
        expected |= {UID_LABELS[1]: uid, NAME_LABELS[1]: name}
    labels = _template_labels(spec)
    for key, value in expected.items():
        mistakes += _has_label(labels, key, value)
    if not meta.validate_label_selector(selector, "") and not _selects(selector, expected):
        shown = internal.shown("v1.LabelSelector", selector)
        mistakes.append(fields.invalid("spec.selector", shown, "`selector` not auto-generated"))
    return mistakes


def _has_label(labels: dict[str, str], key: str, value: str) -> list[FieldError]:
    path, detail = f"spec.template.metadata.labels[{key}]", f"must be '{value}'"
    if key not in labels:
        return [fields.required(path, detail)]
    if labels[key] != value:
        return [fields.invalid(path, _sorted(labels), detail)]
    return []


def _sorted(labels: dict[str, str]) -> Any:
    return internal.shown("{}string", labels)


def _hostname(metadata: Object, spec: Object) -> list[FieldError]:
    """The pod with the highest index has the longest host name."""
    completions = spec.get("completions") or 0
    if spec.get("completionMode") != "Indexed" or completions <= 0:
        return []
    name = metadata.get("name", "")
    longest = f"{name}-{completions - 1}"
    if not names.dns_label(longest):
        return []
    detail = f"will not able to create pod with invalid DNS label: {longest}"
    return [fields.invalid("metadata.name", name, detail)]


def _spec(spec: Object, old: Object, *, force_eviction: bool) -> list[FieldError]:
    template, stored = spec.get("template") or {}, old.get("template")
    of_template = pod.validate_template(
        template, "spec.template", stored=stored, force_eviction=force_eviction
    )
    return [
        *_counts(spec),
        *_managed_by(spec.get("managedBy")),
        *_completion_mode(spec),
        *_policies(spec),
        *of_template,
        *_restart_policy(template.get("spec") or {}, spec),
        *_selector(spec),
    ]


def _counts(spec: Object) -> list[FieldError]:
    mistakes = []
    for name in _COUNTS:
        mistakes += rules.nonnegative(spec.get(name), f"spec.{name}")
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        detail = "when maxFailedIndexes is specified"
        mistakes.append(fields.required("spec.backoffLimitPerIndex", detail))
    return mistakes


def _managed_by(value: str | None) -> list[FieldError]:
    if value is None:
        return []
    path = "spec.managedBy"
    if not value:
        return [fields.required(path)]
    mistakes = _domain_prefixed(value, path)
    if names.longer(value, MAX_MANAGED_BY):
        mistakes.append(fields.too_long(path, MAX_MANAGED_BY))
    return mistakes


def _domain_prefixed(value: str, path: str) -> list[FieldError]:
    domain, _, rest = value.partition("/")
    if not domain or not rest:
        detail = 'must be a domain-prefixed path (such as "acme.io/foo")'
        return [fields.invalid(path, value, detail)]
    mistakes = rules.named(names.dns_subdomain(domain), path, domain)
    if not names.is_http_path(rest):
        mistakes.append(fields.invalid(path, rest, names.HTTP_PATH_RULE))
    return mistakes


def _completion_mode(spec: Object) -> list[FieldError]:
    mode = spec.get("completionMode")
    if mode == "Indexed":
        return _indexed(spec)
    if mode not in (None, "NonIndexed"):
        return [rules.unsupported("spec.completionMode", mode, COMPLETION_MODES)]
    return [
        fields.invalid(f"spec.{name}", spec[name], _NEEDS_INDEXED)
        for name in ("backoffLimitPerIndex", "maxFailedIndexes")
        if spec.get(name) is not None
    ]


def _indexed(spec: Object) -> list[FieldError]:
    completions, failed = spec.get("completions"), spec.get("maxFailedIndexes")
    mistakes = []
    if completions is None:
        detail = "when completion mode is Indexed"
        mistakes.append(fields.required("spec.completions", detail))
    mistakes += _at_most(spec, "parallelism", MAX_PARALLELISM, " when completion mode is Indexed")
    if completions is not None and failed is not None and failed > completions:
        detail = "must be less than or equal to completions"
        mistakes.append(fields.invalid("spec.maxFailedIndexes", failed, detail))
    mistakes += _at_most(spec, "maxFailedIndexes", MAX_FAILED_INDEXES)
    if (completions or 0) > MANY_COMPLETIONS and spec.get("backoffLimitPerIndex") is not None:
        mistakes += _many_completions(spec)
    return mistakes


def _many_completions(spec: Object) -> list[FieldError]:
    mistakes = []
    if spec.get("maxFailedIndexes") is None:
        detail = f"must be specified when completions is above {MANY_COMPLETIONS}"
        mistakes.append(fields.required("spec.maxFailedIndexes", detail))
    when = f" when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
    mistakes += _at_most(spec, "parallelism", MAX_PARALLELISM_OF_MANY, when)
    return mistakes + _at_most(spec, "maxFailedIndexes", MAX_FAILED_INDEXES_OF_MANY, when)


def _at_most(spec: Object, name: str, limit: int, when: str = "") -> list[FieldError]:
    value = spec.get(name)
    if value is None or value <= limit:
        return []
    return [fields.invalid(f"spec.{name}", value, f"must be less than or equal to {limit}{when}")]


def _policies(spec: Object) -> list[FieldError]:
    mistakes = []
    if spec.get("podFailurePolicy") is not None:
        mistakes += job_policies.pod_failure_policy(spec)
    if spec.get("backoffPolicy") is not None:
        mistakes += job_policies.backoff_policy(spec)
    policy = spec.get("successPolicy")
    if policy is not None and spec.get("completionMode") != "Indexed":
        shown = internal.shown("batch.SuccessPolicy", policy)
        mistakes.append(fields.invalid("spec.successPolicy", shown, _NEEDS_INDEXED))
    elif policy is not None:
        mistakes += job_policies.success_policy(spec)
    return mistakes + job_policies.pod_replacement_policy(spec)


def _restart_policy(template: Object, spec: Object) -> list[FieldError]:
    policy = template.get("restartPolicy", "")
    path = "spec.template.spec.restartPolicy"
    # A pod's default is what a Job cannot have, so it counts as not given.
    if policy in ("", "Always"):
        return [fields.required(path, 'valid values: "OnFailure", "Never"')]
    if policy not in RESTART_POLICIES:
        return [rules.unsupported(path, policy, RESTART_POLICIES)]
    return [
        fields.invalid(path, policy, f'only "Never" is supported when {name} is specified')
        for name in job_policies.FAILURE_POLICIES
        if policy != "Never" and spec.get(name) is not None
    ]


def _selector(spec: Object) -> list[FieldError]:
    selector = spec.get("selector")
    labels = _template_labels(spec)
    mistakes = []
    if selector is None:
        mistakes.append(fields.required("spec.selector"))
    else:
        mistakes += meta.validate_label_selector(selector, "spec.selector")
    # No selector selects nothing; one that is wrong is not tried.
    if (selector is None or not mistakes) and not _selects(selector, labels):
        detail = "`selector` does not match template `labels`"
        shown = _sorted(labels) if labels else None
        mistakes.append(fields.invalid("spec.template.metadata.labels", shown, detail))
    return mistakes


def _selects(selector: Object | None, labels: dict[str, str]) -> bool:
    return selectors.from_object(selector).matches(labels)


def _completions_change(new: Object, old: Object) -> list[FieldError]:
    completions = new.get("completions")
    if completions == old.get("completions"):
        return []
    if new.get("completionMode") != "Indexed":
        return [fields.invalid("spec.completions", completions, meta.IMMUTABLE)]
    # Indexed without completions is a mistake that was found already.
    if completions is None or completions == new.get("parallelism"):
        return []
    detail = "can only be modified in tandem with spec.parallelism"
    return [fields.invalid("spec.completions", completions, detail)]


def _fixed(new: Object, old: Object) -> list[FieldError]:
    mistakes = []
    for name, kind in _FIXED:
        mistakes += rules.immutable(new.get(name), old.get(name), f"spec.{name}", kind)
    return mistakes


def is_template_open(job: Object) -> bool:
    """Whether the stored Job is suspended and has no pod that its template made.

    In this window a queue may still decide where the pods shall run and how
    much they shall get; one update may change that and resume the Job.
    """
    status = job.get("status") or {}
    if not job["spec"].get("suspend") or status.get("active"):
        return False
    settled = any(
        each.get("type") == "Suspended" and each.get("status") == "True"
        for each in conditions.of(job)
    )
    return settled or status.get("startTime") is None


def _template_change(spec: Object, old: Object) -> list[FieldError]:
    new, before = spec.get("template") or {}, old["spec"].get("template") or {}
    if new == before:
        return []
    if not is_template_open(old):
        return rules.immutable(new, before, "spec.template", "core.PodTemplateSpec")
    new_pod, old_pod = new.get("spec") or {}, before.get("spec") or {}
    allowed = _with_scheduling(new_pod, _with_resources(new_pod, old_pod))
    return rules.immutable(new_pod, allowed, "spec.template.spec", "core.PodSpec")


def _with_scheduling(new: Object, old: Object) -> Object:
    """The old pod with the new one's say in where it runs."""
    allowed = dict(old)
    for name in ("nodeSelector", "tolerations", "schedulingGates"):
        allowed[name] = new.get(name)
    affinity = _with_node_affinity(new.get("affinity"), old.get("affinity"))
    return allowed | {"affinity": affinity}


def _with_node_affinity(new: Object | None, old: Object | None) -> Object | None:
    if new is None and old is None:
        return None
    affinity = (old or {}) | {"nodeAffinity": (new or {}).get("nodeAffinity")}
    if new is None and not any(each is not None for each in affinity.values()):
        return None
    return affinity


def _with_resources(new: Object, old: Object) -> Object:
    """The old pod with the new one's resources, container by container."""
    allowed = dict(old)
    for name in ("containers", "initContainers"):
        wanted, had = new.get(name) or [], old.get(name) or []
        if len(wanted) == len(had):
            pairs = zip(wanted, had, strict=True)
            allowed[name] = [_with_container_resources(*pair) for pair in pairs]
    return allowed


def _with_container_resources(new: Object, old: Object) -> Object:
    if new.get("name") != old.get("name"):
        return old
    return old | {"resources": new.get("resources")}


def warnings(job: Object, old: Object | None = None) -> list[str]:
    """What is accepted but may surprise."""
    found = []
    spec = job.get("spec") or {}
    if old is None:
        found += _name_warnings(job["metadata"].get("name", ""))
    elif job["metadata"].get("generation") == old["metadata"].get("generation"):
        return []
    if _cannot_track(spec):
        found.append(
            "spec: In Indexed Jobs with a number of completions higher than 10^5 and a "
            "parallelism higher than 10^4, Kubernetes might not be able to track "
            "completedIndexes when a big number of indexes fail"
        )
    return found + pod.template_warnings(spec.get("template") or {}, "spec.template")


def _name_warnings(name: str) -> list[str]:
    complaints = names.dns_label(name)
    if not complaints:
        return []
    text = (
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising "
        f"behavior; a DNS label is recommended: [{' '.join(complaints)}]"
    )
    return [text]


def _cannot_track(spec: Object) -> bool:
    return (
        spec.get("completionMode") == "Indexed"
        and (spec.get("completions") or 0) > MANY_COMPLETIONS
        and (spec.get("parallelism") or 0) > MAX_PARALLELISM_OF_MANY
    )
