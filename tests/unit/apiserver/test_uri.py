# SPDX-License-Identifier: Apache-2.0
"""Targets of request lines, as Kubernetes reads them."""

import pytest

from refloat.api import errors
from refloat.apiserver import uri
from tests.cases import cases


@cases(
    "target want_path want_query",
    {
        "no query": ("/api/v1/pods", "/api/v1/pods", []),
        "an empty query": ("/a?", "/a", []),
        "parameters": ("/a?b=c&d", "/a", [("b", "c"), ("d", "")]),
        "one name twice": ("/a?b=1&b=2", "/a", [("b", "1"), ("b", "2")]),
        "an escape in the path": ("/a%20b", "/a b", []),
        "a plus in the path": ("/a+b", "/a+b", []),
        "an escaped slash": ("/a%2Fb", "/a/b", []),
        "two slashes stay two": ("//a", "//a", []),
        "no fragments": ("/a#b", "/a#b", []),
        "an escape in the query": ("/a?b=c%3Dd", "/a", [("b", "c=d")]),
        "a plus in the query": ("/a?b=c+d", "/a", [("b", "c d")]),
        "a bad escape drops its parameter": ("/a?b=%zz&c=d", "/a", [("c", "d")]),
        "a semicolon drops its parameter": ("/a?b;c&d=e", "/a", [("d", "e")]),
        "UTF-8": ("/a?b=%c3%a4", "/a", [("b", "ä")]),
        "not UTF-8": ("/a?b=%ff", "/a", [("b", "\ufffd")]),
        "not UTF-8 in the path": ("/%ff", "/\ufffd", []),
        "absolute": ("http://x/a?b=c", "/a", [("b", "c")]),
        "absolute without a path": ("http://x", "/", []),
        "asterisk": ("*", "*", []),
        "authority": ("x:443", "x:443", []),
    },
)
def test_reads_a_target(target: str, want_path: str, want_query: list[tuple[str, str]]) -> None:
    path, query = uri.parse(target)
    assert (path, list(query.items())) == (want_path, want_query)


@pytest.mark.parametrize("target", ["/%", "/%z", "/%zz", "/%4", "/a%2", "http://[::1/a"])
def test_refuses_what_cannot_be_unescaped(target: str) -> None:
    with pytest.raises(errors.StatusError) as error:
        uri.parse(target)
    assert error.value.code == 400
