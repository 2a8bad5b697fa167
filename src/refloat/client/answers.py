# SPDX-License-Identifier: Apache-2.0
"""One HTTP/1.1 answer out of the pieces in which it arrives; does no I/O.

Read whole (`answer`), or as it comes (`take`), as watches are. Made for what
API servers and what stands before them send: a length, chunks, or until the
connection ends. Everything else is an error, and the connection is given up.
"""

from dataclasses import dataclass

# A server's head has a kilobyte; what has more is not one.
MAX_HEAD_BYTES = 64 * 1024

# A list of 150,000 pods in one piece; whoever wants more asks for chunks.
MAX_BODY_BYTES = 1 << 30

_HEX = frozenset(b"0123456789abcdefABCDEF")


class BadAnswer(ValueError):
    """Not an answer of HTTP/1.1, or one that cannot be taken."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    """By name in small letters."""
    body: bytearray


class Reader:
    """Reads one answer; `feed` it until it is there."""

    def __init__(self) -> None:
        self._buffer = bytearray()  # what is not understood yet
        self._status = 0
        self._headers: dict[str, str] | None = None
        self._body = bytearray()
        self._length: int | None = None  # of the body; None: in chunks, or to the end
        self._chunked = False
        self._in_trailers = False
        self._is_complete = False
        self._persists = True

    def feed(self, piece: bytes) -> bool:
        """Whether the answer is complete with this; raises `BadAnswer`."""
        self._buffer += piece
        while self._headers is None:
            if not self._read_head():
                return False
        if self._length is not None:
            self._is_complete = len(self._buffer) >= self._length
        elif self._chunked:
            while not self._is_complete and self._read_chunk():
                pass
        if len(self._buffer) + len(self._body) > MAX_BODY_BYTES:
            raise BadAnswer(f"the answer is longer than {MAX_BODY_BYTES} B")
        if self._is_complete and len(self._buffer) > (self._length or 0):
            self._persists = False  # nobody asked for what follows
        return self._is_complete

    def end(self) -> bool:
        """The connection has ended: is the answer complete with that?"""
        if self._headers is not None and self._length is None and not self._chunked:
            self._is_complete = True
        return self._is_complete

    @property
    def persists(self) -> bool:
        """Whether the connection can take another request after this answer."""
        return self._persists and self._is_complete

    @property
    def status(self) -> int | None:
        """What the head says; None until it is there."""
        return None if self._headers is None else self._status

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    @property
    def held(self) -> int:
        """How much there is to `take`."""
        return len(self._body if self._chunked else self._buffer)

    def take(self) -> bytearray:
        """The body as far as it came, but for an unfinished chunk; the reader forgets it."""
        if self._headers is None:
            return bytearray()
        if self._chunked:
            taken, self._body = self._body, bytearray()
            return taken
        taken, self._buffer = self._buffer, bytearray()
        if self._length is not None:
            del taken[self._length :]
            self._length -= len(taken)
        return taken

    def answer(self) -> Answer:
        """The answer, which must be complete, and of which nothing was taken."""
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
        version, self._status = _status_line(first)
        if self._status < 200:
            return True  # only a notice: the answer follows
        headers = _fields(lines)
        said = headers.get("connection", "").lower()
        self._persists = version == "HTTP/1.1" and "close" not in said
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
        """Take a chunk, or a line after the last; False if it is not all there."""
        buffer = self._buffer
        line = buffer.find(b"\r\n")
        if line < 0:
            return False
        if self._in_trailers:
            self._is_complete = line == 0
            del buffer[: line + 2]
            return True
        size = _chunk_size(bytes(buffer[:line]))
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


def _status_line(line: str) -> tuple[str, int]:
    version, _, rest = line.partition(" ")
    code = rest[:3]
    if version not in ("HTTP/1.1", "HTTP/1.0") or not (code.isascii() and code.isdigit()):
        raise BadAnswer(f"{line[:80]!r} is no status line of HTTP/1.1")
    status = int(code)
    if not 100 <= status <= 599 or status == 101:
        raise BadAnswer(f"the status {status} is none of an answer")
    return version, status


def _fields(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name[0] in " \t" or name[-1] in " \t":
            raise BadAnswer(f"{line[:80]!r} is no header")
        name, value = name.lower(), value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip(b" \t")
    if not digits or len(digits) > 8 or not _HEX.issuperset(digits):
        raise BadAnswer(f"{line[:80]!r} is no size of a chunk")
    return int(digits, 16)
