"""Nodes: `sess run --exec` processes that share a store and a session, with a stub for a model.

The stub refuses a transcript that a real API would refuse, and the run then fails: so a
run that failed is a transcript that broke. A tool that touches the world leaves a mark
when it begins and when it ends, with the process that called it.
"""

import collections
import json
import pathlib
import sqlite3
import subprocess
from contextlib import closing

from lab import Broken, Lab, Skipped
from sess import TIMEOUT_S, Sess, must_not_crash

LEASE_MS = 300
SESSION = "nodes"
MARK = "echo begin $PPID $$ >> marks; sleep 0.02; echo end $PPID $$ >> marks"


class Model:
    """A stub of a model, which gives the same replies in every session."""

    def __init__(self, lab: Lab, replies: list[dict], team=None):
        program = lab.binary.with_name("stub-models")
        if not program.exists():
            raise Skipped("runs need stub-models beside the program")
        self.lab = lab
        self.dir = lab.new_dir("model")
        # YAML takes JSON.
        (self.dir / "script.yaml").write_text(json.dumps(replies))
        self.process = lab.start([program, "--script", self.dir / "script.yaml"], stdout=subprocess.PIPE)
        self.url = self.process.stdout.readline().decode().split()[-1]
        self.team = self.dir / "team.yaml"
        model = {"provider": "anthropic", "model": "stub", "base_url": self.url}
        self.team.write_text(json.dumps((team or lone)(model)))

    def stop(self) -> None:
        self.lab.kill(self.process)
        self.lab.ended(self.process)
        self.lab.remove(self.dir)


def lone(model: dict) -> dict:
    return {
        "models": {"stub": model},
        "agents": {"root": {"model": "stub", "instruction": "You are tested.",
                            "toolsets": [{"type": "filesystem"}, {"type": "shell"}]}},
    }


def ask_store(home: pathlib.Path, sql: str, *values) -> list[tuple]:
    """Reads a store with another SQLite; nothing is there before the first commit."""
    if not (home / "sess.db").exists():
        return []
    with closing(sqlite3.connect(f"file:{home / 'sess.db'}?mode=ro", uri=True, timeout=30)) as database:
        try:
            return database.execute(sql, values).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise


