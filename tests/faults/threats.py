"""T6, T16, T23: the gateway keeps its tokens to itself, stays small, and stays at home.

Every address is asked with tokens in all the places where they belong and where they do
not, while everything is logged; afterwards no token is found anywhere. Bodies, frames and
headers without end must cost little memory, and others must not notice. By default, and
whatever is asked for without TLS, nothing but this machine is listened to: seen from another
network, no port is open.
"""

import base64
import collections
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

from gateway import Frames, Gateway
from lab import Broken, Lab, Skipped
from material import Transcript
from sess import Sess

NAME = "threats"
METER = pathlib.Path(__file__).with_name("meter.py")
MIB = 1 << 20
GROWTH_KIB_MAX = 32 * 1024
# Whoever asks beside the bombs waits at most this long.
NOTICED_S = 2.0
PATIENCE_S = 30.0
TOGETHER = 8
MANY = 100_000


def run(lab: Lab) -> str:
    tally = collections.Counter()
    skipped = ""
    for attack in (canary, bombs, listeners, scan):
        try:
            attack(lab, tally)
        except Broken as broken:
            lab.found(str(broken))
        except Skipped as reason:
            skipped = f", {attack.__name__} skipped: {reason}"
    return (f"T6 T16 T23 threats: {tally['looked_at']:,} places searched for {tally['tokens']} tokens, "
            f"{tally['bombs']:,} bombs for {tally['growth_kib'] / 1024:.1f} MB of memory, "
            f"{tally['slowest_ms']} ms the longest that others waited, {tally['listeners']} ways to listen, {tally['ports']:,} ports seen from another network{skipped}, {{lost}}")


def stage(lab: Lab, name: str, env: dict | None = None) -> tuple[Sess, str]:
    """Returns a store with one session, and its owner's token."""
    sess = Sess(lab, lab.new_dir(name), env)
    transcript = Transcript(lab.rng(NAME), "threatened", 50)
    sess.must("import", transcript.write(lab.new_dir(f"{name}-files")))
    return sess, sess.must("token").strip()


