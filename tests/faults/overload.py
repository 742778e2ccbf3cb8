"""P18: overload sheds. What is too much is refused with a time to come again, whoever reads
too slowly is told so and goes on from the store, and memory stays within bounds.

Followers over server-sent events and WebSocket, a tenth of which read nothing at all, and
ten times as much is written as before. The others have everything, in order and once, while
the slow ones still stand; then these get on, and have it too. Meanwhile a session's queue
is filled, more connections come than there may be, and one connection asks too much at once.
"""

import asyncio
import collections
import http.client
import json
import re
import socket
import statistics
import time
import urllib.parse

from followers import Together, connect, history_path, subscribe
from gateway import EventStream, Frames, Gateway, Refused
from lab import Broken, Lab
from ledger import Stored
from material import Transcript
from nodes import Model, lone
from sess import Sess
from threats import ask, memory_kib
from writing import Growing

NAME = "overload"
# So many follow one session: a message is told to as many, however many there are in all.
FOLLOWERS_A_SESSION = 40
STALLED_EVERY = 10
# Messages a second, over all sessions, before it is ten times as much.
STEADY_A_S = 30
TIMES = 10
STEADY_S = 2.0
# What one commit has at the most.
PIECE = 60
# Processes that write at the same time.
WRITERS = 3
# What a stalled reader's side holds back on its own.
SMALL_BUFFER = 4_096
# The most messages a follower may be behind before it is told: less is no overload.
FOLLOWER_QUEUE = 256
PATIENCE_S = 120.0
QUEUE_MAX = 20
IN_FLIGHT = 8
SPARE_CONNECTIONS = 64

# What the gateway may take: as much as it has with nobody there, what is kept of each session,
# and for each follower its connection and one page of what it has missed.
MEMORY_KIB_MAX = 64 * 1024
SESSION_KIB_MAX = 512
FOLLOWER_KIB_MAX = 32
STALLED_KIB_MAX = 128


def run(lab: Lab) -> str:
    tally = collections.Counter()
    limits = {"connections": lab.figures.overload_followers + SPARE_CONNECTIONS, "inFlight": IN_FLIGHT}
    settings = {"gateway": {"limits": limits}, "session": {"maxQueue": QUEUE_MAX}}
    # It is asked once, and takes longer than all of this.
    model = Model(lab, [{"text": "Well.", "delay_ms": 3_600_000}], lambda stub: lone(stub) | settings)
    try:
        asyncio.run(Overload(lab, model, tally).run())
    finally:
        model.stop()
    return (f"P18 overload: {tally['followers']:,} followers, {tally['stalled']} of them stalled, "
            f"{tally['steady']} and then {tally['rate']} messages a second, {tally['seen']:,} seen; {tally['lagged']} times somebody "
            f"was told to lag and {tally['cut']} times cut, {tally['refused']:,} requests and connections were told when to come again, "
            f"{tally['memory_kib'] / 1024:.0f} MB of memory of {tally['memory_max_kib'] / 1024:.0f}, "
            f"{tally['page_ms']} ms for a page meanwhile, {{lost}}")


