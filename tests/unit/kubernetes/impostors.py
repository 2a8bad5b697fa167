# SPDX-License-Identifier: Apache-2.0
"""Small programs that take the place of those that take minutes to build.

Each answers 200 to everything at the port in the flags, and writes the
pid beside itself.
"""

import sys
from pathlib import Path

from tests.kubernetes.module import PACKAGES

SERVER = """
import http.server, os, pathlib, re, ssl, sys

flags = dict(each.removeprefix("--").split("=", 1) for each in sys.argv[1:] if "=" in each)
place = pathlib.Path(sys.argv[0])
place.with_suffix(".pid").write_text(str(os.getpid()))
port = flags.get("secure-port") or flags["listen-client-urls"].rpartition(":")[2]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
if "tls-cert-file" in flags:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(flags["tls-cert-file"], flags["tls-private-key-file"])
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


def write(path: Path, code: str) -> None:
    """A program in Python."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable} -S\n{code}")
    path.chmod(0o755)


def programs(folder: Path) -> Path:
    """A folder with all programs of a control plane."""
    for name in PACKAGES:
        write(folder / name, SERVER)
    return folder