def ask(port: int, method: str, path: str, token: str | None = None, body=None, headers: dict | None = None):
    """Returns the status, and everything that was answered as one text."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    given = ({"Authorization": f"Bearer {token}"} if token else {}) | (headers or {})
    if body is not None and "Content-Type" not in given:
        given["Content-Type"] = "application/json"
    try:
        connection.request(method, path, body=body, headers=given)
        answer = connection.getresponse()
        text = answer.read() if answer.getheader("Content-Type", "") != "text/event-stream" else answer.read1(4096)
        return answer.status, f"{answer.headers}\n{text.decode(errors='replace')}"
    finally:
        connection.close()


def canary(lab: Lab, tally: collections.Counter) -> None:
    # Wrong tokens are part of it, and shall get further than to the limit of those.
    config = lab.new_dir("canary-config") / "sess.yaml"
    config.write_text(json.dumps({"gateway": {"limits": {"failedLogins": MANY}}}))
    sess, owner = stage(lab, "canary", {"SESS_LOG": "trace", "SESS_CONFIG": str(config)})
    scoped = json.loads(sess.must("token", "create", "--scope", "read", "--json"))["secret"]
    of_session = json.loads(sess.must("token", "create", "--scope", "read", "--session", "threatened", "--json"))["secret"]
    gateway = Gateway(sess, "-vv")
    tokens = {"owner's": owner, "scoped": scoped, "session's": of_session}
    said: dict[str, str] = {}
    try:
        for route, answer in everything(gateway.port, tokens):
            said[f"the answer of {route}"] = answer
        login = re.search(r"#login=(\S+)", sess.must("open", "--print")).group(1)
        _, told = ask(gateway.port, "POST", "/login", body=json.dumps({"code": login}))
        tokens["login code"] = login
        cookie = re.search(r"sess=([^;]+)", told).group(1)
        tokens["page's"] = cookie
        for path in ("/sessions", "/nowhere", "/metrics", "/"):
            said[f"{path} with a cookie"] = ask(gateway.port, "GET", path, headers={"Cookie": f"sess={cookie}"})[1]
        said["sess token list"] = sess.must("token", "list", "--json")
        said["sess doctor"] = sess.must("doctor")
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                said[f"{process}/cmdline"] = (process / "cmdline").read_text(errors="replace")
            except OSError:
                pass  # It has ended meanwhile.
    finally:
        gateway.stop()
    said["the log"] = gateway.err.decode(errors="replace")
    if "Listening" not in said["the log"]:
        raise Broken(f"the gateway's log was not heard: {said['the log'][:200]!r}")
    owners = [path for path in sess.home.rglob("*") if path.is_file() and owner.encode() in path.read_bytes()]
    if len(owners) != 1 or owners[0].stat().st_mode & 0o077:
        raise Broken(f"the owner's token is in {owners}, in {sess.home}")
    for path in sess.home.rglob("*"):
        if path.is_file() and path != owners[0]:
            said[str(path)] = path.read_bytes().decode(errors="replace")
    tally["looked_at"] += len(said)
    tally["tokens"] += len(tokens)
    for place, text in said.items():
        for kind, token in tokens.items():
            # Whatever it is wrapped in.
            forms = (token, urllib.parse.quote(token, safe=""), base64.b64encode(token.encode()).decode())
            if any(form in text for form in forms):
                lab.found(f"the {kind} token is in {place}, in {sess.home}")
    if not lab.findings:
        lab.remove(sess.home)


def everything(port: int, tokens: dict[str, str]):
    """Asks every address that the gateway names, with each token where it belongs and where it does not."""
    owner = tokens["owner's"]
    _, described = ask(port, "GET", "/openapi.json", owner)
    paths = json.loads(described[described.index("\n{") + 1:])["paths"]
    for path, methods in paths.items():
        filled = path.replace("{sessionKey}", "threatened")
        for method in (name.upper() for name in methods if name in ("get", "post", "put", "delete")):
            if (method, path) == ("POST", "/tokens"):
                continue  # What it is for is to show a token, once.
            for kind, token in tokens.items():
                # Where a token is part of the address, it is there; elsewhere, it is what is asked for.
                address = re.sub(r"\{\w+\}", token, filled)
                body = json.dumps({"message": token, "code": token, "content": "# plan", "runId": token,
                                   "timeoutSeconds": 0}) if method in ("POST", "PUT") else None
                status, answer = ask(port, method, address, token, body)
                # An address is repeated to whoever sent it, and so is a message that was refused.
                if address == filled and status < 400 and "/login" not in path:
                    yield f"{method} {path} with the {kind} token", answer
                # With the token where it belongs, no answer has it, whatever is wrong with the rest.
                for wrong in ("{", json.dumps({"x": [1]}), "\0"):
                    elsewhere = re.sub(r"\{\w+\}", "nobody", filled)
                    headers = {"Cookie": f"sess={token}", "Last-Event-ID": "none"}
                    body_of = wrong if method in ("POST", "PUT") else None
                    if (method, path) != ("POST", "/logout"):
                        _, answer = ask(port, method, f"{elsewhere}?limit=x", token, body_of, headers)
                        yield f"{method} {path} with {wrong!r} and the {kind} token", answer
                for wrong in (f"{address}?token={token}", f"{address}?access_token={token}&limit=x"):
                    ask(port, method, wrong, None, body)
                ask(port, method, address, f"{token}x", body)
                ask(port, method, address, None, body, {"Authorization": f"Basic {token}"})
                ask(port, method, address, token, body, {"Host": "evil.example"})
    for token in tokens.values():
        yield "/ws", talk(port, token)


def talk(port: int, token: str) -> str:
    """Connects over WebSocket and asks for this and that."""
    frames = [{"method": "connect", "params": {"minProtocol": 1, "maxProtocol": 1, "auth": {"token": token},
                                               "client": {"id": "canary", "version": "1"}}},
              {"method": "sessions.list", "params": {}},
              {"method": "chat.history", "params": {"sessionKey": "threatened"}},
              {"method": "sessions.messages.subscribe", "params": {"key": "threatened"}}]
    told = b""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as stream:
        stream.sendall(Frames.request(port))
        for number, frame in enumerate(frames):
            stream.sendall(Frames.write({"type": "req", "id": str(number)} | frame))
        stream.settimeout(1)
        try:
            while data := stream.recv(1 << 16):
                told += data
        except TimeoutError:
            pass
    return told.decode(errors="replace")


def bombs(lab: Lab, tally: collections.Counter) -> None:
    sess, token = stage(lab, "bombs")
    gateway = Gateway(sess)
    try:
        port, pid = gateway.port, gateway.process.pid
        for _ in range(50):
            ask(port, "GET", "/sessions/threatened/history", token)
        before = memory_kib(pid, "VmRSS")
        others = Others(gateway, token)
        for throw in BOMBS:
            lab.each([throw] * TOGETHER, lambda throw: throw(port, token), workers=TOGETHER)
            growth = memory_kib(pid, "VmHWM") - before
            tally["bombs"] += TOGETHER
            tally["growth_kib"] = max(tally["growth_kib"], growth)
            if growth > GROWTH_KIB_MAX:
                lab.found(f"{TOGETHER} of {throw.__name__} made the gateway grow by {growth / 1024:.1f} MB")
                # Forgotten, so that each bomb is known by its own.
                pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
                before = memory_kib(pid, "VmRSS")
        slowest = others.end()
        tally["slowest_ms"] = max(tally["slowest_ms"], round(slowest * 1000))
        if slowest > NOTICED_S:
            raise Broken(f"somebody waited {slowest:.1f} s for a page while bombs came")
    finally:
        gateway.stop()
    lab.remove(sess.home)


def memory_kib(pid: int, name: str) -> int:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+)", status).group(1))


class Others:
    """Somebody who asks for a page again and again, and takes the time."""

    def __init__(self, gateway: Gateway, token: str):
        self.lines = tempfile.TemporaryFile()
        self.process = gateway.sess.lab.start(
            [sys.executable, METER, gateway.process.pid, gateway.port, "/sessions/threatened/history?limit=20", os.devnull],
            stdin=subprocess.PIPE, stdout=self.lines, stderr=subprocess.PIPE)
        self.lab = gateway.sess.lab
        self.process.stdin.write(f"{token}\n".encode())
        self.process.stdin.flush()

    def end(self) -> float:
        """Returns how long the longest took, in seconds."""
        if self.process.poll() is not None:
            raise Broken(f"somebody was refused while bombs came: {self.process.stderr.read().decode()[:300]}")
        self.lab.kill(self.process)
        self.lab.ended(self.process)
        self.lines.seek(0)
        return max(json.loads(line)["history"] for line in self.lines if line.endswith(b"\n")) / 1000


def pour(port: int, head: bytes, pieces, wait_s: float = 2.0) -> bytes:
    """Sends as much as is taken, and returns what was answered until then."""
    told = b""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as stream:
        stream.settimeout(wait_s)
        try:
            stream.sendall(head)
            for piece in pieces:
                stream.sendall(piece)
        except OSError:
            pass  # It takes no more, as it should.
        try:
            while data := stream.recv(1 << 16):
                told += data
        except OSError:
            pass
    return told


def http_head(port: int, token: str, method: str, path: str, *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {token}",
             "Content-Type: application/json", *headers, "", ""]
    return "\r\n".join(lines).encode()


def told_large_body(port: int, token: str) -> None:
    head = http_head(port, token, "POST", "/sessions/threatened/send", f"Content-Length: {1 << 40}")
    must_refuse(pour(port, head, (bytes(MIB) for _ in range(64))), b"413", "a body of a terabyte")


def endless_chunks(port: int, token: str) -> None:
    head = http_head(port, token, "POST", "/sessions/threatened/send", "Transfer-Encoding: chunked")
    chunk = b"10000\r\n" + b"x" * (1 << 16) + b"\r\n"
    pour(port, head, (chunk for _ in range(1000)))


def endless_headers(port: int, token: str) -> None:
    head = http_head(port, token, "GET", "/sessions")[:-2]
    pour(port, head, (f"X-{number}: {'x' * 8000}\r\n".encode() for number in range(4000)))


def deep_body(port: int, token: str) -> None:
    body = b'{"message":' + b"[" * 900_000
    head = http_head(port, token, "POST", "/sessions/threatened/send", f"Content-Length: {len(body)}")
    must_refuse(pour(port, head, [body]), b"400", "a deep body")


def wide_body(port: int, token: str) -> None:
    body = b'{"message":[' + b"0," * 500_000 + b"0]}"
    head = http_head(port, token, "POST", "/sessions/threatened/send", f"Content-Length: {len(body)}")
    must_refuse(pour(port, head, [body]), b"400", "a wide body")


def before_connect(port: int, _: str) -> None:
    pour(port, Frames.request(port), (Frames.write(bytes(MIB // 2)) for _ in range(64)))


def large_frame(port: int, token: str) -> None:
    pour(port, opened(port, token), (Frames.write(b" " * (2 * MIB)) for _ in range(16)))


def endless_message(port: int, token: str) -> None:
    # A first piece, and then pieces that are never the last.
    piece = bytearray(Frames.write(b" " * (MIB // 4), opcode=0))
    piece[0] &= 0x7F
    first = bytearray(piece)
    first[0] |= 1
    pour(port, opened(port, token) + bytes(first), (bytes(piece) for _ in range(64)))


def deep_frame(port: int, token: str) -> None:
    pour(port, opened(port, token), [Frames.write(b'{"type":"req","id":"9","method":"agent","params":' + b"[" * 900_000)])


def wide_frame(port: int, token: str) -> None:
    params = b'{"key":[' + b"0," * 500_000 + b"0]}"
    frame = Frames.write(b'{"type":"req","id":"9","method":"sessions.get","params":' + params + b"}")
    pour(port, opened(port, token), [frame, frame])


def pings(port: int, token: str) -> None:
    pour(port, opened(port, token), (Frames.write(bytes(125), opcode=9) * 1000 for _ in range(20)))


def slow_heads(port: int, _: str) -> None:
    streams = [socket.create_connection(("127.0.0.1", port), PATIENCE_S) for _ in range(50)]
    try:
        for letter in b"GET / HTTP/1.1\r\nHost":
            for stream in streams:
                stream.send(bytes([letter]))
            time.sleep(0.02)
    finally:
        for stream in streams:
            stream.close()


BOMBS = (told_large_body, endless_chunks, endless_headers, deep_body, wide_body, before_connect, large_frame,
         endless_message, deep_frame, wide_frame, pings, slow_heads)


def opened(port: int, token: str) -> bytes:
    connect = {"type": "req", "id": "1", "method": "connect", "params": {
        "minProtocol": 1, "maxProtocol": 1, "client": {"id": "bomb", "version": "1"}, "auth": {"token": token}}}
    return Frames.request(port) + Frames.write(connect)


def must_refuse(told: bytes, status: bytes, what: str) -> None:
    # Who is still sending when it is refused may find the connection gone instead.
    if told and not told.startswith(b"HTTP/1.1 " + status):
        raise Broken(f"{what} got {told[:200]!r}")


def listeners(lab: Lab, tally: collections.Counter) -> None:
    sess, _ = stage(lab, "listeners")
    gateway = Gateway(sess)
    try:
        wide = [address for address in listened_on(gateway.process.pid) if not is_loopback(address)]
    finally:
        gateway.stop()
    if wide:
        raise Broken(f"sess serve listens on {wide}")
    default = sess.run("serve", "--print-service", "systemd").out
    if re.search(r"--insecure|0\.0\.0\.0|\[::\]", default):
        raise Broken(f"the service that is printed opens the gateway to others: {default}")
    for address in ("0.0.0.0:0", "[::]:0", "192.0.2.1:4747", f"{own_address()}:0"):
        for arguments, env in ((("--listen", address), {}), ((), {"SESS_GATEWAY_LISTEN": address})):
            done = sess.run("serve", *arguments, env=env)
            tally["listeners"] += 1
            if done.code == 0 or "--insecure" not in done.told or "TLS" not in done.told and "--tls-cert" not in done.told:
                raise Broken(f"sess serve on {address} ended with {done.code}: {done.told[:300]}")
    tally["listeners"] += 1
    lab.remove(sess.home)


def scan(lab: Lab, tally: collections.Counter) -> None:
    """Looks for open ports from another network, into one that the gateway runs in."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        raise Skipped("another network needs root and iproute2")
    sess, token = stage(lab, "scan")
    with network(lab) as (inside, outside):
        for arguments, expected in ((("--listen", "127.0.0.1:0"), 0), ((), 0), (("--listen", "[::1]:0"), 0),
                                    (("--listen", "0.0.0.0:0", "--insecure"), 1)):
            gateway = Gateway(sess, *arguments, within=("ip", "netns", "exec", inside), is_local=False)
            # Its own is among them, whatever others there are.
            some = lab.rng(NAME, "ports").sample(PORTS, lab.figures.scanned_ports)
            ports = [gateway.port, *(port for port in some if port != gateway.port)]
            try:
                opened = json.loads(subprocess.run(
                    ["ip", "netns", "exec", outside, sys.executable, "-c", SCANNER, INSIDE, token],
                    input=json.dumps(ports).encode(), check=True, capture_output=True, timeout=SCAN_S).stdout)
            finally:
                gateway.stop()
            tally["ports"] += len(ports)
            if len(opened) != expected:
                raise Broken(f"sess serve {' '.join(arguments)} has open ports: {opened}")
            for port, statuses in opened.items():
                # Who listens wide on purpose still lets nobody in without a token.
                if port != str(gateway.port) or statuses != [401, 401, 403, 200]:
                    raise Broken(f"sess serve {' '.join(arguments)} at {port} answers a stranger with {statuses}")
    lab.remove(sess.home)


