"""The room every attack happens in: scratch directories, processes, findings.

A suite gets a `Lab` and never touches anything outside it. Whatever was started
is stopped by its own process id when the run ends, however it ends.
"""

import os
import pathlib
import random
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace


class Broken(Exception):
    """A promise was not kept. The text says which, where and how."""


class Skipped(Exception):
    """This machine cannot run the attack. The text says what is missing."""


class Lab:
    def __init__(self, scratch: pathlib.Path, binary: pathlib.Path, injector: pathlib.Path,
                 figures: SimpleNamespace, seed: int):
        self.scratch = scratch
        self.binary = binary
        self.injector = injector
        self.figures = figures
        self.seed = seed
        self.findings: list[str] = []
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen] = set()
        self._homes = 0

    def rng(self, *names) -> random.Random:
        """Returns random numbers that depend on the seed and the names alone."""
        return random.Random(":".join(map(str, (self.seed, *names))))

    def new_dir(self, name: str) -> pathlib.Path:
        """Returns a fresh directory of our own, on the disk of the scratch directory."""
        with self._lock:
            self._homes += 1
            path = self.scratch / f"{name}-{self._homes}"
        path.mkdir(parents=True)
        return path

    def remove(self, path: pathlib.Path) -> None:
        """Removes what an attack that failed to break anything left behind."""
        shutil.rmtree(path, ignore_errors=True)

    def start(self, command: list, **options) -> subprocess.Popen:
        process = subprocess.Popen([str(part) for part in command], **options)
        with self._lock:
            self._running.add(process)
        return process

    def ended(self, process: subprocess.Popen) -> None:
        """Closes the pipes of a process that has ended."""
        with self._lock:
            self._running.discard(process)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                try:
                    pipe.close()
                except OSError:
                    pass  # What was not sent to a killed process stays unsent.

    def kill(self, process: subprocess.Popen) -> None:
        """Ends a process without giving it a chance to tidy up, and waits for its end."""
        if process.poll() is None:
            process.kill()
        process.wait()

    def stop_all(self) -> None:
        with self._lock:
            running = list(self._running)
        for process in running:
            self.kill(process)

    def found(self, text: str) -> None:
        """Notes a broken promise; the run goes on, to show how often it happens."""
        with self._lock:
            self.findings.append(text)

    def each(self, items, attack, workers: int | None = None) -> None:
        """Runs `attack(item)` for every item, a few at a time; what breaks is noted."""
        def guarded(item):
            try:
                attack(item)
            except Broken as broken:
                self.found(str(broken))

        items = list(items)
        # Most of the time is spent waiting for the disk: two for each processor.
        with ThreadPoolExecutor(workers or 2 * (os.cpu_count() or 2)) as pool:
            for outcome in [pool.submit(guarded, item) for item in items]:
                outcome.result()
