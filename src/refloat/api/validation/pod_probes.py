# SPDX-License-Identifier: Apache-2.0
"""Probes and lifecycle hooks of a container."""

from typing import Any

from refloat.api import fields, names
from refloat.api.meta import Object
from refloat.api.validation import pod_rules as rules
from refloat.api.validation.pod_rules import Errors

_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_SCHEMES = ("HTTP", "HTTPS")
_PROBE_NUMBERS = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def check_probes_and_hooks(container: Object, grace: int | None, path: str, errors: Errors) -> None:
    if hooks := container.get("lifecycle"):
        for hook in ("postStart", "preStop"):
            if (handler := hooks.get(hook)) is not None:
                where = f"{path}.lifecycle.{hook}"
                _check_handler(handler, _HOOK_HANDLERS, grace, where, errors)
    for kind in PROBES:
        if (probe := container.get(kind)) is not None:
            _check_probe(probe, kind, f"{path}.{kind}", errors)


def _check_probe(probe: Object, kind: str, path: str, errors: Errors) -> None:
    _check_handler(probe, _PROBE_HANDLERS, None, path, errors)
    for key in _PROBE_NUMBERS:
        rules.non_negative(errors, f"{path}.{key}", probe.get(key, 0))
    grace = probe.get("terminationGracePeriodSeconds")
    where = f"{path}.terminationGracePeriodSeconds"
    if grace is not None and grace <= 0:
        errors.append(fields.invalid(where, grace, "must be greater than 0"))
    if kind == "readinessProbe":
        if grace is not None:
            errors.append(fields.invalid(where, grace, "must not be set for readinessProbes"))
    elif (threshold := probe.get("successThreshold", 0)) != 1:
        errors.append(fields.invalid(f"{path}.successThreshold", threshold, "must be 1"))


def _check_handler(
    handler: Object, kinds: tuple[str, ...], grace: int | None, path: str, errors: Errors
) -> None:
    """Exactly one way to probe or to hook; only the first is looked into."""
    given = [kind for kind in kinds if handler.get(kind) is not None]
    if not given:
        errors.append(fields.required(path, "must specify a handler type"))
        return
    first, *others = given
    _check_action(first, handler[first], grace, f"{path}.{first}", errors)
    errors += [
        fields.forbidden(f"{path}.{other}", "may not specify more than 1 handler type")
        for other in others
    ]


def _check_action(kind: str, action: Object, grace: int | None, path: str, errors: Errors) -> None:
    if kind == "exec":
        rules.required_keys(errors, action, ("command",), path)
    elif kind == "httpGet":
        _check_http_get(action, path, errors)
    elif kind == "sleep":
        _check_sleep(action.get("seconds", 0), grace, path, errors)
    else:
        _check_port(action.get("port", 0), f"{path}.port", errors)


def _check_http_get(action: Object, path: str, errors: Errors) -> None:
    rules.required_keys(errors, action, ("path",), path)
    _check_port(action.get("port", 0), f"{path}.port", errors)
    rules.one_of(errors, f"{path}.scheme", action.get("scheme", ""), _SCHEMES)
    for header in action.get("httpHeaders") or ():
        name = header.get("name", "")
        rules.named(errors, f"{path}.httpHeaders", name, names.http_header_name)


def _check_sleep(seconds: int, grace: int | None, path: str, errors: Errors) -> None:
    if grace is not None and not 0 <= seconds <= grace:
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        errors.append(fields.invalid(path, seconds, detail))


def _check_port(port: Any, path: str, errors: Errors) -> None:
    """A number, or the name of one of the container's ports."""
    complaints = names.port_name(port) if isinstance(port, str) else names.port_number(port)
    errors += fields.invalid_each(path, port, complaints)
