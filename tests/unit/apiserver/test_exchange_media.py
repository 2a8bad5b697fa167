# SPDX-License-Identifier: Apache-2.0
"""What a body is written in, by its Content-Type."""

import pytest
from aiohttp.test_utils import make_mocked_request

from refloat.api import errors
from refloat.apiserver.exchange import Exchange


def media(content_type: str) -> str:
    request = make_mocked_request("POST", "/", headers={"Content-Type": content_type})
    return Exchange(request, request_id="1").media


@pytest.mark.parametrize(
    ("content_type", "want"),
    [
        ("", "json"),
        ("*/*", "json"),
        ("application/json", "json"),
        ("application/json; charset=utf-8", "json"),
        ("application/yaml", "yaml"),
        ("application/vnd.kubernetes.protobuf", "protobuf"),
        ("Application/VND.kubernetes.Protobuf; a=b", "protobuf"),
    ],
)
def test_json_yaml_and_protobuf_are_read(content_type: str, want: str) -> None:
    assert media(content_type) == want


@pytest.mark.parametrize("content_type", ["text/plain", "application/cbor", "protobuf"])
def test_nothing_else_is_read(content_type: str) -> None:
    with pytest.raises(errors.StatusError) as caught:
        media(content_type)
    assert caught.value.code == 415
