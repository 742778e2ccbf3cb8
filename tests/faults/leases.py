"""P5: a run whose node died ends as aborted within the lease, once, and a late result is fenced off.
P13: a wrong wall clock neither ends a lease nor prolongs it.

A node is stopped in the middle of a turn; another one, which waits for the session, has
to settle the run when the lease ends. Then the first one goes on, and must find that
nothing it still has to say is wanted. With the clocks wrong the same holds, and a node
that is merely slow keeps its run. A spawned child whose node is stopped is reported to
its parent as aborted, once, whatever its node still has to say.
"""

import glob
import pathlib
import random
import signal
import sqlite3
import time
from contextlib import closing

import exchanges
from lab import Broken, Lab
from nodes import LEASE_MS, MARK, Model, Node, Room
from sess import Mcp

NAME = "leases"
LIBRARIES = "/usr/lib/*/faketime/libfaketimeMT.so.1"
CLOCKS = ("-400d", "+3650d")
# For a machine that has more to do.
TOLERANCE_S = 3.0
WAIT_S = 30.0

SLOW = [{"tool_calls": [{"name": "list_directory", "arguments": {"path": "."}},
                        {"name": "shell", "arguments": {"cmd": MARK}}], "delay_ms": 250},
        {"tool_calls": [{"name": "shell", "arguments": {"cmd": MARK}}], "delay_ms": 250},
        {"text": "That was all.", "delay_ms": 250}]
# Longer than its lease, and alive: a busy machine must not keep it from renewing that.
LIVELY_LEASE_MS = 1_000
LIVELY = [{"text": "That took a while.", "delay_ms": 2_000}]
ATTEMPTS = 20


def family() -> list[dict]:
    """Replies of a parent that spawns a slow child."""
    def one(system: str, when: str, **reply) -> dict:
        return {"system": system, "when": when} | reply

    spawn = [{"name": "sessions_spawn", "arguments": {"task": "Child task"}}]
    return [
        one("You are a sub-agent", "Child task", text="Child done.", delay_ms=700),
        one("You are A.", "message", tool_calls=spawn),
        one("You are A.", "accepted", text="Spawned."),
        one("You are A.", "Status:", text="Noted."),
    ] * 5


def run(lab: Lab) -> str:
    library = next(iter(glob.glob(LIBRARIES)), None)
    settled_s: list[float] = []
    slow, lively, parent = Model(lab, SLOW), Model(lab, LIVELY), Model(lab, family(), exchanges.team)
    reported_s: list[float] = []
    kept = 0
    try:
        lab.each(range(lab.figures.leases),
                 lambda number: settled_s.append(stop(lab, slow, number, (None, None), library)))
        if library:
            ways = [(CLOCKS[n % 2], None) if n % 4 < 2 else (None, CLOCKS[n % 2])
                    for n in range(lab.figures.lease_clocks)]
            half = len(ways) // 2
            lab.each(enumerate(ways[:half]),
                     lambda item: settled_s.append(stop(lab, slow, f"clock-{item[0]}", item[1], library)))
            lab.each(ways[half:], lambda clocks: keep(lab, lively, clocks, library))
            kept = len(ways) - half
        lab.each(range(lab.figures.child_leases),
                 lambda number: reported_s.append(stop_child(lab, parent, number)))
    finally:
        slow.stop()
        lively.stop()
        parent.stop()
    clocks = f"{kept} kept by live ones with a clock wrong" if library else "no faketime for wrong clocks"
    return (f"P5, P13 leases: {len(settled_s):,} runs of stopped nodes settled after {min(settled_s, default=0):.2f} to "
            f"{max(settled_s, default=0):.2f} s (the lease is {LEASE_MS} ms), {clocks}; {len(reported_s):,} children of "
            f"stopped nodes reported as aborted, once, after {min(reported_s, default=0):.2f} to "
            f"{max(reported_s, default=0):.2f} s, {{lost}}")


def wrong_clock(library: str | None, shift: str | None) -> dict:
    """Returns the environment of a node whose wall clock is wrong; the others are not touched."""
    if not shift:
        return {}
    return {"LD_PRELOAD": library, "FAKETIME": shift,
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}


def stop(lab: Lab, model: Model, name, clocks: tuple, library: str | None) -> float:
    """Stops a node in mid-turn; returns how long it took until its run was settled."""
    rng = lab.rng(NAME, name)
    envs = [wrong_clock(library, shift) for shift in clocks]
    for _ in range(ATTEMPTS):
        took_s = try_to_stop(lab, model, rng, *envs)
        if took_s is not None:
            return took_s
    raise Broken(f"no turn was stopped in its middle, in {ATTEMPTS} attempts")


