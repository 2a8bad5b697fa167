# SPDX-License-Identifier: Apache-2.0
"""What a new Job must be, and which fields may change.

The policies in the spec and the status have modules of their own
(`job_policies.py`, `job_status.py`).
"""

from refloat.api import conditions, go_internal_types, names, selectors
from refloat.api.defaults.job import NAME_LABELS, UID_LABELS
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import job_policies, job_status, meta, pod, rules
from refloat.api.validation.rules import Errors

_RESTART_POLICY = "spec.template.spec.restartPolicy"
COMPLETION_MODES = ("NonIndexed", "Indexed")
RESTART_POLICIES = ("OnFailure", "Never")

# Bounds that keep status.completedIndexes and status.failedIndexes short.
MAX_PARALLELISM = 100_000
MAX_FAILED_INDEXES = 100_000
MANY_COMPLETIONS = 100_000
MAX_PARALLELISM_OF_MANY = 10_000
MAX_FAILED_INDEXES_OF_MANY = 10_000

MAX_MANAGED_BY = 63

_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)

# Fields that no update changes, in the order of the errors, with the unversioned type.
_FIXED = (
    ("completionMode", ""),
    ("podFailurePolicy", "*batch.PodFailurePolicy"),
    ("backoffLimitPerIndex", ""),
    ("managedBy", ""),
    ("successPolicy", "*batch.SuccessPolicy"),
    ("backoffPolicy", ""),
)


def validate_create(job: Object, *, force_eviction: bool = False) -> list[FieldError]:
    own = _spec_errors(job.get("spec") or {}, {}, force_eviction=force_eviction)
    return _job_errors(job, own, prefixed=True)


def validate_update(new: Object, old: Object, *, force_eviction: bool = False) -> list[FieldError]:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    labels = _template_labels(before)
    own = _spec_errors(spec, before, force_eviction=force_eviction)
    errors = meta.validate_common_update(new["metadata"], old["metadata"])
    prefixed = NAME_LABELS[1] in labels and UID_LABELS[1] in labels
    errors += _job_errors(new, own, prefixed=prefixed)
    errors += meta.validate_change(new["metadata"], old["metadata"])
    errors += own  # Kubernetes checks the spec twice and lists its errors twice
    completions = spec.get("completions")
    if completions != before.get("completions"):
        if spec.get("completionMode") != "Indexed":
            errors.invalid("spec.completions", completions, rules.IMMUTABLE)
        elif completions is not None and completions != spec.get("parallelism"):
            detail = "can only be modified in tandem with spec.parallelism"
            errors.invalid("spec.completions", completions, detail)
    selectors_ = spec.get("selector"), before.get("selector")
    errors.immutable("spec.selector", *selectors_, "*v1.LabelSelector")
    _check_template_change(spec, old, errors)
    for name, kind in _FIXED:
        errors.immutable(f"spec.{name}", spec.get(name), before.get(name), kind)
    return errors


validate_status_update = job_status.validate_update


def _job_errors(job: Object, own: Errors, *, prefixed: bool) -> Errors:
    metadata, spec = job["metadata"], job.get("spec") or {}
    errors = meta.validate(metadata, namespaced=True, name_check=names.dns_subdomain)
    name, selector = metadata.get("name", ""), spec.get("selector")
    if not spec.get("manualSelector") and selector is not None:
        # The labels that the server generated, and a selector that selects them.
        uid = metadata.get("uid", "")
        if not uid:
            errors.required("metadata.uid")
        expected = {UID_LABELS[0]: uid, NAME_LABELS[0]: name}
        if prefixed:
            expected |= {UID_LABELS[1]: uid, NAME_LABELS[1]: name}
        labels = _template_labels(spec)
        for key, value in expected.items():
            path, detail = f"spec.template.metadata.labels[{key}]", f"must be '{value}'"
            if key not in labels:
                errors.required(path, detail)
            elif labels[key] != value:
                errors.invalid(path, go_internal_types.shown("{}string", labels), detail)
        if not meta.validate_label_selector(selector, "") and not _selects(selector, expected):
            value_text = go_internal_types.shown("v1.LabelSelector", selector)
            errors.invalid("spec.selector", value_text, "`selector` not auto-generated")
    errors += own
    # The pod with the highest index has the longest host name.
    completions = spec.get("completions") or 0
    if spec.get("completionMode") == "Indexed" and completions > 0:
        longest = f"{name}-{completions - 1}"
        if names.dns_label(longest):
            detail = f"will not able to create pod with invalid DNS label: {longest}"
            errors.invalid("metadata.name", name, detail)
    return errors


