"""P3: the same idempotency key acts once and gets the first answer.

A keyed write of a plan, or a keyed message to another session, is interrupted: by a kill
at one of its I/O calls, by a kill at a random instant, by cutting the request at a byte,
by reading only some bytes of the answer. The client does not know what became of it, and
tries again.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from lab import Broken, Lab
from material import plan
from nodes import ask_store
from sess import Answer, Gone, Mcp, Sess, fault, read_answer

NAME = "keys"
WORKERS = 2
RULES = {"tools": {"sessions": {"visibility": "agent"}}, "session": {"maxQueue": 10_000}}
# Nobody answers them, and a session takes only so many.
MESSAGES_PER_TARGET = 1_000


@dataclass(frozen=True)
class Act:
    """Something that a key makes happen once."""

    tool: str
    arguments: Callable[[str], dict]
    # What the store has of it, as the answer names it.
    done: Callable[[Sess, str], list]
    named: str


def write() -> Act:
    def done(sess: Sess, content: str) -> list:
        return [revision for revision, in ask_store(
            sess.home, "SELECT revision FROM plan_revisions WHERE content = ?", content)]

    return Act("write_session_plan", lambda content: {"content": content}, done, "revision")


def message(target: str) -> Act:
    def arguments(content: str) -> dict:
        return {"sessionKey": target, "message": content, "timeoutSeconds": 0}

    def done(sess: Sess, content: str) -> list:
        return [run for run, in ask_store(
            sess.home, "SELECT id FROM runs WHERE json_extract(errand, '$.request') = ?", content)]

    return Act("sessions_send", arguments, done, "runId")


def run(lab: Lab) -> str:
    share = -(-lab.figures.keys // WORKERS)
    outcomes = {"heard": 0, "done unheard": 0, "not done": 0}

    def work(worker: int) -> None:
        attack(lab, worker, share, outcomes)

    lab.each(range(WORKERS), work, WORKERS)
    told = ", ".join(f"{count} {name}" for name, count in outcomes.items())
    return (f"P3 idempotency: {share * WORKERS:,} interrupted writes, half plans, half messages ({told}), "
            "each retried twice, {lost}")


def attack(lab: Lab, worker: int, share: int, outcomes: dict) -> None:
    rng = lab.rng(NAME, worker)
    home = lab.new_dir("keys")
    config = home.with_suffix(".yaml")
    config.write_text(json.dumps(RULES))
    sess = Sess(lab, home, {"SESS_CONFIG": str(config)})
    session = f"keys-{worker}"
    ways = (kill_at_call, kill_at_instant, cut_request, cut_answer)
    open_target(sess, "target-0")
    calls = {act.tool: count_calls(lab, sess, session, act) for act in (write(), message("target-0"))}
    for number in range(share):
        is_message = number // len(ways) % 2 == 1
        if number % MESSAGES_PER_TARGET == 0:
            open_target(sess, f"target-{number // MESSAGES_PER_TARGET}")
        act = message(f"target-{number // MESSAGES_PER_TARGET}") if is_message else write()
        # Revisions that have nothing to do with the key: the retry must not answer with them.
        content = plan(session, number, rng.choice((80, 3_000, 60_000)))
        key = f"key-{worker}-{number}"
        first = ways[number % len(ways)](lab, sess, session, act, content, key, rng, calls[act.tool])
        before = act.done(sess, content)
        if len(before) > 1:
            raise Broken(f"{key}: done {len(before)} times before the retry, in {home}")
        outcomes["heard" if first else "done unheard" if before else "not done"] += 1
        retry(sess, session, act, content, key, first, before, rng)
    lab.remove(home)


def open_target(sess: Sess, name: str) -> None:
    """Makes a session that takes messages and answers none."""
    client = sess.mcp(name)
    client.greet()
    client.call("sessions_inbox")
    client.close()


def count_calls(lab: Lab, sess: Sess, session: str, act: Act) -> int:
    """Returns how many I/O calls it takes on a store that exists."""
    sess.must("tool", "call", act.tool, json.dumps(act.arguments("first")), "--session", session)
    counted = sess.home.with_suffix(".calls")
    client = sess.mcp(session, fault(lab, sess.home, count=counted))
    client.greet()
    client.call(act.tool, act.arguments("second"), f"warm-up-{act.tool}")
    client.close()
    return int(counted.read_text())


def retry(sess: Sess, session: str, act: Act, content: str, key: str, first: Answer | None, before: list,
          rng) -> None:
    if rng.random() < 0.2:
        # The command line has the same keys.
        by_hand = sess.run("tool", "call", act.tool, json.dumps(act.arguments(content)),
                           "--session", session, "--idempotency-key", key)
        if by_hand.code != 0 or (first and by_hand.out.strip() != first.text.strip()):
            raise Broken(f"{key}: first {first}, by hand {by_hand}, in {sess.home}")
    client = sess.mcp(session)
    client.greet()
    # Another write in between must neither change the answer nor be undone by the retry.
    other = None
    if first and rng.random() < 0.5:
        other = plan(session, 1_000_000 + rng.randrange(1_000_000), 200)
        client.call(act.tool, act.arguments(other))
    answers = [client.call(act.tool, act.arguments(content), key) for _ in range(2)]
    refused = client.call(act.tool, act.arguments(content + "!"), key)
    read = client.call("read_session_plan").text if act.tool == "write_session_plan" else other or content
    client.close()
    for answer in answers:
        if answer.is_error:
            raise Broken(f"{key}: the retry was refused: {answer.text}, in {sess.home}")
        if (answer.text, answer.structured.get(act.named)) != (answers[0].text, answers[0].structured.get(act.named)):
            raise Broken(f"{key}: two retries, two answers: {answers}, in {sess.home}")
    if first and (first.text, first.structured.get(act.named)) != (answers[0].text, answers[0].structured.get(act.named)):
        raise Broken(f"{key}: first {first}, on retry {answers[0]}, in {sess.home}")
    if not refused.is_error or key not in refused.text:
        raise Broken(f"{key}: another body was not refused: {refused.text}, in {sess.home}")
    after = act.done(sess, content)
    if act.done(sess, content + "!"):
        raise Broken(f"{key}: what was refused was done, in {sess.home}")
    if len(after) != 1 or after[0] != answers[0].structured.get(act.named):
        raise Broken(f"{key}: {act.named} {after} for one key, answered {answers[0].structured}, in {sess.home}")
    if before and before != after:
        raise Broken(f"{key}: was {act.named} {before}, is {after}, in {sess.home}")
    newest = other or content
    if read != newest:
        raise Broken(f"{key}: the plan is {read[:40]!r}, the newest write was {newest[:40]!r}, in {sess.home}")


# --- Ways to interrupt; each returns the answer if the client heard it ---

def heard(client: Mcp) -> Answer | None:
    try:
        return read_answer(client.receive())
    except Gone:
        return None
    finally:
        client.kill()


def kill_at_call(lab, sess, session, act, content, key, rng, calls) -> Answer | None:
    client = sess.mcp(session, fault(lab, sess.home, n=rng.randrange(1, calls + 1), err="KILL"))
    try:
        client.greet()
        client.send(client.call_request(act.tool, act.arguments(content), key))
    except Gone:
        client.kill()
        return None
    return heard(client)


def kill_at_instant(lab, sess, session, act, content, key, rng, calls) -> Answer | None:
    client = sess.mcp(session)
    client.greet()
    client.send(client.call_request(act.tool, act.arguments(content), key))
    time.sleep(rng.random() ** 2 * 0.03)
    client.process.kill()
    return heard(client)


def cut_request(lab, sess, session, act, content, key, rng, calls) -> Answer | None:
    client = sess.mcp(session)
    client.greet()
    line = json.dumps(client.call_request(act.tool, act.arguments(content), key)).encode() + b"\n"
    client.send_bytes(line[:rng.choice((rng.randrange(len(line)), len(line) - 1, len(line)))])
    client.process.stdin.close()
    return heard(client)


def cut_answer(lab, sess, session, act, content, key, rng, calls) -> Answer | None:
    client = sess.mcp(session)
    client.greet()
    client.send(client.call_request(act.tool, act.arguments(content), key))
    client.process.stdout.read(rng.randrange(1, 60))
    client.kill()
    return None
