"""P3: the same idempotency key acts once and gets the first answer.

A keyed write is interrupted: by a kill at one of its I/O calls, by a kill at a random
instant, by cutting the request at a byte, by reading only some bytes of the answer.
The client does not know what became of it, and tries again.
"""

import json
import sqlite3
import time

from lab import Broken, Lab
from material import plan
from sess import Answer, Gone, Mcp, Sess, fault, read_answer

NAME = "keys"
WORKERS = 2


def run(lab: Lab) -> str:
    share = -(-lab.figures.keys // WORKERS)
    outcomes = {"heard": 0, "done unheard": 0, "not done": 0}

    def work(worker: int) -> None:
        attack(lab, worker, share, outcomes)

    lab.each(range(WORKERS), work, WORKERS)
    told = ", ".join(f"{count} {name}" for name, count in outcomes.items())
    return f"P3 idempotency: {share * WORKERS:,} interrupted writes ({told}), each retried twice, {{lost}}"


def attack(lab: Lab, worker: int, share: int, outcomes: dict) -> None:
    rng = lab.rng(NAME, worker)
    home = lab.new_dir("keys")
    sess = Sess(lab, home)
    session = f"keys-{worker}"
    calls = count_calls(lab, sess, session)
    for number in range(share):
        # Revisions that have nothing to do with the key: the retry must not answer with them.
        content = plan(session, number, rng.choice((80, 3_000, 60_000)))
        key = f"key-{worker}-{number}"
        ways = (kill_at_call, kill_at_instant, cut_request, cut_answer)
        first = ways[number % len(ways)](lab, sess, session, content, key, rng, calls)
        before = revisions(sess, content)
        if len(before) > 1:
            raise Broken(f"{key}: {len(before)} revisions before the retry, in {home}")
        outcomes["heard" if first else "done unheard" if before else "not done"] += 1
        retry(sess, session, content, key, first, before, rng)
    lab.remove(home)


def count_calls(lab: Lab, sess: Sess, session: str) -> int:
    """Returns how many I/O calls a keyed write makes on a store that exists."""
    sess.must("tool", "call", "write_session_plan", json.dumps({"content": "first"}), "--session", session)
    counted = sess.home.with_suffix(".calls")
    client = sess.mcp(session, fault(lab, sess.home, count=counted))
    client.greet()
    client.call("write_session_plan", {"content": "second"}, "warm-up")
    client.close()
    return int(counted.read_text())


def revisions(sess: Sess, content: str) -> list[int]:
    database = sqlite3.connect(f"file:{sess.home / 'sess.db'}?mode=ro", uri=True, timeout=30)
    try:
        return [row[0] for row in database.execute("SELECT revision FROM plan_revisions WHERE content = ?", (content,))]
    finally:
        database.close()


def retry(sess: Sess, session: str, content: str, key: str, first: Answer | None, before: list[int], rng) -> None:
    if rng.random() < 0.2:
        # The command line has the same keys.
        by_hand = sess.run("tool", "call", "write_session_plan", json.dumps({"content": content}),
                           "--session", session, "--idempotency-key", key)
        if by_hand.code != 0 or (first and by_hand.out.strip() != first.text.strip()):
            raise Broken(f"{key}: first {first}, by hand {by_hand}, in {sess.home}")
    client = sess.mcp(session)
    client.greet()
    # Another write in between must neither change the answer nor be undone by the retry.
    other = None
    if first and rng.random() < 0.5:
        other = plan(session, 1_000_000 + rng.randrange(1_000_000), 200)
        client.call("write_session_plan", {"content": other})
    answers = [client.call("write_session_plan", {"content": content}, key) for _ in range(2)]
    refused = client.call("write_session_plan", {"content": content + "!"}, key)
    read = client.call("read_session_plan").text
    client.close()
    for answer in answers:
        if answer.is_error:
            raise Broken(f"{key}: the retry was refused: {answer.text}, in {sess.home}")
        if (answer.text, answer.structured.get("revision")) != (answers[0].text, answers[0].structured.get("revision")):
            raise Broken(f"{key}: two retries, two answers: {answers}, in {sess.home}")
    if first and (first.text, first.structured.get("revision")) != (answers[0].text, answers[0].structured.get("revision")):
        raise Broken(f"{key}: first {first}, on retry {answers[0]}, in {sess.home}")
    if not refused.is_error or key not in refused.text:
        raise Broken(f"{key}: another body was not refused: {refused.text}, in {sess.home}")
    after = revisions(sess, content)
    if len(after) != 1 or after[0] != answers[0].structured.get("revision", after[0]):
        raise Broken(f"{key}: revisions {after} for one key, answered {answers[0].structured}, in {sess.home}")
    if before and before != after:
        raise Broken(f"{key}: was revision {before}, is {after}, in {sess.home}")
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


def kill_at_call(lab, sess, session, content, key, rng, calls) -> Answer | None:
    client = sess.mcp(session, fault(lab, sess.home, n=rng.randrange(1, calls + 1), err="KILL"))
    try:
        client.greet()
        client.send(client.call_request("write_session_plan", {"content": content}, key))
    except Gone:
        client.kill()
        return None
    return heard(client)


def kill_at_instant(lab, sess, session, content, key, rng, calls) -> Answer | None:
    client = sess.mcp(session)
    client.greet()
    client.send(client.call_request("write_session_plan", {"content": content}, key))
    time.sleep(rng.random() ** 2 * 0.03)
    client.process.kill()
    return heard(client)


def cut_request(lab, sess, session, content, key, rng, calls) -> Answer | None:
    client = sess.mcp(session)
    client.greet()
    line = json.dumps(client.call_request("write_session_plan", {"content": content}, key)).encode() + b"\n"
    client.send_bytes(line[:rng.choice((rng.randrange(len(line)), len(line) - 1, len(line)))])
    client.process.stdin.close()
    return heard(client)


def cut_answer(lab, sess, session, content, key, rng, calls) -> Answer | None:
    client = sess.mcp(session)
    client.greet()
    client.send(client.call_request("write_session_plan", {"content": content}, key))
    client.process.stdout.read(rng.randrange(1, 60))
    client.kill()
    return None
