"""Driving the real binary: one command, or a session over MCP.

Whatever a fault does, two things are never allowed: a crash and a hang. They are
checked here, so that no suite can forget them.
"""

import json
import os
import pathlib
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass

from lab import Broken, Lab

TIMEOUT_S = 30


@dataclass
class Done:
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def told(self) -> str:
        return (self.out + "\n" + self.err).strip()


def environment(lab: Lab, home: pathlib.Path, extra: dict | None = None) -> dict:
    """Returns an environment in which only `home` belongs to the program."""
    known = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    return known | {"HOME": str(lab.scratch), "SESS_HOME": str(home), "NO_COLOR": "1"} | (extra or {})


def fault(lab: Lab, home: pathlib.Path, **settings) -> dict:
    """Returns the environment that makes a call below `home` fail; see faultinj.c."""
    values = {f"FI_{name.upper()}": str(value) for name, value in settings.items()}
    return {"LD_PRELOAD": str(lab.injector), "FI_DIR": os.path.realpath(home)} | values


def must_not_crash(code: int, err: str, what: str) -> None:
    if "panicked" in err:
        raise Broken(f"{what} panicked: {err.strip()[-600:]}")
    if code < 0:
        raise Broken(f"{what} died by signal {-code}: {err.strip()[-600:]}")


class Sess:
    """The program on one data directory."""

    def __init__(self, lab: Lab, home: pathlib.Path, env: dict | None = None):
        self.lab = lab
        self.home = home
        self.env = env or {}

    def start(self, *arguments, env: dict | None = None, within: tuple = (), **options) -> subprocess.Popen:
        """Starts it; `within` is a command that gives it other surroundings."""
        full = environment(self.lab, self.home, self.env | (env or {}))
        return self.lab.start([*within, self.lab.binary, *arguments], env=full, **options)

    def run(self, *arguments, env: dict | None = None, timeout_s: float = TIMEOUT_S,
            may_be_killed: bool = False) -> Done:
        """Runs a command to its end; a crash or a hang is a broken promise."""
        what = "sess " + " ".join(str(part)[:80] for part in arguments[:6])
        process = self.start(*arguments, env=env, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return self.finish(process, what, timeout_s, may_be_killed)

    def finish(self, process: subprocess.Popen, what: str, timeout_s: float = TIMEOUT_S,
               may_be_killed: bool = False) -> Done:
        """Waits for the end of what was started with pipes."""
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.lab.kill(process)
            raise Broken(f"{what} did not end within {timeout_s} s, on {self.home}") from None
        finally:
            self.lab.ended(process)
        done = Done(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
        if not (may_be_killed and done.code == -9):
            must_not_crash(done.code, done.err, f"{what}, on {self.home},")
        return done

    def must(self, *arguments, **options) -> str:
        """Runs a command that has to succeed, and returns what it printed."""
        done = self.run(*arguments, **options)
        if done.code != 0:
            what = " ".join(str(part)[:80] for part in arguments[:6])
            raise Broken(f"sess {what} failed on {self.home}: {done.told[-600:]}")
        return done.out

    def mcp(self, session: str, env: dict | None = None) -> "Mcp":
        return Mcp(self, session, env)


class Gone(Exception):
    """The server ended before it answered."""


@dataclass
class Answer:
    """A tool's answer."""

    text: str
    is_error: bool
    structured: dict


class Mcp:
    """A client of `sess mcp` that speaks the handshake of 2025-06-18."""

    def __init__(self, sess: Sess, session: str, env: dict | None = None):
        self.lab = sess.lab
        self.home = sess.home
        self.number = 0
        self.process = sess.start("mcp", "--session", session, env=env, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.err = b""
        # Drained beside the protocol: a full pipe would hold the server up.
        self._talk = threading.Thread(target=self._drain, daemon=True)
        self._talk.start()

    def _drain(self) -> None:
        for line in self.process.stderr:
            self.err += line

    def greet(self) -> None:
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {},
                                "clientInfo": {"name": "faults", "version": "1"}})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    @contextmanager
    def _within_limit(self):
        """Kills a server that hangs, so that whoever waits for it goes on, and says so."""
        is_late = threading.Event()

        def kill() -> None:
            is_late.set()
            self.process.kill()

        timer = threading.Timer(TIMEOUT_S, kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        except Gone:
            if is_late.is_set():
                raise Broken(f"sess mcp did not answer within {TIMEOUT_S} s, on {self.home}") from None
            raise
        finally:
            timer.cancel()

    def send(self, message: dict) -> None:
        self.send_bytes(json.dumps(message).encode() + b"\n")

    def send_bytes(self, line: bytes) -> None:
        with self._within_limit():
            try:
                self.process.stdin.write(line)
                self.process.stdin.flush()
            except OSError as error:
                raise Gone(str(error)) from None

    def request(self, method: str, params: dict) -> dict:
        """Returns a request with a number of its own, not yet sent."""
        self.number += 1
        return {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}

    def receive(self) -> dict:
        with self._within_limit():
            while True:
                line = self.process.stdout.readline()
                if not line.endswith(b"\n"):
                    raise Gone(line.decode(errors="replace"))
                message = json.loads(line)
                if message.get("id") == self.number:
                    return message

    def ask(self, method: str, params: dict) -> dict:
        self.send(self.request(method, params))
        return self.receive()

    def call_request(self, tool: str, arguments: dict, key: str | None = None) -> dict:
        params = {"name": tool, "arguments": arguments}
        if key:
            params["_meta"] = {"intersession/idempotencyKey": key}
        return self.request("tools/call", params)

    def call(self, tool: str, arguments: dict | None = None, key: str | None = None) -> Answer:
        self.send(self.call_request(tool, arguments or {}, key))
        return read_answer(self.receive())

    def kill(self) -> None:
        self.lab.kill(self.process)
        self.close()

    def close(self, what: str = "sess mcp") -> None:
        """Ends the server the polite way, if it still runs, and sees that it did not crash."""
        try:
            self.process.stdin.close()
        except OSError:
            pass  # It is gone; that is what the next lines find out.
        try:
            self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.lab.kill(self.process)
            raise Broken(f"{what} did not end after its input was closed") from None
        finally:
            self._talk.join()
            self.lab.ended(self.process)
        if self.process.returncode != -9:
            must_not_crash(self.process.returncode, self.err.decode(errors="replace"), what)


def read_answer(message: dict) -> Answer:
    if "error" in message:
        raise Broken(f"a protocol error instead of a tool's answer: {message['error']}")
    result = message["result"]
    text = "".join(part.get("text", "") for part in result["content"])
    return Answer(text, bool(result.get("isError")), result.get("structuredContent") or {})
