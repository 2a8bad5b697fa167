# SPDX-License-Identifier: Apache-2.0
"""`refloat mcp` as a program uses the command: a process, and the client of the mcp package."""

import json
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jsonschema
import mcp
import mcp.types
import pytest

from tests.e2e import cluster
from tests.e2e.cluster import Api
from tests.e2e.test_up_interrupted import DEFAULT_SIGINT

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/explain.schema.json").read_text())


@asynccontextmanager
async def connected(kubeconfig: Path, *flags: str) -> AsyncIterator[mcp.Client]:
    """A client of a new process."""
    args = ["mcp", "--kubeconfig", str(kubeconfig), *flags]
    async with mcp.Client(
        mcp.StdioServerParameters(command=str(cluster.REFLOAT), args=args)
    ) as client:
        yield client


@pytest.fixture
def job(api: Api, namespace: str) -> str:
    """A namespace with the suspended Job train."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    obj = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}}
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    api.create(path, {**obj, "spec": {"suspend": True, "template": template}})
    return namespace


async def call(client: mcp.Client, tool: str, **arguments: str) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


def text(result: mcp.types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, mcp.types.TextContent)
    return content.text


async def test_all_tools_only_read(kubeconfig: Path) -> None:
    async with connected(kubeconfig) as client:
        tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == ["explain", "doctor"]
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)


async def test_explain_answers_in_the_published_form(kubeconfig: Path, job: str) -> None:
    async with connected(kubeconfig) as client:
        answer = await call(client, "explain", object="job/train", namespace=job)
    jsonschema.validate(answer, SCHEMA)
    assert answer["object"] == {"kind": "Job", "namespace": job, "name": "train"}
    assert answer["code"] == "Suspended/ByUser"


async def test_the_flag_gives_the_namespace_of_calls_that_name_none(
    kubeconfig: Path, job: str
) -> None:
    async with connected(kubeconfig, "-n", job) as client:
        answer = await call(client, "explain", object="job/train")
    assert answer["object"]["namespace"] == job


async def test_doctor_answers_like_the_command(kubeconfig: Path, job: str) -> None:
    async with connected(kubeconfig) as client:
        answer = await call(client, "doctor", namespace=job)
    done = cluster.run("doctor", "-n", job, "-o", "json", "--kubeconfig", str(kubeconfig))
    want = json.loads(done.stdout)
    assert {**answer, "refloat": []} == {**want, "refloat": []}


@pytest.mark.parametrize(
    ("what", "want"),
    [("job/none", "not found"), ("lease/x", "expected job/NAME"), ("job/../x", "")],
)
async def test_an_error_is_the_answer_and_the_server_goes_on(
    kubeconfig: Path, job: str, what: str, want: str
) -> None:
    async with connected(kubeconfig, "-n", job) as client:
        result = await client.call_tool("explain", {"object": what})
        assert result.is_error
        assert want in text(result)
        await call(client, "explain", object="job/train")


def start(kubeconfig: Path) -> subprocess.Popen[bytes]:
    """The command, after it has answered a request."""
    process = subprocess.Popen(
        [*DEFAULT_SIGINT, cluster.REFLOAT, "mcp", "--kubeconfig", str(kubeconfig)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin
    assert process.stdout
    process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == 1
    return process


def test_the_end_of_the_input_ends_the_server(kubeconfig: Path) -> None:
    with start(kubeconfig) as process:
        _, complaints = process.communicate(timeout=cluster.PATIENCE_SECONDS)
    assert (process.returncode, complaints) == (0, b"")


def test_ctrl_c_ends_the_server_quietly(kubeconfig: Path) -> None:
    with start(kubeconfig) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(cluster.PATIENCE_SECONDS) == 130
        assert process.stderr
        assert process.stderr.read() == b""
