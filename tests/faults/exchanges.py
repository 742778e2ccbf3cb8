"""P4, P5 between sessions: a send with its rounds and announce, and a spawn with its report.

A node that has begun an exchange dies before or after one of its commits, or at a random
instant, again and again; then one that lives finishes what is left. In the end every run
has ended, no step was taken twice, each child was reported once, and after its outcome
was stored.
"""

import collections
import json
import threading
import time

from lab import Broken, Lab
from nodes import Model, Room
from sess import Mcp, fault

NAME = "exchanges"
# Commits of the whole exchange, about; beyond the last one nothing dies.
POINTS = [(sync, way) for sync in range(1, 37) for way in ("KILL", "KILL_AFTER")]
POINTS_PER_CHAIN = 4
WAIT_S = 60.0

ASK = [{"name": "sessions_send", "arguments": {"sessionKey": "agent:b:main", "message": "Question?", "timeoutSeconds": 0}},
       {"name": "sessions_spawn", "arguments": {"task": "Child task"}}]


def script() -> list[dict]:
    """Replies by who is asked and what was said last, enough for several exchanges in one session."""
    def one(system: str, when: str, **reply) -> dict:
        return {"system": system, "when": when, "delay_ms": 5} | reply

    return [
        one("announce step", "announce step", text="ANNOUNCE_SKIP"),
        one("You are a sub-agent", "Child task", text="Child done."),
        one("You are A.", "message", tool_calls=ASK),
        # Both results of the calls come with the next question.
        one("You are A.", "accepted", text="Asked."),
        one("You are B.", "Question?", text="Answer 1."),
        one("You are A.", "Answer 1.", text="Question 2?"),
        one("You are B.", "Question 2?", text="Answer 3."),
        one("You are A.", "Answer 3.", text="REPLY_SKIP"),
        one("You are A.", "Status:", text="Noted."),
    ] * 30


def team(model: dict) -> dict:
    agent = {"model": "stub", "toolsets": [{"type": "sessions"}]}
    return {
        "models": {"stub": model},
        "agents": {"a": agent | {"instruction": "You are A."}, "b": agent | {"instruction": "You are B."}},
        "tools": {"sessions": {"visibility": "all"}, "agentToAgent": {"enabled": True}},
    }


def run(lab: Lab) -> str:
    tally = collections.Counter()
    lock = threading.Lock()

    def note(counts: collections.Counter) -> None:
        with lock:
            tally.update(counts)

    model = Model(lab, script(), team)
    try:
        lab.each(range(lab.figures.exchange_chains), lambda number: note(chain(lab, model, number)))
    finally:
        model.stop()
    return (f"P4, P5 exchanges: {tally['point']:,} deaths at commits of a send with rounds and a spawn, "
            f"{tally['instant']:,} at random instants; {tally['send']:,} sends, {tally['round']:,} rounds, "
            f"{tally['announce']:,} announces, {tally['spawn']:,} spawns, {tally['report']:,} reports, "
            f"{tally['aborted']:,} runs aborted, {{lost}}")


def chain(lab: Lab, model: Model, number: int) -> collections.Counter:
    rng = lab.rng(NAME, number)
    room = Room(lab, model, "exchanges")
    tally = collections.Counter()
    for n in range(POINTS_PER_CHAIN):
        place = (number * POINTS_PER_CHAIN + n) % (len(POINTS) + len(POINTS) // 4)
        if place < len(POINTS):
            sync, way = POINTS[place]
            node, how = room.node(fault(lab, room.home, n=sync, err=way, ops="s"), agent="a"), "point"
        else:
            node, how = room.node(agent="a"), "instant"
            time.sleep(rng.random() * 0.8)
            if node.process.poll() is None:
                node.process.kill()
        if node.wait() == -9:
            tally[how] += 1
    finish(room)
    tally += check(room)
    room.sess.must("doctor")
    room.remove()
    return tally


def finish(room: Room) -> None:
    """Lets a node that lives settle everything that the dead ones left."""
    client = Mcp(room.sess, "finisher", {"SESS_CONFIG": str(room.model.team)})
    client.greet()
    client.call("sessions_list")
    until = time.monotonic() + WAIT_S
    while True:
        left = room.ask("SELECT id, state FROM runs WHERE state IN ('queued', 'running') OR settled = 0")
        if not left:
            break
        if time.monotonic() > until:
            client.kill()
            raise Broken(f"not settled within {WAIT_S} s: {left}, in {room.home}")
        time.sleep(0.05)
    client.close()


def check(room: Room) -> collections.Counter:
    runs = room.ask("SELECT r.id, s.key, r.state, r.error, r.errand, r.started_at FROM runs r "
                    "JOIN sessions s ON s.n = r.session ORDER BY r.n")
    tally = collections.Counter()
    steps = collections.Counter()
    spawned, reported = {}, collections.Counter()
    for run, key, state, error, errand, started in runs:
        errand = json.loads(errand) if errand else {"kind": "message"}
        kind = errand["kind"]
        tally[kind] += 1
        if state not in ("done", "aborted"):
            raise Broken(f"run {run} ({kind} in {key}) is {state}: {error}, in {room.home}")
        tally[state] += 1
        if kind == "round":
            steps[("round", errand["first"], errand["number"])] += 1
        elif kind == "announce":
            steps[("announce", errand["first"])] += 1
        elif kind == "spawn":
            spawned[run] = state
        elif kind == "report":
            reported[errand["of"]] += 1
    if twice := [step for step, count in steps.items() if count > 1]:
        raise Broken(f"steps taken twice: {twice}, in {room.home}")
    if wrong := [run for run in spawned if reported[run] != 1]:
        raise Broken(f"children not reported once: {[(run, reported[run]) for run in wrong]}, in {room.home}")
    check_reports(room, spawned)
    check_transcripts(room)
    return tally


def check_reports(room: Room, spawned: dict) -> None:
    words = {"done": "ok", "aborted": "aborted"}
    for body, errand in room.ask("SELECT m.body, r.errand FROM runs r JOIN messages m ON m.session = r.session "
                                 "WHERE r.errand LIKE '%\"report\"%' AND m.body LIKE '%' || r.id || '%'"):
        message, of = json.loads(body), json.loads(errand)["of"]
        if message["role"] != "user":
            continue
        text = message["content"][0]["text"]
        if not text.startswith(f"Status: {words[spawned[of]]}\n"):
            raise Broken(f"a child that ended as {spawned[of]} was reported as {text[:40]!r}, in {room.home}")
        if message["provenance"]["kind"] != "inter_session":
            raise Broken(f"a report with the provenance {message['provenance']}, in {room.home}")


def check_transcripts(room: Room) -> None:
    """A run whose first model call was finished never made it again: one last reply each."""
    replies = collections.Counter()
    by_session = collections.defaultdict(list)
    for session, seq, body in room.ask("SELECT session, seq, body FROM messages ORDER BY session, seq"):
        by_session[session].append(seq)
        message = json.loads(body)
        if message["role"] == "assistant" and message.get("stopReason") == "stop":
            replies[message["runId"]] += 1
    for session, seqs in by_session.items():
        if seqs != list(range(1, len(seqs) + 1)):
            raise Broken(f"seq is not dense in session {session}: {seqs}, in {room.home}")
    if twice := [run for run, count in replies.items() if count > 1]:
        raise Broken(f"runs that answered twice: {twice}, in {room.home}")
