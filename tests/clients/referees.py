"""Lets the vendors' own programs judge what `sess` lists and prints of their sessions.

usage: referees.py path/to/sess [referee…]

Each referee looks at two homes: one with the committed samples, and one in which its own agent has just talked to a
model that follows a script, with tool calls, sub-agents, and sessions that were resumed, forked, compacted, taken back,
renamed and archived. What the vendor lists (ids, titles, directories) and prints (words and calls, in their order) has
to be what `sess list` and `sess read` print. What was said before a compaction has to be in ours, also where the vendor
leaves it out.
"""

import contextlib
import json
import os
import queue
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from hosts import CLIENTS, HOSTS, PATIENCE_S, Home, check, program, side_by_side
from model import Model

SAMPLES = Path(__file__).parents[2] / "crates/sess-readers/tests/agent-homes"
SUMMARY = "Summary of all that."
COMPACTION = ("compaction", "")


def reply(said):
    """`Question one.` is answered by `Answer one.`; whoever asks something else wants a summary or a title."""
    asked = re.findall(r"Question (\w+)", said)
    return f"Answer {asked[-1]}." if asked else SUMMARY


def calls(tool, helper):
    """The script: a prompt may ask for a tool, or for a sub-agent."""

    def script(said):
        return [tool] if "Use the tool." in said else [helper] if "Ask a helper." in said else []

    return script


def joined(lines):
    """Words of one speaker that nothing stands between are one text, whoever cut them; white space does not count."""
    result = []
    for kind, text in lines:
        text = " ".join(text.split())
        if kind in ("user", "assistant") and result and result[-1][0] == kind:
            result[-1] = (kind, f"{result[-1][1]} {text}".strip())
        elif text or kind == "compaction":
            result.append((kind, text))
    return result


class Session:
    """What somebody says that a session is.

    `lines` are ("user", words), ("assistant", words), ("call", tool) and COMPACTION, oldest first; `children` has the
    lines of sub-agents by their id.
    """

    def __init__(self, title, directory, lines, children):
        self.title = " ".join((title or "").split())
        self.directory = directory
        self.lines = joined(lines)
        self.children = {name: joined(lines) for name, lines in children.items()}

    def whole(self):
        """All of it, as if nothing had been compacted."""
        return joined([line for line in self.lines if line != COMPACTION])

    def since_compaction(self):
        compactions = [at for at, line in enumerate(self.lines) if line == COMPACTION]
        return self.lines[compactions[-1] + 1 :] if compactions else self.lines


HEADING = re.compile(
    r"^(?:## (user|assistant|tool result|end of sub-session)|## sub-session (\S+) \(.*\)|(\[context compacted here\]))$",
    re.M,
)


def parse(title, directory, transcript):
    """Reads a transcript as `sess read` prints it."""
    headings = list(HEADING.finditer(transcript))
    ends = [heading.start() for heading in headings[1:]] + [len(transcript)]
    # The sub-sessions that are open, the innermost last.
    within, children = [("", [])], {}
    for heading, end in zip(headings, ends):
        name, lines = within[-1]
        if heading[2]:
            within.append((heading[2], []))
        elif heading[3]:
            lines.append(COMPACTION)
        elif heading[1] == "end of sub-session":
            children[name] = lines
            within.pop()
        elif heading[1] != "tool result":
            for line in transcript[heading.end() : end].split("\n"):
                call = re.match(r"→ called tool `(.*?)`", line)
                lines.append(("call", call[1]) if call else (heading[1], line))
    return Session(title, directory, within[0][1], children)


class Ours:
    """What `sess` says."""

    def __init__(self, home, source):
        self.home, self.source = home, source
        shown = {self.native(row) for row in self.list()}
        rows = self.list("--archived")
        self.sessions = {self.native(row): self.read(row) for row in rows}
        self.archived = set(self.sessions) - shown

    def ask(self, *arguments):
        return json.loads(self.home.run([self.home.sess, "--json", "--no-redact", *arguments]))

    def list(self, *options):
        return self.ask("list", "--source", self.source, "--limit", "100", *options)["sessions"]

    def native(self, row):
        return row["id"].removeprefix(f"{self.source}:")

    def read(self, row):
        answer = self.ask("read", row["id"])
        check(answer["omitted"] == 0 and not answer.get("damaged"), f"{row['id']} is not read to its end: {answer}")
        return parse(row["title"], row.get("cwd"), answer["transcript"])


