"""Copies and index of other agents' sessions: a kill leaves the former or the new, never half.

`sess snapshot` and `sess index` are killed just before each call that changes a file. After
`snapshot` the agent's own files are taken away: each session reads whole, as it was copied
last or before that. After `index` a search finds what it finds without one. Both go on when
they are called again.
"""

import json
import pathlib
import shutil
from dataclasses import dataclass

from lab import Broken, Lab
from sess import Sess, fault

NAME = "foreign"
KINDS = "wsrou"
# Several chunks of a snapshot, before and after the session grew.
LONG = (500, 900)
SHORT = 12
WORDS = ("needle3", "message7*", "nowhere")


@dataclass
class Step:
    """A command, and what was there before it."""

    name: str
    arguments: tuple
    before: pathlib.Path
    # How many messages of the long session were copied before; none at all: no snapshot.
    copied: int | None
    calls: int = 0


def run(lab: Lab) -> str:
    place = lab.new_dir("foreign")
    steps = [Step("first snapshot", ("snapshot",), place / "empty", None),
             Step("later snapshot", ("snapshot",), place / "copied", LONG[0]),
             Step("first index", ("index",), place / "empty", None),
             Step("later index", ("index",), place / "indexed", None)]
    prepare(lab, place)
    for step in steps:
        step.calls = count(lab, place, step)
    every = lab.figures.io_every
    cases = [(step, number) for step in steps
             for number in range(1 + lab.rng(NAME, step.name).randrange(every), step.calls + 1, every)]
    lab.each(cases, lambda case: attack(lab, *case))
    lab.remove(place)
    calls = ", ".join(f"{step.calls} in the {step.name}" for step in steps)
    return f"copies and index: {len(cases):,} kills at calls ({calls}), {{lost}}"


def prepare(lab: Lab, place: pathlib.Path) -> None:
    """Makes what the commands begin with: nothing, a shorter session copied, and indexed."""
    for name, command in (("empty", None), ("copied", "snapshot"), ("indexed", "index")):
        (place / name).mkdir()
        if command:
            write(place / name, LONG[0])
            at(lab, place / name).must(command)
        write(place / name, LONG[1])


def at(lab: Lab, world: pathlib.Path) -> Sess:
    return Sess(lab, world / "ours", {"HOME": str(world)})


def count(lab: Lab, place: pathlib.Path, step: Step) -> int:
    world = place / "rehearsal"
    shutil.copytree(step.before, world)
    counted = place / "calls"
    sess = at(lab, world)
    sess.must(*step.arguments, env=fault(lab, world / "ours", count=counted, ops=KINDS))
    shutil.rmtree(world)
    return int(counted.read_text())


def attack(lab: Lab, step: Step, number: int) -> None:
    world = lab.new_dir("foreign-case") / "world"
    shutil.copytree(step.before, world)
    sess = at(lab, world)
    killed = sess.run(*step.arguments, env=fault(lab, world / "ours", n=number, err="KILL", ops=KINDS),
                      may_be_killed=True)
    try:
        # Sessions are indexed on all processors, so one round may make fewer calls than another.
        if killed.code not in (-9, 0):
            raise Broken(f"it was not killed: {killed.told[-300:]}")
        (check_snapshot if step.arguments == ("snapshot",) else check_index)(sess, world, step)
    except Broken as broken:
        raise Broken(f"{step.name}, call {number} of {step.calls}: {broken}, in {world}") from None
    lab.remove(world.parent)


def check_snapshot(sess: Sess, world: pathlib.Path, step: Step) -> None:
    theirs, away = world / ".claude", world / "away"
    theirs.rename(away)
    long = messages(sess, 0)
    if long not in (step.copied, LONG[1]):
        raise Broken(f"{long} messages are left of {LONG[1]}, copied before were {step.copied}")
    short = messages(sess, 1)
    if short not in (None if step.copied is None else SHORT, SHORT):
        raise Broken(f"{short} messages are left of {SHORT}")
    away.rename(theirs)
    sess.must("snapshot")
    shutil.rmtree(theirs)
    if (messages(sess, 0), messages(sess, 1)) != (LONG[1], SHORT):
        raise Broken("the next round did not finish what was begun")
    if left := [str(path) for path in (world / "ours").rglob(".new-*")]:
        raise Broken(f"temporary files were left: {left}")


def messages(sess: Sess, session: int) -> int | None:
    """Returns how many messages of a session can be read, all of them whole; none when it is not there."""
    listed = json.loads(sess.must("list", "--json"))["sessions"]
    if identity(session) not in [row["id"] for row in listed]:
        return None
    read = json.loads(sess.must("read", identity(session), "--json"))
    if read.get("damaged", 0):
        raise Broken(f"{read['damaged']} messages are damaged")
    number = read["num_messages"]
    if f"message{number} " not in read["transcript"]:
        raise Broken(f"the last of {number} messages is not there")
    return number


def check_index(sess: Sess, world: pathlib.Path, step: Step) -> None:
    with_it = [found(sess, word) for word in WORDS]
    state = json.loads(sess.must("index", "--status", "--json"))
    # One that was being made is none yet.
    if "problem" in state and step.name == "later index":
        raise Broken(f"the index is not whole: {state['problem']}")
    told = json.loads(sess.must("index", "--json"))
    if told["unchanged"] != state["current"] or told["indexed"] != 2:
        raise Broken(f"what was done did not stay: {state}, then {told}")
    again = [found(sess, word) for word in WORDS]
    sess.must("index", "--forget")
    without = [found(sess, word) for word in WORDS]
    if not with_it == again == without or not without[0]:
        raise Broken(f"a search found other messages: {with_it}, {again}, {without}")
    sess.must("doctor")


def found(sess: Sess, words: str) -> list:
    hits = json.loads(sess.must("search", words, "--json"))["hits"]
    return [(hit["session"]["id"], hit["seq"]) for hit in hits]


def identity(session: int) -> str:
    return f"claude:00000000-0000-4000-8000-{session:012}"


def write(world: pathlib.Path, long: int) -> None:
    """Writes two sessions as Claude Code does."""
    project = world / ".claude" / "projects" / "-w"
    project.mkdir(parents=True, exist_ok=True)
    for session, length in ((0, long), (1, SHORT)):
        path = project / f"{identity(session).removeprefix('claude:')}.jsonl"
        path.write_text("".join(line(session, number) for number in range(1, length + 1)))


def line(session: int, number: int) -> str:
    """Writes one message: about a kilobyte that nobody can compress to nothing."""
    noise = "".join(f"{(number * 977 + k) * 0x9e3779b97f4a7c15 % (1 << 64):x}" for k in range(60))
    return json.dumps({
        "type": "user", "uuid": f"{session}-{number}", "sessionId": "x", "cwd": "/w",
        "parentUuid": f"{session}-{number - 1}" if number > 1 else None,
        "timestamp": f"2026-11-10T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z",
        "message": {"role": "user", "content": f"message{number} needle{number % 7} {noise}"},
    }) + "\n"
