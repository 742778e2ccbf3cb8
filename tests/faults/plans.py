"""P9: a plan is the old one or the new one, whoever looks, whenever the writer dies.

Two sessions' plans are written over and over by processes that are killed, half of the
time at a chosen I/O call. Beside them the files are read in a tight loop by another
program (plan_reader.py), and through the tool by other processes of ours.
"""

import json
import pathlib
import subprocess
import sys
import threading
import time

from lab import Broken, Lab
from ledger import Ledger, check_plan_file
from material import plan, plan_number
from sess import Gone, Sess, fault

NAME = "plans"
SESSIONS = ("ann", "bob")
SIZES = (60, 700, 5_000, 70_000, 300_000)


def run(lab: Lab) -> str:
    ledger = Ledger()
    home = lab.new_dir("plans")
    sess = Sess(lab, home)
    reads = [0, 0]
    share = lab.figures.plan_kills // len(SESSIONS)
    for session in SESSIONS:
        first = ledger.try_plan(session)
        sess.must("tool", "call", "write_session_plan", json.dumps({"content": plan(session, first, 60)}),
                  "--session", session)
        ledger.planned(session, first, first)
    stop = threading.Event()
    watchers = [threading.Thread(target=watch, args=(lab, sess, session, stop, reads)) for session in SESSIONS]
    outside = lab.start([sys.executable, pathlib.Path(__file__).parent / "plan_reader.py",
                         home / "session_plans", *SESSIONS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for watcher in watchers:
        watcher.start()
    try:
        lab.each(SESSIONS, lambda session: attack(lab, sess, ledger, session, share), len(SESSIONS))
    finally:
        stop.set()
        for watcher in watchers:
            watcher.join()
        told, _ = outside.communicate(timeout=30)
        lab.ended(outside)
    report = json.loads(told)
    reads[1] = report["reads"]
    for finding in report["findings"]:
        lab.found(f"{finding}, in {home}")
    check_old_revisions(lab, sess, ledger)
    return (f"P9 plans: {share * len(SESSIONS):,} kills, {ledger.count:,} revisions acknowledged, "
            f"{reads[0]:,} reads through the tool and {reads[1]:,} of the files, {{lost}}")


def attack(lab: Lab, sess: Sess, ledger: Ledger, session: str, share: int) -> None:
    rng = lab.rng(NAME, session)
    for number in range(share):
        # A write makes some 25 calls; a few writes later the process is gone for certain.
        env = fault(lab, sess.home, n=rng.randrange(1, 120), err="KILL") if number % 2 else None
        client = sess.mcp(session, env)
        killer = threading.Timer(rng.random() * 0.12, client.process.kill)
        try:
            client.greet()
            if env is None:
                killer.start()
            while True:
                next_number = ledger.try_plan(session)
                content = plan(session, next_number, rng.choice(SIZES))
                answer = client.call("write_session_plan", {"content": content})
                if answer.is_error:
                    raise Broken(f"write_session_plan failed without a fault: {answer.text}, in {sess.home}")
                ledger.planned(session, next_number, answer.structured["revision"])
        except Gone:
            pass
        killer.cancel()
        client.kill()
        if number % 10 == 0:
            # The other session is being written meanwhile: what it says next is not stored yet.
            ledger.frozen().check(sess.home)
    check_plan_file(sess, ledger, session)


def watch(lab: Lab, sess: Sess, session: str, stop: threading.Event, reads: list[int]) -> None:
    """Reads the plan through the tool until told to stop; it never goes back."""
    client = sess.mcp(session)
    try:
        client.greet()
        last = 0
        while not stop.is_set():
            answer = client.call("read_session_plan")
            if answer.is_error:
                raise Broken(f"read_session_plan: {answer.text}")
            number = plan_number(answer.text, session)
            if number < last:
                raise Broken(f"read_session_plan went back from {last} to {number}")
            last = number
            reads[0] += 1
            time.sleep(0.002)  # The writers need the processors, too.
    except (Broken, ValueError, Gone) as error:
        lab.found(f"while the writer of {session} was killed: {error!r}, in {sess.home}")
    finally:
        client.close()


def check_old_revisions(lab: Lab, sess: Sess, ledger: Ledger) -> None:
    """Old revisions stay readable, for people, too."""
    stored = ledger.check(sess.home)
    for session in SESSIONS:
        rows = stored.plans[session]
        for revision in {1, len(rows) // 2, len(rows) - 1, len(rows)} - {0}:
            shown = json.loads(sess.must("plan", "show", "--session", session, "--revision", revision, "--json"))
            if shown["content"] != rows[revision - 1][1]:
                lab.found(f"revision {revision} of {session} is shown as something else, in {sess.home}")
