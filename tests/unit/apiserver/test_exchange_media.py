# SPDX-License-Identifier: Apache-2.0
"""The format of a body, by the Content-Type."""

import pytest
from aiohttp.test_utils import make_mocked_request

from refloat.api import errors
from refloat.apiserver.http_request import Exchange


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
        ("application/json;", "json"),
        ('application/json; a="b c";d=e', "json"),
        ("application/yaml", "yaml"),
        ("application/vnd.kubernetes.protobuf", "protobuf"),
        ("Application/VND.kubernetes.Protobuf; a=b", "protobuf"),
    ],
)
def test_json_yaml_and_protobuf_are_read(content_type: str, want: str) -> None:
    assert media(content_type) == want


@pytest.mark.parametrize("content_type", ["text/plain", "application/cbor", "protobuf"])
def test_nothing_else_is_read(content_type: str) -> None:
    with pytest.raises(errors.StatusError) as error:
        media(content_type)
    assert error.value.code == 415


@pytest.mark.parametrize(
    "parameters", ["x", "x=", "=x", 'charset="utf-8', "a=b;a=c", "a=b;A=c", "a=b c", "a=b;;"]
)
def test_nothing_is_read_with_parameters_that_are_none(parameters: str) -> None:
    with pytest.raises(errors.StatusError) as error:
        media(f"application/json;{parameters}")
    assert error.value.code == 415


def test_parameters_alone_are_no_media_type() -> None:
    with pytest.raises(errors.StatusError) as error:
        media(";")
    assert error.value.code == 415
