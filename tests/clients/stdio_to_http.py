"""Puts a stdio MCP server behind HTTP, for test suites that speak only HTTP.

usage: stdio_to_http.py port command [argument…]

For tests on this machine only. Each message passes through unchanged but for its
id, which must be unique on the shared pipe: an answer over HTTP is what the server
said. What belongs to HTTP alone (sessions, headers, origins, status codes) is this
script's own and says nothing about the server behind it.

A client that begins with `initialize` gets a server process of its own, named by
the session header; all others share one.
"""

import itertools
import json
import subprocess
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANSWER_SECONDS_MAX = 20


class Server:
    """One server process and the requests that wait for its answers."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lock = threading.Lock()
        self.ids = itertools.count(1)
        self.waiting = {}
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            answer = json.loads(line)
            with self.lock:
                waiter = self.waiting.pop(answer.get("id"), None)
            if waiter:
                waiter["answer"] = answer
                waiter["done"].set()

    def write(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def tell(self, message):
        with self.lock:
            self.write(message)

    def ask(self, message):
        waiter = {"done": threading.Event()}
        with self.lock:
            own_id = next(self.ids)
            self.waiting[own_id] = waiter
            self.write({**message, "id": own_id})
        if not waiter["done"].wait(ANSWER_SECONDS_MAX):
            raise TimeoutError(message)
        return {**waiter["answer"], "id": message["id"]}


class Bridge(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    program = []
    shared = None
    sessions = {}

    def reply(self, status, body=None, headers=()):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if data:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        session = self.headers.get("Mcp-Session-Id")
        headers = []
        if message.get("method") == "initialize":
            session = uuid.uuid4().hex
            self.sessions[session] = Server(self.program)
            headers = [("Mcp-Session-Id", session)]
        server = self.sessions.get(session) if session else self.shared
        if server is None:
            self.reply(404)
        elif "id" not in message or "method" not in message:
            server.tell(message)
            self.reply(202)
        else:
            answer = server.ask(message)
            self.reply(status_of(answer), answer, headers)

    def do_DELETE(self):
        server = self.sessions.pop(self.headers.get("Mcp-Session-Id"), None)
        if server:
            server.process.stdin.close()
            server.process.wait()
        self.reply(200 if server else 404)

    def do_GET(self):
        self.reply(405)

    def log_message(self, *_):
        pass


def status_of(answer):
    """The status that HTTP wants beside an error of the newest revision."""
    error = answer.get("error", {})
    if error.get("code") == -32602 and "_meta" in error.get("message", ""):
        return 400
    return {-32601: 404, -32020: 400, -32021: 400, -32022: 400}.get(error.get("code"), 200)


if len(sys.argv) < 3:
    raise SystemExit(__doc__)
Bridge.program = sys.argv[2:]
Bridge.shared = Server(Bridge.program)
with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Bridge) as http:
    print(f"listening on {http.server_address[1]}", flush=True)
    http.serve_forever()
