# SPDX-License-Identifier: Apache-2.0
"""The formats of names, keys and label values, with Kubernetes' complaints.

Each check takes a value and returns complaints in Kubernetes' words; an empty tuple
means that the value is valid. The caller knows the field's path (`fields.py`).
"""

import re
from collections.abc import Callable
from typing import TypeAlias

Complaints: TypeAlias = tuple[str, ...]

Check: TypeAlias = Callable[[str], Complaints]
"""A rule for the names of a kind."""

LABEL_LENGTH = 63
SUBDOMAIN_LENGTH = 253
PORT_NAME_LENGTH = 15

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_UNDERSCORE = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_SUBDOMAIN_UNDERSCORE = rf"{_LABEL_UNDERSCORE}(\.{_LABEL_UNDERSCORE})*"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"
_HTTP_HEADER = "[-A-Za-z0-9]+"
_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_PERCENT = "[0-9]+%"

_is_label = re.compile(_LABEL).fullmatch
_is_subdomain = re.compile(_SUBDOMAIN).fullmatch
_is_subdomain_underscore = re.compile(_SUBDOMAIN_UNDERSCORE).fullmatch
_is_key = re.compile(_KEY).fullmatch
_is_value = re.compile(_VALUE).fullmatch
# A whole valid qualified name, with look-aheads for the lengths.
_is_qualified = re.compile(
    rf"(?:(?=[^/]{{1,{SUBDOMAIN_LENGTH}}}/){_SUBDOMAIN}/)?(?=[^/]{{1,{LABEL_LENGTH}}}\Z){_KEY}"
).fullmatch
_is_config_key = re.compile(_CONFIG_KEY).fullmatch
_is_http_header = re.compile(_HTTP_HEADER).fullmatch
_is_http_path = re.compile(_HTTP_PATH).fullmatch
_is_percent = re.compile(_PERCENT).fullmatch
_is_port_name = re.compile("[-a-z0-9]+").fullmatch
_has_letter = re.compile("[a-z]").search
_is_env_name = re.compile("[ -<>-~]*").fullmatch


def _rule(sentence: str, pattern: str, *examples: str) -> str:
    """A complaint about a format: the rule, examples, the expression."""
    choices = " or ".join(f"'{each}', " for each in examples)
    lead = f"e.g. {choices}" if examples else ""
    return f"{sentence} ({lead}regex used for validation is '{pattern}')"


_EMPTY = "must be non-empty"
_LABEL_RULE = _rule(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character",
    _LABEL,
    "my-name",
    "123-abc",
)
_SUBDOMAIN_RULE = _rule(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    "'-' or '.', and must start and end with an alphanumeric character",
    _SUBDOMAIN,
    "example.com",
)
_SUBDOMAIN_UNDERSCORE_RULE = _rule(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    "'_', '-' or '.', and must start and end with an alphanumeric character",
    _SUBDOMAIN_UNDERSCORE,
    "example.com",
)
_KEY_RULE = _rule(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
    "an alphanumeric character",
    _KEY,
    "MyName",
    "my.name",
    "123-abc",
)
_MANY_SLASHES_RULE = (
    f"a valid label key {_KEY_RULE} with an optional DNS subdomain prefix and '/' "
    "(e.g. 'example.com/MyName')"
)
_VALUE_RULE = _rule(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' "
    "or '.', and must start and end with an alphanumeric character",
    _VALUE,
    "MyValue",
    "my_value",
    "12345",
)
_CONFIG_KEY_RULE = _rule(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    _CONFIG_KEY,
    "key.name",
    "KEY_NAME",
    "key-name",
)
_HTTP_HEADER_RULE = _rule(
    "a valid HTTP header must consist of alphanumeric characters or '-'",
    _HTTP_HEADER,
    "X-Header-Name",
)
HTTP_PATH_RULE = _rule("Invalid path", _HTTP_PATH)
_PERCENT_RULE = _rule(
    "a valid percent string must be a numeric string followed by an ending '%'",
    _PERCENT,
    "1%",
    "93%",
)
_ENV_NAME_RULE = (
    "a valid environment variable name must consist only of printable ASCII characters "
    "other than '='"
)


def longer(value: str, limit: int) -> bool:
    """Whether the value has more bytes than that; Kubernetes counts bytes."""
    if len(value) > limit:
        return True
    return not value.isascii() and len(value.encode("utf-8", "surrogatepass")) > limit


def _bounded(value: str, limit: int, unit: str, *more: str) -> Complaints:
    if longer(value, limit):
        return (f"must be no more than {limit} {unit}", *more)
    return more