class Referee:
    """What is the same for all of them; `theirs` returns the vendor's sessions by their ids."""

    def __init__(self, sess, root):
        self.sess, self.root = sess, Path(root)
        self.sessions = self.messages = 0

    def home(self, name):
        (self.root / name).mkdir()
        return Home(self.sess, self.root / name)

    def with_samples(self, name):
        home = self.home("samples")
        shutil.copytree(SAMPLES / name, home.home, dirs_exist_ok=True)
        return home

    def compare(self, home):
        """Compares all that is in a home; returns what we say of it, and what they say."""
        # We come first: vendors write into their files also when they are only asked.
        ours = Ours(home, self.name)
        theirs, archived = self.theirs(home)
        check(set(ours.sessions) == set(theirs), f"we list {sorted(ours.sessions)}, they list {sorted(theirs)}")
        check(ours.archived == set(archived), f"archived are {ours.archived} for us, {archived} for them")
        helpers = {name: lines for their in theirs.values() for name, lines in their.children.items()}
        for id, their in theirs.items():
            our = ours.sessions[id]
            check(our.title == their.title, f"{id} is called {our.title!r} by us, {their.title!r} by them")
            check(our.directory == their.directory, f"{id} is in {our.directory} for us, in {their.directory} for them")
            self.same(id, self.shown(our, their), their.lines)
            # A fork shows what the sub-agents did before it; not every vendor knows them there.
            missing = set(their.children) - set(our.children)
            check(not missing, f"{id} lacks what these sub-agents did: {missing}")
            for name, lines in our.children.items():
                check(name in helpers, f"{id} has a sub-agent that they know nothing of: {name}")
                self.same_helper(f"{id}, sub-agent {name}", lines, helpers[name])
            self.sessions += 1
        return ours.sessions, theirs

    def shown(self, our, their):
        """What of ours the vendor prints as well."""
        return our.whole()

    def check_forgotten(self, model, our):
        """What the agent itself has no more since its compaction is in ours."""
        last = [request for request in model.heard if "Question four." in request][-1]
        check("Answer one." not in last, f"it was not compacted away: {last}")
        check(COMPACTION in our.lines, f"no compaction is shown: {our.lines}")
        before = our.lines[: our.lines.index(COMPACTION)]
        check(("assistant", "Answer one.") in before, f"what was said before the compaction is not in {before}")

    def same_helper(self, what, ours, theirs):
        self.same(what, ours, theirs)

    def same(self, what, ours, theirs):
        listing = lambda lines: "".join(f"\n    {kind}: {text[:200]}" for kind, text in lines)
        check(ours == theirs, f"{what}: we print{listing(ours)}\n  they print{listing(theirs)}")
        self.messages += sum(kind != "call" for kind, _ in theirs)


