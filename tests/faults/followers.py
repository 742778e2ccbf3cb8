"""P7, P8: a follower sees each message once and in order, and nothing that is taken back.

Two hundred followers of a few sessions, half over server-sent events and half over
WebSocket. Other processes append. Connections are cut at random bytes, some readers are
slow, and the gateway and the writers are killed; each follower goes on from the last
message it has. In the end each has what the store has. Cursors that are forged or
another session's are refused by name.
"""

import asyncio
import collections
import json
import random
import socket
import subprocess
import urllib.parse

from gateway import EventStream, Frames, Gateway, Refused
from lab import Broken, Lab
from ledger import Stored
from material import Transcript
from sess import Sess

NAME = "followers"
FOLLOWERS = 200
SESSIONS = 4
CUTS_A_STORE = 2_000
STOPS_A_STORE = 20
# What is there before anybody follows, while everything breaks, and in one burst at the end.
FIRST, STEADY, ALL = 20, 700, 1_300
# The most that one page of history has: until they have theirs, sessions stay shorter.
PAGE = 1_000
PATIENCE_S = 120.0
# How long a slow reader reads nothing while the burst comes.
STALL_S = 2.0
SLOW_EVERY = 10
SMALL_BUFFER = 4_096


def run(lab: Lab) -> str:
    tally = collections.Counter()
    stores = -(-lab.figures.followed_cuts // CUTS_A_STORE)
    for store in range(stores):
        cuts = min(CUTS_A_STORE, lab.figures.followed_cuts - store * CUTS_A_STORE)
        forged = -(-lab.figures.forged_cursors // stores)
        try:
            asyncio.run(Attack(lab, store, cuts, tally).run(forged))
        except Broken as broken:
            lab.found(str(broken))
    return (f"P7 P8 followers: {tally['cuts']:,} cuts, {tally['kills']} kills and {tally['stops']} stops of the gateway, "
            f"{tally['writers']} of writers, {tally['seen']:,} messages seen, {tally['lagged']} readers told that they "
            f"lagged, {tally['refused']:,} cursors refused, {{lost}}")


class Attack:
    def __init__(self, lab: Lab, store: int, cuts: int, tally: collections.Counter):
        self.lab, self.tally = lab, tally
        self.rng = lab.rng(NAME, store)
        self.sess = Sess(lab, lab.new_dir("followers"))
        self.files = lab.new_dir("followers-files")
        self.transcripts = [Transcript(self.rng, f"followed-{store}-{n}", ALL, large_every=40)
                            for n in range(SESSIONS)]
        # Read once: each of the followers compares with it.
        self.expected = [[json.loads(transcript.line(seq)) for seq in range(1, ALL + 1)]
                         for transcript in self.transcripts]
        self.written = [0] * SESSIONS
        self.gateway: Gateway | None = None
        self.is_up = asyncio.Event()
        self.is_stalled = False
        self.followers = [Follower(self, number, cuts // FOLLOWERS) for number in range(FOLLOWERS)]

    async def run(self, forged: int) -> None:
        for number in range(SESSIONS):
            await self.write(number, FIRST)
        self.token = (await asyncio.to_thread(self.sess.must, "token")).strip()
        await self.start()
        try:
            await self.attack(forged)
        finally:
            if self.gateway:
                await asyncio.to_thread(self.gateway.kill)
        self.lab.remove(self.sess.home)
        self.lab.remove(self.files)

    async def attack(self, forged: int) -> None:
        async with Together() as together:
            for follower in self.followers:
                together.begin(follower.follow())
            await self.while_things_break()
            # Nobody is still to get its first page, which would be longer than the longest.
            await self.all_have(1, together)
            self.is_stalled = True
            await asyncio.gather(*(self.write(number, ALL) for number in range(SESSIONS)))
            await asyncio.sleep(STALL_S)
            self.is_stalled = False
            await self.all_have(ALL, together)
            # Whatever would come twice has the time to come.
            await asyncio.sleep(0.5)
        stored = Stored(self.sess.home)
        for follower in self.followers:
            follower.check_all(stored)
        await self.refuse(forged)

    async def while_things_break(self) -> None:
        """Appends piece by piece, and kills whoever is at it, again and again."""
        async def append(number: int) -> None:
            rng = random.Random(self.rng.random())
            while self.written[number] < STEADY:
                await self.write(number, min(STEADY, self.written[number] + rng.randrange(1, 40)), rng)
                await asyncio.sleep(rng.random() * 0.05)

        async with Together() as writing:
            for number in range(SESSIONS):
                writing.begin(append(number))
            for stop in range(STOPS_A_STORE):
                # As much is written between two as the others leave.
                mark = FIRST + (STEADY - FIRST) * (stop + 1) // (STOPS_A_STORE + 1)
                while min(self.written) < mark and not writing.has_failed():
                    await asyncio.sleep(0.01)
                await asyncio.sleep(self.rng.random() * 0.2)
                await self.stop(is_kill=self.rng.random() < 0.8)
            await writing.all_done()

    async def stop(self, is_kill: bool) -> None:
        self.is_up.clear()
        gateway, self.gateway = self.gateway, None
        await asyncio.to_thread(gateway.kill if is_kill else gateway.stop)
        self.tally["kills" if is_kill else "stops"] += 1
        # Read with what followers have seen: they may see more meanwhile, and that is not looked at.
        seen = [len(follower.ids) for follower in self.followers]
        stored = await asyncio.to_thread(Stored, self.sess.home)
        for follower, length in zip(self.followers, seen):
            follower.check(stored, length)
        await self.start()

    async def start(self) -> None:
        self.gateway = await asyncio.to_thread(Gateway, self.sess)
        self.is_up.set()

    async def write(self, number: int, length: int, rng: random.Random | None = None) -> None:
        """Appends up to `length` messages in another process; with `rng`, one in eight is killed."""
        path = self.transcripts[number].write(self.files, length)
        process = await asyncio.to_thread(self.sess.start, "import", "--json", path, stdin=subprocess.DEVNULL,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if rng and rng.random() < 0.125:
            await asyncio.sleep(rng.random() * 0.05)
            process.kill()
        out, err = await asyncio.to_thread(process.communicate)
        self.lab.ended(process)
        path.unlink()
        if process.returncode == 0:
            self.written[number] = length
        elif process.returncode == -9:
            self.tally["writers"] += 1
        else:
            raise Broken(f"sess import failed without a fault: {err.decode(errors='replace')[-400:]}, in {self.sess.home}")

    async def all_have(self, length: int, together: "Together") -> None:
        """Waits until each follower has so many messages, and, when that is all, no cut left."""
        until = asyncio.get_running_loop().time() + PATIENCE_S
        while late := [f for f in self.followers if len(f.ids) < length or (length == ALL and f.cuts)]:
            if together.has_failed():
                return
            if asyncio.get_running_loop().time() > until:
                raise Broken(f"{len(late)} followers never got everything, the first, {late[0].name}, has "
                             f"{len(late[0].ids)} of {length}, in {self.sess.home}")
            await asyncio.sleep(0.05)

    async def refuse(self, count: int) -> None:
        """Forges cursors, and brings those of one session to another."""
        kept = [next(f.last_id for f in self.followers if f.is_sse and f.session == n) for n in range(SESSIONS)]
        for _ in range(count):
            mine, other = self.rng.sample(range(SESSIONS), 2)
            if self.rng.random() < 0.3:
                await self.refuse_place(mine, other)
            else:
                await self.refuse_cursor(mine, kept[mine], kept[other])
            self.tally["refused"] += 1

    async def refuse_cursor(self, mine: int, cursor: str, others: str) -> None:
        rng = self.rng
        at = rng.randrange(len(cursor))
        wrong, word = rng.choice([
            (cursor[:at] + ("A" if cursor[at] != "A" else "B") + cursor[at + 1:], "invalid cursor"),
            (cursor[:at] or "x", "invalid cursor"),
            (cursor + rng.choice("Ax-_"), "invalid cursor"),
            (str(rng.randrange(ALL)), "invalid cursor"),
            (f"{rng.randrange(ALL)}:{self.transcripts[mine].session}", "invalid cursor"),
            (others, "another session's"),
        ])
        path, stream = history_path(self.transcripts[mine]), EventStream()
        if rng.random() < 0.5:
            request = EventStream.request(f"{path}?follow=1", self.token, self.gateway.port, wrong)
        else:
            query = urllib.parse.urlencode({"cursor": wrong})
            request = EventStream.request(f"{path}?{query}", self.token, self.gateway.port, None)
            request = request.replace(b"Accept: text/event-stream\r\n", b"")
        told = await self.ask(request, stream)
        if not isinstance(told, Refused) or told.status != 400 or word not in told.text \
                or "invalid_request" not in told.text:
            raise Broken(f"the cursor {wrong!r} of {self.transcripts[mine].session} got {told}, in {self.sess.home}")

    async def refuse_place(self, mine: int, other: int) -> None:
        """The same over WebSocket: a place that is not there, or not this session's."""
        session, stranger = self.transcripts[mine].session, self.transcripts[other].session
        params, word = self.rng.choice([
            ({"sessionId": session, "fromSeq": ALL + self.rng.randrange(1, 1 << 40)}, "fromSeq"),
            ({"sessionId": stranger, "fromSeq": self.rng.randrange(ALL)}, "sessionId"),
            ({"sessionId": f"{session}-x", "fromSeq": 1}, "sessionId"),
            ({"sessionId": session, "fromSeq": -1}, "fromSeq"),
            ({"sessionId": session, "fromSeq": "1"}, "fromSeq"),
        ])
        frames = Frames()
        opening = Frames.request(self.gateway.port) + connect(self.token) + subscribe(self.transcripts[mine], params)
        told = await self.ask(opening, frames)
        error = told.get("error", {}) if isinstance(told, dict) else {}
        if error.get("code") != "invalid_request" or word not in error.get("message", ""):
            raise Broken(f"the place {params} of {session} got {told}, in {self.sess.home}")

    async def ask(self, request: bytes, reader) -> object:
        """Returns what a request was refused with; for a WebSocket, the answer to the second one."""
        stream, writer = await asyncio.open_connection("127.0.0.1", self.gateway.port)
        try:
            writer.write(request)
            async with asyncio.timeout(PATIENCE_S):
                while data := await stream.read(1 << 16):
                    for told in reader.feed(data):
                        if not isinstance(told, dict):
                            return told
                        if told.get("id") == "2":
                            return told
        except Refused as refused:
            return refused
        finally:
            writer.transport.abort()


class Follower:
    """One client that keeps what it has seen across all its connections."""

    def __init__(self, attack: Attack, number: int, cuts: int):
        self.attack = attack
        self.session = number // 2 % SESSIONS
        self.is_sse = number % 2 == 0
        self.is_slow = number // 2 % SLOW_EVERY == 0
        self.name = f"{'SSE' if self.is_sse else 'WebSocket'} follower {number}"
        self.rng = attack.lab.rng(NAME, "follower", number, attack.rng.random())
        self.cuts = cuts
        self.transcript = attack.transcripts[self.session]
        # As many cuts as there are, spread over what there is to read while things break.
        total = sum(len(self.transcript.line(seq)) + 150 for seq in range(1, STEADY + 1))
        self.bytes_between = total // max(cuts, 1)
        self.ids: list[str] = []
        self.last_id: str | None = None

    async def follow(self) -> None:
        """Follows until it is stopped, and comes again however a connection ended."""
        while True:
            await self.attack.is_up.wait()
            try:
                await self.once()
            except OSError:
                # The gateway was killed; the next one has another port.
                await asyncio.sleep(0.005)
            except Refused as refused:
                # A gateway that is about to end says so to whoever comes then.
                if str(refused.status) not in ("503", "unavailable"):
                    raise Broken(f"{self.name} was refused: {refused}, in {self.attack.sess.home}") from None
                await asyncio.sleep(0.02)

    def cut_after(self) -> int | None:
        """Returns after how many bytes this connection is cut."""
        if not self.cuts:
            return None
        # When there is nothing else to read, within what any greeting has.
        if len(self.ids) == ALL:
            return self.rng.randrange(1, 100)
        # Some in the middle of the greeting.
        if self.rng.random() < 0.3:
            return self.rng.randrange(1, 300)
        return self.rng.randrange(1, self.bytes_between)

    async def once(self) -> None:
        left = self.cut_after()
        raw = socket.socket()
        raw.setblocking(False)
        if self.is_slow:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
        try:
            port = self.attack.gateway.port if self.attack.gateway else 0
            await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
        except BaseException:
            raw.close()
            raise
        # What waits to be read is small, too: a slow reader shall be one for the gateway.
        stream, writer = await asyncio.open_connection(sock=raw, limit=SMALL_BUFFER if self.is_slow else 1 << 16)
        reader = EventStream() if self.is_sse else Frames()
        self.seq = 0
        try:
            writer.write(self.opening(port))
            while data := await stream.read(1 << 16 if left is None else min(left, 1 << 16)):
                for told in reader.feed(data):
                    self.hear_event(*told) if self.is_sse else self.hear_frame(told)
                if left is not None:
                    left -= len(data)
                    # Who has everything has no more to read up to its cut than keepalives.
                    if left == 0 or len(self.ids) == ALL:
                        self.cuts -= 1
                        self.attack.tally["cuts"] += 1
                        return
                while self.is_slow and self.attack.is_stalled:
                    await asyncio.sleep(0.05)
        finally:
            writer.transport.abort()

    def opening(self, port: int) -> bytes:
        if self.is_sse:
            path = f"{history_path(self.transcript)}?follow=1&limit={PAGE}"
            return EventStream.request(path, self.attack.token, port, self.last_id)
        place = {"sessionId": self.transcript.session, "fromSeq": len(self.ids)}
        return Frames.request(port) + connect(self.attack.token) + subscribe(self.transcript, place)

    def hear_event(self, name: str | None, event_id: str | None, data: str) -> None:
        if name == "history":
            page = json.loads(data)
            if self.last_id or page["hasMore"]:
                raise Broken(f"{self.name} got a history instead of what comes next, in {self.attack.sess.home}")
            for message in page["items"]:
                self.see(message)
        elif name == "message":
            self.see(json.loads(data))
        elif name == "lagged":
            self.attack.tally["lagged"] += 1
        elif name is not None:
            raise Broken(f"{self.name} was told {name} {data[:200]}, in {self.attack.sess.home}")
        self.last_id = event_id or self.last_id

    def hear_frame(self, frame: dict | None) -> None:
        if frame is None:
            return
        if frame["type"] == "res":
            if not frame["ok"]:
                raise Refused(frame["error"]["code"], frame["error"]["message"])
            return
        self.seq += 1
        if frame["seq"] != self.seq:
            raise Broken(f"{self.name} got event {frame['seq']} as the {self.seq}th, in {self.attack.sess.home}")
        if frame["event"] == "session.message":
            payload = frame["payload"]
            if payload["messageSeq"] != payload["message"]["seq"] or payload["sessionId"] != self.transcript.session:
                raise Broken(f"{self.name} got {json.dumps(payload)[:300]}, in {self.attack.sess.home}")
            self.see(payload["message"])
        elif frame["event"] == "lagged":
            self.attack.tally["lagged"] += 1

    def see(self, message: dict) -> None:
        """Takes a message, which has to be the next one, as it was written."""
        self.attack.tally["seen"] += 1
        seq = len(self.ids) + 1
        if seq > ALL or message != self.attack.expected[self.session][seq - 1]:
            raise Broken(f"{self.name} got message {message.get('seq')} of {self.transcript.session} "
                         f"in place of {seq}: {json.dumps(message)[:200]}, in {self.attack.sess.home}")
        self.ids.append(message["id"])

    def check(self, stored: Stored, length: int) -> None:
        rows = stored.messages.get(self.transcript.session, [])
        if self.ids[:length] != [row[1] for row in rows[:length]]:
            raise Broken(f"{self.name} saw {length} messages, and the kill left {len(rows)} of "
                         f"{self.transcript.session}, in {self.attack.sess.home}")

    def check_all(self, stored: Stored) -> None:
        rows = stored.messages[self.transcript.session]
        if self.ids != [row[1] for row in rows] or len(rows) != ALL:
            raise Broken(f"{self.name} has {len(self.ids)} messages of {self.transcript.session}, "
                         f"and the store {len(rows)}, in {self.attack.sess.home}")


def history_path(transcript: Transcript) -> str:
    key = json.loads(transcript.header)["key"]
    return f"/sessions/{urllib.parse.quote(key, safe='')}/history"


def connect(token: str) -> bytes:
    return Frames.write({"type": "req", "id": "1", "method": "connect", "params": {
        "minProtocol": 1, "maxProtocol": 1, "client": {"id": "faults", "version": "1"}, "auth": {"token": token}}})


def subscribe(transcript: Transcript, params: dict) -> bytes:
    key = json.loads(transcript.header)["key"]
    return Frames.write({"type": "req", "id": "2", "method": "sessions.messages.subscribe",
                         "params": {"key": key} | params})


class Together:
    """Tasks that end with this block; what one of them breaks is raised at its end."""

    async def __aenter__(self) -> "Together":
        self.tasks: list[asyncio.Task] = []
        return self

    def begin(self, work) -> asyncio.Task:
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]

    def has_failed(self) -> bool:
        return any(task.done() and not task.cancelled() and task.exception() for task in self.tasks)

    async def all_done(self) -> None:
        await asyncio.gather(*self.tasks)

    async def __aexit__(self, kind, error, trace) -> None:
        for task in self.tasks:
            task.cancel()
        ended = await asyncio.gather(*self.tasks, return_exceptions=True)
        broken = [end for end in ended if isinstance(end, Exception)]
        # What went wrong first is what they tell; this block may have failed because of it.
        if broken and not isinstance(error, Broken):
            raise broken[0]
