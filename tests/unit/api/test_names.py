# SPDX-License-Identifier: Apache-2.0
"""Names, keys and values must have Kubernetes' formats; errors have Kubernetes' words."""

import pytest

from refloat.api import names

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

CASES: list[tuple[str, names.Check, str, names.Complaints]] = [
    ("label: good", names.dns_label, "a-1", ()),
    ("label: longest", names.dns_label, "a" * 63, ()),
    ("label: too long", names.dns_label, "a" * 64, ("must be no more than 63 characters",)),
    ("label: dots", names.dns_label, "a.b", ("must not contain dots",)),
    ("label: upper case", names.dns_label, "A", (LABEL,)),
    ("label: dash at the end", names.dns_label, "a-", (LABEL,)),
    ("label: newline at the end", names.dns_label, "a\n", (LABEL,)),
    ("label: empty", names.dns_label, "", (LABEL,)),
    (
        "label: long and wrong",
        names.dns_label,
        "A" * 64,
        ("must be no more than 63 characters", LABEL),
    ),
    (
        "label: bytes count",
        names.dns_label,
        "é" * 32,
        ("must be no more than 63 characters", LABEL),
    ),
    ("subdomain: good", names.dns_subdomain, "a.b-c.1", ()),
    ("subdomain: two dots", names.dns_subdomain, "a..b", (SUBDOMAIN,)),
    (
        "subdomain: too long",
        names.dns_subdomain,
        "a" * 254,
        ("must be no more than 253 characters",),
    ),
    ("search path: underscore", names.dns_subdomain_underscore, "_tcp.a_b", ()),
    ("key: good", names.qualified_name, "a.b/C_d", ()),
    ("key: empty", names.qualified_name, "", ("name part must be non-empty", f"name part {KEY}")),
    (
        "key: no prefix before the slash",
        names.qualified_name,
        "/a",
        ("prefix part must be non-empty",),
    ),
    ("key: bad prefix", names.qualified_name, "A/a", (f"prefix part {SUBDOMAIN}",)),
    (
        "key: long prefix",
        names.qualified_name,
        "a" * 254 + "/a",
        ("prefix part must be no more than 253 bytes",),
    ),
    (
        "key: long name",
        names.qualified_name,
        "a" * 64,
        ("name part must be no more than 63 bytes",),
    ),
    (
        "key: two slashes",
        names.qualified_name,
        "a/b/c",
        (
            (
                f"a valid label key {KEY} with an optional DNS subdomain prefix and '/' "
                "(e.g. 'example.com/MyName')"
            ),
        ),
    ),
    ("value: empty", names.label_value, "", ()),
    ("value: space", names.label_value, "a b", (VALUE,)),
    ("value: too long", names.label_value, "a" * 64, ("must be no more than 63 bytes",)),
    ("port: good", names.port_name, "a-1", ()),
    ("port: too long", names.port_name, "a" * 16, ("must be no more than 15 characters",)),
    ("port: no letter", names.port_name, "1", ("must contain at least one letter (a-z)",)),
    ("port: two dashes", names.port_name, "a--b", ("must not contain consecutive hyphens",)),
    ("port: dash at the end", names.port_name, "a-", ("must not begin or end with a hyphen",)),
    (
        "port: empty",
        names.port_name,
        "",
        (
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
            "must contain at least one letter (a-z)",
        ),
    ),
    ("variable: anything printable", names.env_var_name, "1 a$", ()),
    (
        "variable: equals sign",
        names.env_var_name,
        "a=b",
        (
            (
                "a valid environment variable name must consist only of printable ASCII characters "
                "other than '='"
            ),
        ),
    ),
    ("config key: dot", names.config_map_key, ".", ("must not be '.'",)),
    ("config key: two dots", names.config_map_key, "..", ("must not be '..'",)),
    ("config key: two dots first", names.config_map_key, "..a", ("must not start with '..'",)),
    ("config key: one dot first", names.config_map_key, ".a", ()),
    ("segment: dot", names.path_segment, ".", ("may not be '.'",)),
    ("segment: slash", names.path_segment, "a/%", ("may not contain '/'", "may not contain '%'")),
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