def try_to_stop(lab: Lab, model: Model, rng: random.Random, first_env: dict, second_env: dict) -> float | None:
    """Returns nothing when the run had ended before its node stood still: then nothing was tried."""
    room = Room(lab, model, "leases")
    first = room.node(first_env)
    # Before anybody else is there: who waits also executes what others have queued.
    until(room, "a run begins", lambda: has_begun(room))
    run_id = next(iter(room.states()))
    # Queued behind the first one, and waiting when it is stopped.
    second = room.node(second_env)
    until(room, "a second run is queued", lambda: len(room.states()) == 2)
    time.sleep(rng.random() * 0.4)
    is_stopped = stop_outside_commit(room, first)
    stopped = time.monotonic()
    if not is_stopped or room.states()[run_id] != "running":
        first.signal(signal.SIGCONT)
        first.wait(), second.wait()
        room.check()
        room.remove()
        return None
    until(room, "the run of a stopped node is settled", lambda: room.states()[run_id] != "running")
    took_s = time.monotonic() - stopped
    if room.states()[run_id] != "aborted":
        raise Broken(f"the run of a stopped node is {room.states()[run_id]}, in {room.home}")
    if took_s > LEASE_MS / 1000 + TOLERANCE_S:
        raise Broken(f"a lease of {LEASE_MS} ms ended after {took_s:.2f} s, in {room.home}")
    before = room.bodies_of(run_id)
    # It comes back into the next run, or after it.
    is_late = rng.random() < 0.5
    if is_late:
        second.wait()
    first.signal(signal.SIGCONT)
    if first.wait() != 1:
        raise Broken(f"a node that lost its run ended well, in {room.home}")
    if not is_late:
        second.wait()
    if room.bodies_of(run_id) != before:
        raise Broken(f"a late result was recorded: run {run_id}, in {room.home}")
    # What it called last may meet the tools of the next run, as a dead node's may.
    room.dead.add(first.process.pid)
    if room.node().wait() != 0:
        raise Broken(f"the session does not go on: {room.states()}, in {room.home}")
    room.check()
    room.remove()
    return took_s


def stop_child(lab: Lab, model: Model, number: int) -> float:
    """Stops the node of a spawned child; returns how long it took until its parent was told."""
    rng = lab.rng(NAME, "child", number)
    for _ in range(ATTEMPTS):
        took_s = try_to_stop_child(lab, model, rng)
        if took_s is not None:
            return took_s
    raise Broken(f"no child was stopped in its middle, in {ATTEMPTS} attempts")


SPAWNED = "SELECT id, state, begun FROM runs WHERE errand LIKE '%\"spawn\"%'"
REPORTS = "SELECT id, state FROM runs WHERE errand LIKE '%\"report\"%'"


def try_to_stop_child(lab: Lab, model: Model, rng: random.Random) -> float | None:
    """Returns nothing when the child had ended, or had not begun, when its node stood still."""
    room = Room(lab, model, "leases")
    first = room.node(agent="a")
    until(room, "a child begins", lambda: any(begun for _, _, begun in room.ask(SPAWNED)))
    time.sleep(rng.random() * 0.5)
    is_stopped = stop_outside_commit(room, first)
    stopped = time.monotonic()
    [(child, state, _)] = room.ask(SPAWNED)
    if not is_stopped or state != "running":
        first.signal(signal.SIGCONT)
        first.wait()
        exchanges.finish(room)
        exchanges.check(room)
        room.remove()
        return None
    # Another node, which does whatever there is to do.
    second = Mcp(room.sess, "other", {"SESS_CONFIG": str(model.team)})
    second.greet()
    second.call("sessions_list")
    until(room, "the parent is told", lambda: [state for _, state in room.ask(REPORTS)] == ["done"])
    took_s = time.monotonic() - stopped
    if took_s > LEASE_MS / 1000 + TOLERANCE_S:
        raise Broken(f"a child with a lease of {LEASE_MS} ms was reported after {took_s:.2f} s, in {room.home}")
    before = room.bodies_of(child)
    first.signal(signal.SIGCONT)
    first.wait()
    time.sleep(rng.random() * 0.2)
    [(_, state, _)] = room.ask(SPAWNED)
    if state != "aborted" or room.bodies_of(child) != before:
        raise Broken(f"a late result was recorded: child {child} is {state}, in {room.home}")
    if any("Child done." in body for body, in room.ask("SELECT body FROM messages")):
        raise Broken(f"a late result was told, in {room.home}")
    second.close()
    # Each child was reported once, with the runtime's word.
    exchanges.check(room)
    room.sess.must("doctor")
    room.remove()
    return took_s


def keep(lab: Lab, model: Model, clocks: tuple, library: str) -> None:
    """Lets a slow node live beside one that waits: its run must not be taken away."""
    room = Room(lab, model, "leases")
    lease = {"SESS_LEASE_MS": str(LIVELY_LEASE_MS)}
    first = room.node(lease | wrong_clock(library, clocks[0]))
    until(room, "a run begins", lambda: has_begun(room))
    second = room.node(lease | wrong_clock(library, clocks[1]))
    codes = first.wait(), second.wait()
    if codes != (0, 0) or set(room.states().values()) != {"done"}:
        raise Broken(f"with the clocks at {clocks} a live node lost its run: {room.states()}, in {room.home}")
    room.check()
    room.remove()


def has_begun(room: Room) -> bool:
    return any(state != "queued" for state in room.states().values())


def stop_outside_commit(room: Room, node: Node) -> bool:
    """Stops a node where it does not hold the store's lock: with that, everybody waits for it."""
    while node.process.poll() is None:
        node.signal(signal.SIGSTOP)
        until(room, "a node stands still", lambda: is_still(node))
        if may_write(room):
            return True
        node.signal(signal.SIGCONT)
        time.sleep(0.002)
    return False


def is_still(node: Node) -> bool:
    """Tells whether the signal has reached every thread: one that runs may still commit."""
    threads = pathlib.Path(f"/proc/{node.process.pid}/task").glob("*/stat")
    try:
        return all(stat.read_text().rpartition(")")[2].split()[0] in "TZ" for stat in threads)
    except (FileNotFoundError, ProcessLookupError):
        # One of them has ended since it was listed.
        return False


def may_write(room: Room) -> bool:
    with closing(sqlite3.connect(room.home / "sess.db", timeout=0.1, isolation_level=None)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
            database.execute("ROLLBACK")
            return True
        except sqlite3.OperationalError:
            return False


def until(room: Room, what: str, is_so) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise Broken(f"waited {WAIT_S:.0f} s in vain until {what}: {room.states()}, in {room.home}")
        time.sleep(0.005)