class Room:
    """One session in a store of its own, and the nodes that have worked in it."""

    def __init__(self, lab: Lab, model: Model, name: str):
        self.lab = lab
        self.model = model
        self.home = lab.new_dir(name)
        self.work = lab.new_dir(f"{name}-work")
        self.sess = Sess(lab, self.home, {"SESS_LEASE_MS": str(LEASE_MS), "ANTHROPIC_API_KEY": "none"})
        self.messages = 0
        self.dead: set[int] = set()
        self.acknowledged: set[str] = set()

    def node(self, env: dict | None = None, agent: str = "root") -> "Node":
        """Starts a node that says one message to an agent."""
        self.messages += 1
        return Node(self, f"message {self.messages}", env or {}, agent)

    def remove(self) -> None:
        self.lab.remove(self.home)
        self.lab.remove(self.work)

    def ask(self, sql: str, *values) -> list[tuple]:
        return ask_store(self.home, sql, *values)

    def states(self) -> dict[str, str]:
        """Returns the runs in their order of arrival."""
        return dict(self.ask("SELECT id, state FROM runs ORDER BY n"))

    def bodies_of(self, run: str) -> list[str]:
        """Returns the messages that this run has recorded."""
        return [body for body, in self.ask("SELECT body FROM messages ORDER BY seq")
                if json.loads(body).get("runId") == run]

    def check(self) -> collections.Counter:
        """Checks what has to hold when no node is left; returns how many runs ended how."""
        states = self.states()
        if lost := self.acknowledged - set(states):
            raise Broken(f"acknowledged and lost: runs {sorted(lost)}, in {self.home}")
        for run, state, error in self.ask("SELECT id, state, error FROM runs"):
            if state not in ("done", "aborted"):
                raise Broken(f"run {run} is {state}: {error}, in {self.home}")
        self._check_order(list(states))
        self._check_messages()
        ends = collections.Counter(states.values())
        # A node that was kept from its processor for a whole lease is taken for dead. Its
        # tools may then meet those of the next, as a dead one's may.
        if ends["aborted"] <= len(self.dead):
            self._check_marks()
        return ends

    def _check_order(self, arrived: list[str]) -> None:
        told = [json.loads(line) for line in self.sess.must("events", "--json").splitlines()]
        happened = [(event["run_id"], event["state"]) for event in told if event["type"] == "run_state"]
        running = None
        history = collections.defaultdict(list)
        for run, state in happened:
            history[run].append(state)
            if state == "running":
                if running:
                    raise Broken(f"run {run} began while {running} was running, in {self.home}")
                running = run
            elif running == run:
                running = None
        for run, states in history.items():
            # A node that died before it asked its model leaves the run to the next one.
            if set(states[0:-1:2]) != {"queued"} or set(states[1:-1:2]) != {"running"} or len(states) % 2 == 0:
                raise Broken(f"run {run} was told to be {', '.join(states)}, in {self.home}")
        begun = list(dict.fromkeys(run for run, state in happened if state == "running"))
        if begun != arrived:
            raise Broken(f"runs arrived as {arrived} and began as {begun}, in {self.home}")

    def _check_messages(self) -> None:
        rows = self.ask("SELECT seq, body FROM messages ORDER BY seq")
        if [seq for seq, _ in rows] != list(range(1, len(rows) + 1)):
            raise Broken(f"seq is not dense: {[seq for seq, _ in rows]}, in {self.home}")
        bodies = [json.loads(body) for _, body in rows]
        said = [body["content"][0]["text"] for body in bodies if body["role"] == "user"]
        if twice := [text for text, count in collections.Counter(said).items() if count > 1]:
            raise Broken(f"said twice: {twice}, in {self.home}")
        if len(said) != len(self.states()):
            raise Broken(f"{len(self.states())} runs and {len(said)} requests, in {self.home}")
        results = collections.Counter(
            (body.get("runId"), body["toolCallId"]) for body in bodies if body["role"] == "toolResult")
        if twice := [call for call, count in results.items() if count > 1]:
            raise Broken(f"tool calls with two results: {twice}, in {self.home}")

    def marks(self) -> list[tuple[str, int, int]]:
        """Returns what the tools did: begin or end, the node, the tool's own process."""
        path = self.work / "marks"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(word, int(node), int(tool)) for word, node, tool in map(str.split, lines)]

    def _check_marks(self) -> None:
        at_work = {}
        for word, node, tool in self.marks():
            if node in self.dead:
                continue
            if word == "end":
                at_work.pop(tool, None)
            elif at_work:
                raise Broken(f"node {node} called a tool while node {at_work.popitem()[1]} did, in {self.home}")
            else:
                at_work[tool] = node


class Node:
    def __init__(self, room: Room, message: str, env: dict, agent: str):
        self.room = room
        self.out = room.lab.new_dir("node")
        with open(self.out / "out", "wb") as out, open(self.out / "err", "wb") as err:
            self.process = room.sess.start(
                "run", room.model.team, "--exec", "--json", "--yolo", "--agent", agent, "--session", SESSION,
                message,
                env=env, cwd=room.work, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def signal(self, number: int) -> None:
        """Signals it, unless it has ended: its number may be another's by then."""
        self.process.send_signal(number)

    def printed(self) -> list[dict]:
        """Returns the lines it has printed; the last may be cut off by its death."""
        lines = (self.out / "out").read_bytes().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith(b"\n")]

    def wait(self) -> int:
        """Waits for its end and takes down what it acknowledged."""
        room, lab = self.room, self.room.lab
        try:
            code = self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            lab.kill(self.process)
            raise Broken(f"a node did not end within {TIMEOUT_S} s, in {room.home}") from None
        lab.ended(self.process)
        told = self.printed()
        room.acknowledged |= {event["run_id"] for event in told if event["type"] == "run_state"}
        if code == -9:
            room.dead.add(self.process.pid)
        else:
            must_not_crash(code, (self.out / "err").read_text(errors="replace"), f"a node in {room.home}")
            ended = next((event for event in told if event["type"] == "run_ended"), None)
            if ended is None or (ended["state"] == "done") != (code == 0):
                err = (self.out / "err").read_text(errors="replace")
                raise Broken(f"a node ended with {code} after {ended}: {err[-300:]}, in {room.home}")
        lab.remove(self.out)
        return code
