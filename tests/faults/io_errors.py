"""P10: every I/O call that can fail does fail, once or from then on.

A workload is cut into steps. Each step runs once to count its calls, then again for
every call, three errors and two modes, each time on a fresh copy of the store as it
stood before. The step has to end without a crash and either succeed or say why not.
Afterwards, with the disk in order again, all that was acknowledged is there, and work
goes on.
"""

import copy
import json
import pathlib
import random
import shutil
from dataclasses import dataclass
from typing import Callable

from lab import Broken, Lab
from ledger import Ledger, Stored
from material import Transcript, plan
from sess import Gone, Sess, fault

NAME = "io"
ERRORS = ("EIO", "ENOSPC", "SHORT")
MODES = ("once", "sticky")


@dataclass
class Step:
    """A part of the workload; `run` notes in the ledger what was acknowledged."""

    name: str
    run: Callable[["Case", dict], None]
    before: pathlib.Path | None = None
    ledger: Ledger | None = None
    calls: int = 0


@dataclass
class Case:
    """One run of one step."""

    sess: Sess
    ledger: Ledger
    files: pathlib.Path
    # Plans whose write was answered with an error, by session: (number, text).
    refused: dict

    def import_files(self, transcripts: list, env: dict) -> None:
        paths = []
        for transcript, length in transcripts:
            self.ledger.offer(transcript, length)
            paths.append(transcript.write(self.files, length))
        done = self.sess.run("import", "--json", *paths, env=env)
        for line in done.out.splitlines():
            told = json.loads(line)
            if told.get("id") is not None and "total" in told:
                self.ledger.imported(told["id"], told["total"])
        if done.code != 0:
            must_name_a_cause(done.err)

    def write_plan(self, session: str, answer_to: Callable, size: int) -> None:
        """Writes one plan; `answer_to` returns (is_error, text, revision if it is told)."""
        number = self.ledger.try_plan(session)
        is_error, told, revision = answer_to(plan(session, number, size))
        if is_error:
            must_name_a_cause(told)
            self.refused[session] = (number, told)
        else:
            self.refused.pop(session, None)
            self.ledger.planned(session, number, revision or 1 + len(self.ledger.plans_acknowledged[session]))


def must_name_a_cause(told: str) -> None:
    causes = ("space", "i/o error", "input/output", "disk", "read-only", "cannot", "failed")
    if len(told.strip()) < 20 or not any(cause in told.lower() for cause in causes):
        raise Broken(f"refused without a cause: {told!r}")


# --- The workload ---

def material() -> list[Transcript]:
    rng = random.Random("io")
    return [Transcript(rng, f"io-{number}", 6, large_every=4) for number in range(5)]


def first_import(case: Case, env: dict) -> None:
    a, b, *_ = material()
    case.import_files([(a, 3), (b, 6)], env)


def second_import(case: Case, env: dict) -> None:
    a, _, c, d, _ = material()
    case.import_files([(a, 6), (c, 2), (d, 6)], env)


def first_plan(case: Case, env: dict) -> None:
    case.write_plan("planner", by_command(case, "planner", env), 500)


def next_plan(case: Case, env: dict) -> None:
    case.write_plan("planner", by_command(case, "planner", env), 9_000)


def by_command(case: Case, session: str, env: dict) -> Callable:
    def call(content: str) -> tuple:
        done = case.sess.run("tool", "call", "write_session_plan", json.dumps({"content": content}),
                             "--session", session, env=env)
        return done.code != 0, done.told, None
    return call


def one_server(case: Case, env: dict) -> None:
    """A server that stays: after an error it has to serve again by itself."""
    client = case.sess.mcp("server", env)

    def call(content: str) -> tuple:
        answer = client.call("write_session_plan", {"content": content})
        return answer.is_error, answer.text, answer.structured.get("revision")

    try:
        client.greet()
        for size in (60, 9_000, 200):
            case.write_plan("server", call, size)
        client.call("exit_plan_mode")
        client.call("read_session_plan")
    except Gone:
        # It may give up at the start, when there is no store to serve from.
        client.process.wait()
        must_name_a_cause(client.err.decode(errors="replace"))
    client.close(f"sess mcp, on {case.sess.home},")


def search(case: Case, env: dict) -> None:
    """Search writes too, into files of its own that may be made again."""
    done = case.sess.run("search", "ledger", env=env)
    if done.code != 0:
        must_name_a_cause(done.told)


# --- The attack ---

