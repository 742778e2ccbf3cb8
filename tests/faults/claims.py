"""P15: one owner a work session, no claim stuck, no work lost.

Many clones are after the same session at once. Some of them are killed with every git that
they started, on both sides of a push; in some, and at the remote, git left locks before. Whoever has the
session then writes something down and is killed while it gives the session back; another
one takes it, and is killed while it completes it. What was written down has to land.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time

from lab import Broken, Lab
from sess import Done, Sess

NAME = "claims"
# One in this many is killed, and finds locks in its clone.
VICTIMS_OF = 3
# How long a claim takes for each that is after it, and a verb that somebody runs alone.
CLAIM_S, VERB_S = 0.15, 0.6
LIMIT_S = 120
# A push that is killed leaves a lock for each ref that it was to move: the base, the claim, the branch, and HEAD; and
# there may be one that was left before.
LOCKS_MAX = 5
# Every process of an attempt has it in its environment.
MARK = "SESS_FAULTS_MARK"


def run(lab: Lab) -> str:
    place = lab.new_dir("claims")
    clones = prepare(lab, place)
    counts = {"killed": 0, "locks": 0}

    def attack(number: int) -> None:
        try:
            Round(lab, place, clones, number, counts).run()
        except Broken as broken:
            raise Broken(f"round {number}: {broken}, in {place}") from None

    lab.each(range(lab.figures.claims), attack, 1)
    if not lab.findings:
        lab.remove(place)
    return (f"P15 claims: {lab.figures.claims} rounds of {len(clones)} clones after one session, {counts['killed']} killed "
            f"with their git, {counts['locks']} locks left by it removed, {{lost}}")


def prepare(lab: Lab, place: pathlib.Path) -> list[pathlib.Path]:
    git(place, "init", "--quiet", "--bare", "--initial-branch=main", "hub.git")
    clones = [place / f"clone-{number}" for number in range(lab.figures.claim_clones)]
    for clone in [place / "planner", *clones]:
        git(place, "clone", "--quiet", "hub.git", clone.name)
        git(clone, "config", "user.name", clone.name)
        git(clone, "config", "user.email", f"{clone.name}@example.com")
        if clone.name == "planner":
            git(clone, "commit", "--quiet", "--allow-empty", "-m", "first")
            git(clone, "push", "--quiet", "origin", "HEAD:main")
    return clones


class Round:
    def __init__(self, lab: Lab, place: pathlib.Path, clones: list[pathlib.Path], number: int, counts: dict):
        self.lab, self.place, self.clones, self.number, self.counts = lab, place, clones, number, counts
        self.rng = lab.rng(NAME, number)
        self.slug = f"2026-01-31-round-{number}"

    def run(self) -> None:
        self.plan()
        if self.number % 3 == 0:
            self.leave_locks()
        if self.number % 8 == 1:
            # As a push does that is killed when it has moved the branch: nobody moves it again before this is gone.
            (self.place / "hub.git/HEAD.lock").touch()
        owner = self.race()
        self.go_on(owner, "log", "--slug", self.slug, f"written in round {self.number}")
        self.killed(owner, "release", self.slug)
        self.go_on(owner, "release", self.slug, done_before=3)
        heir = self.rng.choice([clone for clone in self.clones if clone != owner])
        # The first one may have been killed when it had given the session back, and it shall not be stuck.
        self.go_on(heir, "claim", self.slug, "--no-workspace")
        self.killed(heir, "complete", self.slug)
        self.go_on(heir, "complete", self.slug, done_before=3)
        self.check_landed()

    def plan(self) -> None:
        planner = self.place / "planner"
        git(planner, "fetch", "--quiet", "origin", "main")
        git(planner, "reset", "--quiet", "--hard", "FETCH_HEAD")
        directory = planner / "_AGENTS/sessions/planned" / self.slug
        directory.mkdir(parents=True)
        text = f"# Round {self.number}\n\n## Context\n\nA race.\n\n## Acceptance Criteria\n\n- [ ] One wins\n"
        (directory / "SESSION.md").write_text(text)
        git(planner, "add", ".")
        git(planner, "commit", "--quiet", "-m", f"plan {self.slug}")
        try:
            git(planner, "push", "--quiet", "origin", "HEAD:main")
        except Broken as refused:
            # A git of the round before was killed at the remote, after what it was there for.
            if not (lock := re.search(r"Unable to create '([^']+\.lock)': File exists", str(refused))):
                raise
            self.remove(pathlib.Path(lock[1]))
            git(planner, "push", "--quiet", "origin", "HEAD:main")

    def leave_locks(self) -> None:
        for clone in self.rng.sample(self.clones, len(self.clones) // VICTIMS_OF):
            for name in ("base", f"claims/{self.slug}"):
                lock = clone / f".git/refs/intersession/seen/{name}.lock"
                lock.parent.mkdir(parents=True, exist_ok=True)
                lock.touch()

    def race(self) -> pathlib.Path:
        """Has everybody claim at once, and kills some of them; returns whoever has the session."""
        running = [self.start(clone, "claim", self.slug, "--no-workspace", "--json") for clone in self.clones]
        victims = self.rng.sample(self.clones, len(self.clones) // VICTIMS_OF)
        within_s = CLAIM_S * len(self.clones)
        killers = [threading.Thread(target=self.kill, args=(clone, self.rng.uniform(0.0, within_s)))
                   for clone in victims]
        for killer in killers:
            killer.start()
        ended = {clone: self.finish(clone, process, "claim") for clone, process in zip(self.clones, running)}
        for killer in killers:
            killer.join()
        winners = [clone for clone, done in ended.items() if done.code == 0]
        if len(winners) > 1:
            raise Broken(f"{len(winners)} have {self.slug}: {', '.join(clone.name for clone in winners)}")
        for clone, done in ended.items():
            # A git of a victim's may be killed before the victim is, which says then that it got no answer.
            if clone not in victims and done.code not in (0, 4, -signal.SIGKILL) and not advice(done):
                raise Broken(f"{clone.name} neither has it nor knows who does: {done.told[-400:]}")
        judge = self.rng.choice([clone for clone in self.clones if clone not in victims])
        holder = self.show(judge).get("holder")
        if winners and (holder is None or holder["name"] != winners[0].name):
            raise Broken(f"{winners[0].name} was told that it has {self.slug}, and {holder} has it")
        # Whoever was killed when it had the session goes on with it; when nobody has it, anybody can.
        owner = self.place / holder["name"] if holder else judge
        told = json.loads(self.go_on(owner, "claim", self.slug, "--no-workspace", "--json").out)
        if told["resumed"] != bool(holder):
            raise Broken(f"{owner.name} claimed {self.slug} anew though {holder} had it")
        return owner

    def check_landed(self) -> None:
        path = f"_AGENTS/sessions/completed/{self.slug}/worklog.md"
        text = git(self.place / "hub.git", "show", f"main:{path}")
        if f"written in round {self.number}\n" not in text:
            raise Broken(f"what was written down is not in {path}: {text[-300:]}")

    def show(self, clone: pathlib.Path) -> dict:
        return json.loads(self.go_on(clone, "show", self.slug, "--json").out)

    def killed(self, clone: pathlib.Path, *verb: str) -> None:
        process = self.start(clone, *verb)
        self.kill(clone, self.rng.uniform(0.0, VERB_S))
        self.finish(clone, process, verb[0])

    def go_on(self, clone: pathlib.Path, *verb: str, done_before: int | None = None) -> Done:
        """Runs a verb as a person would who does what an error says; it has to succeed, or to be done already."""
        for _ in range(1 + LOCKS_MAX):
            done = self.finish(clone, self.start(clone, *verb), verb[0])
            if done.code == 0 or done.code == done_before:
                return done
            if not (lock := advice(done)):
                break
            self.remove(lock)
        raise Broken(f"{clone.name} cannot go on with {' '.join(verb)}: {done.told[-400:]}")

    def remove(self, lock: pathlib.Path) -> None:
        lock.unlink(missing_ok=True)
        self.counts["locks"] += 1

    def sess(self, clone: pathlib.Path) -> Sess:
        return Sess(self.lab, clone / ".git/home")

    def start(self, clone: pathlib.Path, *verb: str) -> subprocess.Popen:
        return self.sess(clone).start("work", *verb, cwd=clone, env={MARK: f"{self.number}-{clone.name}."},
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def finish(self, clone: pathlib.Path, process: subprocess.Popen, verb: str) -> Done:
        return self.sess(clone).finish(process, f"sess work {verb}", LIMIT_S, may_be_killed=True)

    def kill(self, clone: pathlib.Path, after_s: float) -> None:
        """Ends an attempt with every git that works for it, at the remote, too."""
        time.sleep(after_s)
        mark = f"{MARK}={self.number}-{clone.name}.".encode()
        is_killed = False
        while pids := [pid for pid in processes() if mark in environment_of(pid)]:
            is_killed = True
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # It ended by itself.
            time.sleep(0.005)
        self.counts["killed"] += is_killed


def advice(done: Done) -> pathlib.Path | None:
    """Returns the lock that an error says to remove."""
    found = re.search(r"run `rm '?([^`']+\.lock)'?`", done.err)
    return pathlib.Path(found[1]) if found else None


def processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def environment_of(pid: int) -> bytes:
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""  # It ended, or belongs to somebody else; one that ended and is waited for has none.


def git(directory: pathlib.Path, *arguments: str) -> str:
    known = {"PATH": os.environ["PATH"], "HOME": str(directory), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *arguments], cwd=directory, env=known, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Broken(f"git {' '.join(arguments[:3])}: {done.stderr.strip()[-1000:]}")
    return done.stdout
