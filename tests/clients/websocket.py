"""Speaks the gateway's WebSocket protocol with Python's `websockets`, a client that nobody here wrote.

usage: websocket.py path/to/sess
"""

import asyncio
import itertools
import json
import sys
import uuid

import websockets

from gateway import REPLY, gateway

PATIENCE_SECONDS = 30


def check(condition, message):
    if not condition:
        raise AssertionError(message)


class Client:
    """One connection; events wait in order until they are asked for."""

    def __init__(self, socket):
        self.socket, self.ids, self.events, self.seq = socket, itertools.count(1), [], 0

    async def frame(self):
        frame = json.loads(await asyncio.wait_for(self.socket.recv(), PATIENCE_SECONDS))
        if frame["type"] == "event":
            self.seq += 1
            check(frame["seq"] == self.seq, f"event {self.seq} came as {frame['seq']}")
        return frame

    async def ask(self, method, params=None):
        sent = str(next(self.ids))
        await self.socket.send(json.dumps({"type": "req", "id": sent, "method": method, "params": params or {}}))
        while True:
            frame = await self.frame()
            if frame["type"] == "event":
                self.events.append(frame)
                continue
            check(frame["type"] == "res" and frame["id"] == sent, f"{frame}")
            return frame

    async def ok(self, method, params=None):
        frame = await self.ask(method, params)
        check(frame["ok"] is True, f"{method}: {frame}")
        return frame["payload"]

    async def fails(self, method, params, code, message):
        frame = await self.ask(method, params)
        check(frame["ok"] is False and frame["error"]["code"] == code, f"{method}: {frame}")
        check(message in frame["error"]["message"], f"{method}: {frame}")

    async def event(self, name, where=lambda payload: True):
        while True:
            frame = self.events.pop(0) if self.events else await self.frame()
            if frame["event"] == name and where(frame["payload"]):
                return frame["payload"]


def address(here):
    return here.url.replace("http", "ws") + "/ws"


def hello(token):
    client = {"id": "python-websockets", "version": "1"}
    return {"minProtocol": 1, "maxProtocol": 1, "client": client, "auth": {"token": token}}


async def connected(here, token=None):
    client = Client(await websockets.connect(address(here)))
    greeting = await client.ok("connect", hello(token or here.token))
    check(greeting["type"] == "hello-ok" and greeting["protocol"] == 1, f"{greeting}")
    check("chat.send" in greeting["methods"] and "session.message" in greeting["events"], f"{greeting}")
    return client


async def closed(socket):
    """Returns the close code, and the error that came before it."""
    error = None
    try:
        while True:
            frame = json.loads(await asyncio.wait_for(socket.recv(), PATIENCE_SECONDS))
            error = frame.get("error", error)
    except websockets.ConnectionClosed as end:
        return end.rcvd.code if end.rcvd else None, error


async def who_gets_in(here):
    beginnings = [
        json.dumps({"type": "req", "id": "1", "method": "connect", "params": hello("wrong")}),
        json.dumps({"type": "req", "id": "1", "method": "connect", "params": {}}),
        json.dumps({"type": "req", "id": "1", "method": "sessions.list", "params": {}}),
        "nothing",
        "[" * 10_000,
        b"\x00\x01",
    ]
    for beginning in beginnings:
        async with websockets.connect(address(here)) as socket:
            await socket.send(beginning)
            code, error = await closed(socket)
            check(code == 1008 and error, f"{beginning[:40]!r}: closed with {code}, {error}")
    for origin in ["https://evil.example", "null", "http://localhost.evil.example"]:
        try:
            await websockets.connect(address(here), origin=origin)
            check(False, f"a page from {origin} got in")
        except websockets.InvalidStatus as refusal:
            check(refusal.response.status_code == 403, f"{origin}: {refusal.response.status_code}")
    print("PASS websocket, who gets in")


async def requests(here):
    client = await connected(here)
    listed = await client.ok("sessions.list", {"limit": 10})
    check(any(row["sessionId"] == "yesterday" for row in listed["sessions"]), f"{listed}")
    history = await client.ok("chat.history", {"sessionKey": "yesterday", "limit": 3})
    check([item["seq"] for item in history["items"]] == [8, 9, 10], f"{history}")
    await client.fails("no.such", {}, "invalid_request", "unknown method: no.such")
    await client.fails("chat.send", {}, "invalid_request", "invalid chat.send params: ")
    await client.fails("agent.wait", {"runId": str(uuid.uuid4())}, "not_found", "")
    await client.socket.close()
    made = json.loads(here.run("--json", "token", "create", "--scope", "read"))
    reader = Client(await websockets.connect(address(here)))
    await reader.ok("connect", hello(made["secret"]))
    send = {"sessionKey": "agent:root:main", "message": "x", "idempotencyKey": "k"}
    await reader.fails("chat.send", send, "forbidden", "")
    here.run("token", "revoke", made["token"]["id"])
    code, _ = await closed(reader.socket)
    check(code is not None, "a revoked token keeps its connection")
    print("PASS websocket, requests")


async def chat(here):
    client = await connected(here)
    await client.ok("sessions.subscribe")
    key = str(uuid.uuid4())
    send = {"sessionKey": "agent:root:main", "message": "How are you?", "idempotencyKey": key}
    sent = await client.ok("chat.send", send)
    check(sent["status"] == "started", f"{sent}")
    ended = await client.ok("agent.wait", {"runId": sent["runId"], "timeoutMs": 30_000})
    check((ended["status"], ended["reply"]) == ("ok", REPLY), f"{ended}")
    again = await client.ok("chat.send", send)
    check((again["status"], again["runId"]) == ("ok", sent["runId"]), f"{again}")
    said = await client.event("session.message", lambda told: told["message"]["role"] == "assistant")
    check(said["message"]["content"][-1]["text"] == REPLY, f"{said}")
    await client.event("sessions.changed", lambda told: told["phase"] == "run_end")
    await client.socket.close()
    print("PASS websocket, chat")


async def each_message_once(here):
    """Connections are cut again and again, while this process and another one write."""
    seen, session = [], None

    async def follow(until):
        nonlocal session
        client = await connected(here)
        subscribe = {"key": "agent:root:main"}
        if seen:
            subscribe |= {"sessionId": session, "fromSeq": seen[-1]}
        else:
            subscribe |= {"fromSeq": 0, "sessionId": session}
        subscribed = await client.ok("sessions.messages.subscribe", subscribe)
        session = subscribed["sessionId"]
        while len(seen) < until:
            told = await client.event("session.message")
            check(told["messageSeq"] == told["message"]["seq"], f"{told}")
            seen.append(told["messageSeq"])
        client.socket.transport.abort()

    session = here.get("/sessions/agent:root:main")["sessionId"]
    for turn in range(1, 6):
        here.run("send", "agent:root:main", "--wait", "0", f"turn {turn}")
        await follow(2 * turn)
        if turn == 3:
            here.stop()
            here.start("--listen", "127.0.0.1:0")
    check(seen == list(range(1, len(seen) + 1)), f"{seen}")
    print(f"PASS websocket, each of {len(seen)} messages once")


async def main(sess):
    with gateway(sess) as here:
        await who_gets_in(here)
        await requests(here)
        await chat(here)
        await each_message_once(here)


if len(sys.argv) != 2:
    raise SystemExit(__doc__)
try:
    asyncio.run(main(sys.argv[1]))
except AssertionError as error:
    raise SystemExit(f"FAIL {error}") from None