PORTS = range(1, 65_536)
SCAN_S = 300
# An address of its own kind, which no real network has.
INSIDE, OUTSIDE = "192.0.2.1", "192.0.2.2"
# Tells what is open, and what is answered there: without a token, with a wrong one, for another host, and with it.
SCANNER = """
import http.client, json, socket, sys
address, token = sys.argv[1:]
opened = {}
for port in json.load(sys.stdin):
    with socket.socket() as probe:
        probe.settimeout(2)
        if probe.connect_ex((address, port)) == 0:
            opened[port] = []
for port, statuses in opened.items():
    for headers in ({}, {"Authorization": "Bearer x"}, {"Host": "evil.example", "Authorization": "Bearer " + token},
                    {"Authorization": "Bearer " + token}):
        connection = http.client.HTTPConnection(address, port, timeout=10)
        connection.request("GET", "/sessions", headers=headers)
        statuses.append(connection.getresponse().status)
        connection.close()
print(json.dumps(opened))
"""


@contextlib.contextmanager
def network(lab: Lab):
    """Two networks with a wire between them, apart from those of the machine; gives their names."""
    names = [f"sess-{os.getpid()}-{side}" for side in ("in", "out")]

    def ip(*arguments: str) -> None:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            raise Skipped(f"ip {' '.join(arguments)}: {done.stderr.strip()}")

    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", names[0], "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", names[1])
        for name, address in zip(names, (INSIDE, OUTSIDE)):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "wire")
            ip("-n", name, "link", "set", "wire", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def own_address() -> str:
    """Returns the address under which others reach this machine, or one that nobody has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        except OSError:
            return "192.0.2.2"


def listened_on(pid: int) -> list[str]:
    """Returns the addresses of the sockets on which a process listens, as the kernel writes them."""
    held = {os.readlink(path) for path in pathlib.Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    found = []
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            # 0A is a listener; whatever is bound for UDP hears everybody.
            if f"socket:[{fields[9]}]" in held and (table.startswith("udp") or fields[3] == "0A"):
                found.append(fields[1].rsplit(":", 1)[0])
    if not found:
        raise Broken("sess serve listens nowhere")
    return found


def is_loopback(address: str) -> bool:
    return address.endswith("7F") if len(address) == 8 else address == "00000000000000000000000001000000"
