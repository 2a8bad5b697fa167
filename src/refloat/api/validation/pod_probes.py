# SPDX-License-Identifier: Apache-2.0
"""Probes and lifecycle hooks of a container."""

from refloat.api import fields, names
from refloat.api.meta import Object
from refloat.api.validation.rules import Errors

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
                _check_handler(handler, _HOOK_HANDLERS, grace, f"{path}.lifecycle.{hook}", errors)
    for kind in PROBES:
        if (probe := container.get(kind)) is not None:
            _check_probe(probe, kind, f"{path}.{kind}", errors)


def _check_probe(probe: Object, kind: str, path: str, errors: Errors) -> None:
    _check_handler(probe, _PROBE_HANDLERS, None, path, errors)
    for key in _PROBE_NUMBERS:
        errors.not_negative(f"{path}.{key}", probe.get(key, 0))
    seconds = probe.get("terminationGracePeriodSeconds")
    where = f"{path}.terminationGracePeriodSeconds"
    if seconds is not None and seconds <= 0:
        errors.invalid(where, seconds, "must be greater than 0")
    if kind == "readinessProbe":
        if seconds is not None:
            errors.invalid(where, seconds, "must not be set for readinessProbes")
    elif (threshold := probe.get("successThreshold", 0)) != 1:
        errors.invalid(f"{path}.successThreshold", threshold, "must be 1")


def _check_handler(
    handler: Object, kinds: tuple[str, ...], grace: int | None, path: str, errors: Errors
) -> None:
    """Exactly one way to probe or to hook; only the first is looked into."""
    handlers = [kind for kind in kinds if handler.get(kind) is not None]
    if not handlers:
        errors.required(path, "must specify a handler type")
        return
    first, *others = handlers
    _check_action(first, handler[first], grace, f"{path}.{first}", errors)
    errors += [
        fields.forbidden(f"{path}.{other}", "may not specify more than 1 handler type")
        for other in others
    ]


def _check_action(kind: str, action: Object, grace: int | None, path: str, errors: Errors) -> None:
    if kind == "exec":
        errors.required_keys(action, ("command",), path)
    elif kind == "httpGet":
        errors.required_keys(action, ("path",), path)
        port = action.get("port", 0)
        errors.each(f"{path}.port", port, names.port(port))
        errors.one_of(f"{path}.scheme", action.get("scheme", ""), _SCHEMES)
        for header in action.get("httpHeaders") or ():
            errors.named(f"{path}.httpHeaders", header.get("name", ""), names.http_header_name)
    elif kind == "sleep":
        seconds = action.get("seconds", 0)
        if grace is not None and not 0 <= seconds <= grace:
            detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            errors.invalid(path, seconds, detail)
    else:
        port = action.get("port", 0)
        errors.each(f"{path}.port", port, names.port(port))
