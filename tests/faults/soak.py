"""P19: a gateway that is used for long is as it was: no growth of memory, descriptors, log or latency.

Two gateways share a store. One is measured, and runs from the beginning to the end; the
other is killed now and then, and comes again. Both have followers that come and go, readers
of pages, clients that connect for one question, agents that answer, and writers in processes
of their own. After a while to warm up, the last third has to be like the first.

`SESS_SOAK_S` says for how many seconds.
"""

import asyncio
import collections
import json
import os
import pathlib
import random
import statistics
import sys
import time

from followers import Together, connect, history_path, subscribe
from gateway import EventStream, Frames, Gateway, Refused
from lab import Broken, Lab
from material import Transcript
from nodes import Model
from sess import Sess
from threats import ask
from writing import Growing

NAME = "soak"
METER = pathlib.Path(__file__).with_name("meter.py")
SESSIONS = 8
# A session that is this long is left alone, and another one grows.
LENGTH = 600
FOLLOWERS = 40
PATIENCE_S = 60.0
WARM_UP = 0.2
KILLS = 6

# What the last third may have more than the first: a part, and something for the grain of the measure.
MEMORY = (1.10, 6 * 1024)
DESCRIPTORS = (1.10, 8)
WAL = (1.25, 4 * 1024)
# The machine is shared, and others are not soaked with us.
LATENCY = (1.75, 10.0)


def run(lab: Lab) -> str:
    seconds = float(os.environ.get("SESS_SOAK_S") or lab.figures.soak_s)
    model = Model(lab, [{"text": "All is well."}])
    try:
        soak = Soak(lab, model, seconds)
        asyncio.run(soak.run())
    finally:
        model.stop()
    did = soak.tally
    return (f"P19 soak: {seconds:.0f} s, {did['messages']:,} messages followed, {did['pages']:,} pages, {did['turns']:,} turns, "
            f"{did['connections']:,} connections, {did['kills']} kills; {soak.told}, {{lost}}")