def _template_labels(spec: Object) -> dict[str, str]:
    metadata = (spec.get("template") or {}).get("metadata") or {}
    return metadata.get("labels") or {}


def _selects(selector: Object | None, labels: dict[str, str]) -> bool:
    return selectors.from_object(selector).matches(labels)


def _spec_errors(spec: Object, old: Object, *, force_eviction: bool) -> Errors:
    errors = Errors()
    for name in _COUNTS:
        errors.not_negative(f"spec.{name}", spec.get(name))
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        errors.required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if (manager := spec.get("managedBy")) is not None:
        _check_managed_by(manager, "spec.managedBy", errors)
    _check_completion_mode(spec, errors)
    for name, check in job_policies.CHECKS.items():
        if spec.get(name) is not None:
            check(spec, errors)
    judges = job_policies.judges_failures(spec)
    replacements = ("Failed",) if judges else job_policies.REPLACEMENT_POLICIES
    errors.one_of("spec.podReplacementPolicy", spec.get("podReplacementPolicy"), replacements)
    template, stored = spec.get("template") or {}, old.get("template")
    errors += pod.validate_template(
        template, "spec.template", stored=stored, force_eviction=force_eviction
    )
    policy, path = (template.get("spec") or {}).get("restartPolicy"), _RESTART_POLICY
    # A Job cannot have a pod's default, so the default counts as missing.
    if policy in (None, "", "Always"):
        errors.required(path, 'valid values: "OnFailure", "Never"')
    else:
        errors.one_of(path, policy, RESTART_POLICIES)
    policies = [each for each in job_policies.FAILURE_POLICIES if spec.get(each) is not None]
    for each in policies if policy == "OnFailure" else ():
        errors.invalid(path, policy, f'only "Never" is supported when {each} is specified')
    selector, labels = spec.get("selector"), _template_labels(spec)
    if selector is None:
        errors.required("spec.selector")
    selector_errors = meta.validate_label_selector(selector, "spec.selector")
    errors += selector_errors
    if not selector_errors and not _selects(selector, labels):
        detail = "`selector` does not match template `labels`"
        value_text = go_internal_types.shown("{}string", labels) if labels else None
        errors.invalid("spec.template.metadata.labels", value_text, detail)
    return errors


def _check_managed_by(manager: str, path: str, errors: Errors) -> None:
    if not manager:
        errors.required(path)
        return
    domain, _, rest = manager.partition("/")
    if domain and rest:
        errors.named(path, domain, names.dns_subdomain)
        if not names.is_http_path(rest):
            errors.invalid(path, rest, names.HTTP_PATH_RULE)
    else:
        errors.invalid(path, manager, 'must be a domain-prefixed path (such as "acme.io/foo")')
    errors.too_long(path, manager, MAX_MANAGED_BY)


