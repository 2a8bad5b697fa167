# SPDX-License-Identifier: Apache-2.0
"""Parses one HTTP/1.1 answer from the pieces in which it arrives; does no I/O.

`answer` gives the whole answer; `take` gives the next part, for watches. The
body has a length, comes in chunks, or ends with the connection, as API servers
and the proxies before them send it. Everything else is an error, and the caller
closes the connection.
"""

from dataclasses import dataclass

# The head of a server's answer has about a kilobyte.
MAX_HEAD_BYTES = 64 * 1024

# A list of 150,000 pods in one piece; larger lists need chunks.
MAX_BODY_BYTES = 1 << 30

_HEX = frozenset(b"0123456789abcdefABCDEF")


class BadAnswer(ValueError):
    """Not an answer of HTTP/1.1, or one that Refloat does not support."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    """By name in small letters."""
    body: bytearray


class Reader:
    """Parses one answer; call `feed` until the answer is complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()  # not parsed yet
        self._status = 0
        self._headers: dict[str, str] | None = None
        self._body = bytearray()
        self._length: int | None = None  # of the body; None: in chunks, or to the end
        self._chunked = False
        self._in_trailers = False
        self.is_complete = False
        self._persists = True

    def feed(self, piece: bytes) -> bool:
        """Whether this piece completes the answer; raises `BadAnswer`."""
        self._buffer += piece
        while self._headers is None:
            if not self._read_head():
                return False
        if self._length is not None:
            self.is_complete = len(self._buffer) >= self._length
        elif self._chunked:
            while not self.is_complete and self._read_chunk():
                pass
        if len(self._buffer) + len(self._body) > MAX_BODY_BYTES:
            raise BadAnswer(f"the answer is longer than {MAX_BODY_BYTES} B")
        if self.is_complete and len(self._buffer) > (self._length or 0):
            self._persists = False  # the rest belongs to no request
        return self.is_complete

    def end(self) -> bool:
        """The connection has ended; whether that completes the answer."""
        if self._headers is not None and self._length is None and not self._chunked:
            self.is_complete = True
        return self.is_complete

    @property
    def persists(self) -> bool:
        """Whether the connection can take another request after this answer."""
        return self._persists and self.is_complete

    @property
    def status(self) -> int | None:
        """The status code; None until the head is there."""
        return None if self._headers is None else self._status

    @property
    def held(self) -> int:
        """The number of bytes to `take`."""
        return len(self._body if self._chunked else self._buffer)

    def take(self) -> bytearray:
        """The next part of the body, without an unfinished chunk."""
        if self._headers is None:
            return bytearray()
        if self._chunked:
            piece, self._body = self._body, bytearray()
            return piece
        piece, self._buffer = self._buffer, bytearray()
        if self._length is not None:
            del piece[self._length :]
            self._length -= len(piece)
        return piece

    def answer(self) -> Answer:
        """The answer, which must be complete and untouched by `take`."""
        assert self._headers is not None
        return Answer(self._status, self._headers, self.take())

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise BadAnswer(f"the head is longer than {MAX_HEAD_BYTES} B")
            return False
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        version, _, rest = first.partition(" ")
        code = rest[:3]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not (code.isascii() and code.isdigit()):
            raise BadAnswer(f"{first[:80]!r} is no status line of HTTP/1.1")
        self._status = int(code)
        if not 100 <= self._status <= 599 or self._status == 101:
            raise BadAnswer(f"the status {self._status} is none of an answer")
        if self._status < 200:
            return True  # only a notice: the answer follows
        headers = _fields(lines)
        options = headers.get("connection", "").lower()
        self._persists = version == "HTTP/1.1" and "close" not in options
        self._headers = headers
        self._expect_body(headers)
        return True

    def _expect_body(self, headers: dict[str, str]) -> None:
        if headers.get("content-encoding", "identity") != "identity":
            raise BadAnswer(f"content-encoding {headers['content-encoding']!r} was not asked for")
        coding = headers.get("transfer-encoding", "").lower()
        if self._status in (204, 304):
            self._length = 0
        elif coding == "chunked":
            self._chunked = True
        elif coding:
            raise BadAnswer(f"transfer-encoding {coding!r} is not known")
        elif (length := headers.get("content-length")) is not None:
            if not (length.isascii() and length.isdigit()):
                raise BadAnswer(f"content-length {length!r} is no number")
            self._length = int(length)
        else:
            self._persists = False

    def _read_chunk(self) -> bool:
        """Parse a chunk, or a line after the last chunk; False if a part is missing."""
        buffer = self._buffer
        line = buffer.find(b"\r\n")
        if line < 0:
            return False
        if self._in_trailers:
            self.is_complete = line == 0
            del buffer[: line + 2]
            return True
        digits = bytes(buffer[:line]).partition(b";")[0].strip(b" \t")
        if not digits or len(digits) > 8 or not _HEX.issuperset(digits):
            raise BadAnswer(f"{bytes(buffer[: min(line, 80)])!r} is no size of a chunk")
        size = int(digits, 16)
        end = line + 2 + size
        if size == 0:
            self._in_trailers = True
            del buffer[: line + 2]
            return True
        if len(buffer) < end + 2:
            return False
        if buffer[end : end + 2] != b"\r\n":
            raise BadAnswer("a chunk does not end where it should")
        self._body += memoryview(buffer)[line + 2 : end]
        del buffer[: end + 2]
        return True


def _fields(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name[0] in " \t" or name[-1] in " \t":
            raise BadAnswer(f"{line[:80]!r} is no header")
        name, value = name.lower(), value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers
