# SPDX-License-Identifier: Apache-2.0
"""A list is the same, byte by byte, in one piece and in many."""

import aiohttp
import pytest

from refloat.apiserver import long_lists
from tests import servers

MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "as=Table;v=v1;g=meta.k8s.io"


async def listed(server: servers.ListeningServer, accept: str, query: str) -> tuple[bytes, bool]:
    """The answer, and whether the server sent pieces."""
    headers = {"Authorization": f"Bearer {servers.TOKEN}", "Accept": accept}
    url = f"http://127.0.0.1:{server.port}{MAPS}?{query}"
    async with aiohttp.ClientSession(headers=headers) as client, client.get(url) as answer:
        assert answer.status == 200
        return await answer.read(), answer.headers.get("Transfer-Encoding") == "chunked"


@pytest.mark.parametrize("query", ["pretty=0", "pretty=1", "limit=7"])
@pytest.mark.parametrize(
    "accept",
    [
        "application/json",
        "application/yaml",
        f"application/json;{TABLE}",
        f"application/yaml;{TABLE}",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    ],
)
async def test_pieces_are_laid_out_as_the_whole(
    accept: str, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with servers.serving() as server:
        for number in range(12):
            value = b'{"metadata":{"name":"m%02d"},"data":{"k":"a\\nb: []\\n"}}' % number
            await server.store.create(f"configmaps/default/m{number:02d}", value)
        whole, in_pieces = await listed(server, accept, query)
        assert not in_pieces or "yaml" in accept
        for name in ("OBJECTS", "ROWS", "YAML_ITEMS"):
            monkeypatch.setattr(long_lists, name, 5)
        assert await listed(server, accept, query) == (whole, True)
