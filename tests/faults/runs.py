"""P4: a queued run is never lost, and never executed twice at a time.

One, two or three nodes work in one session and die again and again: before or after one
of their syncs, which is before or after a run is queued, leased, answered, has a result
or an end stored; and at random instants. The next nodes settle what they left. In the
end every run that anybody heard of has ended, they began in their order of arrival, one
at a time, and the session goes on.
"""

import collections
import json
import threading
import time

from lab import Broken, Lab
from nodes import MARK, Model, Room
from sess import fault

NAME = "runs"
POINTS = [(sync, way) for sync in range(1, 7) for way in ("KILL", "KILL_AFTER")]
KILLS_PER_CHAIN = 10
NODES_MAX = 3

LOOK = [{"name": "list_directory", "arguments": {"path": "."}}, {"name": "shell", "arguments": {"cmd": MARK}}]
# Six commits: queued, leased, a reply, two results, the end with the last reply.
SHORT = [{"tool_calls": LOOK}, {"text": "That was all."}]
LONG = [{"tool_calls": LOOK[:1] * 2 + LOOK[1:] * 2, "delay_ms": 10}, {"tool_calls": LOOK[::-1], "delay_ms": 10},
        {"text": "That was all.", "delay_ms": 10}]
REPLIES = 100


def run(lab: Lab) -> str:
    tally = collections.Counter()
    lock = threading.Lock()

    def note(counts: collections.Counter) -> None:
        with lock:
            tally.update(counts)

    short, long = Model(lab, SHORT * REPLIES), Model(lab, LONG * REPLIES)
    try:
        lab.each(range(lab.figures.run_chains), lambda number: note(points(lab, short, number)))
        chains = -(-lab.figures.run_kills // KILLS_PER_CHAIN)
        lab.each(range(chains), lambda number: note(instants(lab, long, number)))
    finally:
        short.stop()
        long.stop()
    return (f"P4 runs: {tally['point']:,} deaths at {len(POINTS)} points of a turn and {tally['instant']:,} at random "
            f"instants, 1 to {NODES_MAX} nodes; the open run was queued {tally['queued']:,}, leased {tally['leased']:,}, "
            f"replied {tally['replied']:,}, had results {tally['results']:,}, none was open {tally['none']:,}; "
            f"{tally['done']:,} runs done, {tally['aborted']:,} aborted, {{lost}}")


def points(lab: Lab, model: Model, number: int) -> collections.Counter:
    rng = lab.rng(NAME, "points", number)
    room = Room(lab, model, "runs")
    room.node().wait()
    order = rng.sample(POINTS, len(POINTS))
    at_once = number % NODES_MAX + 1
    tally = collections.Counter()
    for first in range(0, len(order), at_once):
        nodes = [room.node(fault(lab, room.home, n=sync, err=way, ops="s"))
                 for sync, way in order[first:first + at_once]]
        tally += fallen(room, nodes, "point")
    return tally + settled(room, at_once)


def instants(lab: Lab, model: Model, number: int) -> collections.Counter:
    rng = lab.rng(NAME, "instants", number)
    room = Room(lab, model, "runs")
    at_once = number % NODES_MAX + 1
    tally = collections.Counter()
    # Nodes that were done before they could be killed do not count.
    while tally["instant"] < KILLS_PER_CHAIN:
        nodes = [room.node() for _ in range(at_once)]
        for node in rng.sample(nodes, at_once):
            time.sleep(rng.random() * 0.25 / at_once)
            if node.process.poll() is None:
                node.process.kill()
        tally += fallen(room, nodes, "instant")
    return tally + settled(room, at_once)


def fallen(room: Room, nodes: list, how: str) -> collections.Counter:
    """Waits for nodes that were made to die; returns how many did, and what they left."""
    tally = collections.Counter()
    for node in nodes:
        if node.wait() == -9:
            tally.update([how, left_behind(room)])
    return tally


def left_behind(room: Room) -> str:
    """Returns how far the run came that is open now."""
    states = room.states()
    running = next((run for run, state in states.items() if state == "running"), None)
    if not running:
        return "queued" if "queued" in states.values() else "none"
    roles = [json.loads(body)["role"] for body in room.bodies_of(running)]
    return "results" if "toolResult" in roles else "replied" if roles else "leased"


def settled(room: Room, at_once: int) -> collections.Counter:
    """Lets nodes that live finish everything, and compares."""
    for node in [room.node() for _ in range(at_once)]:
        node.wait()
    if room.node().wait() != 0:
        raise Broken(f"the session does not go on: {room.states()}, in {room.home}")
    ends = room.check()
    room.sess.must("doctor")
    room.remove()
    return ends
