# SPDX-License-Identifier: Apache-2.0
"""Probes and lifecycle hooks of a container."""

from refloat.api import fields, names
from refloat.api.meta import Object
from refloat.api.validation.rules import Errors

_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_SCHEMES = ("HTTP", "HTTPS")
_GRACE = "terminationGracePeriodSeconds"
_PROBE_NUMBERS = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def check_probes_and_hooks(container: Object, grace: int | None, path: str, errors: Errors) -> None:
    hooks = container.get("lifecycle") or {}
    for hook in ("postStart", "preStop") if hooks else ():
        if (handler := hooks.get(hook)) is not None:
            _check_handler(handler, _HOOK_HANDLERS, grace, f"{path}.lifecycle.{hook}", errors)
    for kind in PROBES:
        if (probe := container.get(kind)) is None:
            continue
        where = f"{path}.{kind}"
        _check_handler(probe, _PROBE_HANDLERS, None, where, errors)
        for key in _PROBE_NUMBERS:
            errors.not_negative(f"{where}.{key}", probe.get(key, 0))
        seconds, seconds_path = probe.get(_GRACE), f"{where}.{_GRACE}"
        if seconds is not None and seconds <= 0:
            errors.invalid(seconds_path, seconds, "must be greater than 0")
        if kind == "readinessProbe":
            if seconds is not None:
                errors.invalid(seconds_path, seconds, "must not be set for readinessProbes")
        elif (threshold := probe.get("successThreshold", 0)) != 1:
            errors.invalid(f"{where}.successThreshold", threshold, "must be 1")


def _check_handler(
    handler: Object, kinds: tuple[str, ...], grace: int | None, path: str, errors: Errors
) -> None:
    """Exactly one way to probe or to hook; only the first is looked into."""
    handlers = [kind for kind in kinds if handler.get(kind) is not None]
    if not handlers:
        errors.required(path, "must specify a handler type")
        return
    kind, *others = handlers
    action, where = handler[kind], f"{path}.{kind}"
    port = action.get("port", 0)
    if kind == "exec":
        errors.required_keys(action, ("command",), where)
    elif kind == "sleep":
        seconds = action.get("seconds", 0)
        if grace is not None and not 0 <= seconds <= grace:
            detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            errors.invalid(where, seconds, detail)
    elif kind == "httpGet":
        errors.required_keys(action, ("path",), where)
        errors.each(f"{where}.port", port, names.port(port))
        errors.one_of(f"{where}.scheme", action.get("scheme", ""), _SCHEMES)
        for header in action.get("httpHeaders") or ():
            errors.named(f"{where}.httpHeaders", header.get("name", ""), names.http_header_name)
    else:
        errors.each(f"{where}.port", port, names.port(port))
    errors += [
        fields.forbidden(f"{path}.{other}", "may not specify more than 1 handler type")
        for other in others
    ]