class Claude(Referee):
    """Claude Code makes the sessions, the Agent SDK judges: it leaves out what stands before a compaction."""

    name = "claude"
    TOOL = ("Bash", {"command": "echo measured", "description": "Measure"})
    TASK = {"description": "Help", "prompt": "Question helper.", "subagent_type": "general-purpose"}
    HELPER = ("Agent", {**TASK, "run_in_background": False})
    LOOK = """
        const sessions = await sdk.listSessions();
        for (const session of sessions) {
            session.messages = await sdk.getSessionMessages(session.sessionId);
            session.helpers = {};
            for (const id of await sdk.listSubagents(session.sessionId))
                session.helpers[`agent-${id}`] = await sdk.getSubagentMessages(session.sessionId, id);
        }
        print(sessions);
    """

    # What Claude Code says in the person's place: the summary of what was compacted, and notes on its own commands.
    FOR_THE_MODEL = r"This session is being continued from|<(command-name|local-command-\w+|task-notification)>"

    def run(self):
        home = self.with_samples("claude-code")
        ours, theirs = self.compare(home)
        self.check_before(ours, theirs, "5b0c1f62-6c0e-4a8e-9d53-2f1f0f6a1c01", "Why does refresh token rotation fail")

        home = self.home("made")
        model = Model(calls(self.TOOL, self.HELPER), reply)
        self.host = HOSTS["claude"](home, model)
        one = self.talk(home, "Question one. Use the tool.")
        self.talk(home, "Question two. Ask a helper.", "--resume", one)
        forked = self.talk(home, "Question three.", "--resume", one, "--fork-session")
        self.talk(home, "/compact", "--resume", one)
        self.talk(home, "Question four.", "--resume", one)
        two = self.talk(home, "Question five.")
        self.talk(home, "Question six.", "--resume", two)
        _, answer, *_ = self.sdk(home, f"print(await sdk.getSessionMessages('{two}'))")
        self.talk(home, "Question seven.", "--resume", two, "--resume-session-at", answer["uuid"])
        copied = self.sdk(home, f"print((await sdk.forkSession('{forked}')).sessionId)")
        self.sdk(home, f"await sdk.renameSession('{two}', 'Called so by me'); print(null)")
        self.sdk(home, f"await sdk.archiveSession('{copied}'); print(null)")
        model.close()
        ours, theirs = self.compare(home)
        check(set(ours) == {one, two, forked, copied}, f"made {one, two, forked, copied}, listed {set(ours)}")
        self.check_before(ours, theirs, one, "Question one")
        self.check_forgotten(model, ours[one])
        check(ours[two].title == "Called so by me", f"{two} is called {ours[two].title!r}")
        check("Question six." not in str(ours[two].lines), f"what was taken back is shown: {ours[two].lines}")
        check(len(ours[one].children) == 1, f"the helper is not shown: {ours[one].lines}")

    def talk(self, home, prompt, *options):
        command = [program("claude"), "-p", prompt, "--output-format", "json", "--dangerously-skip-permissions"]
        answer = json.loads(home.run([*command, *options], self.host.env))
        answer = answer[-1] if isinstance(answer, list) else answer
        return answer["session_id"]

    def sdk(self, home, text):
        package = CLIENTS / "claude-sdk/node_modules/@anthropic-ai/claude-agent-sdk"
        self.version = json.loads((package / "package.json").read_text())["version"]
        head = f"import * as sdk from '{package}/sdk.mjs'; const print = (it) => console.log(JSON.stringify(it));"
        return json.loads(home.run(["node", "--input-type=module", "--eval", head + text]))

    def theirs(self, home):
        looked = self.sdk(home, self.LOOK)
        sessions = {}
        for session in looked:
            helpers = {name: self.lines(messages) for name, messages in session["helpers"].items()}
            lines = self.lines(session["messages"])
            sessions[session["sessionId"]] = Session(session["summary"], session.get("cwd"), lines, helpers)
        return sessions, {session["sessionId"] for session in looked if session.get("archived")}

    def lines(self, messages):
        lines = []
        for message in messages:
            content = message["message"]["content"]
            for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                if part["type"] == "text" and not re.match(self.FOR_THE_MODEL, part["text"]):
                    lines.append((message["type"], part["text"]))
                elif part["type"] == "tool_use":
                    lines.append(("call", part["name"]))
        return lines

    def shown(self, our, their):
        if COMPACTION not in our.lines:
            return our.whole()
        # All since the last compaction, with the last words before it when the compaction kept them.
        return our.whole()[-max(len(their.lines), len(our.since_compaction())) :]

    def check_before(self, ours, theirs, id, words):
        """What was said before a compaction is in ours, and not in theirs."""
        lines = ours[id].lines
        check(COMPACTION in lines, f"{id} has no compaction")
        check(any(words in text for _, text in lines[: lines.index(COMPACTION)]), f"{words!r} is not in {lines}")
        check(not any(words in text for _, text in theirs[id].lines), f"{words!r} is in theirs: {theirs[id].lines}")