def run(lab: Lab) -> str:
    place = lab.new_dir("io")
    steps = [Step("first import", first_import), Step("first plan", first_plan),
             Step("second import", second_import), Step("next plan", next_plan),
             Step("one server", one_server), Step("search", search)]
    rehearse(lab, place, steps)
    cases = []
    for step in steps:
        for error in ERRORS:
            for mode in MODES:
                offset = lab.rng(NAME, step.name, error, mode).randrange(lab.figures.io_every)
                numbers = range(1 + offset, step.calls + 1, lab.figures.io_every)
                cases += [(step, error, mode, number) for number in numbers]
    lab.each(cases, lambda case: attack(lab, *case))
    calls = sum(step.calls for step in steps)
    lab.remove(place)
    return f"P10 I/O errors: {len(cases):,} faults at {calls} calls × {len(ERRORS)} errors × {len(MODES)} modes, {{lost}}"


def rehearse(lab: Lab, place: pathlib.Path, steps: list[Step]) -> None:
    """Runs the workload once without a fault; keeps the store before each step, and counts."""
    home, files = place / "rehearsal", place / "files"
    home.mkdir()
    files.mkdir()
    ledger = Ledger()
    for number, step in enumerate(steps):
        step.before = place / f"before-{number}"
        shutil.copytree(home, step.before)
        step.ledger = ledger.frozen()
        case = Case(Sess(lab, home), ledger, files, {})
        counted = place / "calls"
        step.run(case, fault(lab, home, count=counted))
        step.calls = int(counted.read_text())
        if case.refused:
            raise Broken(f"{step.name} failed without a fault: {case.refused}")
        ledger.check(home)


def attack(lab: Lab, step: Step, error: str, mode: str, number: int) -> None:
    where = f"{step.name}, call {number} of {step.calls}, {error} {mode}"
    home = lab.new_dir("io-case") / "home"
    files = home.parent / "files"
    files.mkdir()
    shutil.copytree(step.before, home)
    ledger = own(step.ledger)
    case = Case(Sess(lab, home), ledger, files, {})
    try:
        step.run(case, fault(lab, home, n=number, err=error, mode=mode))
        check_refused(case, mode)
        check_leftovers(home)
        ledger.check(home)
        go_on(case, "server" if step.run is one_server else "planner")
    except Broken as broken:
        raise Broken(f"{where}: {broken}") from None
    lab.remove(home.parent)


def own(ledger: Ledger) -> Ledger:
    """Returns a copy whose every part may be changed."""
    copied = ledger.frozen()
    copied.plans_tried = copy.deepcopy(ledger.plans_tried)
    return copied


def check_refused(case: Case, mode: str) -> None:
    """A refused write leaves the former plan, byte for byte.

    When the disk keeps failing, the file cannot always be put back at once; then the
    next use does it.
    """
    for session, (number, told) in case.refused.items():
        acknowledged = case.ledger.plans_acknowledged[session]
        path = case.sess.home / "session_plans" / f"{session}.md"
        if mode == "sticky":
            continue
        stored = Stored(case.sess.home).plans.get(session, [])
        if len(stored) != len(acknowledged):
            raise Broken(f"a write was refused ({told}) and its revision stayed: {len(stored)} revisions, "
                         f"{len(acknowledged)} acknowledged, in {case.sess.home}")
        content = path.read_text(encoding="utf-8") if path.exists() else None
        former = stored[-1][1] if stored else None
        if content != former:
            raise Broken(f"a write was refused ({told}) and the former plan is not there, in {case.sess.home}")


def check_leftovers(home: pathlib.Path) -> None:
    left = [str(path.relative_to(home)) for path in home.rglob(".*") if path.name != ".lock"]
    if left:
        raise Broken(f"temporary files were left: {left}, in {home}")


def go_on(case: Case, session: str) -> None:
    """The disk works again: everything acknowledged is there, and so is the next write."""
    if (case.sess.home / "sess.db").exists():
        case.sess.must("doctor")
    extra = material()[4]
    case.ledger.offer(extra, 6)
    case.sess.must("import", extra.write(case.files, 6))
    case.ledger.imported(extra.session, 6)
    client = case.sess.mcp(session)
    client.greet()
    number = case.ledger.try_plan(session)
    content = plan(session, number, 300)
    answer = client.call("write_session_plan", {"content": content})
    if answer.is_error:
        raise Broken(f"work does not go on: {answer.text}, in {case.sess.home}")
    case.ledger.planned(session, number, answer.structured["revision"])
    read = client.call("read_session_plan")
    client.close()
    if read.text != content or (case.sess.home / "session_plans" / f"{session}.md").read_text() != content:
        raise Broken(f"the plan written after the fault is not read, in {case.sess.home}")
    case.ledger.check(case.sess.home)
    check_leftovers(case.sess.home)
