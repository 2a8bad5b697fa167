# SPDX-License-Identifier: Apache-2.0
"""Reviews of a user's own access: SelfSubjectReview and its two relatives.

`kubectl auth whoami`, `auth can-i` and `auth can-i --list` send them. The server
answers a review and never stores one. The answers come from the evaluator that
also decides on requests.
"""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from aiohttp import web

from refloat.api import codec, errors, fields, kinds, names, schema, selectors, times
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.apiserver import attributes, authorization, negotiation, options, roles
from refloat.apiserver.attributes import Attributes
from refloat.apiserver.authorization import Authorizer
from refloat.apiserver.http_request import Exchange
from refloat.apiserver.identity import FieldValidation, Identity
from refloat.apiserver.routes import Target
from refloat.apiserver.tables import render
from refloat.base.clock import Clock

_GROUP = "authorization.k8s.io"
_RESOURCE = "spec.resourceAttributes"
_PATH = "spec.nonResourceAttributes"

_Selector = TypeVar("_Selector")

_Answer: TypeAlias = Callable[[Identity, Object], Object]
"""Makes the answer, without kind and version."""


class Reviews:
    """Answers the requests to the resources in `kinds.VIRTUAL`."""

    def __init__(self, authorizer: Authorizer, clock: Clock) -> None:
        self._authorizer = authorizer
        self._clock = clock
        self._answers: dict[str, _Answer] = {
            "SelfSubjectReview": self._user_info,
            "SelfSubjectAccessReview": self._access,
            "SelfSubjectRulesReview": _rules,
        }

    def handles(self, target: Target) -> bool:
        return target.resource.kind in self._answers

    async def serve(self, exchange: Exchange, user: Identity, target: Target) -> web.Response:
        exchange.negotiate(streams=False)
        form, resource = exchange.form, target.resource
        if form.shape == "Table":
            raise errors.not_acceptable(negotiation.SERVED)
        write_options = options.write_options(exchange.query, "CreateOptions")
        media = exchange.media
        body = await exchange.body()
        obj, problems = await exchange.offload(
            len(body), _decoded, resource, body, media, write_options.validation
        )
        exchange.warnings += problems
        answer = {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            **self._answers[resource.kind](user, obj),
        }
        if form.shape == "PartialObjectMetadataList":
            raise render.is_not_a_list(resource)
        if form.shape:
            answer = render.partial_metadata(answer, version=form.version)
        body = await exchange.offload(len(body), negotiation.encode, answer, form)
        return exchange.answer(body, status=201, media=form.media, warnings=exchange.warnings)

    def _user_info(self, user: Identity, obj: Object) -> Object:
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
        request, problems = _request(spec)
        decision = self._authorizer.decide(user, request)
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
    warnings = decoded.problems if validation == "Warn" else []
    if resource.kind != "SelfSubjectAccessReview":
        return decoded.obj, warnings
    spec = decoded.obj.get("spec") or {}
    request, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    mistakes: list[FieldError] = []
    if request is not None and path is not None:
        value = {"Path": path.get("path", ""), "Verb": path.get("verb", "")}
        detail = "cannot be specified in combination with resourceAttributes"
        mistakes.append(fields.invalid(_PATH, value, detail))
    elif request is None and path is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        mistakes.append(fields.invalid(_RESOURCE, None, detail))
    else:
        for name in ("fieldSelector", "labelSelector"):
            selector = (request or {}).get(name)
            if selector is not None:
                mistakes += _selector_mistakes(name, selector)
    ignored = ("namespace", "managedFields")
    metadata = {k: v for k, v in decoded.obj["metadata"].items() if k not in ignored}
    if metadata:
        mistakes.append(fields.invalid("metadata", metadata, "must be empty"))
    if mistakes:
        raise errors.invalid(_GROUP, "", "", mistakes)
    return decoded.obj, warnings


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
        entry = {**verbs, "apiGroups": list(rule.groups), "resources": list(rule.resources)}
        on_resources.append(entry | ({"resourceNames": list(rule.names)} if rule.names else {}))
    problem = authorization.unresolved(user)
    status: Object = {
        "resourceRules": on_resources,
        "nonResourceRules": on_paths,
        "incomplete": bool(problem),
    }
    if problem:
        status["evaluationError"] = problem
    return {"metadata": {}, "spec": {}, "status": status}


# -- the request in a review ----------------------------------------------


def _request(spec: Object) -> tuple[Attributes, list[str]]:
    """The request in question, and the parts of its selectors that are ignored."""
    path = spec.get("nonResourceAttributes")
    if path is not None:
        return attributes.of_path(path.get("verb", ""), path.get("path", "")), []
    resource = spec["resourceAttributes"]
    parsed, terms, problems = _read_selector(
        resource,
        "fieldSelector",
        selectors.parse_fields,
        lambda each: each["operator"] in ("In", "NotIn") and len(each["values"]) == 1,
    )
    # No right depends on labels, so this selector only has to be readable.
    _, _, label_problems = _read_selector(
        resource,
        "labelSelector",
        selectors.parse_labels,
        lambda each: each["operator"] in ("In", "NotIn", "Exists", "DoesNotExist"),
    )
    request = Attributes(
        resource.get("verb", ""),
        group=resource.get("group", ""),
        resource=resource.get("resource", ""),
        subresource=resource.get("subresource", ""),
        namespace=resource.get("namespace", ""),
        name=resource.get("name", ""),
        fields=parsed
        or selectors.FieldSelector(
            selectors.FieldTerm(each["key"], each["values"][0], each["operator"] == "NotIn")
            for each in terms
        ),
    )
    return request, problems + label_problems


def _read_selector(
    resource: Object,
    name: str,
    parse: Callable[[str], _Selector],
    is_readable: Callable[[Object], bool],
) -> tuple[_Selector | None, list[Object], list[str]]:
    """The raw selector or the readable requirements, and a problem if a part is ignored."""
    selector = resource.get(name)
    if selector is None:
        return None, [], []
    if raw := selector.get("rawSelector"):
        try:
            return parse(raw), [], []
        except errors.StatusError:
            return None, [], [f"{_RESOURCE}.{name} ignored due to parse error"]
    terms = [each for each in selector["requirements"] if is_readable(each)]
    if len(terms) == len(selector["requirements"]):
        return None, terms, []
    partially = "partially " if terms else ""
    return None, terms, [f"{_RESOURCE}.{name} {partially}ignored due to parse error"]


# -- validation -----------------------------------------------------------


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
    for index, requirement in enumerate(requirements):
        path, key = f"{where}.requirements[{index}]", requirement["key"]
        if name == "fieldSelector" and not key:
            mistakes.append(fields.required(f"{path}.key", "must be specified"))
        operator, values = requirement["operator"], requirement.get("values") or ()
        if operator in ("In", "NotIn") and not values:
            detail = "must be specified when `operator` is 'In' or 'NotIn'"
            mistakes.append(fields.required(f"{path}.values", detail))
        if operator in ("Exists", "DoesNotExist") and values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            mistakes.append(fields.forbidden(f"{path}.values", detail))
        if name == "labelSelector":
            mistakes += fields.invalid_each(f"{path}.key", key, names.qualified_name(key))
            for position, value in enumerate(values):
                complaints = names.label_value(value)
                mistakes += fields.invalid_each(f"{path}.values[{position}]", value, complaints)
    return mistakes
