"""P13: order does not depend on the wall clock.

The same store is written with the clock right, 400 days slow, ten years fast, and set
back by an hour between two calls of one process. Sequence numbers stay dense, the order
is the order of writing, nothing is lost.
"""

import glob
import json
import random

from lab import Broken, Lab, Skipped
from ledger import Ledger
from material import Transcript, plan
from sess import Sess

NAME = "clocks"
WAYS = ("-400d", "+3650d", "step back", "step forth")
LIBRARIES = "/usr/lib/*/faketime/libfaketimeMT.so.1"


def run(lab: Lab) -> str:
    library = next(iter(glob.glob(LIBRARIES)), None)
    if not library:
        raise Skipped("clocks need the package faketime")
    counts = []
    lab.each(range(lab.figures.clocks),
             lambda number: counts.append(attack(lab, number, WAYS[number % len(WAYS)], library)))
    return f"P13 clocks: {lab.figures.clocks} runs with the clock wrong, {sum(counts):,} acknowledged, {{lost}}"


def attack(lab: Lab, number: int, way: str, library: str) -> int:
    rng = lab.rng(NAME, number)
    home, files = lab.new_dir("clocks"), lab.new_dir("clocks-files")
    clock = files / "clock"
    clock.write_text("+0")
    # Only the wall clock is wrong: real ones do not touch the monotonic one either.
    wrong = {"LD_PRELOAD": library, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}
    if way.startswith("step"):
        wrong |= {"FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1"}
    else:
        wrong |= {"FAKETIME": way}
    ledger, sess = Ledger(), Sess(lab, home)
    transcript = Transcript(rng, "clock", 30)
    step = {"step back": "-1h", "step forth": "+1h"}.get(way, way)
    for length, env in ((10, {}), (20, wrong), (30, {})):
        ledger.offer(transcript, length)
        sess.must("import", transcript.write(files, length), env=env)
        ledger.imported("clock", length)
        write_plans(sess, ledger, rng, env, lambda: clock.write_text(step))
        clock.write_text("+0")
    ledger.check(home)
    sess.must("doctor")
    log = [entry["revision"] for entry in revisions(sess)]
    if log != list(range(1, ledger.plans_tried["clock-plan"] + 1)):
        raise Broken(f"plan log out of order with the clock at {way}: {log}, in {home}")
    told = [json.loads(line) for line in sess.must("events", "--json").splitlines()]
    updates = [event["revision"] for event in told if event["type"] == "session_plan_updated"]
    if updates != log:
        raise Broken(f"events out of order with the clock at {way}: {updates}, in {home}")
    lab.remove(home)
    lab.remove(files)
    return ledger.count


def revisions(sess: Sess) -> list[dict]:
    told = json.loads(sess.must("plan", "log", "--session", "clock-plan", "--json"))
    return told["revisions"] if isinstance(told, dict) else told


def write_plans(sess: Sess, ledger: Ledger, rng: random.Random, env: dict, step) -> None:
    """Writes five plans; between two of them the clock is set."""
    client = sess.mcp("clock-plan", env)
    client.greet()
    at = rng.randrange(5)
    for number in range(5):
        if number == at:
            step()
        this = ledger.try_plan("clock-plan")
        answer = client.call("write_session_plan", {"content": plan("clock-plan", this, 100)})
        if answer.is_error:
            raise Broken(f"write_session_plan failed with the clock wrong: {answer.text}, in {sess.home}")
        ledger.planned("clock-plan", this, answer.structured["revision"])
    client.close()
