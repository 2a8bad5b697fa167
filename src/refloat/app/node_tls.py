# SPDX-License-Identifier: Apache-2.0
"""The TLS of a node's endpoint.

`certificates` needs a library as large as the agent, so the agent makes its
certificate in another process, which ends.
"""

import asyncio
import ssl
import sys
from pathlib import Path

from refloat.base.errors import UsageError


def paths(folder: Path) -> tuple[Path, Path]:
    """A node's certificate and its key."""
    return folder / "node.crt", folder / "node.key"


async def certify(folder: Path, address: str) -> None:
    """Make sure of a certificate for this address in the folder."""
    command = (sys.executable, "-m", "refloat.app.certificates", str(folder), address)
    maker = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
    if await maker.wait():
        raise UsageError(f"--data-dir: no certificate could be made in {folder}; see above")


def context(certificate: Path, key: Path, authority: bytes) -> ssl.SSLContext:
    """The TLS context of the endpoint; clients have certificates of this authority, or none."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    tls.load_verify_locations(cadata=authority.decode())
    tls.verify_mode = ssl.CERT_OPTIONAL
    tls.set_alpn_protocols(["http/1.1"])
    return tls
