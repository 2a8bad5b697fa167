# SPDX-License-Identifier: Apache-2.0
"""Which error an answer is, and what is read of lists and lines."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refloat.api import kinds
from refloat.client import decoding, errors
from refloat.client.contract import Kind, ListPage
from refloat.client.watch_stream import Lines
from tests.cases import cases
from tests.unit.client.conftest import PODS
from tests.unit.client.misbehaving import event, failure

BY_STATUS: dict[str, tuple[int, str, type[errors.ClientError]]] = {
    "bad request": (400, "BadRequest", errors.Invalid),
    "unauthorized": (401, "Unauthorized", errors.Unauthorized),
    "forbidden": (403, "Forbidden", errors.Forbidden),
    "not found": (404, "NotFound", errors.NotFound),
    "method not allowed": (405, "MethodNotAllowed", errors.Invalid),
    "not acceptable": (406, "NotAcceptable", errors.Invalid),
    "request timeout": (408, "", errors.Timeout),
    "exists": (409, "AlreadyExists", errors.AlreadyExists),
    "conflict": (409, "Conflict", errors.Conflict),
    "a 409 without a reason": (409, "", errors.Conflict),
    "expired": (410, "Expired", errors.Expired),
    "gone": (410, "Gone", errors.Expired),
    "too large": (413, "RequestEntityTooLarge", errors.Invalid),
    "media type": (415, "UnsupportedMediaType", errors.Invalid),
    "invalid": (422, "Invalid", errors.Invalid),
    "too many": (429, "TooManyRequests", errors.TooManyRequests),
    "internal": (500, "InternalError", errors.Unavailable),
    "server timeout": (500, "ServerTimeout", errors.Timeout),
    "not implemented": (501, "NotImplemented", errors.Unavailable),
    "unavailable": (503, "ServiceUnavailable", errors.Unavailable),
    "timeout": (504, "Timeout", errors.Timeout),
    "a reason of the future": (403, "NewReason", errors.Forbidden),
}


@pytest.mark.parametrize("name", BY_STATUS)
def test_a_status_is_the_error_of_its_reason_or_code(name: str) -> None:
    code, reason, want = BY_STATUS[name]
    error = decoding.failure(code, json.dumps(failure(code, reason)).encode(), what="x")
    assert type(error) is want
    assert (error.code, error.reason, str(error)) == (code, reason, "no")


def test_the_causes_of_an_invalid_object_are_kept() -> None:
    causes = [
        {"reason": "FieldValueRequired", "field": "spec", "message": "Required"},
        {"message": "something"},
    ]
    body = failure(422, "Invalid", details={"name": "a", "causes": causes})
    error = decoding.failure(422, json.dumps(body).encode(), what="x")
    assert error.causes == (("FieldValueRequired", "spec", "Required"), ("", "", "something"))


@pytest.mark.parametrize(("header", "details", "want"), [(3, 5, 3), (None, 5, 5), (None, 0, 0)])
def test_the_header_is_the_newer_word_on_when_to_return(
    header: float | None, details: int, want: float
) -> None:
    body = json.dumps(failure(429, "TooManyRequests", details={"retryAfterSeconds": details}))
    error = decoding.failure(429, body.encode(), what="x", retry_after=header)
    assert error.retry_after == want


def test_a_long_answer_is_shown_in_part() -> None:
    error = decoding.failure(502, b"x" * 10_000, what="GET /x")
    assert str(error) == f"GET /x: 502: '{'x' * 200}...'"


class TestLists:
    def test_items_may_be_null(self) -> None:
        body = b'{"items": null, "metadata": {"resourceVersion": "5"}}'
        assert decoding.page(PODS, body) == (ListPage([], "5", last=True), "")

    def test_a_token_leads_on(self) -> None:
        body = b'{"items": [{}], "metadata": {"resourceVersion": "5", "continue": "c"}}'
        page, token = decoding.page(PODS, body)
        assert (len(page.items), page.last, token) == (1, False, "c")

    def test_what_is_no_list_is_not_an_empty_one(self) -> None:
        with pytest.raises(errors.Unavailable, match="not a list of pods"):
            decoding.page(PODS, b'{"kind": "Pod"}')


class _Flat(msgspec.Struct):
    kind: str | None = None


@cases("of", {"in the struct": PODS, "not": Kind(kinds.of("pods"), _Flat)})
def test_the_version_is_found_whether_the_struct_has_it_or_not(of: Kind[Any]) -> None:
    line = event("ADDED", {"kind": "Pod", "metadata": {"resourceVersion": "7"}})
    assert decoding.event(of, line).resource_version == "7"
    assert decoding.event(of, event("ADDED", {"metadata": None})).resource_version == ""


@given(
    st.lists(st.binary(min_size=1, max_size=20).filter(lambda line: b"\n" not in line)), st.data()
)
def test_lines_come_out_the_same_however_they_are_cut(
    lines: list[bytes], data: st.DataObject
) -> None:
    whole = b"".join(line + b"\n" for line in lines) + b"rest"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=10)))
    feed = Lines()
    raws: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        raws += feed.feed(whole[start:end])
    assert raws == lines
    assert (feed.rest(), feed.length) == (b"rest", 4)
