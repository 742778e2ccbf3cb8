"""A running `sess serve`, and its two streams read byte by byte.

The readers know nothing of sockets: they take bytes in whatever pieces come and give
back what is whole. What was cut in the middle is dropped with its reader.
"""

import base64
import json
import os
import signal
import struct
import subprocess
import threading

from lab import Broken
from sess import TIMEOUT_S, Sess, must_not_crash


class Gateway:
    """The process, on a port of its own that is another one after each start."""

    def __init__(self, sess: Sess, *arguments, within: tuple = (), is_local: bool = True):
        self.sess = sess
        if is_local:
            arguments = ("--listen", "127.0.0.1:0", *arguments)
        self.process = sess.start("serve", "--json", *arguments, within=within, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.err = b""
        self._talk = threading.Thread(target=self._drain, daemon=True)
        self._talk.start()
        line = self.process.stdout.readline()
        try:
            self.port = int(json.loads(line)["listening"].rsplit(":", 1)[1])
        except (ValueError, KeyError):
            self.kill()
            raise Broken(f"sess serve did not start on {sess.home}: {self.err.decode(errors='replace')[-400:]}") from None

    def _drain(self) -> None:
        for line in self.process.stderr:
            self.err += line

    def kill(self) -> None:
        self.sess.lab.kill(self.process)
        self._ended(-signal.SIGKILL)

    def stop(self) -> None:
        """Asks it to end; whoever follows must not keep it."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Broken(f"sess serve did not end within {TIMEOUT_S} s of SIGTERM, on {self.sess.home}") from None
        self._ended(0)

    def _ended(self, code: int) -> None:
        self._talk.join()
        self.sess.lab.ended(self.process)
        err = self.err.decode(errors="replace")
        token = self.sess.home / "token"
        if token.exists() and token.read_text().strip() in err:
            raise Broken(f"the owner's token is in what sess serve said, on {self.sess.home}")
        if "panicked" in err:
            raise Broken(f"sess serve panicked: {err[-600:]}")
        if self.process.returncode != code:
            must_not_crash(self.process.returncode, err, "sess serve")
            raise Broken(f"sess serve ended with {self.process.returncode} instead of {code}: {err[-400:]}")


class Refused(Exception):
    """The gateway said no. `status` is that of HTTP, or the code of an error frame."""

    def __init__(self, status, text: str):
        super().__init__(f"{status} {text}")
        self.status, self.text = status, text


class EventStream:
    """Reads an HTTP answer that is a stream of events, in chunks."""

    def __init__(self):
        self._raw, self._body = b"", b""
        self._head: bytes | None = None

    @staticmethod
    def request(path: str, token: str, port: int, last_id: str | None) -> bytes:
        resumed = f"Last-Event-ID: {last_id}\r\n" if last_id else ""
        return (f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
                f"Accept: text/event-stream\r\n{resumed}\r\n").encode()

    def feed(self, data: bytes) -> list[tuple[str | None, str | None, str]]:
        """Returns the events that are whole now: name, id, data."""
        self._raw += data
        if self._head is None:
            head, end, rest = self._raw.partition(b"\r\n\r\n")
            if not end:
                return []
            self._head, self._raw = head, rest
        status = int(self._head.split(b" ", 2)[1])
        if status != 200:
            length = next(int(line.split(b":")[1]) for line in self._head.lower().split(b"\r\n")
                          if line.startswith(b"content-length:"))
            if len(self._raw) < length:
                return []
            raise Refused(status, self._raw[:length].decode(errors="replace"))
        self._unchunk()
        *blocks, self._body = self._body.split(b"\n\n")
        return [event for block in blocks if (event := self._event(block.decode()))]

    def _unchunk(self) -> None:
        raw, at, bodies = self._raw, 0, []
        while (end := raw.find(b"\r\n", at)) >= 0:
            size = int(raw[at:end], 16)
            start = end + 2
            if len(raw) < start + size + 2:
                break
            bodies.append(raw[start:start + size])
            at = start + size + 2
        self._raw = raw[at:]
        self._body += b"".join(bodies)

    @staticmethod
    def _event(block: str) -> tuple | None:
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        return (fields.get("event"), fields.get("id"), fields.get("data", "")) if fields else None


class Frames:
    """Reads and writes the frames of a WebSocket."""

    def __init__(self):
        self._raw, self._message = b"", b""
        self._is_open = False
        # Questions whether this side is there, which are to be answered.
        self.pings = 0

    @staticmethod
    def request(port: int) -> bytes:
        key = base64.b64encode(os.urandom(16)).decode()
        return (f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n").encode()

    @staticmethod
    def write(frame: dict | bytes, opcode: int = 1) -> bytes:
        """Returns a frame. Its mask is of zeros, which leaves the text as it is."""
        text = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
        size = len(text)
        if size < 126:
            head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
        return head + bytes(4) + text

    def pongs(self) -> bytes:
        """Returns the answers to what was asked since the last time."""
        asked, self.pings = self.pings, 0
        return self.write(b"", opcode=10) * asked

    def feed(self, data: bytes) -> list[dict | None]:
        """Returns the messages that are whole now; `None` is the end."""
        self._raw += data
        if not self._is_open:
            head, end, rest = self._raw.partition(b"\r\n\r\n")
            if not end:
                return []
            if b" 101 " not in head.split(b"\r\n")[0]:
                raise Refused(head.split(b" ", 2)[1].decode(), rest.decode(errors="replace"))
            self._is_open, self._raw = True, rest
        whole, at = [], 0
        while (frame := self._next(at)) is not None:
            is_last, opcode, payload, at = frame
            if opcode == 8:
                whole.append(None)
            elif opcode == 9:
                self.pings += 1
            elif opcode in (0, 1):
                self._message += payload
                if is_last:
                    whole.append(json.loads(self._message))
                    self._message = b""
        self._raw = self._raw[at:]
        return whole

    def _next(self, at: int) -> tuple[bool, int, bytes, int] | None:
        """Returns the frame at this place, and the place after it."""
        raw = self._raw
        if len(raw) < at + 2:
            return None
        size, start = raw[at + 1] & 0x7F, at + 2
        if size >= 126:
            start += 2 if size == 126 else 8
            if len(raw) < start:
                return None
            size = int.from_bytes(raw[at + 2:start], "big")
        if len(raw) < start + size:
            return None
        return bool(raw[at] & 0x80), raw[at] & 0x0F, raw[start:start + size], start + size