class AppServer:
    """Codex's program for editors: requests and answers, a line each."""

    def __init__(self, home, env):
        self.process = subprocess.Popen(
            [program("codex"), "app-server"],
            cwd=home.cwd, env=home.env | env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True,
        )
        self.said = queue.Queue()
        self.ids = 0
        threading.Thread(target=self.listen, daemon=True).start()
        self.ask("initialize", clientInfo={"name": "referee", "version": "1"}, capabilities={"experimentalApi": True})
        self.send({"method": "initialized"})

    def listen(self):
        for line in self.process.stdout:
            self.said.put(json.loads(line))
        self.said.put(None)

    def send(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def wait(self, fits):
        end = time.monotonic() + PATIENCE_S
        while True:
            message = self.said.get(timeout=max(0.1, end - time.monotonic()))
            check(message is not None, "codex app-server ended by itself")
            if fits(message):
                return message

    def ask(self, method, **params):
        self.ids += 1
        self.send({"id": self.ids, "method": method, "params": params})
        answer = self.wait(lambda message: message.get("id") == self.ids and "method" not in message)
        check("result" in answer, f"{method} was answered by {answer}")
        return answer["result"]

    def turn(self, method, thread, **params):
        """Begins a turn, and waits for its end."""
        self.ask(method, threadId=thread, **params)
        ended = lambda message: message.get("method") == "turn/completed" and message["params"]["threadId"] == thread
        turn = self.wait(ended)["params"]["turn"]
        check(turn["status"] == "completed", f"{method} ended so: {turn}")
        return turn

    def close(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)


class Codex(Referee):
    """Codex makes the sessions; a later process of its own, which has only the files, judges."""

    name = "codex"
    TOOL = ("exec_command", {"cmd": "echo measured"})
    HELPER = ("spawn_agent", {"message": "Question helper."})
    KINDS = ["cli", "vscode", "exec", "appServer", "subAgent", "subAgentThreadSpawn", "subAgentOther", "unknown"]

    def run(self):
        self.version = json.loads((CLIENTS / "codex/node_modules/@openai/codex/package.json").read_text())["version"]
        home = self.with_samples("codex")
        # Only a database that Codex made itself is good enough for it; it makes another one of the files.
        (home.home / ".codex/state_5.sqlite").unlink()
        self.compare(home)

        home = self.home("made")
        model = Model(calls(self.TOOL, self.HELPER), reply)
        self.host = HOSTS["codex"](home, model)
        server = AppServer(home, self.host.env)
        free = {"approvalPolicy": "never", "sandbox": "danger-full-access", "cwd": str(home.cwd)}
        one = server.ask("thread/start", **free)["thread"]["id"]
        self.say(server, one, "Question one. Use the tool.")
        self.say(server, one, "Question two.")
        forked = server.ask("thread/fork", threadId=one, **free)["thread"]["id"]
        self.say(server, forked, "Question three.")
        server.turn("thread/compact/start", one)
        self.say(server, one, "Question four.")
        server.ask("thread/name/set", threadId=one, name="Called so by me")
        server.close()
        command = [program("codex"), "exec", "--skip-git-repo-check", "--json"]
        said = home.run([*command, "Question five."], self.host.env)
        two = next(event["thread_id"] for event in map(json.loads, said.splitlines()) if "thread_id" in event)
        home.run([*command, "resume", two, "Question six."], self.host.env)
        model.close()
        ours, _ = self.compare(home)
        check(set(ours) == {one, two, forked}, f"made {one, two, forked}, listed {set(ours)}")
        self.check_forgotten(model, ours[one])
        check(ours[one].title == "Called so by me", f"{one} is called {ours[one].title!r}")

    def say(self, server, thread, words):
        server.turn("turn/start", thread, input=[{"type": "text", "text": words, "text_elements": []}])

    def theirs(self, home):
        server = AppServer(home, {"SCRIPT_KEY": "none"})
        sessions, archived = {}, set()
        for is_archived in (False, True):
            options = {"archived": is_archived, "sourceKinds": self.KINDS, "modelProviders": [], "limit": 100}
            for thread in server.ask("thread/list", **options)["data"]:
                items = self.items(server, thread["id"], is_archived)
                helpers = {}
                for item in items:
                    for id in item.get("receiverThreadIds") or [item.get("agentThreadId")]:
                        if id:
                            helpers[id] = self.lines(self.items(server, id, is_archived))
                title = thread["name"] or thread["preview"]
                sessions[thread["id"]] = Session(title, thread["cwd"], self.lines(items), helpers)
                archived |= {thread["id"]} if is_archived else set()
        server.close()
        return sessions, archived

    def items(self, server, thread, is_archived):
        """All that was said and done: whoever resumes a thread is shown that; an archived one cannot be resumed."""
        if is_archived:
            turns = server.ask("thread/read", threadId=thread, includeTurns=True)["thread"]["turns"]
        else:
            turns = server.ask("thread/resume", threadId=thread)["thread"]["turns"]
        return [item for turn in turns for item in turn["items"]]

    def same(self, what, ours, theirs):
        # Of older files it prints the words alone.
        if not any(kind == "call" for kind, _ in theirs):
            ours = joined([line for line in ours if line[0] != "call"])
        super().same(what, ours, theirs)

    def same_helper(self, what, ours, theirs):
        """It may print nothing of what a sub-agent did."""
        check(ours, f"{what} did nothing")
        if theirs:
            self.same(what, ours, theirs)

    def lines(self, items):
        lines = []
        for item in items:
            match item["type"]:
                case "userMessage":
                    lines += [("user", part["text"]) for part in item["content"] if part["type"] == "text"]
                case "agentMessage":
                    lines.append(("assistant", item["text"]))
                case "plan":
                    lines.append(("assistant", f"<proposed_plan>\n{item['text'].strip()}\n</proposed_plan>"))
                case "commandExecution":
                    lines.append(("call", "exec_command"))
                case "fileChange":
                    lines.append(("call", "apply_patch"))
                case "mcpToolCall":
                    lines.append(("call", f"mcp__{item['server']}__{item['tool']}"))
                case "collabAgentToolCall":
                    lines.append(("call", re.sub("([A-Z])", r"_\1", item["tool"]).lower()))
        return lines


class OpencodeServer:
    def __init__(self, home, env):
        # What is on the path is a script that starts the program: both have to end.
        self.process = subprocess.Popen(
            [program("opencode"), "serve", "--hostname", "127.0.0.1", "--port", "0"],
            cwd=home.cwd, env=home.env | env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True,
        )
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if found := re.search(r"http://[0-9.:]+", line):
                self.url = found[0]
                return
        raise AssertionError(f"opencode did not start: {lines}")

    def ask(self, method, path, **body):
        data = json.dumps(body).encode() if method != "GET" else None
        request = urllib.request.Request(self.url + path, data=data, method=method)
        request.add_header("content-type", "application/json")
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)


