"""Eight writers in the real binary, whose acknowledgements are taken down as they come.

One `sess import` that works on several files at once, and a few `sess mcp` sessions
that write plan after plan. They run until they are killed or have nothing left.
"""

import json
import pathlib
import random
import subprocess
import threading

from ledger import Ledger
from material import Transcript, plan
from sess import Gone, Mcp, Sess

PLAN_WRITERS = 3


class Pool:
    """Files that wait to be imported, some of them longer versions of others."""

    def __init__(self, ledger: Ledger, rng: random.Random, directory: pathlib.Path, name: str, sessions: int):
        self.ledger = ledger
        self.files: dict[pathlib.Path, tuple[str, int]] = {}
        for number in range(sessions):
            length = rng.choice((1, 1, 2, 3, 5, 8, 40))
            transcript = Transcript(rng, f"{name}-{number}", length)
            parts = {length, rng.randrange(1, length + 1)} if number % 4 == 0 else {length}
            for part in sorted(parts):
                ledger.offer(transcript, part)
                self.files[transcript.write(directory, part)] = (transcript.session, part)

    def left(self) -> list[pathlib.Path]:
        """Returns the files that nobody acknowledged yet, shorter versions first."""
        acknowledged = self.ledger.acknowledged
        return [path for path, (session, part) in self.files.items() if acknowledged.get(session, 0) < part]


class Writers:
    def __init__(self, sess: Sess, ledger: Ledger, pool: Pool, rng: random.Random, plan_session: str):
        self.ledger = ledger
        self.lab = sess.lab
        self.threads = []
        self.importer = sess.start("import", "--json", *pool.left(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._begin(self._hear_imports)
        self.importer_err = b""
        self._begin(self._hear_trouble)
        self.planners = []
        for number in range(PLAN_WRITERS):
            session = f"{plan_session}-{number}"
            client = sess.mcp(session)
            self.planners.append(client)
            self._begin(self._write_plans, client, session, rng.randrange(1 << 30))

    def _begin(self, work, *arguments) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        thread.start()
        self.threads.append(thread)

    def _hear_imports(self) -> None:
        for line in self.importer.stdout:
            if line.endswith(b"\n"):
                told = json.loads(line)
                if told.get("id") is not None and "total" in told:
                    self.ledger.imported(told["id"], told["total"])

    def _hear_trouble(self) -> None:
        for line in self.importer.stderr:
            self.importer_err += line

    def _write_plans(self, client: Mcp, session: str, seed: int) -> None:
        rng = random.Random(seed)
        try:
            client.greet()
            while True:
                number = self.ledger.try_plan(session)
                size = rng.choice((60, 60, 900, 20_000, 150_000))
                answer = client.call("write_session_plan", {"content": plan(session, number, size)})
                if answer.is_error:
                    self.lab.found(f"write_session_plan failed without a fault: {answer.text}")
                    return
                self.ledger.planned(session, number, answer.structured["revision"])
        except Gone:
            return
        except Exception as error:  # A thread must not die in silence.
            self.lab.found(f"a plan writer got an answer it cannot read: {error!r}")

    def kill(self) -> None:
        """Kills everybody at once and waits until all that was said has been heard."""
        for process in (self.importer, *(client.process for client in self.planners)):
            process.kill()
        self.end()

    def end(self) -> None:
        for client in self.planners:
            if client.process.poll() is None:
                client.process.kill()
            client.process.wait()
        self.importer.wait()
        for thread in self.threads:
            thread.join()
        for client in self.planners:
            client.close()
        self.lab.ended(self.importer)
        if self.importer.returncode not in (0, -9):
            said = self.importer_err.decode(errors="replace")[-400:]
            self.lab.found(f"sess import failed without a fault, code {self.importer.returncode}: {said}")
