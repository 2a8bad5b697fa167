# SPDX-License-Identifier: Apache-2.0
"""Names, keys and values must have Kubernetes' formats; errors have Kubernetes' words."""

import pytest

from refloat.api import names
from refloat.api.names import (
    config_map_key,
    dns_label,
    dns_subdomain,
    dns_subdomain_underscore,
    env_var_name,
    label_value,
    path_segment,
    port_name,
    qualified_name,
)

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex "
    "used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
).replace("\\\\", "\\")
KEY = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or "
    "'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

OVER_63 = "must be no more than 63 characters"

CASES: list[tuple[str, names.Check, str, names.Complaints]] = [
    ("label: good", dns_label, "a-1", ()),
    ("label: longest", dns_label, "a" * 63, ()),
    ("label: too long", dns_label, "a" * 64, (OVER_63,)),
    ("label: dots", dns_label, "a.b", ("must not contain dots",)),
    ("label: upper case", dns_label, "A", (LABEL,)),
    ("label: dash at the end", dns_label, "a-", (LABEL,)),
    ("label: newline at the end", dns_label, "a\n", (LABEL,)),
    ("label: empty", dns_label, "", (LABEL,)),
    ("label: long and wrong", dns_label, "A" * 64, (OVER_63, LABEL)),
    ("label: bytes count", dns_label, "é" * 32, (OVER_63, LABEL)),
    ("subdomain: good", dns_subdomain, "a.b-c.1", ()),
    ("subdomain: two dots", dns_subdomain, "a..b", (SUBDOMAIN,)),
    ("subdomain: too long", dns_subdomain, "a" * 254, ("must be no more than 253 characters",)),
    ("search path: underscore", dns_subdomain_underscore, "_tcp.a_b", ()),
    ("key: good", qualified_name, "a.b/C_d", ()),
    ("key: empty", qualified_name, "", ("name part must be non-empty", f"name part {KEY}")),
    ("key: no prefix before the slash", qualified_name, "/a", ("prefix part must be non-empty",)),
    ("key: bad prefix", qualified_name, "A/a", (f"prefix part {SUBDOMAIN}",)),
    (
        "key: long prefix",
        qualified_name,
        "a" * 254 + "/a",
        ("prefix part must be no more than 253 bytes",),
    ),
    ("key: long name", qualified_name, "a" * 64, ("name part must be no more than 63 bytes",)),
    (
        "key: two slashes",
        qualified_name,
        "a/b/c",
        (
            (
                f"a valid label key {KEY} with an optional DNS subdomain prefix and '/' "
                "(e.g. 'example.com/MyName')"
            ),
        ),
    ),
    ("value: empty", label_value, "", ()),
    ("value: space", label_value, "a b", (VALUE,)),
    ("value: too long", label_value, "a" * 64, ("must be no more than 63 bytes",)),
    ("port: good", port_name, "a-1", ()),
    ("port: too long", port_name, "a" * 16, ("must be no more than 15 characters",)),
    ("port: no letter", port_name, "1", ("must contain at least one letter (a-z)",)),
    ("port: two dashes", port_name, "a--b", ("must not contain consecutive hyphens",)),
    ("port: dash at the end", port_name, "a-", ("must not begin or end with a hyphen",)),
    (
        "port: empty",
        port_name,
        "",
        (
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
            "must contain at least one letter (a-z)",
        ),
    ),
    ("variable: anything printable", env_var_name, "1 a$", ()),
    (
        "variable: equals sign",
        env_var_name,
        "a=b",
        (
            (
                "a valid environment variable name must consist only of printable ASCII characters "
                "other than '='"
            ),
        ),
    ),
    ("config key: dot", config_map_key, ".", ("must not be '.'",)),
    ("config key: two dots", config_map_key, "..", ("must not be '..'",)),
    ("config key: two dots first", config_map_key, "..a", ("must not start with '..'",)),
    ("config key: one dot first", config_map_key, ".a", ()),
    ("segment: dot", path_segment, ".", ("may not be '.'",)),
    ("segment: slash", path_segment, "a/%", ("may not contain '/'", "may not contain '%'")),
]


@pytest.mark.parametrize(
    ("check", "value", "want"), [each[1:] for each in CASES], ids=[each[0] for each in CASES]
)
def test_a_check_says_what_kubernetes_says(
    check: names.Check, value: str, want: names.Complaints
) -> None:
    assert check(value) == want


PREFIXES = [("a-", "a"), ("ab-", "aa"), ("-", "-"), ("ab", "ab"), ("a--", "aa")]


@pytest.mark.parametrize(("prefix", "want"), PREFIXES)
def test_a_prefix_may_end_in_a_dash(prefix: str, want: str) -> None:
    assert names.as_prefix(prefix) == want
