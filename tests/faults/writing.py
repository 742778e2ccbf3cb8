"""Sessions that grow while others look: each append is another process of the program."""

import asyncio
import pathlib
import subprocess

from lab import Broken
from material import Transcript
from sess import Sess


class Growing:
    """A session, and how many of its messages are stored."""

    def __init__(self, sess: Sess, transcript: Transcript, files: pathlib.Path):
        self.sess, self.transcript, self.files = sess, transcript, files
        self.length = 0

    async def to(self, length: int) -> None:
        """Appends up to `length` messages in another process."""
        path = self.transcript.write(self.files, length)
        process = await asyncio.to_thread(self.sess.start, "import", "--json", path, stdin=subprocess.DEVNULL,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        _, err = await asyncio.to_thread(process.communicate)
        self.sess.lab.ended(process)
        path.unlink()
        if process.returncode != 0:
            raise Broken(f"sess import failed without a fault: {err.decode(errors='replace')[-400:]}, "
                         f"in {self.sess.home}")
        self.length = length