class Soak:
    def __init__(self, lab: Lab, model: Model, seconds: float):
        self.lab, self.seconds = lab, seconds
        self.rng = lab.rng(NAME)
        self.tally = collections.Counter()
        self.files = lab.new_dir("soak-files")
        env = {"ANTHROPIC_API_KEY": "none", "SESS_CONFIG": str(model.team)}
        self.sess = Sess(lab, lab.new_dir("soak"), env)
        self.growing = [self.another() for _ in range(SESSIONS)]
        self.samples: list[dict[str, float]] = []

    def another(self) -> Growing:
        self.tally["sessions"] += 1
        transcript = Transcript(self.rng, f"soaked-{self.tally['sessions']}", LENGTH, large_every=40)
        return Growing(self.sess, transcript, self.files)

    async def run(self) -> None:
        for growing in self.growing:
            await growing.to(20)
        self.token = (await asyncio.to_thread(self.sess.must, "token")).strip()
        self.gateways = [await asyncio.to_thread(Gateway, self.sess) for _ in range(2)]
        try:
            await self.soak()
        finally:
            for gateway in self.gateways:
                await asyncio.to_thread(gateway.stop)
        self.compare()
        self.lab.remove(self.sess.home)
        self.lab.remove(self.files)

    async def soak(self) -> None:
        work = [self.follow(number) for number in range(FOLLOWERS)]
        work += [self.write(), self.kill()]
        work += [do(which) for which in range(2) for do in (self.read_pages, self.talk, self.come_and_go)]
        self.until = time.monotonic() + self.seconds
        async with Together() as together:
            for each in work:
                together.begin(each)
            together.begin(self.sample())
            while time.monotonic() < self.until and not together.has_failed():
                await asyncio.sleep(0.1)

    def port(self, which: int) -> int:
        return self.gateways[which].port

    async def again(self, which: int, do) -> None:
        """Does something again and again; what fails with a gateway that is killed is done once more."""
        while True:
            gateway = self.gateways[which]
            try:
                await do()
            except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                # The one that is measured is never gone.
                if which == 0 and gateway is self.gateways[0]:
                    raise Broken(f"the gateway that lives was gone: {error!r}") from None
                await asyncio.sleep(0.05)
            except Refused as refused:
                raise Broken(f"somebody was refused: {refused}") from None

    async def follow(self, number: int) -> None:
        """Follows a session for a while, leaves it, and comes again where it left."""
        which, is_sse = number % 2, number // 2 % 2 == 0
        rng = random.Random(self.rng.random())
        growing, seen, last_id = None, 0, None

        async def once() -> None:
            nonlocal growing, seen, last_id
            if growing not in self.growing:
                growing, seen, last_id = rng.choice(self.growing), 0, None
            transcript, port = growing.transcript, self.port(which)
            stream, writer = await asyncio.open_connection("127.0.0.1", port)
            reader = EventStream() if is_sse else Frames()
            if is_sse:
                request = EventStream.request(f"{history_path(transcript)}?follow=1&limit=1000", self.token, port, last_id)
            else:
                place = {"sessionId": transcript.session, "fromSeq": seen}
                request = Frames.request(port) + connect(self.token) + subscribe(transcript, place)
            try:
                writer.write(request)
                async with asyncio.timeout(rng.uniform(0.5, 4.0)):
                    while data := await stream.read(1 << 16):
                        for told in reader.feed(data):
                            ids = heard(told, is_sse)
                            if transcript.ids[seen:seen + len(ids)] != ids:
                                raise Broken(f"follower {number} of {transcript.session} got {ids[:3]} after {seen}")
                            seen += len(ids)
                            self.tally["messages"] += len(ids)
                            if is_sse and told[1]:
                                last_id = told[1]
                    # A stream ends with its gateway alone.
                    raise ConnectionResetError("the stream ended")
            except TimeoutError:
                pass  # It has had enough.
            finally:
                writer.transport.abort()

        await self.again(which, once)

    async def write(self) -> None:
        while True:
            at = self.rng.randrange(SESSIONS)
            growing = self.growing[at]
            if growing.length == LENGTH:
                growing = self.another()
                await growing.to(20)
                self.growing[at] = growing
            await growing.to(min(LENGTH, growing.length + self.rng.randrange(1, 12)))
            await asyncio.sleep(0.1)

    async def read_pages(self, which: int) -> None:
        async def once() -> None:
            path = f"{history_path(self.rng.choice(self.growing).transcript)}?limit=200"
            status, answer = await asyncio.to_thread(ask, self.port(which), "GET", path, self.token)
            if status != 200:
                raise Broken(f"a page was refused: {status} {answer[:300]}")
            self.tally["pages"] += 1
            await asyncio.sleep(0.02)

        await self.again(which, once)

    async def talk(self, which: int) -> None:
        """Asks an agent something, in a session of its own, and waits for its answer."""
        async def once() -> None:
            self.tally["asked"] += 1
            key = f"soak-{self.tally['asked']}"
            asked = await self.ask_frame(which, "agent", {"agentId": "root", "message": "How are you?", "idempotencyKey": key})
            while True:
                ended = await self.ask_frame(which, "agent.wait", {"runId": asked["runId"], "timeoutMs": 30_000})
                if ended["status"] != "timeout":
                    break
            # A run may end with the gateway that is killed.
            if ended["status"] not in ("ok", "aborted") or ended["status"] == "ok" and ended["reply"] != "All is well.":
                raise Broken(f"an agent answered {ended}")
            self.tally["turns"] += 1
            await asyncio.sleep(0.2)

        await self.again(which, once)

    async def come_and_go(self, which: int) -> None:
        async def once() -> None:
            listed = await self.ask_frame(which, "sessions.list", {"limit": 20})
            if not listed["sessions"]:
                raise Broken("no session was listed")
            await asyncio.sleep(0.02)

        await self.again(which, once)

    async def ask_frame(self, which: int, method: str, params: dict) -> dict:
        """Connects, asks one question, and leaves."""
        port = self.port(which)
        stream, writer = await asyncio.open_connection("127.0.0.1", port)
        frames = Frames()
        self.tally["connections"] += 1
        try:
            writer.write(Frames.request(port) + connect(self.token)
                         + Frames.write({"type": "req", "id": "2", "method": method, "params": params}))
            async with asyncio.timeout(PATIENCE_S):
                while data := await stream.read(1 << 16):
                    for frame in frames.feed(data):
                        if frame and frame.get("id") == "2":
                            if not frame["ok"]:
                                raise Broken(f"{method} got {frame['error']}")
                            return frame["payload"]
            raise ConnectionResetError("no answer")
        finally:
            writer.transport.abort()

    async def kill(self) -> None:
        while True:
            await asyncio.sleep(self.seconds / (KILLS + 1))
            await asyncio.to_thread(self.gateways[1].kill)
            self.tally["kills"] += 1
            self.gateways[1] = await asyncio.to_thread(Gateway, self.sess)

    async def sample(self) -> None:
        path = f"{history_path(self.growing[0].transcript)}?limit=50"
        measured = self.gateways[0]
        meter = await asyncio.create_subprocess_exec(
            sys.executable, METER, str(measured.process.pid), str(measured.port), path, self.sess.home / "sess.db-wal",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
        try:
            meter.stdin.write(f"{self.token}\n".encode())
            while line := await meter.stdout.readline():
                self.samples.append(json.loads(line) | {"at": time.monotonic()})
            raise Broken("the measured gateway does not answer any longer")
        finally:
            meter.kill()
            await meter.wait()

    def compare(self) -> None:
        """Compares the last third with the first, after some time to warm up."""
        begun = self.samples[0]["at"] + self.seconds * WARM_UP
        if self.samples[-1]["at"] < self.samples[0]["at"] + self.seconds * 0.9:
            raise Broken("the measured gateway was not heard of until the end")
        counted = [sample for sample in self.samples if sample["at"] >= begun]
        third = len(counted) // 3
        parts = []
        for name, most, unit, scale, (part, more) in (
                ("memory", statistics.median, "MB", 1024, MEMORY),
                ("descriptors", statistics.median, "descriptors", 1, DESCRIPTORS),
                ("wal", max, "MB of WAL", 1024, WAL),
                ("healthz", statistics.median, "ms for /healthz", 1, LATENCY),
                ("history", statistics.median, "ms for a page", 1, LATENCY)):
            first = most(sample[name] for sample in counted[:third])
            last = most(sample[name] for sample in counted[-third:])
            parts.append(f"{first / scale:.1f} → {last / scale:.1f} {unit}")
            if last > first * part + more:
                self.lab.found(f"{name} grew from {first / scale:.1f} to {last / scale:.1f} {unit} within {self.seconds:.0f} s")
        self.told = ", ".join(parts)


def heard(told, is_sse: bool) -> list[str]:
    """Returns the ids of the messages that an event or a frame has."""
    if is_sse:
        name, _, data = told
        if name == "history":
            return [message["id"] for message in json.loads(data)["items"]]
        return [json.loads(data)["id"]] if name == "message" else []
    if told is None:
        raise ConnectionResetError("the connection was closed")
    if told["type"] == "res" and not told["ok"]:
        raise Refused(told["error"]["code"], told["error"]["message"])
    if told["type"] == "event" and told["event"] == "session.message":
        return [told["payload"]["message"]["id"]]
    return []
