"""P6: a wait never reports failure for a committed success, and a lost wait resumes by its run id.

Senders wait a second for a reply that is stored a moment before or after their time is
over. Whoever is told of a time-out gets the reply later, once; whoever gets it in time
gets it then, and not again. Waiters that are killed ask again by the id of the run.
"""

import collections
import json
import threading
import time

from lab import Broken, Lab
from nodes import ask_store
from sess import Mcp, Sess, read_answer

NAME = "waits"
SENDERS = 25
WAIT_S = 1
# The reply is aimed at the time-out, give or take this.
JITTER_S = 0.02
PATIENCE_S = 30.0
RULES = {"tools": {"sessions": {"visibility": "all"}, "agentToAgent": {"enabled": True}}}


def run(lab: Lab) -> str:
    tally = collections.Counter()
    lock = threading.Lock()

    def note(counts: collections.Counter) -> None:
        with lock:
            tally.update(counts)

    lab.each(range(max(1, lab.figures.waits // SENDERS)), lambda number: note(round_of(lab, number)), workers=2)
    lab.each(range(max(1, lab.figures.waits // 20)), lambda number: note(resumed(lab, number)))
    return (f"P6 waits: {tally['ok']:,} replies in time and {tally['timeout']:,} late ones, aimed at the time-out, "
            f"{tally['resumed']:,} waiters killed that asked again, {{lost}}")


def open_home(lab: Lab) -> Sess:
    home = lab.new_dir("waits")
    config = home.with_suffix(".yaml")
    config.write_text(json.dumps(RULES))
    return Sess(lab, home, {"SESS_CONFIG": str(config)})


def host(sess: Sess, name: str) -> Mcp:
    client = Mcp(sess, name)
    client.greet()
    client.call("sessions_list")
    return client


def round_of(lab: Lab, number: int) -> collections.Counter:
    rng = lab.rng(NAME, number)
    sess = open_home(lab)
    target = host(sess, "target")
    senders = [host(sess, f"sender-{n}") for n in range(SENDERS)]
    begun = []
    for sender in senders:
        begun.append(time.monotonic())
        sender.send(sender.call_request("sessions_send", {
            "sessionKey": "target", "message": "Now?", "timeoutSeconds": WAIT_S}))
    waiting = read_inbox(target, SENDERS, sess)
    order = sorted(range(SENDERS), key=lambda n: begun[n])
    for n in order:
        at = begun[n] + WAIT_S + rng.uniform(-JITTER_S, JITTER_S)
        time.sleep(max(0.0, at - time.monotonic()))
        answer = target.call("sessions_reply", {"runId": waiting[f"sender-{n}"], "message": f"Now, {n}."})
        if answer.is_error:
            raise Broken(f"a reply was refused: {answer.text}, in {sess.home}")
    tally = collections.Counter()
    for n, sender in enumerate(senders):
        told = read_answer(sender.receive()).structured
        late = sender.call("sessions_inbox").structured["messages"]
        again = sender.call("sessions_inbox").structured["messages"]
        tally[told["status"]] += 1
        # What wants no reply is handed out again once; it is still one message.
        later = {message["runId"]: message["message"] for message in late + again}
        words = [told.get("reply"), *later.values()]
        if words.count(f"Now, {n}.") != 1 or told["status"] not in ("ok", "timeout"):
            raise Broken(f"a sender was told {told} and then {late}, {again}, in {sess.home}")
        if told["status"] == "ok" and told["delivery"] != "replied":
            raise Broken(f"a reply with the delivery {told['delivery']}, in {sess.home}")
    for client in (target, *senders):
        client.close()
    lab.remove(sess.home)
    return tally


def read_inbox(target: Mcp, expected: int, sess: Sess) -> dict[str, str]:
    """Returns the run of each sender."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        found = target.call("sessions_inbox", {"limit": 100}).structured["messages"]
        if len(found) == expected:
            return {message["from"].split(":")[-1]: message["runId"] for message in found}
        time.sleep(0.01)
    raise Broken(f"the inbox never had {expected} messages, in {sess.home}")


def resumed(lab: Lab, number: int) -> collections.Counter:
    rng = lab.rng(NAME, "resumed", number)
    sess = open_home(lab)
    target, sender = host(sess, "target"), host(sess, "sender")
    sender.send(sender.call_request("sessions_send", {
        "sessionKey": "target", "message": "Later?", "timeoutSeconds": 30}))
    run = read_inbox(target, 1, sess)["sender"]
    time.sleep(rng.random() * 0.1)
    sender.kill()
    waiter = sess.start("wait", "--json", run, stdout=-1, stderr=-1)
    if rng.random() < 0.5:
        time.sleep(rng.random() * 0.1)
        lab.kill(waiter)
        lab.ended(waiter)
        waiter = sess.start("wait", "--json", run, stdout=-1, stderr=-1)
    time.sleep(rng.random() * 0.1)
    if target.call("sessions_reply", {"runId": run, "message": "Later."}).is_error:
        raise Broken(f"the reply was refused, in {sess.home}")
    if not target.call("sessions_reply", {"runId": run, "message": "Twice."}).is_error:
        raise Broken(f"a second reply was taken, in {sess.home}")
    out, err = waiter.communicate(timeout=PATIENCE_S)
    lab.ended(waiter)
    told = json.loads(out)
    if waiter.returncode != 0 or "Later." not in json.dumps(told):
        raise Broken(f"the second wait ended with {waiter.returncode}: {told} {err[-300:]}, in {sess.home}")
    target.close()
    if ask_store(sess.home, "SELECT count(*) FROM runs WHERE state = 'done' AND result = 'Later.'") != [(1,)]:
        raise Broken(f"the reply is not stored once, in {sess.home}")
    lab.remove(sess.home)
    return collections.Counter(["resumed"])
