# SPDX-License-Identifier: Apache-2.0
"""Ask a real API server for the answers in `tests/unit/api/data/*.json`.

    python -m tools.corpus --server https://host:port --token TOKEN [KIND ...]

Creates a namespace and a few objects, and removes them again; nearly all
requests are dry runs. Review the difference that it leaves in the files.
"""

import argparse
import json
import re
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.unit.api import corpus

NAMESPACE = "corpus"
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_WARNING = re.compile(r'299 - "((?:[^"\\]|\\.)*)"')


class Server:
    """A Kubernetes API server that lets us do everything."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address
        self._token = token
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    def ask(self, method: str, path: str, body: Any = None) -> tuple[dict[str, Any], list[str]]:
        """The object or Status answered, and the warnings."""
        request = urllib.request.Request(
            self._address + path,
            method=method,
            data=None if body is None else json.dumps(body, ensure_ascii=False).encode(),
            headers={
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(request, context=self._context) as answer:
                return json.load(answer), _warnings(answer.headers.get_all("Warning"))
        except urllib.error.HTTPError as error:
            return json.load(error), _warnings(error.headers.get_all("Warning"))


def _warnings(headers: list[str] | None) -> list[str]:
    text = ", ".join(headers or ())
    return [json.loads(f'"{each}"') for each in _WARNING.findall(text)]


def _want(answer: dict[str, Any]) -> list[list[str]]:
    if answer.get("kind") != "Status":
        return []
    if answer.get("reason") != "Invalid":
        return [["unexpected", str(answer.get("reason")), answer.get("message", "")]]
    causes = (answer.get("details") or {}).get("causes") or []
    return [
        [_UID.sub(corpus.UID, cause.get(key, "")) for key in ("reason", "field", "message")]
        for cause in causes
    ]


def fill(server: Server, file: Path) -> None:
    data = json.loads(file.read_text())
    collection = data["path"].replace("NAMESPACE", NAMESPACE)
    for case in data.get("create", ()):
        body = corpus.changed(data["base"], case.get("set"))
        answer, warnings = server.ask("POST", f"{collection}?dryRun=All", body)
        _fill_case(case, answer, warnings)
    for part in ("update", "status", "finalize"):
        for case in data.get(part, ()):
            _ask_update(server, data, collection, case, part)
    file.write_text(_written(data))


def _fill_case(case: dict[str, Any], answer: dict[str, Any], warnings: list[str]) -> None:
    case["want"] = _want(answer)
    case.pop("warnings", None)
    if warnings and not case["want"]:
        case["warnings"] = warnings


def _ask_update(
    server: Server, data: dict[str, Any], collection: str, case: dict[str, Any], part: str
) -> None:
    body = corpus.changed(data["base"], case.get("old"))
    address = f"{collection}/{body['metadata']['name']}"
    stored, _ = server.ask("POST", collection, body)
    if "uid" not in stored["metadata"]:
        raise SystemExit(f"{case['id']}: {stored.get('message')}")
    if case.get("old_status"):
        stored = corpus.changed(stored, {"/status": case["old_status"]})
        stored, _ = server.ask("PUT", f"{address}/status", stored)
        if "uid" not in stored["metadata"]:
            raise SystemExit(f"{case['id']}: {stored.get('message')}")
    target = address if part == "update" else f"{address}/{part}"
    new = corpus.changed(stored, case.get("set"))
    answer, warnings = server.ask("PUT", f"{target}?dryRun=All", new)
    _fill_case(case, answer, warnings)
    _delete(server, address)


def _delete(server: Server, address: str) -> None:
    options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
    deleted, _ = server.ask("DELETE", address, options)
    if (deleted.get("metadata") or {}).get("finalizers"):
        server.ask("PUT", address, corpus.changed(deleted, {"/metadata/finalizers": None}))
    if deleted.get("kind") == "Namespace":
        server.ask(
            "PUT", f"{address}/finalize", corpus.changed(deleted, {"/spec/finalizers": None})
        )


def _written(data: dict[str, Any]) -> str:
    """JSON with one line for each case."""
    lines = []
    for key, value in data.items():
        if isinstance(value, list):
            rows = ",\n".join(f"  {json.dumps(each, ensure_ascii=False)}" for each in value)
            lines.append(f'"{key}": [\n{rows}\n]')
        else:
            lines.append(f'"{key}": {json.dumps(value, ensure_ascii=False)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("kinds", nargs="*")
    arguments = parser.parse_args()
    server = Server(arguments.server, arguments.token)
    server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for file in sorted(corpus.DATA.glob("*.json")):
        if not arguments.kinds or file.stem in arguments.kinds:
            fill(server, file)
            print(file.stem)
    _delete(server, f"/api/v1/namespaces/{NAMESPACE}")


if __name__ == "__main__":
    main()