class Overload:
    def __init__(self, lab: Lab, model: Model, tally: collections.Counter):
        self.lab, self.tally = lab, tally
        self.count = lab.figures.overload_followers
        sessions = self.count // FOLLOWERS_A_SESSION
        self.steady = round(STEADY_A_S * STEADY_S / sessions)
        # Enough for each session that who reads nothing has to be told.
        self.all = max(round(STEADY_A_S * TIMES * lab.figures.overload_s / sessions), 4 * FOLLOWER_QUEUE)
        env = {"SESS_CONFIG": str(model.team), "ANTHROPIC_API_KEY": "none"}
        self.sess = Sess(lab, lab.new_dir("overload"), env)
        rng = lab.rng(NAME)
        files = lab.new_dir("overload-files")
        self.growing = [Growing(self.sess, Transcript(rng, f"overloaded-{n}", self.all), files)
                        for n in range(sessions)]

    async def run(self) -> None:
        for growing in self.growing:
            await growing.to(1)
        self.token = (await asyncio.to_thread(self.sess.must, "token")).strip()
        self.gateway = await asyncio.to_thread(Gateway, self.sess)
        try:
            await self.overload()
            await asyncio.to_thread(self.gateway.stop)
        except BaseException:
            await asyncio.to_thread(self.gateway.kill)
            raise
        self.lab.remove(self.sess.home)

    async def overload(self) -> None:
        followers = [Follower(self, number) for number in range(self.count)]
        stalled = [follower for follower in followers if follower.is_stalled]
        others = [follower for follower in followers if not follower.is_stalled]
        self.tally["followers"], self.tally["stalled"] = len(followers), len(stalled)
        async with Together() as together:
            for at, follower in enumerate(followers):
                together.begin(follower.follow())
                # No crowd at the door: this is not what is tried here.
                if at % 50 == 49:
                    await asyncio.sleep(0.05)
            await self.all_have(followers, 1, together)
            self.tally["steady"] = await self.write(self.steady, STEADY_A_S)
            await self.all_have(followers, self.steady, together)
            for follower in stalled:
                follower.may_read.clear()
            memory = together.begin(self.watch_memory(len(stalled)))
            waiting = together.begin(self.wait_in_between())
            shedding = together.begin(self.shed())
            self.tally["rate"] = await self.write(self.all, STEADY_A_S * TIMES)
            # Whoever reads has everything, while the others still do not.
            await self.all_have(others, self.all, together)
            if quick := [f.name for f in stalled if len(f.ids) == self.all]:
                raise Broken(f"{len(quick)} stalled followers have everything: they were not stalled")
            await asyncio.wait([shedding])
            for follower in stalled:
                follower.may_read.set()
            await self.all_have(followers, self.all, together)
            memory.cancel()
            waiting.cancel()
        stored = await asyncio.to_thread(Stored, self.sess.home)
        for follower in followers:
            follower.check(stored)
        if unaware := [follower.name for follower in stalled if not follower.lagged + follower.cuts]:
            raise Broken(f"{len(unaware)} stalled followers were neither told that they lagged nor cut, the first is "
                         f"{unaware[0]}")

    async def write(self, length: int, rate: float) -> int:
        """Brings each session to this length, at so many messages a second over all; returns how many it were."""
        begun, written = time.monotonic(), 0
        last = sum(growing.length for growing in self.growing)
        while short := [growing for growing in self.growing if growing.length < length]:
            for at in range(0, len(short), WRITERS):
                pieces = [(growing, min(PIECE, length - growing.length)) for growing in short[at:at + WRITERS]]
                await asyncio.gather(*(growing.to(growing.length + piece) for growing, piece in pieces))
                written += sum(piece for _, piece in pieces)
                early = begun + written / rate - time.monotonic()
                if early > 0:
                    await asyncio.sleep(early)
        now = sum(growing.length for growing in self.growing)
        return round((now - last) / (time.monotonic() - begun))

    async def all_have(self, followers: list["Follower"], length: int, together: Together) -> None:
        until = time.monotonic() + PATIENCE_S
        while late := [follower for follower in followers if len(follower.ids) < length]:
            if together.has_failed():
                await together.all_done()
            if time.monotonic() > until:
                raise Broken(f"{len(late)} followers never got everything, the first, {late[0].name}, has "
                             f"{len(late[0].ids)} of {length}, in {self.sess.home}")
            await asyncio.sleep(0.05)

    async def watch_memory(self, stalled: int) -> None:
        most = (MEMORY_KIB_MAX + SESSION_KIB_MAX * len(self.growing) + FOLLOWER_KIB_MAX * self.count
                + STALLED_KIB_MAX * stalled)
        self.tally["memory_max_kib"] = most
        while True:
            taken = memory_kib(self.gateway.process.pid, "VmRSS")
            self.tally["memory_kib"] = max(self.tally["memory_kib"], taken)
            if taken > most:
                raise Broken(f"the gateway takes {taken / 1024:.1f} MB, of at most {most / 1024:.0f}")
            await asyncio.sleep(0.1)

    async def wait_in_between(self) -> None:
        """Asks for a page again and again, on one connection, and takes the time."""
        path = f"{history_path(self.growing[0].transcript)}?limit=20"
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=PATIENCE_S)

        def page() -> int:
            begun = time.monotonic()
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
            answer = connection.getresponse()
            answer.read()
            times.append(time.monotonic() - begun)
            return answer.status

        times: list[float] = []
        try:
            while True:
                if (status := await asyncio.to_thread(page)) != 200:
                    raise Broken(f"a page was refused under load: {status}")
                await asyncio.sleep(0.1)
        finally:
            connection.close()
            self.tally["page_ms"] = round(statistics.median(times) * 1000) if times else 0

    async def shed(self) -> None:
        await asyncio.to_thread(self.fill_queue)
        await self.fill_connections()
        await self.ask_too_much()

    def fill_queue(self) -> None:
        """Sends to an agent that is busy; then one message is taken back."""
        key = urllib.parse.quote("agent:root:main", safe="")
        body = json.dumps({"message": "once more", "timeoutSeconds": 0})
        accepted = []
        for number in range(4 * QUEUE_MAX):
            status, answer = ask(self.gateway.port, "POST", f"/sessions/{key}/send", self.token, body)
            if status == 200:
                accepted.append(json.loads(answer[answer.index("\n{") + 1:])["runId"])
                continue
            self.must_come_again(status, answer, "a message into a full queue")
            if "messages wait" not in answer:
                raise Broken(f"a full queue does not say so: {answer[:300]}")
        # One more is no longer in the queue: the agent works on it.
        if len(accepted) not in (QUEUE_MAX, QUEUE_MAX + 1):
            raise Broken(f"{len(accepted)} messages were taken into a queue of {QUEUE_MAX}")
        ask(self.gateway.port, "POST", f"/runs/{accepted[-1]}/cancel", self.token)
        status, answer = ask(self.gateway.port, "POST", f"/sessions/{key}/send", self.token, body)
        if status != 200:
            raise Broken(f"a queue with room takes nothing: {status} {answer[:300]}")

    async def fill_connections(self) -> None:
        """Opens more connections than there may be; then these go, and there is room again."""
        port = self.gateway.port
        opened, told = [], 0
        try:
            for _ in range(2 * SPARE_CONNECTIONS):
                stream, writer = await asyncio.open_connection("127.0.0.1", port)
                opened.append(writer)
                try:
                    # Whoever is one too many is told at once, and whoever is not waits for its request.
                    answer = (await asyncio.wait_for(stream.read(4096), 0.1)).decode(errors="replace")
                except TimeoutError:
                    continue
                status = int(answer.split(" ")[1]) if answer else 0
                self.must_come_again(status, answer, "a connection over the limit")
                told += 1
        finally:
            for writer in opened:
                writer.transport.abort()
        if not told:
            raise Broken("no connection was one too many")
        until = time.monotonic() + PATIENCE_S
        while True:
            status, answer = await asyncio.to_thread(ask, port, "GET", "/healthz")
            if status == 200:
                return
            if time.monotonic() > until:
                raise Broken(f"there is no room again after connections have gone: {answer[:300]}")
            await asyncio.sleep(0.05)

    async def ask_too_much(self) -> None:
        """Waits for more runs on one connection than it may."""
        _, answer = await asyncio.to_thread(ask, self.gateway.port, "GET", "/runs?limit=1", self.token)
        run = json.loads(answer[answer.index("\n{") + 1:])["runs"][0]["runId"]
        stream, writer = await asyncio.open_connection("127.0.0.1", self.gateway.port)
        frames, told = Frames(), []
        try:
            writer.write(Frames.request(self.gateway.port) + connect(self.token))
            for number in range(2 * IN_FLIGHT):
                writer.write(Frames.write({"type": "req", "id": f"w{number}", "method": "agent.wait",
                                           "params": {"runId": run, "timeoutMs": 500}}))
            async with asyncio.timeout(PATIENCE_S):
                while len(told) < 2 * IN_FLIGHT:
                    for frame in frames.feed(await stream.read(1 << 16)):
                        if frame and frame["type"] == "res" and frame["id"].startswith("w"):
                            told.append(frame)
        finally:
            writer.transport.abort()
        refused = [frame["error"]["code"] for frame in told if not frame["ok"]]
        if refused != ["rate_limited"] * IN_FLIGHT:
            raise Broken(f"{2 * IN_FLIGHT} requests at once on a connection that may have {IN_FLIGHT} got {refused}")
        self.tally["refused"] += len(refused)

    def must_come_again(self, status: int, answer: str, what: str) -> None:
        when = re.search(r"(?i)^retry-after: (\d+)", answer, re.MULTILINE)
        if status not in (429, 503) or not when or int(when.group(1)) < 1:
            raise Broken(f"{what} got {status} and no time to come again: {answer[:300]}")
        self.tally["refused"] += 1


