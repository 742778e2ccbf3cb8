"""P1: what was acknowledged survives a power cut.

The store lies on ext4 on a loop device whose backing file lies on XFS. A FICLONE of
that file is a picture of the disk at one instant, without what the kernel had yet to
write. Mounting the picture is what happens after the power is back: the journal is
replayed. What had been acknowledged before the picture was taken has to be on it.
"""

import fcntl
import os
import pathlib
import shutil
import subprocess
import time

from lab import Broken, Lab, Skipped
from ledger import Ledger, check_plan_file
from material import plan_number
from sess import Sess
from writers import PLAN_WRITERS, Pool, Writers

NAME = "power"
FICLONE = 0x40049409
PICTURES_A_RUN = 10


def run(lab: Lab) -> str:
    require()
    place = lab.new_dir("power")
    disks = mount_new(place / "xfs.img", place / "xfs", 3 << 30, ["mkfs.xfs", "-q", "-m", "reflink=1"], Skipped)
    cuts, acknowledged = 0, 0
    try:
        while cuts < lab.figures.cuts:
            count = min(PICTURES_A_RUN, lab.figures.cuts - cuts)
            try:
                acknowledged += attack(lab, disks, cuts, count)
            except Broken as broken:
                lab.found(str(broken))
            cuts += count
    finally:
        unmount(lab, disks)
    lab.remove(place)
    return f"P1 power cuts: {cuts} cuts, {acknowledged:,} acknowledged before a cut, {{lost}}"


def require() -> None:
    if os.geteuid() != 0:
        raise Skipped("power cuts need root")
    for program in ("mkfs.xfs", "mkfs.ext4", "mount", "umount"):
        if not shutil.which(program):
            raise Skipped(f"power cuts need {program}")
    if not os.path.exists("/dev/loop-control"):
        raise Skipped("power cuts need loop devices")


def command(*words, failure: type[Exception] = Broken) -> None:
    """Runs a command; only during set-up its failure may be `Skipped`."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise failure(f"power cuts: {' '.join(map(str, words))} failed: {done.stderr.strip()}")


def mount(image: pathlib.Path, point: pathlib.Path, failure: type[Exception] = Broken) -> None:
    point.mkdir()
    try:
        command("mount", "-o", "loop", image, point, failure=failure)
    except failure:
        point.rmdir()
        raise


def mount_new(image: pathlib.Path, point: pathlib.Path, size_bytes: int, mkfs: list[str],
              failure: type[Exception]) -> pathlib.Path:
    with open(image, "wb") as file:
        file.truncate(size_bytes)
    command(*mkfs, image, failure=failure)
    mount(image, point, failure)
    return point


def unmount(lab: Lab, point: pathlib.Path) -> None:
    """Notes a failure instead of raising it: that would hide what broke before."""
    try:
        command("umount", point)
    except Broken as broken:
        lab.found(str(broken))
        command("umount", "--lazy", point)
    point.rmdir()


def attack(lab: Lab, disks: pathlib.Path, first: int, count: int) -> int:
    """Writes, takes `count` pictures meanwhile, and looks at each of them."""
    rng = lab.rng(NAME, first)
    image = disks / "disk.img"
    # The first disk and the first picture show whether this machine can do it at all.
    disk = mount_new(image, disks / "disk", 256 << 20, ["mkfs.ext4", "-q"], Broken if first else Skipped)
    files = lab.new_dir("power-files")
    pictures = []
    try:
        ledger = Ledger()
        sess = Sess(lab, disk / "home")
        pool = Pool(ledger, rng, files, f"c{first}", 900)
        writers = Writers(sess, ledger, pool, rng, f"cut{first}")
        try:
            for number in range(count):
                time.sleep(0.005 + rng.random() * 0.12)
                frozen = ledger.frozen()
                picture = disks / f"picture-{number}.img"
                clone(image, picture, Broken if first or pictures else Skipped)
                pictures.append((picture, frozen))
                if writers.importer.poll() is not None and number + 1 < count:
                    writers.kill()
                    pool = Pool(ledger, rng, files, f"c{first}-{number}", 900)
                    writers = Writers(sess, ledger, pool, rng, f"cut{first}")
        finally:
            writers.kill()
        ledger.check(sess.home)
    finally:
        unmount(lab, disk)
    for picture, frozen in pictures:
        look(lab, picture, frozen, first)
        picture.unlink()
    image.unlink()
    lab.remove(files)
    return sum(frozen.count for _, frozen in pictures)


def clone(image: pathlib.Path, picture: pathlib.Path, failure: type[Exception]) -> None:
    with open(image, "rb") as source, open(picture, "wb") as target:
        try:
            fcntl.ioctl(target, FICLONE, source.fileno())
        except OSError as error:
            raise failure(f"power cuts: this file system makes no pictures: {error}") from None


def look(lab: Lab, picture: pathlib.Path, frozen: Ledger, first: int) -> None:
    """Mounts a picture, as after the power came back, and compares it with the ledger."""
    point = picture.with_suffix("")
    mount(picture, point)
    try:
        home = point / "home"
        sess = Sess(lab, home)
        # Before the program has a chance to mend anything: the answer promised the file, too.
        for session, acknowledged in frozen.plans_acknowledged.items():
            path = home / "session_plans" / f"{session}.md"
            number = plan_number(path.read_text(encoding="utf-8"), session) if acknowledged else 0
            if acknowledged and number < max(acknowledged):
                raise Broken(f"acknowledged and lost: the file of plan {max(acknowledged)} of {session}")
        frozen.check(home)
        if (home / "sess.db").exists():
            sess.must("doctor")
        for number in range(PLAN_WRITERS):
            check_plan_file(sess, frozen, f"cut{first}-{number}")
        frozen.check(home)
    except (OSError, ValueError) as error:
        raise Broken(f"after a power cut: {error!r}") from None
    finally:
        unmount(lab, point)
