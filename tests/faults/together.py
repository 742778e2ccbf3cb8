"""P14: many processes on one data directory; "busy" reaches nobody.

First races of several starts on an empty directory, where the store has to be made by
exactly one of them. Then eight processes that append as fast as they can, each to its
own sessions and all to one that they share.
"""

import json
import subprocess

from lab import Broken, Lab
from ledger import Ledger, check_export
from material import Transcript, plan
from sess import Sess, must_not_crash

NAME = "together"
PROCESSES = 8
# Each process has this many versions of each of its sessions, each one message longer.
VERSIONS = 10
SHARED_LEN = 200


def run(lab: Lab) -> str:
    lab.each(range(lab.figures.races), lambda number: race(lab, number), 1)
    try:
        appended = append(lab)
    except Broken as broken:
        lab.found(str(broken))
        appended = 0
    return (f"P14 together: {lab.figures.races} races of 2 to 8 starts, {PROCESSES} processes × "
            f"{lab.figures.appends:,} appends at once, {appended:,} acknowledged, {{lost}}")


def race(lab: Lab, number: int) -> None:
    rng = lab.rng(NAME, number)
    home, files = lab.new_dir("race") / "new" / "home", lab.new_dir("race-files")
    ledger, sess = Ledger(), Sess(lab, home)
    starts = []
    for place in range(2 + number % 7):
        # The first one writes: reading makes no store.
        kind = rng.choice(("import", "plan", "plan", "list")) if place else "plan"
        if kind == "import":
            transcript = Transcript(rng, f"race-{place}", 3)
            ledger.offer(transcript)
            command = ["import", transcript.write(files)]
        elif kind == "plan":
            session = f"racer-{place}"
            content = plan(session, ledger.try_plan(session), 200)
            command = ["tool", "call", "write_session_plan", json.dumps({"content": content}), "--session", session]
        else:
            command = ["list", "--json"]
        starts.append((kind, place, command))
    running = [sess.start(*command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
               for _, _, command in starts]
    for (kind, place, command), process in zip(starts, running):
        out, err = process.communicate(timeout=60)
        lab.ended(process)
        must_succeed(process.returncode, err.decode(errors="replace"), f"start {place} ({kind}) of {len(starts)}, in {home}")
        if kind == "import":
            ledger.imported(f"race-{place}", 3)
        elif kind == "plan":
            ledger.planned(f"racer-{place}", 1, 1)
    ledger.check(home)
    sess.must("doctor")
    left = [path.name for path in home.iterdir() if path.name.startswith(".")]
    if left:
        raise Broken(f"temporary files were left: {left}, in {home}")
    lab.remove(home.parent.parent)
    lab.remove(files)


def must_succeed(code: int, err: str, what: str) -> None:
    must_not_crash(code, err, what)
    if code != 0:
        raise Broken(f"{what} failed: {err[-400:]}")
    if "busy" in err.lower() or "locked" in err.lower():
        raise Broken(f"{what} was told of another process: {err[-400:]}")


def append(lab: Lab) -> int:
    rng = lab.rng(NAME, "append")
    home, files = lab.new_dir("together"), lab.new_dir("together-files")
    ledger, sess = Ledger(), Sess(lab, home)
    shared = Transcript(rng, "shared", SHARED_LEN, large_every=50)
    running = []
    for process in range(PROCESSES):
        own = [Transcript(rng, f"own-{process}-{number}", VERSIONS, large_every=200)
               for number in range(lab.figures.appends // VERSIONS)]
        paths = []
        for length in range(1, VERSIONS + 1):
            for transcript in own:
                ledger.offer(transcript, length)
                paths.append(transcript.write(files, length))
        # All of them also bring ever longer versions of one session, each at its own pace.
        every = max(1, len(paths) // SHARED_LEN)
        for length in range(1 + rng.randrange(3), SHARED_LEN + 1, rng.randrange(2, 5)):
            ledger.offer(shared, length)
            paths.insert(min(len(paths), length * every), shared.write(files, length))
        running.append(paths)
    started = [sess.start("import", "--json", *paths, stdin=subprocess.DEVNULL, stdout=open(files / f"out-{n}", "wb"),
                          stderr=open(files / f"err-{n}", "wb")) for n, paths in enumerate(running)]
    for number, process in enumerate(started):
        process.wait(timeout=1_800)
        lab.ended(process)
        err = (files / f"err-{number}").read_text(errors="replace")
        must_succeed(process.returncode, err, f"importer {number}, in {home}")
        for line in (files / f"out-{number}").read_text().splitlines():
            told = json.loads(line)
            ledger.imported(told["id"], told["total"])
    stored = ledger.check(home)
    check_export(sess, shared, len(stored.messages["shared"]))
    lab.remove(home)
    lab.remove(files)
    return ledger.count