class Follower:
    """A client that follows one session."""

    def __init__(self, overload: Overload, number: int):
        self.overload = overload
        place, session = divmod(number, len(overload.growing))
        self.transcript = overload.growing[session].transcript
        self.is_sse = place % 2 == 0
        self.is_stalled = place // 2 % STALLED_EVERY == 0
        self.name = f"{'SSE' if self.is_sse else 'WebSocket'} follower {number}"
        self.ids: list[str] = []
        self.last_id: str | None = None
        self.lagged = self.cuts = 0
        self.may_read = asyncio.Event()
        self.may_read.set()

    async def follow(self) -> None:
        """Follows over one connection; who is cut for reading nothing comes again where it was."""
        while True:
            try:
                await self.once()
            except (OSError, Refused) as error:
                if not self.is_stalled or isinstance(error, Refused):
                    raise Broken(f"{self.name} was refused or cut after {len(self.ids)} messages: {error!r}") from None
            self.cuts += 1
            self.overload.tally["cut"] += 1
            await self.may_read.wait()

    async def once(self) -> None:
        port = self.overload.gateway.port
        raw = socket.socket()
        raw.setblocking(False)
        if self.is_stalled:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
            # As from far away: else the kernel takes megabytes for a reader on this machine.
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
        stream, writer = await asyncio.open_connection(sock=raw, limit=SMALL_BUFFER if self.is_stalled else 1 << 16)
        reader = EventStream() if self.is_sse else Frames()
        hear = self.hear_event if self.is_sse else self.hear_frame
        try:
            writer.write(self.opening(port))
            while data := await stream.read(1 << 16):
                for told in reader.feed(data):
                    hear(told)
                if not self.is_sse:
                    writer.write(reader.pongs())
                await self.may_read.wait()
        finally:
            writer.transport.abort()
        raise ConnectionResetError("the end")

    def opening(self, port: int) -> bytes:
        if self.is_sse:
            path = f"{history_path(self.transcript)}?follow=1"
            return EventStream.request(path, self.overload.token, port, self.last_id)
        place = {"sessionId": self.transcript.session, "fromSeq": len(self.ids)}
        return Frames.request(port) + connect(self.overload.token) + subscribe(self.transcript, place)

    def hear_event(self, told: tuple) -> None:
        name, event_id, data = told
        self.last_id = event_id or self.last_id
        if name == "history":
            for message in json.loads(data)["items"]:
                self.see(message["id"])
        elif name == "message":
            self.see(json.loads(data)["id"])
        elif name == "lagged":
            self.tell_lagged()

    def hear_frame(self, frame: dict | None) -> None:
        if frame is None:
            raise ConnectionResetError("closed")
        if frame["type"] == "res" and not frame["ok"]:
            raise Refused(frame["error"]["code"], frame["error"]["message"])
        if frame["type"] == "event" and frame["event"] == "session.message":
            self.see(frame["payload"]["message"]["id"])
        elif frame["type"] == "event" and frame["event"] == "lagged":
            self.tell_lagged()

    def tell_lagged(self) -> None:
        self.lagged += 1
        self.overload.tally["lagged"] += 1

    def see(self, message: str) -> None:
        """Takes a message, which has to be the next one."""
        self.overload.tally["seen"] += 1
        seq = len(self.ids)
        if seq >= len(self.transcript.ids) or message != self.transcript.ids[seq]:
            raise Broken(f"{self.name} got {message} of {self.transcript.session} in place of message {seq + 1}")
        self.ids.append(message)

    def check(self, stored: Stored) -> None:
        rows = stored.messages[self.transcript.session]
        if self.ids != [row[1] for row in rows]:
            raise Broken(f"{self.name} has {len(self.ids)} messages of {self.transcript.session}, and the store "
                         f"{len(rows)}, in {self.overload.sess.home}")