class Opencode(Referee):
    """opencode makes the sessions, and judges what is left of them when it has ended."""

    name = "opencode"
    TOOL = ("bash", {"command": "echo measured", "description": "Measure"})
    HELPER = ("task", {"description": "Help", "prompt": "Question helper.", "subagent_type": "general"})

    def run(self):
        self.version = json.loads((CLIENTS / "opencode/node_modules/opencode-ai/package.json").read_text())["version"]
        home = self.with_samples("opencode")
        model = Model(calls(self.TOOL, self.HELPER), reply)
        host = HOSTS["opencode"](home, model)
        # Copies of the repository after each step would take most of the time.
        config = host.files[0]
        config.write_text(config.read_text().replace('"autoupdate"', '"snapshot": false, "autoupdate"'))
        self.env = host.env
        # Only a database that opencode made itself is good enough for it: the samples are put into that.
        database = home.home / ".local/share/opencode/opencode.db"
        samples = database.rename(self.root / "samples.db")
        # Of what releases before the database left behind it does not speak; we do.
        shutil.rmtree(database.parent / "storage")
        server = OpencodeServer(home, self.env)
        server.ask("GET", "/session")
        self.add(samples, database)
        one = server.ask("POST", "/session")["id"]
        self.say(server, one, "Question one. Use the tool.")
        self.say(server, one, "Question two. Ask a helper.")
        forked = server.ask("POST", f"/session/{one}/fork")["id"]
        self.say(server, forked, "Question three.")
        server.ask("POST", f"/session/{one}/summarize", providerID="script", modelID="script")
        self.say(server, one, "Question four.")
        server.ask("PATCH", f"/session/{one}", title="Called so by me")
        server.ask("PATCH", f"/session/{forked}", time={"archived": 1})
        two = server.ask("POST", "/session")["id"]
        self.say(server, two, "Question five.")
        answer = self.say(server, two, "Question six.")
        server.ask("POST", f"/session/{two}/revert", messageID=answer["info"]["parentID"])
        server.close()
        model.close()
        ours, _ = self.compare(home)
        check({one, two, forked} < set(ours), f"made {one, two, forked}, listed {set(ours)}")
        self.check_forgotten(model, ours[one])
        check(ours[one].title == "Called so by me", f"{one} is called {ours[one].title!r}")
        check("Question six." not in str(ours[two].lines), f"what was taken back is shown: {ours[two].lines}")
        check(len(ours[one].children) == 1, f"the helper is not shown: {ours[one].lines}")

    def add(self, samples, database):
        with contextlib.closing(sqlite3.connect(database, timeout=PATIENCE_S)) as connection, connection:
            connection.execute("ATTACH ? AS samples", (str(samples),))
            for table in ("project", "session", "message", "part"):
                columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA samples.table_info({table})"))
                connection.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM samples.{table}")

    def say(self, server, session, words):
        return server.ask("POST", f"/session/{session}/message", parts=[{"type": "text", "text": words}])

    def theirs(self, home):
        server = OpencodeServer(home, self.env)
        listed = server.ask("GET", "/experimental/session?archived=true&limit=100")
        sessions, helpers, archived = {}, {}, set()
        for session in listed:
            lines = self.lines(server.ask("GET", f"/session/{session['id']}/message"), session.get("revert"))
            if parent := session.get("parentID"):
                helpers.setdefault(parent, {})[session["id"]] = lines
            else:
                sessions[session["id"]] = Session(session["title"], session["directory"], lines, {})
            archived |= {session["id"]} if session["time"].get("archived") else set()
        for parent, children in helpers.items():
            sessions[parent].children = {id: joined(lines) for id, lines in children.items()}
        server.close()
        return sessions, archived

    def lines(self, messages, revert):
        lines = []
        for message in messages:
            # It prints these as well, and says that they are reverted.
            if revert and message["info"]["id"] >= revert["messageID"]:
                break
            # The model's summary of what was compacted.
            if message["info"]["role"] == "assistant" and message["info"].get("summary"):
                continue
            for part in message["parts"]:
                if part["type"] == "text" and not part.get("synthetic"):
                    lines.append((message["info"]["role"], part["text"]))
                elif part["type"] == "tool":
                    lines.append(("call", part["tool"]))
        return lines


REFEREES = {referee.name: referee for referee in (Claude, Codex, Opencode)}


def judge(name, sess):
    started = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root:
        referee = REFEREES[name](sess, root)
        referee.run()
    took = time.monotonic() - started
    print(f"{name} {referee.version} agrees: {referee.sessions} sessions, {referee.messages} messages in {took:.0f} s")


def main():
    sess = os.path.realpath(sys.argv[1])
    side_by_side(sys.argv[2:] or list(REFEREES), lambda name: judge(name, sess))


if __name__ == "__main__":
    main()