def _check_completion_mode(spec: Object, errors: Errors) -> None:
    completions, failed = spec.get("completions"), spec.get("maxFailedIndexes")
    if (mode := spec.get("completionMode")) != "Indexed":
        errors.one_of("spec.completionMode", mode, COMPLETION_MODES)
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if mode in (None, "NonIndexed") and spec.get(name) is not None:
                errors.invalid(f"spec.{name}", spec[name], job_policies.NEEDS_INDEXED)
        return
    if completions is None:
        errors.required("spec.completions", "when completion mode is Indexed")
    when = " when completion mode is Indexed"
    _check_at_most(spec, "parallelism", MAX_PARALLELISM, errors, when)
    if completions is not None and failed is not None and failed > completions:
        errors.invalid("spec.maxFailedIndexes", failed, "must be less than or equal to completions")
    _check_at_most(spec, "maxFailedIndexes", MAX_FAILED_INDEXES, errors)
    if (completions or 0) > MANY_COMPLETIONS and spec.get("backoffLimitPerIndex") is not None:
        if failed is None:
            detail = f"must be specified when completions is above {MANY_COMPLETIONS}"
            errors.required("spec.maxFailedIndexes", detail)
        when = (
            f" when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
        )
        _check_at_most(spec, "parallelism", MAX_PARALLELISM_OF_MANY, errors, when)
        _check_at_most(spec, "maxFailedIndexes", MAX_FAILED_INDEXES_OF_MANY, errors, when)


def _check_at_most(spec: Object, name: str, limit: int, errors: Errors, when: str = "") -> None:
    value = spec.get(name)
    if value is not None and value > limit:
        errors.invalid(f"spec.{name}", value, f"must be less than or equal to {limit}{when}")


def is_template_open(job: Object) -> bool:
    """Whether the stored Job is suspended and has no pod of its template.

    Then a queue may still decide where the pods run and which resources
    they get; one update may change that and resume the Job.
    """
    status = job.get("status") or {}
    if not job["spec"].get("suspend") or status.get("active"):
        return False
    is_suspended = any(
        each.get("type") == "Suspended" and each.get("status") == "True"
        for each in conditions.of(job)
    )
    return is_suspended or status.get("startTime") is None


def _check_template_change(spec: Object, old: Object, errors: Errors) -> None:
    new, before = spec.get("template") or {}, old["spec"].get("template") or {}
    if new == before:
        return
    if not is_template_open(old):
        errors.immutable("spec.template", new, before, "core.PodTemplateSpec")
        return
    new_pod, old_pod = new.get("spec") or {}, before.get("spec") or {}
    # The old pod, with the new pod's scheduling and resources.
    allowed = dict(old_pod)
    for name in ("containers", "initContainers"):
        containers, old_containers = new_pod.get(name) or [], old_pod.get(name) or []
        if len(containers) == len(old_containers):
            allowed[name] = [
                other | {"resources": one.get("resources")}
                if one.get("name") == other.get("name")
                else other
                for one, other in zip(containers, old_containers, strict=True)
            ]
    for name in ("nodeSelector", "tolerations", "schedulingGates"):
        allowed[name] = new_pod.get(name)
    one, other = new_pod.get("affinity"), old_pod.get("affinity")
    affinity = (other or {}) | {"nodeAffinity": (one or {}).get("nodeAffinity")}
    has_any = one is not None or any(each is not None for each in affinity.values())
    allowed["affinity"] = affinity if has_any else None
    errors.immutable("spec.template.spec", new_pod, allowed, "core.PodSpec")


def warnings(job: Object, old: Object | None = None) -> list[str]:
    """What is accepted but may surprise."""
    texts = []
    spec = job.get("spec") or {}
    if old is None:
        complaints = names.dns_label(job["metadata"].get("name", ""))
        if complaints:
            texts.append(
                "metadata.name: this is used in Pod names and hostnames, which can result in "
                "surprising behavior; a DNS label is recommended: "
                f"[{' '.join(complaints)}]"
            )
    elif job["metadata"].get("generation") == old["metadata"].get("generation"):
        return []
    if (
        spec.get("completionMode") == "Indexed"
        and (spec.get("completions") or 0) > MANY_COMPLETIONS
        and (spec.get("parallelism") or 0) > MAX_PARALLELISM_OF_MANY
    ):
        texts.append(
            "spec: In Indexed Jobs with a number of completions higher than 10^5 and a "
            "parallelism higher than 10^4, Kubernetes might not be able to track "
            "completedIndexes when a big number of indexes fail"
        )
    return texts + pod.template_warnings(spec.get("template") or {}, "spec.template")
