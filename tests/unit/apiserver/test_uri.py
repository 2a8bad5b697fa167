# SPDX-License-Identifier: Apache-2.0
"""Targets of request lines, as Kubernetes reads them."""

import pytest

from refloat.api import errors
from refloat.apiserver import uri


@pytest.mark.parametrize(
    ("target", "want_path", "want_query"),
    [
        pytest.param("/api/v1/pods", "/api/v1/pods", [], id="no query"),
        pytest.param("/a?", "/a", [], id="an empty query"),
        pytest.param("/a?b=c&d", "/a", [("b", "c"), ("d", "")], id="parameters"),
        pytest.param("/a?b=1&b=2", "/a", [("b", "1"), ("b", "2")], id="one name twice"),
        pytest.param("/a%20b", "/a b", [], id="an escape in the path"),
        pytest.param("/a+b", "/a+b", [], id="a plus in the path"),
        pytest.param("/a%2Fb", "/a/b", [], id="an escaped slash"),
        pytest.param("//a", "//a", [], id="two slashes stay two"),
        pytest.param("/a#b", "/a#b", [], id="no fragments"),
        pytest.param("/a?b=c%3Dd", "/a", [("b", "c=d")], id="an escape in the query"),
        pytest.param("/a?b=c+d", "/a", [("b", "c d")], id="a plus in the query"),
        pytest.param("/a?b=%zz&c=d", "/a", [("c", "d")], id="a bad escape drops its parameter"),
        pytest.param("/a?b;c&d=e", "/a", [("d", "e")], id="a semicolon drops its parameter"),
        pytest.param("/a?b=%c3%a4", "/a", [("b", "ä")], id="UTF-8"),
        pytest.param("/a?b=%ff", "/a", [("b", "\ufffd")], id="not UTF-8"),
        pytest.param("/%ff", "/\ufffd", [], id="not UTF-8 in the path"),
        pytest.param("http://x/a?b=c", "/a", [("b", "c")], id="absolute"),
        pytest.param("http://x", "/", [], id="absolute without a path"),
        pytest.param("*", "*", [], id="asterisk"),
        pytest.param("x:443", "x:443", [], id="authority"),
    ],
)
def test_reads_a_target(target: str, want_path: str, want_query: list[tuple[str, str]]) -> None:
    path, query = uri.parse(target)
    assert (path, list(query.items())) == (want_path, want_query)


@pytest.mark.parametrize("target", ["/%", "/%z", "/%zz", "/%4", "/a%2", "http://[::1/a"])
def test_refuses_what_cannot_be_unescaped(target: str) -> None:
    with pytest.raises(errors.StatusError) as refused:
        uri.parse(target)
    assert refused.value.code == 400
