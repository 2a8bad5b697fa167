# SPDX-License-Identifier: Apache-2.0
"""Bytes that are no HTTP request, or only half of one."""

from random import Random

from tests.fuzz import requests

_LINES = (
    b"GET\r\n\r\n",
    b"\r\n\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    b"GET /version HTTP/2.0\r\nHost: x\r\n\r\n",
    b"GET /version\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET ftp://x:y@z:99999/api HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET http://[::1/api HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET //////// HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /a b c HTTP/1.1\r\nHost: x\r\n\r\n",
    b"G\x00T / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"FOO /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n",
    b"get /version HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /version HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    b"GET /version HTTP/1.1\r\nHost: x\r\nA\r\n\r\n",
    b"GET /version HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n",
    b"GET /version HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n",
    b"GET /version HTTP/1.1\r\nHost: x\r\nA: \x00\r\n\r\n",
    b"GET /version HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    b"GET /version HTTP/1.1\nHost: x\n\n",
    b"GET /version HTTP/1.1\r\nHost: x\r\nExpect: cake\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"SSH-2.0-x\r\n",
    b"\x00" * 4096,
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /version HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 1_100_000 + b"\r\n\r\n",
    b"GET /version HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 300 + b"\r\n",
)

_POST = b"POST /api/v1/namespaces/fuzz/configmaps HTTP/1.1\r\nHost: x\r\n"

_FRAMES = (
    b"Content-Length: x\r\n\r\n{}",
    b"Content-Length: -1\r\n\r\n{}",
    b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    b"Content-Length: 99999999999999999999999\r\n\r\n{}",
    b"Content-Length: 4000000\r\n\r\n{}",
    b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"Transfer-Encoding: gzip\r\n\r\n{}",
    b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}",
    b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\nTrailer: x\r\n\r\n",
    b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
)


def malformed(random: Random, token: str) -> bytes:
    """What a server must refuse, or answer as if nothing were wrong."""
    act = random.randrange(4)
    if act == 0:
        auth = f"Authorization: Bearer {token}\r\n".encode()
        media = b"Content-Type: application/json\r\n"
        return _POST + auth + media + random.choice(_FRAMES)
    if act == 1:
        return _garbled(random, requests.request(random, token))
    return random.choice(_LINES)


def _garbled(random: Random, raw: bytes) -> bytes:
    """A request with some bytes of the head exchanged."""
    end = raw.find(b"\r\n\r\n")
    changed = bytearray(raw)
    for _ in range(random.randrange(1, 4)):
        changed[random.randrange(end)] = random.randrange(256)
    return bytes(changed)


def half(random: Random, token: str) -> bytes:
    """A request that breaks off."""
    whole = requests.request(random, token)
    return whole[: random.randrange(len(whole))]
