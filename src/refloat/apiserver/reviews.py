# SPDX-License-Identifier: Apache-2.0
"""Questions about oneself: who am I, may I do this, what may I do.

`kubectl auth whoami`, `auth can-i` and `auth can-i --list` ask them. They are
answered and never stored; the answers come from the same evaluator that
decides on requests.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from aiohttp import web

from refloat.api import codec, errors, fields, kinds, names, schema, selectors, times
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.apiserver import attributes, authorization, forms, options, roles, tables
from refloat.apiserver.attributes import Attributes
from refloat.apiserver.authorization import Authorizer
from refloat.apiserver.exchange import Exchange
from refloat.apiserver.identity import FieldValidation, Identity
from refloat.apiserver.targets import Target
from refloat.base.clock import Clock

_GROUP = "authorization.k8s.io"
_RESOURCE = "spec.resourceAttributes"
_PATH = "spec.nonResourceAttributes"

_Answer: TypeAlias = Callable[[Identity, Object], Object]
"""What stands in the answer besides kind and version."""


class Reviews:
    """Answers the requests to the resources in `kinds.VIRTUAL`."""

    def __init__(self, authorizer: Authorizer, clock: Clock) -> None:
        self._authorizer = authorizer
        self._clock = clock
        self._answers: dict[str, _Answer] = {
            "SelfSubjectReview": self._who,
            "SelfSubjectAccessReview": self._access,
            "SelfSubjectRulesReview": _rules,
        }

    def takes(self, target: Target) -> bool:
        return target.resource.kind in self._answers

    async def serve(self, exchange: Exchange, user: Identity, target: Target) -> web.Response:
        exchange.negotiate(streams=False)
        form, resource = exchange.form, target.resource
        if form.shape == "Table":
            raise errors.not_acceptable(forms.SERVED)
        asked = options.write_options(exchange.query, "CreateOptions")
        media = exchange.media
        body = await exchange.body()
        obj, problems = await exchange.aside(
            len(body), _decoded, resource, body, media, asked.validation
        )
        exchange.warnings += problems
        answer = {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            **self._answers[resource.kind](user, obj),
        }
        if form.shape == "PartialObjectMetadataList":
            raise tables.is_not_a_list(resource)
        if form.shape:
            answer = tables.partial_metadata(answer, version=form.version)
        body = await exchange.aside(len(body), forms.encode, answer, form)
        return exchange.answer(body, status=201, media=form.media, warnings=exchange.warnings)

    def _who(self, user: Identity, obj: Object) -> Object:
        info: Object = {"username": user.name}
        if user.uid:
            info["uid"] = user.uid
        if user.groups:
            info["groups"] = list(user.groups)
        if user.extra:
            info["extra"] = {name: list(values) for name, values in user.extra}
        metadata = {"creationTimestamp": times.format_time(self._clock.now())}
        return {"metadata": metadata, "status": {"userInfo": info}}

    def _access(self, user: Identity, obj: Object) -> Object:
        spec = obj.get("spec") or {}
        asked, problems = _asked(spec)
        decision = self._authorizer.decide(user, asked)
        status: Object = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        if problems:
            status["evaluationError"] = "; ".join(problems)
        return {"metadata": {}, "spec": spec, "status": status}


def _decoded(
    resource: kinds.Resource, body: bytes, media: codec.Media, validation: FieldValidation
) -> tuple[Object, list[str]]:
    struct = schema.struct(resource.api_version, resource.kind)
    decoded = codec.decode(body, struct, media=media)
    if decoded.problems and validation == "Strict":
        raise codec.strict_error(decoded, struct)
    if resource.kind == "SelfSubjectAccessReview":
        mistakes = _access_mistakes(decoded.obj, decoded.obj.get("spec") or {})
        if mistakes:
            raise errors.invalid(_GROUP, "", "", mistakes)
    return decoded.obj, decoded.problems if validation == "Warn" else []


def _rules(user: Identity, obj: Object) -> Object:
    if not (obj.get("spec") or {}).get("namespace"):
        raise errors.bad_request("no namespace on request")
    on_resources: list[Object] = []
    on_paths: list[Object] = []
    for rule in roles.rules(user):
        verbs = {"verbs": list(rule.verbs)}
        if rule.paths:
            on_paths.append({**verbs, "nonResourceURLs": list(rule.paths)})
            continue
        shown = {**verbs, "apiGroups": list(rule.groups), "resources": list(rule.resources)}
        on_resources.append(shown | ({"resourceNames": list(rule.names)} if rule.names else {}))
    problem = authorization.unresolved(user)
    status: Object = {
        "resourceRules": on_resources,
        "nonResourceRules": on_paths,
        "incomplete": bool(problem),
    }
    if problem:
        status["evaluationError"] = problem
    return {"metadata": {}, "spec": {}, "status": status}


# -- what an access review asks ------------------------------------------


def _asked(spec: Object) -> tuple[Attributes, list[str]]:
    """The question, and what of it could not be read."""
    path = spec.get("nonResourceAttributes")
    if path is not None:
        return attributes.of_path(path.get("verb", ""), path.get("path", "")), []
    given = spec["resourceAttributes"]
    terms, problems = _field_terms(given.get("fieldSelector"))
    problems += _label_problems(given.get("labelSelector"))
    asked = Attributes(
        given.get("verb", ""),
        group=given.get("group", ""),
        resource=given.get("resource", ""),
        subresource=given.get("subresource", ""),
        namespace=given.get("namespace", ""),
        name=given.get("name", ""),
        fields=terms,
    )
    return asked, problems


def _field_terms(selector: Object | None) -> tuple[selectors.FieldSelector, list[str]]:
    if selector is None:
        return selectors.ANY_FIELDS, []
    raw = selector.get("rawSelector")
    if raw:
        try:
            return selectors.parse_fields(raw), []
        except errors.StatusError:
            return selectors.ANY_FIELDS, [_ignored("fieldSelector")]
    terms = [
        selectors.FieldTerm(each["key"], each["values"][0], each["operator"] == "NotIn")
        for each in selector["requirements"]
        if each["operator"] in ("In", "NotIn") and len(each["values"]) == 1
    ]
    return selectors.FieldSelector(terms), _lost(
        "fieldSelector", len(terms), len(selector["requirements"])
    )


def _label_problems(selector: Object | None) -> list[str]:
    """No right depends on labels; a selector on them must only be readable."""
    if selector is None:
        return []
    raw = selector.get("rawSelector")
    if raw:
        try:
            selectors.parse_labels(raw)
        except errors.StatusError:
            return [_ignored("labelSelector")]
        return []
    known = ("In", "NotIn", "Exists", "DoesNotExist")
    read = [each for each in selector["requirements"] if each["operator"] in known]
    return _lost("labelSelector", len(read), len(selector["requirements"]))


def _lost(name: str, read: int, given: int) -> list[str]:
    if read == given:
        return []
    return [_ignored(name, partly=read > 0)]


def _ignored(name: str, *, partly: bool = False) -> str:
    return f"{_RESOURCE}.{name} {'partially ' if partly else ''}ignored due to parse error"


# -- what is wrong with it ------------------------------------------------


def _access_mistakes(obj: Object, spec: Object) -> list[FieldError]:
    mistakes = _spec_mistakes(spec)
    metadata = {
        name: value
        for name, value in obj["metadata"].items()
        if name not in ("namespace", "managedFields")
    }
    if metadata:
        mistakes.append(fields.invalid("metadata", metadata, "must be empty"))
    return mistakes


def _spec_mistakes(spec: Object) -> list[FieldError]:
    given, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if given is not None and path is not None:
        shown = {"Path": path.get("path", ""), "Verb": path.get("verb", "")}
        detail = "cannot be specified in combination with resourceAttributes"
        return [fields.invalid(_PATH, shown, detail)]
    if given is None and path is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [fields.invalid(_RESOURCE, None, detail)]
    mistakes: list[FieldError] = []
    for name in ("fieldSelector", "labelSelector"):
        selector = (given or {}).get(name)
        if selector is not None:
            mistakes += _selector_mistakes(name, selector)
    return mistakes


def _selector_mistakes(name: str, selector: Object) -> list[FieldError]:
    where = f"{_RESOURCE}.{name}"
    raw, requirements = selector.get("rawSelector"), selector.get("requirements") or []
    if raw and requirements:
        detail = "may not specified at the same time as requirements"
        mistakes = [fields.invalid(f"{where}.rawSelector", raw, detail)]
    elif not raw and not requirements:
        detail = f"when {where} is specified, requirements or rawSelector is required"
        return [fields.required(f"{where}.requirements", detail)]
    else:
        mistakes = []
    check = _field_mistakes if name == "fieldSelector" else _label_mistakes
    for index, each in enumerate(requirements):
        mistakes += check(f"{where}.requirements[{index}]", each)
    return mistakes


def _field_mistakes(where: str, requirement: dict[str, Any]) -> list[FieldError]:
    mistakes = []
    if not requirement["key"]:
        mistakes.append(fields.required(f"{where}.key", "must be specified"))
    return mistakes + _values_mistakes(where, requirement)


def _label_mistakes(where: str, requirement: dict[str, Any]) -> list[FieldError]:
    key = requirement["key"]
    mistakes = _values_mistakes(where, requirement)
    mistakes += fields.invalid_each(f"{where}.key", key, names.qualified_name(key))
    for index, value in enumerate(requirement.get("values") or ()):
        complaints = names.label_value(value)
        mistakes += fields.invalid_each(f"{where}.values[{index}]", value, complaints)
    return mistakes


def _values_mistakes(where: str, requirement: dict[str, Any]) -> list[FieldError]:
    operator, values = requirement["operator"], requirement.get("values")
    if operator in ("In", "NotIn") and not values:
        detail = "must be specified when `operator` is 'In' or 'NotIn'"
        return [fields.required(f"{where}.values", detail)]
    if operator in ("Exists", "DoesNotExist") and values:
        detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        return [fields.forbidden(f"{where}.values", detail)]
    return []