def dns_label(value: str) -> Complaints:
    """RFC 1123: one part of a host name."""
    if len(value) <= LABEL_LENGTH and _is_label(value):
        return ()
    if _is_label(value):
        return _bounded(value, LABEL_LENGTH, "characters")
    complaint = "must not contain dots" if _is_subdomain(value) else _LABEL_RULE
    return _bounded(value, LABEL_LENGTH, "characters", complaint)


def dns_subdomain(value: str) -> Complaints:
    """RFC 1123: labels joined by dots; the name of most objects."""
    if len(value) <= SUBDOMAIN_LENGTH and _is_subdomain(value):
        return ()
    rule = () if _is_subdomain(value) else (_SUBDOMAIN_RULE,)
    return _bounded(value, SUBDOMAIN_LENGTH, "characters", *rule)


def dns_subdomain_underscore(value: str) -> Complaints:
    """A subdomain whose labels may hold underscores: DNS search paths."""
    rule = () if _is_subdomain_underscore(value) else (_SUBDOMAIN_UNDERSCORE_RULE,)
    return _bounded(value, SUBDOMAIN_LENGTH, "characters", *rule)


def qualified_name(value: str) -> Complaints:
    """A label's key: a name, perhaps after a domain and a slash."""
    if _is_qualified(value):
        return ()
    parts = value.split("/")
    if len(parts) > 2:
        return (_MANY_SLASHES_RULE,)
    *prefixes, name = parts
    complaints: list[str] = []
    for prefix in prefixes:
        rule = () if _is_subdomain(prefix) else (_SUBDOMAIN_RULE,)
        each = _bounded(prefix, SUBDOMAIN_LENGTH, "bytes", *rule) if prefix else (_EMPTY,)
        complaints += [f"prefix part {complaint}" for complaint in each]
    rule = () if _is_key(name) else (_KEY_RULE,)
    each = _bounded(name, LABEL_LENGTH, "bytes", *rule) if name else (_EMPTY, _KEY_RULE)
    return (*complaints, *(f"name part {complaint}" for complaint in each))


def label_value(value: str) -> Complaints:
    if len(value) <= LABEL_LENGTH and _is_value(value):
        return ()
    rule = () if _is_value(value) else (_VALUE_RULE,)
    return _bounded(value, LABEL_LENGTH, "bytes", *rule)


def env_var_name(value: str) -> Complaints:
    if not value:
        return ("environment variable name must be non-empty",)
    return () if _is_env_name(value) else (_ENV_NAME_RULE,)


def config_map_key(value: str) -> Complaints:
    """A key of a ConfigMap's or a Secret's data."""
    rules = [] if _is_config_key(value) else [_CONFIG_KEY_RULE]
    if value in (".", ".."):
        rules.append(f"must not be '{value}'")
    elif value.startswith(".."):
        rules.append("must not start with '..'")
    return _bounded(value, SUBDOMAIN_LENGTH, "characters", *rules)


def port_name(value: str) -> Complaints:
    complaints = list(_bounded(value, PORT_NAME_LENGTH, "characters"))
    if not _is_port_name(value):
        complaints.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _has_letter(value):
        complaints.append("must contain at least one letter (a-z)")
    if "--" in value:
        complaints.append("must not contain consecutive hyphens")
    if value[:1] == "-" or value[-1:] == "-":
        complaints.append("must not begin or end with a hyphen")
    return tuple(complaints)


def inclusive_range(low: int, high: int) -> str:
    """The complaint about a number outside of these bounds."""
    return f"must be between {low} and {high}, inclusive"


def in_range(value: int, low: int, high: int) -> Complaints:
    return () if low <= value <= high else (inclusive_range(low, high),)


def port_number(value: int) -> Complaints:
    return in_range(value, 1, 65535)


def port(value: int | str) -> Complaints:
    """A number, or the name of one of a container's ports."""
    return port_name(value) if isinstance(value, str) else port_number(value)


def user_id(value: int) -> Complaints:
    """A Unix user or group."""
    return in_range(value, 0, 2**31 - 1)


def http_header_name(value: str) -> Complaints:
    return () if _is_http_header(value) else (_HTTP_HEADER_RULE,)


def is_http_path(value: str) -> bool:
    return _is_http_path(value) is not None


def percent(value: str) -> Complaints:
    return () if _is_percent(value) else (_PERCENT_RULE,)


def path_segment(value: str) -> Complaints:
    """Whether the value can stand in a URL's path; the least of all rules."""
    if value in (".", ".."):
        return (f"may not be '{value}'",)
    return tuple(f"may not contain '{each}'" for each in "/%" if each in value)


def as_prefix(value: str) -> str:
    """A name's beginning, made checkable as a name: a dash may come last."""
    if len(value) > 1 and value.endswith("-"):
        return value[:-2] + "a"
    return value
