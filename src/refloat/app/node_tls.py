# SPDX-License-Identifier: Apache-2.0
"""TLS as a node serves it. Apart from `certificates`, which needs a library as large as an agent.

So an agent has its certificate made by a process that ends.
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
    """Have a certificate for this address in the folder."""
    command = (sys.executable, "-m", "refloat.app.certificates", str(folder), address)
    maker = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
    if await maker.wait():
        raise UsageError(f"--data-dir: no certificate could be made in {folder}; see above")


def context(certificate: Path, key: Path, authority: bytes) -> ssl.SSLContext:
    """Clients have certificates of this authority, or none."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate, key)
    made.load_verify_locations(cadata=authority.decode())
    made.verify_mode = ssl.CERT_OPTIONAL
    made.set_alpn_protocols(["http/1.1"])
    return made
